"""``hushtable bench paper key``: what a key is on the wire, and what expanding it takes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hushtable import _native
from hushtable.cli.output import Json, command, print_json, print_table
from hushtable.errors import ConfigError

from ..measure.records import bench_record

#: Rows of a leaf by output group, and what stands around a key's levels (docs/key-format.md).
LEAF_ROWS = {"bits": 512, "z8": 64, "z32": 16}
_HEADER_BYTES, _ROOT_BYTES, _LEVEL_BYTES, _LEAF_BYTES = 8, 16, 16, 64
_ROWS_MAX = 1 << 32
#: Table III of Lam et al., "GPU-based Private Information Retrieval for On-Device Machine Learning
#: Inference": bytes uploaded, which are 64 for each level of a tree with leaves of one row.
PAPER_LEVEL_BYTES = 64
PAPER_ROWS = (1 << 14, 1 << 16, 1 << 20, 1 << 22)


@command(
    "hushtable bench paper key --rows 1048576", "hushtable bench paper key --rows 65536 --json"
)
def key(
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1 << 20,
    json: Json = False,
) -> None:
    """Count the bytes of a key of each output group, and the calls of the generator to expand it.

    Nothing is measured: both follow from the rows. With --json, one line a group. A pseudorandom
    call makes 128 bits, as one block of AES does.
    """
    if not 1 <= rows <= _ROWS_MAX:
        raise ConfigError(f"rows is {rows:,}, but must be 1 to {_ROWS_MAX:,}")
    records = [key_record(rows, group) for group in LEAF_ROWS]
    if json:
        for record in records:
            print_json(record)
        return
    lines = []
    for record in records:
        detail = record["detail"]
        lines.append(
            [
                record["params"]["group"],
                f"{record['value']:,}",
                f"{detail['depth']}",
                f"{detail['prf_calls']:,}",
                f"{detail['prf_calls_one_row_leaves']:,}",
            ]
        )
    heads = ["group", "bytes", "levels", "PRF calls", "PRF calls, leaves of one row"]
    print_table(heads, lines)
    paper = records[0]["detail"]["paper_upload_bytes"]
    print(f"{rows:,} rows; a key to one server" + (f"; the paper's: {paper:,} B" if paper else ""))


def key_record(rows: int, group: str) -> dict[str, Any]:
    """Bytes of a key over ``rows``, and what its expansion calls.

    Args:
        rows: of the table.
        group: ``bits``, ``z8`` or ``z32``.
    """
    leaves = -(-rows // LEAF_ROWS[group])
    depth = (leaves - 1).bit_length()
    key_bytes = _HEADER_BYTES + _ROOT_BYTES + _LEVEL_BYTES * depth + -(-depth // 8) + _LEAF_BYTES
    paper = PAPER_LEVEL_BYTES * (rows - 1).bit_length() if rows in PAPER_ROWS else None
    return bench_record(
        "key",
        {"rows": rows, "group": group},
        key_bytes,
        "bytes",
        None,
        None,
        1,
        _native.platforms().chosen,
        depth=depth,
        leaf_rows=LEAF_ROWS[group],
        # Two calls a node above the leaves; four a leaf of 64 bytes.
        prf_calls=2 * (leaves - 1) + 4 * leaves,
        prf_calls_one_row_leaves=2 * rows,
        paper_upload_bytes=paper,
    )
