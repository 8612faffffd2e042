"""``hushtable bench paper coded``: encrypted embedding lookups, before and now."""

from __future__ import annotations

import json as _json
import math
from typing import Annotated, Any

import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench

from .. import native
from ..measure.records import bench_record


@command(
    "hushtable bench paper coded",
    "hushtable bench paper coded --dim 768 --json",
    "hushtable bench paper coded --dim 50 --base 64 --left 21 --bootstraps --runs 1",
)
def coded(
    dim: Annotated[
        list[int] | None,
        typer.Option(help="Numbers of an embedding; may be given again. [50, 300, 768]"),
    ] = None,
    base: Annotated[int, typer.Option(help="Rows of a digit's table: 4, 8, 16, 32 or 64.")] = 4,
    digits: Annotated[int, typer.Option(help="Digits of an index.")] = 8,
    left: Annotated[
        int, typer.Option(help="Levels that the embedding has at the end, for what follows.", min=0)
    ] = 0,
    bootstraps: Annotated[
        bool,
        typer.Option(
            "--bootstraps",
            help="Measure CodedHELUT in a set that bootstraps too: minutes, gigabytes of keys.",
        ),
    ] = False,
    runs: Annotated[int, typer.Option(help="Lookups to measure, of each kind.")] = 3,
    json: Json = False,
) -> None:
    """Look a compressed embedding up under encryption: as one linear map, and as CodedHELUT does.

    The value is the linear map's time on a server, one thread; `ratio` is how much longer
    CodedHELUT takes, whose server turns encrypted tokens into one-hots and rotates for every
    number. Each has the smallest ring that carries its levels at 128 bits; `same_ring_ratio` is of
    the linear map in CodedHELUT's ring. Up to `leveled_until_base`, one chain carries CodedHELUT;
    in a set that bootstraps (`bootstrapped_...`), it bootstraps from `bootstraps_from_base` on.
    With --json, one line a size.
    """
    for size in dim or [50, 300, 768]:
        note(f"looking up {size} numbers both ways")
        found = _json.loads(
            native.coded_lookup(
                size,
                base=base,
                digits=digits,
                left=left,
                bootstraps=bootstraps,
                runs=runs,
            )
        )
        linear = found.pop("linear")
        ways = {name: found.pop(name) for name in ("coded", "bootstrapped")}
        record = bench_record(
            "coded",
            {"dim": size, "base": base, "digits": digits, "left": left},
            linear["ms"],
            "ms",
            None,
            None,
            1,
            _native.ring_kernel(),
            **{f"linear_{name}": value for name, value in _figures(linear).items()},
            **found,
            **_beside("", "coded_", ways["coded"], linear["ms"]),
            **_beside("bootstrapped_", "bootstrapped_", ways["bootstrapped"], linear["ms"]),
        )
        print_bench(record, json)


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    """One way's figures, but for the time."""
    figures = {name: value for name, value in found.items() if name not in ("ms", "linear")}
    error = figures["error"]
    return {**figures, "error_bits": -math.log2(error) if error else None}


def _beside(
    ratios: str, prefix: str, way: dict[str, Any] | None, linear_ms: float
) -> dict[str, Any]:
    """CodedHELUT in one set, beside the linear map in its own ring and in that set's.

    Of a way that was not taken, nothing.
    """
    if way is None:
        return {}
    same_ms = way["linear"]["ms"]
    return {
        f"{ratios}ratio": way["ms"] / linear_ms,
        f"{prefix}ms": way["ms"],
        f"{ratios}same_ring_ratio": way["ms"] / same_ms,
        f"{ratios}same_ring_ms": same_ms,
        **{f"{prefix}{name}": value for name, value in _figures(way).items()},
    }
