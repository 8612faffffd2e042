"""``hushtable bench gpu``: keys answered on a GPU, beside what the device could do at best."""

from __future__ import annotations

from typing import Annotated

import typer

from .._gpu import STRATEGIES, gpu_record, open_bench, probe
from .output import Json, examples, note, print_bench


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog=examples(
            "hushtable bench gpu --rows 1048576 --row-bytes 256 --batch 512",
            "hushtable bench gpu --batch 1 --group bits --json",
            "hushtable bench gpu --strategy fused:64 --prg salsa12",
        )
    )(gpu)


def gpu(
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1 << 20,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row.")] = 256,
    batch: Annotated[int, typer.Option(help="Keys answered at once.")] = 512,
    strategy: Annotated[
        str,
        typer.Option(help=f"{', '.join(STRATEGIES)}; K nodes of a key are expanded at a time."),
    ] = "auto",
    group: Annotated[str, typer.Option(help="Output group: bits, z8 or z32.")] = "z8",
    prg: Annotated[str, typer.Option(help="Generator: see `bench prg` for names.")] = "chacha20",
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
    """
    note(f"filling {rows:,} x {row_bytes} B")
    engine = open_bench(rows, row_bytes, device)
    note("checking, then measuring")
    engine.check(min(batch, 8), strategy=strategy, prg=prg, group=group)
    times = engine.answer_ms(batch, strategy=strategy, prg=prg, group=group, seconds=seconds)
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
        engine=engine.description,
    )
    print_bench(record, json)
