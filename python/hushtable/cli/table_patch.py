"""``hushtable table patch`` and ``table compact``: versions that cost what changes."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..errors import ConfigError
from ..table import Table
from .output import Json, command, print_facts, print_json

_Bundle = Annotated[Path, typer.Argument(help="The bundle's folder.", show_default=False)]


@command(
    "hushtable table patch bundles/items --rows changed.npz --out bundles/items-2",
    "hushtable table patch bundles/items --from rows.patch --out bundles/items-2",
)
def patch(
    bundle: _Bundle,
    out: Annotated[
        Path, typer.Option(help="The next version's folder; BUNDLE itself too.", show_default=False)
    ],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="An .npz file of two arrays: ids [n], and rows [n, dim] with their new values.",
            show_default=False,
        ),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="The rows.patch of a patched bundle, as another operator made it.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Change rows of a bundle, in time proportional to the change.

    The next version shares the bundle's files by links and has the changed rows beside them. A
    server that holds the bundle's version takes it without loading the table again.
    """
    started = time.perf_counter()
    table = Table.open(bundle)
    if (rows is None) == (from_ is None):
        raise ConfigError("say what changes: --rows FILE.npz, or --from FILE of another bundle")
    if rows is not None:
        found = table.patch(*_read(rows), out)
    elif from_ is not None:
        found = table.patch_from(from_, out)
    seconds = time.perf_counter() - started
    patch_bytes = (out / "rows.patch").stat().st_size
    facts: dict[str, Any] = {
        "path": str(out),
        "version": found.info.version,
        "before": table.info.version,
        "base_version": found.base_version,
        "changed_rows": found.changed_rows,
        "patch_bytes": patch_bytes,
    }
    if json:
        print_json({**facts, "seconds": round(seconds, 4)})
        return
    print_facts(
        {
            "bundle": str(out),
            "version": found.info.version,
            "before it": table.info.version,
            "changed rows": f"{found.changed_rows:,} of {found.info.rows:,}, over version "
            f"{found.base_version[:16]}",
            "patch": f"{patch_bytes:,} bytes, in {1e3 * seconds:.0f} ms",
        }
    )
    print(f"serve it: move it into a server's --watch folder, or hushtable table push {out}")


@command("hushtable table compact bundles/items-2 --out bundles/items-3")
def compact(
    bundle: _Bundle,
    out: Annotated[
        Path, typer.Option(help="The whole bundle's folder; BUNDLE itself too.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Write a patched bundle whole: of the same version, with no changes beside its rows."""
    started = time.perf_counter()
    table = Table.open(bundle)
    table.save(out)
    found = Table.open(out)
    seconds = time.perf_counter() - started
    if json:
        facts = {"path": str(out), "version": found.info.version, "seconds": round(seconds, 3)}
        print_json({**facts, "changed_rows_before": table.changed_rows})
        return
    print_facts(
        {
            "bundle": str(out),
            "version": found.info.version,
            "written": f"{table.changed_rows:,} changed rows among {found.info.rows:,}, in "
            f"{seconds:.1f} s",
        }
    )


def _read(file: Path) -> tuple[Any, Any]:
    """(ids, rows) of an .npz file."""
    expected = "an .npz file of two arrays: numpy.savez(FILE, ids=ids, rows=rows)"
    try:
        with file.open("rb") as stream:
            arrays = np.load(stream, allow_pickle=False)
            found = dict(arrays) if isinstance(arrays, np.lib.npyio.NpzFile) else {}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{file}: {error}; --rows takes {expected}") from error
    if missing := {"ids", "rows"} - found.keys():
        raise ConfigError(f"{file} has no {' and no '.join(sorted(missing))}: give {expected}")
    ids = found["ids"]
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ConfigError(f"{file}: ids must be [n] integers, not {list(ids.shape)} {ids.dtype}")
    return ids, found["rows"]
