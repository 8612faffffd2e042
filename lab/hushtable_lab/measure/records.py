"""What benchmarks print: the same fields for all."""

from __future__ import annotations

from typing import Any


def bench_record(
    bench: str,
    params: dict[str, Any],
    value: float,
    unit: str,
    floor: float | None,
    of_floor: float | None,
    threads: int,
    isa: str,
    **detail: Any,
) -> dict[str, Any]:
    """What every benchmark prints with ``--json``."""
    return {
        "bench": bench,
        "params": params,
        "value": value,
        "unit": unit,
        "floor": floor,
        "of_floor": of_floor,
        "threads": threads,
        "isa": isa,
        "detail": detail,
    }
