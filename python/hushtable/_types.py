"""Facts about tables and lookups, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What a table is, as its manifest or its two servers say.

    Attributes:
        name: the table's name.
        rows: rows; ids run from 0 to ``rows - 1``.
        dim: values in a row.
        dtype: how a value is stored and served: ``f32``, ``f16``, ``bf16`` or ``int8``.
        row_bytes: bytes of a row as served.
        version: BLAKE3 of the content, in hex: the two servers must agree on it.
    """

    name: str
    rows: int
    dim: int
    dtype: str
    row_bytes: int
    version: str

    @property
    def table_bytes(self) -> int:
        """Bytes of all rows as served."""
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class LookupStats:
    """What one lookup cost.

    Attributes:
        ids: ids asked for.
        keys: keys sent to each server: what the servers saw.
        bytes_up: payload bytes sent, to both servers together.
        bytes_down: payload bytes received, from both servers together.
        seconds: from the call to the rows.
        queue_seconds: the longer of the two servers' waits for a batch.
        answer_seconds: the longer of the two servers' passes over the table.
        retries: times that a request was sent again to a busy server.
    """

    ids: int
    keys: int
    bytes_up: int
    bytes_down: int
    seconds: float
    queue_seconds: float
    answer_seconds: float
    retries: int


@dataclass(frozen=True, slots=True)
class Damage:
    """One place where a bundle is not what was built.

    Attributes:
        file: file inside the bundle.
        row: the damaged row, or None where the damage is not in a row.
        what: what is wrong, in words.
    """

    file: str
    row: int | None
    what: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What :func:`hushtable.verify_table` found.

    Attributes:
        rows: rows checked.
        ok: True where every byte is as built.
        damage_count: damaged places in all.
        damaged: the first of them.
    """

    rows: int
    ok: bool
    damage_count: int
    damaged: tuple[Damage, ...]
