"""What a query asks of the hardware: records, trees of ciphertexts, matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, sqrt

from hushtable.errors import ConfigError

from . import fitted

__all__ = ["KsPir", "Retrieval", "SimplePir", "Workload"]

#: Bytes of a packed residue of 28 bits.
RESIDUE_BYTES = 3.5


@dataclass(frozen=True)
class Retrieval:
    """OnionPIR-like retrieval: ExpandQuery, RowSel, ColTor (Table I of the paper).

    Attributes:
        table_bytes: of the raw records; GB are 2^30 bytes in the paper.
        batch: queries answered together.
        first_dimension: D0, records that the first dimension chooses among.
        degree: N of the ring.
        primes: residues a coefficient.
        plain_bits: of a plaintext coefficient.
        expand_digits: l of the substitutions' keys.
        tournament_digits: l of the selection bits.
        pcie_bytes: what a query brings over PCIe: query, keys of its client, and its answer.
        rotations: substitutions before the rest, in place of an expansion; 0 to expand.
    """

    table_bytes: int
    batch: int = 64
    first_dimension: int = 256
    degree: int = 4096
    primes: int = 4
    plain_bits: int = 32
    expand_digits: int = fitted.EXPAND_DIGITS
    tournament_digits: int = fitted.TOURNAMENT_DIGITS
    pcie_bytes: int = fitted.PCIE_BYTES
    rotations: int = 0

    def __post_init__(self) -> None:
        for name in (
            "table_bytes",
            "batch",
            "first_dimension",
            "degree",
            "primes",
            "plain_bits",
            "expand_digits",
            "tournament_digits",
        ):
            found = getattr(self, name)
            if isinstance(found, bool) or not isinstance(found, int) or found < 1:
                raise ConfigError(
                    f"{name} is {found!r}; expected a whole number above 0. Give one."
                )
        for name in ("degree", "first_dimension"):
            found = getattr(self, name)
            if found & (found - 1):
                raise ConfigError(f"{name} is {found}; expected a power of two, such as 256.")
        if self.rotations < 0 or self.pcie_bytes < 0:
            raise ConfigError("rotations and pcie_bytes must be at least 0. Leave them out.")

    @cached_property
    def record_bytes(self) -> int:
        """Of a record, which fills a plaintext polynomial."""
        return self.degree * self.plain_bits // 8

    @cached_property
    def records(self) -> int:
        """D, rounded up to whole rows."""
        return self.columns * self.first_dimension

    @cached_property
    def columns(self) -> int:
        """D / D0: ciphertexts that RowSel leaves to each query."""
        return max(1, ceil(self.table_bytes / self.record_bytes / self.first_dimension))

    @cached_property
    def depth(self) -> int:
        """d: rounds of the tournament."""
        return ceil(log2(self.columns))

    @cached_property
    def poly_bytes(self) -> int:
        """Of a polynomial mod Q."""
        return int(self.degree * self.primes * RESIDUE_BYTES)

    @cached_property
    def ct_bytes(self) -> int:
        """Of a ciphertext: two polynomials."""
        return 2 * self.poly_bytes

    @cached_property
    def evk_bytes(self) -> int:
        """Of one level's key of the expansion: 2 x l polynomials."""
        return 2 * self.expand_digits * self.poly_bytes

    @cached_property
    def rgsw_bytes(self) -> int:
        """Of one round's selection bit: 2 x 2 l polynomials."""
        return 4 * self.tournament_digits * self.poly_bytes

    @cached_property
    def prepared_bytes(self) -> int:
        """Of the table in the form that RowSel reads."""
        return self.records * self.poly_bytes

    @cached_property
    def selection_leaves(self) -> int:
        """Ciphertexts of the expansion that become selection bits: l each."""
        return self.depth * self.tournament_digits

    @cached_property
    def substitutions(self) -> int:
        """Of a query's expansion."""
        if self.rotations:
            return self.rotations
        selection = self.selection_leaves
        levels = range(ceil(log2(selection))) if selection > 1 else range(0)
        split = 1 if selection else 0
        return split + self.first_dimension - 1 + sum(min(1 << one, selection) for one in levels)

    @cached_property
    def row_macs(self) -> int:
        """Modular multiply-adds of a query's RowSel."""
        return self.records * 2 * self.primes * self.degree

    @property
    def split_depth(self) -> int:
        """Length of the sums that the arrays accumulate in place; 0 for whole sums."""
        return 0

    @cached_property
    def queries_bytes(self) -> int:
        """HBM that one query of the batch takes: its expansion, keys, and RowSel's output."""
        keys = int(log2(self.first_dimension)) * self.evk_bytes + self.depth * self.rgsw_bytes
        return keys + (self.first_dimension + self.columns) * self.ct_bytes


@dataclass(frozen=True)
class SimplePir:
    """SimplePIR: one matrix of bytes by a vector for each query, no rings.

    Attributes:
        table_bytes: one byte an entry.
        batch: queries answered together.
    """

    table_bytes: int
    batch: int = 64

    @cached_property
    def side(self) -> int:
        """Of the square matrix."""
        return ceil(sqrt(self.table_bytes))

    @cached_property
    def row_macs(self) -> int:
        """Of one query."""
        return self.table_bytes

    @property
    def prepared_bytes(self) -> int:
        """The entries, a byte each."""
        return self.table_bytes

    @property
    def pcie_bytes(self) -> int:
        """A residue for each column in, one for each row out."""
        return int(2 * self.side * RESIDUE_BYTES)

    @property
    def queries_bytes(self) -> int:
        """Query and answer of one."""
        return self.pcie_bytes

    @property
    def split_depth(self) -> int:
        """Sums over a whole row are longer than the arrays keep queries for."""
        return fitted.SPLIT_DEPTH


def KsPir(table_bytes: int, batch: int = 64) -> Retrieval:
    """KsPIR: rotations of the query for its expansion, and coefficients of 16 bits."""
    return Retrieval(
        table_bytes,
        batch,
        plain_bits=fitted.KSPIR_PLAIN_BITS,
        rotations=fitted.KSPIR_ROTATIONS,
        pcie_bytes=fitted.KSPIR_PCIE_BYTES,
    )


Workload = Retrieval | SimplePir
