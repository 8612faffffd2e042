"""``hushtable table``: build, describe and check bundles."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from .. import _native
from ..errors import PreparedError
from ..table import (
    PARAMETERS,
    Table,
    build_table,
    prepared_path,
    verify_prepared,
    verify_table,
)
from ._workers import RayAddress, RayInsecure, Workers, given_workers
from .output import (
    DTYPES,
    Json,
    command,
    describe_layout,
    fail,
    print_facts,
    print_json,
    print_table,
    progress_bar,
)

Bundle = Annotated[Path, typer.Argument(help="The bundle's folder.", show_default=False)]


@command(
    "mkdir -p bundles && hushtable table build items.npy bundles/items",
    "hushtable table build model.safetensors bundles/items --key item_embedding.weight",
    "hushtable table build model.pt bundles/items --dtype f16 --name items",
    "hushtable table build items.npy bundles/items --quantize int4",
)
def build(
    source: Annotated[
        Path,
        typer.Argument(
            help="A .safetensors, .npy, .npz, .pt, .pth, .bin or .ckpt (torch state dict) file.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The folder to make.", show_default=False)],
    key: Annotated[
        str | None, typer.Option(help="Which tensor; not needed where only one fits.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", "--quantize", help=f"{DTYPES}; the source's own by default."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The table's name; the source's file name by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Build a bundle from a file; an old bundle stands until the new one is whole."""
    started = time.perf_counter()
    with progress_bar("building", shown=not json) as progress, _killable():
        build_table(source, out, name=name, key=key, dtype=dtype, progress=progress)
    seconds = time.perf_counter() - started
    if json:
        print_json({**_facts(out), "seconds": round(seconds, 3)})
    else:
        print_facts({**_facts(out), "built in": f"{seconds:.1f} s"})
        print(f"serve it: hushtable serve {out} --side left")


@contextlib.contextmanager
def _killable() -> Iterator[None]:
    """Within, Ctrl-C ends the process at once: what a build leaves behind, the next one removes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@command("hushtable table info bundles/items", "hushtable table info bundles/items --json")
def info(bundle: Bundle, json: Json = False) -> None:
    """Print a bundle's name, shape and version, and its layout's costs if it has one."""
    facts, layout = _facts(bundle), Table.open(bundle).layout
    if json:
        print_json({**facts, "layout": None if layout is None else dataclasses.asdict(layout)})
        return
    print_facts({**facts, "layout": "none" if layout is None else layout.version})
    if layout is not None:
        print_table(
            ["part", "rows", "bins", "queries", "hashes", "companions"],
            [
                [part.name, *(f"{number:,}" for number in dataclasses.astuple(part)[1:])]
                for part in layout.parts
            ],
        )
        print(f"layout {describe_layout(layout)}")


@command(
    "hushtable table verify bundles/items",
    "hushtable table verify bundles/items --prepared /fast/items.prepared --json",
)
def verify(
    bundle: Bundle,
    prepared: Annotated[
        Path | None,
        typer.Option(
            help="A prepared file to check too. Default: those beside the bundle, "
            "BUNDLE.onion-PARAMETERS.prepared.",
            show_default=False,
        ),
    ] = None,
    parameters: Annotated[
        str, typer.Option(help="Parameter set of the --prepared file: n4096_128 or ive_paper.")
    ] = PARAMETERS,
    json: Json = False,
) -> None:
    """Read every byte of a bundle, and of its prepared files; exits with 1 if one is not as it was
    built."""
    with progress_bar("verifying", shown=not json) as progress:
        report = verify_table(bundle, progress=progress)
    table = Table.open(bundle)
    places = {name: prepared_path(bundle, name) for name in _native.parameter_sets()}
    files = [(path, name) for name, path in places.items() if path.exists()]
    if prepared is not None:
        files = [(prepared, parameters)]
    defects = {path: _defect(table, path, name) for path, name in files}
    if json:
        facts = [{"path": str(path), "defect": defect} for path, defect in defects.items()]
        print_json({**dataclasses.asdict(report), "prepared": facts})
    else:
        if report.ok:
            print(f"ok: {report.rows:,} rows are as they were built")
        for damage in report.damaged:
            print(damage.what)
        more = report.damage_count - len(report.damaged)
        if more:
            print(f"and {more:,} more")
        if not report.ok:
            print(f"damaged: build {bundle} again, or restore it from a copy")
        for path, defect in defects.items():
            print(defect or f"ok: {path} is as it was prepared")
    if not report.ok or any(defects.values()):
        raise typer.Exit(1)


def _defect(table: Table, path: Path, parameters: str) -> str | None:
    """What is wrong with a prepared file."""
    try:
        verify_prepared(table, path, parameters=parameters)
    except PreparedError as error:
        return str(error)
    return None


@command(
    "hushtable table prepare bundles/items",
    "hushtable table prepare bundles/items --out /fast/items.prepared --threads 4 --json",
    "hushtable table prepare /shared/items --ray auto",
)
def prepare(
    bundle: Bundle,
    parameters: Annotated[
        str, typer.Option(help="Parameter set: n4096_128 or ive_paper.")
    ] = PARAMETERS,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to make. Default: beside the bundle, BUNDLE.onion-PARAMETERS.prepared.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            help="Threads; 0 for one a core. With --workers or --ray: of each task, 1 by default."
        ),
    ] = 0,
    workers: Workers = None,
    ray: RayAddress = None,
    insecure: RayInsecure = False,
    json: Json = False,
) -> None:
    """Make the file that a single server answers from: three to four times the table's bytes.

    Interrupted, it goes on where it ended. A file that fits the table is left as it is. With
    --workers or --ray a large table is cut into ranges that are prepared side by side; on several
    machines the bundle and the file are on a disk that they share.
    """
    from ..scale.preparing import prepare_table

    table = Table.open(bundle)
    place = out or prepared_path(bundle, parameters)
    try:
        with (
            given_workers(workers, ray, insecure=insecure) as pool,
            progress_bar("preparing", shown=not json, of_bytes=True) as progress,
        ):
            made = prepare_table(
                bundle,
                place,
                parameters=parameters,
                threads=threads,
                pool=pool,
                progress=progress,
            )
    except KeyboardInterrupt:
        fail(
            f"stopped before {place} was whole; what is done is kept",
            "the same command goes on from there; to start anew, remove "
            f"{place.name}.partial and {place.name}.journal",
            "Interrupted",
            130,
            json,
        )
    if json:
        print_json(
            {
                **dataclasses.asdict(made),
                "path": str(made.path),
                "table_version": table.info.version,
                "table_bytes": table.info.table_bytes,
                "seconds": round(made.seconds, 3),
            }
        )
        return
    ratio = made.prepared_bytes / table.info.table_bytes
    how = "was there already" if made.reused else f"made in {made.seconds:.1f} s"
    if made.resumed_units:
        how += f", {made.resumed_units} of {made.units} parts by an earlier run"
    print_facts(
        {
            "prepared file": f"{made.path} ({how})",
            "bytes": f"{made.prepared_bytes:,} ({ratio:.2f} a table byte)",
            "for": f"{table.info.name!r} version {table.info.version[:16]}, {made.parameters}",
        }
    )
    print(f"serve it: hushtable serve {bundle} --scheme onion")


def _facts(bundle: Path) -> dict[str, object]:
    table = Table.open(bundle)
    patch = {"changed_rows": table.changed_rows, "base_version": table.base_version}
    return {
        **dataclasses.asdict(table.info),
        "table_bytes": table.info.table_bytes,
        "created_from": table.created_from,
        "nonfinite_count": table.nonfinite_count,
        "path": str(bundle),
        **(patch if table.changed_rows else {}),
    }
