"""How long `hushtable bench onion` takes: the engine's own steps, counted, on a `Processor`.

Nothing here is measured on a retrieval. What is counted follows `hushtable-pir`'s engine: the
transforms and other operations of each split, leaf and game; the instructions of RowSel's tiles;
and the bytes that a cache of the processor's size does not keep, which a ledger counts by playing
the schedules' trees over it. Operations, instructions and bytes then take what they take on the
machine.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hushtable import _native
from hushtable.errors import ConfigError

from .fitted import PROCESSOR_OVERHEAD
from .processor import Processor

__all__ = ["Pass", "Table", "predict"]

#: Columns that are answered together, and lie side by side for each row.
_BLOCK_COLUMNS, _GROUP_COLUMNS = 64, 4
#: Coefficients of a vector.
_LANES = 8
#: Vector instructions that reduce one sum of products, beside its multiplications.
_REDUCE_INSTRUCTIONS = 27
#: Of columns' tournament: levels of a subtree that is played depth-first.
_SUBTREE_LEVELS = 4
_PREPARED_BITS = 52


@dataclass(frozen=True, slots=True)
class Table:
    """A prepared table, as the engine lays it out by default.

    Attributes:
        bytes: of the table itself.
        parameters: the parameter set.
        degree: N.
        modulus_bits: of each prime.
        limbs: primes while a query is expanded.
        answer_limbs: primes afterwards.
        key_digits: of a key switch.
        selector_digits: of each half of an external product.
        levels: of ExpandQuery's tree.
        rows: D0.
        columns: of the matrix.
        games: selectors: rounds of ColTor.
        chunks: plaintexts of a row.
        resident_bytes: of the prepared table, read once a pass.
        vectors: eight numbers each, that RowSel multiplies for each query.
        residue_bytes: of a number in memory, the prepared table's apart.
    """

    bytes: int
    parameters: str
    degree: int
    modulus_bits: int
    limbs: int
    answer_limbs: int
    key_digits: int
    selector_digits: int
    levels: int
    rows: int
    columns: int
    games: int
    chunks: int
    resident_bytes: int
    vectors: int
    residue_bytes: int = 8

    @staticmethod
    def of(table_mib: float, row_bytes: int = 256, parameters: str = "n4096_128") -> Table:
        """What ``bench onion`` makes of a table of so many MiB.

        Raises:
            ConfigError: for a table that no geometry of the parameters holds.
        """
        rows = int(table_mib * 2**20) // row_bytes
        return Table.of_facts(
            rows * row_bytes,
            parameters,
            _native.onion_geometry(rows, row_bytes, parameters=parameters, levels=None),
        )

    @staticmethod
    def of_facts(bytes_: int, parameters: str, facts: Mapping[str, Any]) -> Table:
        """From what `native.OnionBench.facts` says."""
        return Table(
            bytes_,
            parameters,
            facts["degree"],
            facts["modulus_bits"],
            facts["limbs"],
            facts["answer_limbs"],
            facts["key_switch_digits"],
            facts["selector_digits"],
            facts["levels"],
            facts["matrix_rows"],
            facts["matrix_columns"],
            facts["games"],
            facts["chunks"],
            facts["resident_bytes"],
            facts["vectors"],
        )

    @property
    def leaves(self) -> int:
        """Leaves of the expansion that are used."""
        return self.rows + self.games * self.selector_digits

    @property
    def poly_bytes(self) -> int:
        """Bytes of a polynomial modulo one prime, in memory."""
        return self.residue_bytes * self.degree

    @property
    def answer_bytes(self) -> int:
        """Bytes of a ciphertext once primes were dropped."""
        return 2 * self.answer_limbs * self.poly_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a ciphertext as RowSel reads and writes it: numbers of at most 32 bits share
        words.
        """
        return self.answer_bytes // (2 if self.modulus_bits <= 32 else 1)

    @property
    def expanded_bytes(self) -> int:
        """Bytes of a query's D0 leaves, as RowSel reads them."""
        return self.rows * self.row_bytes

    @property
    def key_bytes(self) -> int:
        """Bytes of one level's key in memory."""
        return 2 * self.limbs * self.key_digits * self.poly_bytes

    @property
    def selector_bytes(self) -> int:
        """Bytes of one game's selector."""
        return 2 * self.selector_digits * self.answer_bytes

    @property
    def block_columns(self) -> int:
        """Columns of the largest block."""
        return min(self.columns, _BLOCK_COLUMNS)

    @property
    def blocks(self) -> int:
        """Blocks of all chunks."""
        return -(-self.columns // _BLOCK_COLUMNS) * self.chunks


@dataclass(frozen=True, slots=True)
class Pass:
    """Predicted seconds of one pass.

    Attributes:
        expand, row_select, tournament: of its steps.
        units: seconds of one core, by what it does.
    """

    expand: float
    row_select: float
    tournament: float
    units: Mapping[str, float]

    @property
    def total(self) -> float:
        """All of it."""
        return self.expand + self.row_select + self.tournament


class Ledger:
    """A cache of ``room`` bytes, least recently used first out: counts what it fetches."""

    def __init__(self, room: float) -> None:
        self.room = room
        self.fetched = 0.0
        self._held: OrderedDict[tuple[object, ...], int] = OrderedDict()
        self._bytes = 0

    def touch(self, item: tuple[object, ...], size: int) -> None:
        """Reads or writes an item, which is fetched if it is not held."""
        if item in self._held:
            self._held.move_to_end(item)
            return
        self.fetched += size
        self._held[item] = size
        self._bytes += size
        while self._bytes > self.room and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1]


def predict(processor: Processor, table: Table, batch: int, threads: int = 1) -> Pass:
    """The seconds of a pass of ``batch`` queries, each of another client.

    Raises:
        ConfigError: for no queries, more threads than cores, or a table of other parameters than
            the processor was measured with.
    """
    if batch < 1:
        raise ConfigError(f"batch is {batch}, but must be 1 or more")
    if not 1 <= threads <= processor.cores:
        raise ConfigError(
            f"threads is {threads}, but must be 1 to the processor's {processor.cores} cores"
        )
    if processor.parameters != table.parameters:
        raise ConfigError(
            f"the processor's operations were measured with {processor.parameters}, not with "
            f"{table.parameters}: measure it again with these parameters"
        )
    table = replace(table, residue_bytes=processor.residue_bytes)
    model = _Model(processor, table, batch, threads)
    expand, row_select, tournament = model.expand(), model.row_select(), model.tournament()
    return Pass(expand, row_select, tournament, dict(model.units))


class _Model:
    def __init__(self, processor: Processor, table: Table, batch: int, threads: int) -> None:
        self.processor, self.table = processor, table
        self.batch, self.threads = batch, threads
        self.units: defaultdict[str, float] = defaultdict(float)
        #: All that a pass touches once: what is between two passes' uses of the same byte.
        keys = (table.levels + 1) * table.key_bytes
        selectors = table.games * table.selector_bytes
        self.pass_bytes = table.resident_bytes + batch * (
            table.expanded_bytes + keys + selectors + table.block_columns * table.row_bytes
        )

    def _operate(self, operations: Mapping[str, float]) -> float:
        seconds = 0.0
        for name, count in operations.items():
            one = count * self.processor.seconds(name) * PROCESSOR_OVERHEAD
            self.units[name] += one
            seconds += one
        return seconds

    def _fetch(self, size: float, footprint: float, threads: int) -> float:
        """Seconds of fetching bytes that were last used ``footprint`` bytes ago."""
        seconds = size / self.processor.read_bytes_per_s(footprint, threads)
        self.units["memory"] += seconds * threads
        return seconds

    def _gather(self, polys: float, footprint: float) -> float:
        """Seconds of putting polynomials together of pieces from ``footprint`` bytes."""
        one = self.processor.gather_seconds(footprint)
        rate = self.processor.read_bytes_per_s(footprint, self.threads)
        seconds = polys * max(one / self.threads, self.table.poly_bytes / rate)
        self.units["memory"] += seconds * self.threads
        return seconds

    def _split(self) -> Counter[str]:
        limbs = self.table.limbs
        return Counter(permute=2 * limbs, add=limbs, split=2 * limbs) + self._switch()

    def _switch(self) -> Counter[str]:
        table, limbs = self.table, self.table.limbs
        return Counter(
            inverse=limbs,
            decompose_key=1,
            forward=table.key_digits * limbs,
            sum_key=2 * limbs,
        )

    def _drop(self) -> Counter[str]:
        """A ciphertext to the answer's primes."""
        counts: Counter[str] = Counter()
        for limbs in range(self.table.limbs, self.table.answer_limbs, -1):
            counts += Counter(inverse=2, forward=2 * (limbs - 1), rescale=2 * (limbs - 1))
        return counts

    def _game(self) -> Counter[str]:
        table, limbs = self.table, self.table.answer_limbs
        return Counter(
            add=4 * limbs,
            inverse=2 * limbs,
            decompose_selector=2,
            forward=2 * table.selector_digits * limbs,
            sum_selector=2 * limbs,
        )

    def expand(self) -> float:
        table = self.table
        first_levels = 0
        if self.threads > 1:
            first_levels = min(int(math.log2(4 * self.threads)), table.levels)
        splits, alone, ledger = _splits(table, first_levels, self.processor.second_cache_bytes)
        selector_leaves = table.leaves - table.rows
        times_secret = self._switch() + Counter(copy=table.limbs, add=table.limbs)
        once = Counter(uniform=1, copy=table.limbs)
        counts: Counter[str] = Counter()
        for part, count in (
            (self._split(), splits - alone),
            (self._drop(), table.leaves + selector_leaves),
            (times_secret, selector_leaves),
        ):
            for name, each in part.items():
                counts[name] += each * count
        # One query alone: its first levels run on one core. Several run side by side.
        serial = Counter({name: each * alone for name, each in self._split().items()}) + once
        at_once = min(self.threads, self.batch)
        seconds = self.batch * (
            self._operate(counts) / self.threads + self._operate(serial) / at_once
        )
        # Keys come from wherever the last pass left them; what the cache loses of them during a
        # query comes back from nearer by.
        first = (table.levels + 1) * table.key_bytes
        again = ledger.fetched - table.levels * table.key_bytes
        own = first + 3 * table.expanded_bytes
        # Leaves are written to memory that was used a query ago, and go from there, piece by piece,
        # into the order that RowSel reads, in memory that was used a pass ago.
        leaves = table.expanded_bytes + selector_leaves * 2 * table.answer_bytes
        seconds += self.batch * (
            self._fetch(first + table.expanded_bytes, self.pass_bytes, self.threads)
            + self._fetch(again + leaves, own, self.threads)
            + self._gather(table.rows * 2 * table.answer_limbs, own)
        )
        return seconds

    def row_select(self) -> float:
        """Tiles as the kernel cuts them: for one query, and for primes of at most 28 bits, four
        columns at once, else two columns for up to three queries.
        """
        table, machine = self.table, self.processor
        taken = _taken(self.batch)
        is_short, is_packed = table.modulus_bits <= 28, table.modulus_bits > 32
        wide = 4 if self.batch == 1 or is_short else 2
        group_rows = table.vectors / _GROUP_COLUMNS
        vector_bytes = _LANES * (_PREPARED_BITS if is_packed else 32) / 8
        query_bytes = (2 if is_packed else 1) * _LANES * table.residue_bytes
        near = machine.read_bytes_per_s(0, 1)
        # Half of the first cache is what the table's own stream leaves to the queries.
        kept = table.rows * (self.batch * query_bytes + _GROUP_COLUMNS * vector_bytes)
        streams = 2 * kept > machine.first_cache_bytes
        tiles = []
        for queries in taken:
            sums = 2 * wide * queries
            count = (2 + _REDUCE_INSTRUCTIONS / table.rows) * sums
            count += (2 if is_packed else 1) * wide
            # Bodies come out of the upper halves of their words.
            count += 0 if is_packed else queries
            seconds = group_rows * count * machine.instruction_ns * 1e-9
            if streams:
                seconds += group_rows * queries * query_bytes / near
            tiles += [seconds / self.threads] * (_GROUP_COLUMNS // wide)
        arrives = table.vectors * vector_bytes / near / self.threads
        self.units["multiply"] += sum(tiles) * self.threads
        expanded = self.batch * table.expanded_bytes
        block = table.resident_bytes / table.blocks + expanded + self._sums_bytes
        # Only the first tile of a group asks for the table ahead of its use; the others find it in
        # the cache, and it does not come while they run.
        memory = self._fetch(table.resident_bytes, self.pass_bytes, self.threads)
        written = self.batch * table.columns * table.chunks * table.row_bytes
        rest = self._fetch(written + expanded * table.blocks, block, self.threads)
        return max(memory, tiles[0]) + sum(tiles[1:]) + arrives + rest

    @property
    def _sums_bytes(self) -> float:
        return self.batch * self.table.block_columns * self.table.row_bytes

    def tournament(self) -> float:
        table = self.table
        games = (table.columns - 1) * table.chunks
        subtrees = -(-table.columns // (1 << _SUBTREE_LEVELS))
        late = min(games, (subtrees - 1) * table.chunks)
        game = self._game()
        one = self._operate(Counter({name: count * self.batch for name, count in game.items()}))
        at_once = min(self.threads, self.batch)
        seconds = one * ((games - late) / self.threads + late / at_once)
        ledger = _games(table, self.processor.second_cache_bytes)
        sums = self._sums_bytes
        columns = table.columns * table.chunks
        own = table.games * table.selector_bytes
        seconds += self.batch * (
            self._gather(columns * 2 * table.answer_limbs, sums + own)
            + self._fetch(ledger.fetched, self.batch * own + sums, self.threads)
        )
        seconds += self.batch * self._operate({"compress": table.chunks}) / at_once
        return seconds


def _taken(queries: int) -> list[int]:
    """Queries of each tile: three, but two pairs rather than three and one."""
    taken = []
    while queries:
        take = 1 if queries == 1 else 2 if queries in (2, 4) else 3
        taken.append(take)
        queries -= take
    return taken


def _splits(table: Table, first_levels: int, room: int) -> tuple[int, int, Ledger]:
    """Splits of one expansion, depth-first; those of the levels that are split beforehand; and what
    the cache fetched.
    """
    poly = table.poly_bytes
    ciphertext = 2 * table.limbs * poly
    # Beside operands: digits, one polynomial of scratch.
    ledger = Ledger(room - (table.key_digits + 1) * table.limbs * poly)
    splits = alone = 0

    def descend(level: int, residue: int) -> None:
        nonlocal splits, alone
        if level == table.levels:
            return
        splits += 1
        alone += level < first_levels
        odd = residue + (1 << level)
        ledger.touch(("key", level), table.key_bytes)
        ledger.touch(("level", level), table.limbs * poly + 4 * table.degree)
        # Nodes reuse the room of nodes that are done: as many as there are levels.
        ledger.touch(("node", level), ciphertext)
        ledger.touch(("node", level + 1), ciphertext)
        descend(level + 1, residue)
        if odd < table.leaves:
            descend(level + 1, odd)

    descend(0, 0)
    return splits, alone, ledger


def _games(table: Table, room: int) -> Ledger:
    """What the cache fetches of selectors in one tournament: subtrees depth-first, the rest in
    order.
    """
    digits = (2 * table.selector_digits + 1) * table.answer_limbs * table.poly_bytes
    ledger = Ledger(room - digits)
    for column in range(1, table.columns * table.chunks + 1):
        level = (column & -column).bit_length() - 1
        for played in range(min(level, table.games)):
            ledger.touch(("selector", played), table.selector_bytes)
        ledger.touch(("column", level), table.answer_bytes)
    return ledger
