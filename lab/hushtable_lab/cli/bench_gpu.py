"""``hushtable bench gpu``: keys answered on a GPU, beside what the device could do at best."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from hushtable import _native
from hushtable._machine import gpu_report
from hushtable._types import LayoutInfo
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.errors import ConfigError, NoLayout
from hushtable.table import Table

from ..measure.gpu import (
    LEAVES,
    STEPS,
    STRATEGIES,
    bins_record,
    gpu_record,
    open_bench,
    open_bins,
    probe,
)
from ..measure.layout import random_layout


@command(
    "hushtable bench gpu --rows 1048576 --row-bytes 256 --batch 512",
    "hushtable bench gpu --batch 1 --group bits --json",
    "hushtable bench gpu --strategy fused:64 --prg salsa12",
    "hushtable bench gpu --leaf row --strategy hybrid:128 --group z32 --prg salsa12",
    'hushtable bench gpu --row-bytes 64 --layout \'{"full": {"bins": 128}}\' --batch 64',
)
def gpu(
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1 << 20,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row.")] = 256,
    batch: Annotated[int, typer.Option(help="Keys, or whole inferences, answered at once.")] = 512,
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(STRATEGIES)}; K nodes of a key are expanded at a time. auto by "
            "default."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Output group: bits, z8 or z32. z8 by default.")
    ] = None,
    leaf: Annotated[
        str | None,
        typer.Option(
            help=f"{' or '.join(LEAVES)}: answer by the paper's steps ({', '.join(STEPS)}), each "
            "one change from the one before, with a leaf for each row (group z32) or the group's."
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="With --leaf: answer a batch that does not fit the device in smaller ones.",
        ),
    ] = False,
    layout: Annotated[
        str | None,
        typer.Option(help="Whole inferences: the parts of a random table's layout, as JSON."),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(help="Whole inferences: by the layout of this table.")
    ] = None,
    prg: Annotated[
        str, typer.Option(help="Generator: see `bench paper prg` for names.")
    ] = "chacha20",
    device: Annotated[int, typer.Option(help="The GPU's number, from 0 on.")] = 0,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 2.0,
    json: Json = False,
) -> None:
    """Answer keys from a random table on a GPU: queries a second of one server's engine.

    Before the clock starts, some answers are compared with the rows, and with the processor's. The
    time is the device's own, between events, from the first copy of keys until the last answers are
    in its memory: the median of repeats. The detail has that of the whole call too.
    The floor is the largest of three, by rates that the device measures itself: reading the table
    once, multiplying it with every key's shares, and expanding every key.

    With --layout or --bundle the answers are to whole inferences, of the server of the two that
    takes longer, and the table read is the layout's bins.
    """
    if layout is not None or bundle is not None:
        if strategy is not None or group is not None or leaf is not None or stream:
            raise ConfigError(
                "--strategy, --group, --leaf and --stream are of single keys: leave them out with "
                "--layout and --bundle"
            )
        if layout is not None and bundle is not None:
            raise ConfigError("--layout and --bundle are two layouts: give one of them")
        print_bench(_bins(rows, row_bytes, layout, bundle, batch, prg, device, seconds), json)
        return
    if leaf is None and stream:
        raise ConfigError("--stream is for the paper's steps: give --leaf row or --leaf wide")
    group = group or ("z32" if leaf == "row" else "z8")
    strategy = strategy or ("auto" if leaf is None else "fused:128")
    note(f"filling {rows:,} x {row_bytes} B")
    engine = open_bench(rows, row_bytes, device)
    note("checking, then measuring")
    how: dict[str, Any] = {"strategy": strategy, "prg": prg, "group": group}
    needs = {}
    if leaf is not None:
        how |= {"leaf": leaf, "streams": stream}
        node_bytes, share_bytes = engine.step_bytes(
            batch, strategy=strategy, prg=prg, group=group, leaf=leaf
        )
        needs = {"node_bytes": node_bytes, "share_bytes": share_bytes}
        note(f"{strategy}: {node_bytes:,} bytes of nodes and {share_bytes:,} of shares")
    engine.check(min(batch, 8), **how)
    times = engine.answer_ms(batch, seconds=seconds, **how)
    note("measuring the floor")
    record = gpu_record(
        "gpu",
        engine.facts,
        probe(device),
        times,
        rows=rows,
        row_bytes=row_bytes,
        batch=batch,
        strategy=strategy,
        group=group,
        prg=prg,
        leaf=leaf,
        engine=engine.description,
        **needs,
    )
    print_bench(record, json)


def _bins(
    rows: int,
    row_bytes: int,
    parts: str | None,
    bundle: Path | None,
    batch: int,
    prg: str,
    device: int,
    seconds: float,
) -> dict[str, Any]:
    """The record of whole inferences."""
    report = gpu_report()
    if not report["available"]:  # before a table is made for nobody
        raise ConfigError(f"no GPU can be used: {report['reason']}")
    if bundle is not None:
        table, found = Table.open(bundle).info, _native.Layout.of_bundle(bundle)
        if found is None:
            raise NoLayout(f"{bundle} has no layout: make one with `hushtable tune --apply`")
        native, rows, row_bytes = found, table.rows, table.row_bytes
    else:
        note(f"building {rows:,} x {row_bytes} B")
        _, native = random_layout(rows, row_bytes, parts or "{}")
    info = LayoutInfo.of_facts(native.facts())
    engine = open_bins(native, device)
    note("checking, then measuring")
    engine.check(min(batch, 8), prg=prg)
    times = engine.answer_ms(batch, prg=prg, seconds=seconds)
    note("measuring the floor")
    return bins_record(
        "gpu-bins",
        engine.facts,
        probe(device),
        times,
        work=engine.work,
        rows=rows,
        row_bytes=row_bytes,
        layout=[dataclasses.asdict(part) for part in info.parts],
        batch=batch,
        prg=prg,
        comm_bytes=info.comm_bytes,
        engine=engine.description,
    )
