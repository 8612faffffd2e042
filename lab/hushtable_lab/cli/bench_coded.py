"""``hushtable bench paper coded``: encrypted embedding lookups, before and now."""

from __future__ import annotations

import json as _json
from typing import Annotated

import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench

from .. import native
from ..measure.records import bench_record


@command("hushtable bench paper coded", "hushtable bench paper coded --dim 768 --json")
def coded(
    dim: Annotated[
        list[int] | None,
        typer.Option(help="Numbers of an embedding; may be given again. [50, 300, 768]"),
    ] = None,
    base: Annotated[int, typer.Option(help="Rows of a digit's table: 4, 8, 16, 32 or 64.")] = 4,
    digits: Annotated[int, typer.Option(help="Digits of an index.")] = 8,
    runs: Annotated[int, typer.Option(help="Lookups to measure, of each kind.")] = 3,
    json: Json = False,
) -> None:
    """Look a compressed embedding up under encryption: as one linear map, and as CodedHELUT does.

    The value is the linear map's time on a server, one thread; `ratio` is how much longer
    CodedHELUT takes, whose server turns encrypted tokens into one-hots and rotates for every
    number. Each has the smallest ring that carries its levels at 128 bits; `same_ring_ratio` is of
    the linear map in CodedHELUT's ring. With --json, one line a size.
    """
    for size in dim or [50, 300, 768]:
        note(f"looking up {size} numbers both ways")
        found = _json.loads(native.coded_lookup(size, base=base, digits=digits, runs=runs))
        linear, before, same = found["linear"], found["coded"], found["same_ring"]
        record = bench_record(
            "coded",
            {"dim": size, "base": base, "digits": digits},
            linear["ms"],
            "ms",
            None,
            None,
            1,
            _native.ring_kernel(),
            ratio=before["ms"] / linear["ms"],
            coded_ms=before["ms"],
            same_ring_ratio=before["ms"] / same["ms"],
            same_ring_ms=same["ms"],
            **{f"linear_{name}": value for name, value in linear.items() if name != "ms"},
            **{f"coded_{name}": value for name, value in before.items() if name != "ms"},
        )
        print_bench(record, json)
