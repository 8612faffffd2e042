"""How large tables are when large ones are kept as digits, and what that costs in ciphertexts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigError

__all__ = ["Compression", "compression", "digit_count", "kept_rows"]

#: A parameter of a table, as training and serving keep it.
_VALUE_BYTES = 4


def digit_count(rows: int, base: int) -> int:
    """How many digits in ``base`` it takes to write every row number of a table of ``rows`` rows.

    Raises:
        ConfigError: no rows, or a base below 2.
    """
    if rows < 1 or base < 2:
        raise ConfigError(f"{rows} rows in base {base}: at least 1 row and base 2 are needed")
    digits, reach = 1, base
    while reach < rows:
        digits, reach = digits + 1, reach * base
    return digits


def kept_rows(rows: int, *, threshold: int, base: int = 4) -> int:
    """Rows that a table of ``rows`` rows keeps: ``base`` a digit where it is over the threshold."""
    digits = digit_count(rows, base)
    return rows if rows <= threshold else base * digits


@dataclass(frozen=True, slots=True)
class Compression:
    """What tables of digits save over the whole tables.

    Attributes:
        threshold: tables of more rows than this are kept as digits.
        base: of the digits.
        rows: of all tables before.
        kept: of each table after; a query one-hot encodes so many slots.
        dim: values a row.
    """

    threshold: int
    base: int
    rows: int
    kept: tuple[int, ...]
    dim: int

    @property
    def slots(self) -> int:
        """Slots that one user's one-hot encoded indices take, all tables together."""
        return sum(self.kept)

    @property
    def ratio(self) -> float:
        """Rows before over rows after."""
        return self.rows / self.slots

    @property
    def parameters(self) -> int:
        """Values that the kept rows hold."""
        return self.slots * self.dim

    @property
    def table_bytes(self) -> int:
        """The kept rows as float32."""
        return self.parameters * _VALUE_BYTES

    @property
    def whole_bytes(self) -> int:
        """The tables before, as float32."""
        return self.rows * self.dim * _VALUE_BYTES

    def ciphertexts(self, slots: int) -> int:
        """Ciphertexts of ``slots`` slots that hold one user's one-hot encoded indices.

        Raises:
            ConfigError: ``slots`` is below 1.
        """
        if slots < 1:
            raise ConfigError(f"a ciphertext of {slots} slots: it has at least 1")
        return math.ceil(self.slots / slots)


def compression(
    rows: Sequence[int], threshold: int, base: int = 4, *, dim: int = 16
) -> Compression:
    """What is left of tables of ``rows`` rows when those over ``threshold`` are kept as digits.

    Args:
        rows: of each table.
        threshold: the largest table that is kept as it is.
        base: of the digits.
        dim: values a row.

    Raises:
        ConfigError: no table, a table without rows, a base below 2, a threshold or dim below 1.

    Example:
        >>> from hushtable.data import CRITEO_KAGGLE_ROWS
        >>> found = compression(CRITEO_KAGGLE_ROWS, threshold=500)
        >>> found.slots, round(found.ratio), found.ciphertexts(32_768)
        (1083, 31175, 1)
    """
    if not rows:
        raise ConfigError("no tables: give the rows of at least one")
    if threshold < 1 or dim < 1:
        raise ConfigError(f"threshold {threshold} and dim {dim}: both are at least 1")
    kept = tuple(kept_rows(count, threshold=threshold, base=base) for count in rows)
    return Compression(threshold=threshold, base=base, rows=sum(rows), kept=kept, dim=dim)
