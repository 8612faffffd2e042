"""A layout of a random table, for benchmarks: needs numpy alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from hushtable import _native
from hushtable.errors import ConfigError
from hushtable.table import Table

#: Parts of a layout; rows of the full part are the table's where they are left out, and a bin has
#: one query.
DEFAULT_LAYOUT = (
    '{"hot": {"rows": 2048, "bins": 64, "queries": 1}, "full": {"bins": 128, "queries": 1}}'
)


def random_layout(
    rows: int, row_bytes: int, parts: str | dict[str, Any]
) -> tuple[_native.Table, _native.Layout]:
    """A table of random f32 rows and the layout of ``parts`` (JSON, or what it says) for it.

    Which rows are hot does not matter to an engine: its work is the same.

    Raises:
        ConfigError: for parts that are no JSON object, or rows that are no f32.
    """
    if row_bytes % 4 or row_bytes < 4:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be a multiple of 4: rows are f32")
    try:
        document = json.loads(parts) if isinstance(parts, str) else parts
        spec = {
            name: dict(part) if isinstance(part, dict) else part for name, part in document.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"--layout is no JSON of parts: {error}") from error
    for name in ("hot", "full"):
        if isinstance(spec.get(name), dict):
            spec[name].setdefault("queries", 1)
    if isinstance(spec.get("full"), dict):
        spec["full"].setdefault("rows", rows)
    whole = {"hot": None, "full": None, "ids_max": 1024, "seed": "00" * 32, **spec}
    weight = np.random.default_rng(1).standard_normal((rows, row_bytes // 4), np.float32)
    table = Table.from_weight(weight, name="bench")._native
    trace = np.arange(min(rows, 1024), dtype=np.uint32)
    offsets = np.array([0, trace.size], dtype=np.uint64)
    return table, _native.Profile(trace, offsets, rows).design(table, json.dumps(whole))
