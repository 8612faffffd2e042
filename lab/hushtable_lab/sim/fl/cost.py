"""What a round's bytes and seconds mean: the SSD's life, overhead, money, power and energy.

FEDORA, sections 6.1 (lifetime, the two minutes of a round) and 6.5 (prices and power).
"""

from __future__ import annotations

from dataclasses import dataclass

from .counts import Design, Pages
from .geometry import Tree
from .measured import RunTime

__all__ = [
    "DRAM_DOLLARS_PER_GB",
    "DRAM_WATTS_PER_GB",
    "DRIVE_WRITES",
    "MONTH_SECONDS",
    "REPLACED_YEARS",
    "ROUND_SECONDS",
    "SSD_DOLLARS_PER_GB",
    "SSD_WATTS",
    "YEAR_SECONDS",
    "Costs",
    "dram_bytes",
    "dram_costs",
    "ssd_costs",
]

#: Times its size that an SSD can be written: 5.4 PB a TB, 5437 in the artifact.
DRIVE_WRITES = 5437
#: The network and the users' training, a round.
ROUND_SECONDS = 120.0
YEAR_SECONDS = 365.25 * 86_400
MONTH_SECONDS = YEAR_SECONDS / 12
#: All hardware is replaced after so long, or when worn.
REPLACED_YEARS = 5.0
DRAM_DOLLARS_PER_GB = 3.15
SSD_DOLLARS_PER_GB = 0.10
DRAM_WATTS_PER_GB = 0.375
#: Rated power of the SSD, drawn while it reads or writes.
SSD_WATTS = 6.2

_POSITION_BYTES = 4
_POSITION_BLOCK = 64
_POSITION_SLOTS = 6
_POSITION_PAGE = 512
_BUFFER_SLOTS = 8
_BUFFER_LOAD = 0.375
_BLOCK_TAG_BYTES = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one design, table and K.

    Attributes:
        life_months: until the SSD is worn; infinite without one.
        overhead: the round's own seconds over the two minutes.
        dollars: of DRAM and of the SSDs that five years take.
        watts: mean power of DRAM and SSD.
        joules: energy of DRAM and SSD, a round.
    """

    life_months: float
    overhead: float
    dollars: float
    watts: float
    joules: float


def dram_bytes(tree: Tree, design: Design, requests: float) -> float:
    """DRAM that every design takes beside the main ORAM: position map, VTree, buffer ORAM, and the
    levels kept in memory.

    As the artifact lays them out. The position map is a Path ORAM of 64-byte blocks, six a bucket,
    in 512-byte pages, with a sixteenth of itself above it, and so on; the buffer ORAM, filled to
    0.375, has eight blocks a bucket, each with a row, its gradient and ids; both are rounded up to
    whole trees.
    """
    blocks = tree.rows * _POSITION_BYTES / _POSITION_BLOCK
    position = 0.0
    while blocks * _POSITION_BLOCK > 4096:
        buckets = _whole_tree(blocks / 0.75 / _POSITION_SLOTS)
        position += buckets * _POSITION_PAGE
        blocks *= _POSITION_BYTES / _POSITION_BLOCK
    block_bytes = 2 * tree.row_bytes + _BLOCK_TAG_BYTES
    buffer = _whole_tree(requests / _BUFFER_LOAD / _BUFFER_SLOTS) * _BUFFER_SLOTS * block_bytes
    cached = ((1 << min(design.cached_levels, tree.levels)) - 1) * 4096
    return position + buffer + tree.valid_tree_bytes + cached


def ssd_costs(
    design: Design, tree: Tree, pages: Pages, time: RunTime, dram: float, round_seconds: float
) -> Costs:
    """Costs of the main ORAM on an SSD of its file's size (section 6.1), replaced when worn."""
    file_bytes = design.file_bytes(tree)
    period = round_seconds + time.seconds
    life = file_bytes * DRIVE_WRITES / pages.written_bytes * period
    replaced = max(REPLACED_YEARS * YEAR_SECONDS / life, 1.0)
    dollars = dram / 1e9 * DRAM_DOLLARS_PER_GB + file_bytes / 1e9 * SSD_DOLLARS_PER_GB * replaced
    busy = time.ssd_seconds / period
    watts = dram / 1e9 * DRAM_WATTS_PER_GB + SSD_WATTS * busy
    return Costs(life / MONTH_SECONDS, time.seconds / round_seconds, dollars, watts, watts * period)


def dram_costs(tree: Tree, time: RunTime, dram: float, round_seconds: float) -> Costs:
    """Costs of the same ORAM in DRAM, optimistically as fast as FEDORA without its SSD's time
    (section 6.5)."""
    total = (dram + tree.tree_bytes) / 1e9
    seconds = time.seconds - time.ssd_seconds
    watts = total * DRAM_WATTS_PER_GB
    return Costs(
        float("inf"),
        seconds / round_seconds,
        total * DRAM_DOLLARS_PER_GB,
        watts,
        watts * (round_seconds + seconds),
    )


def _whole_tree(buckets: float) -> int:
    size = 1
    while size < buckets:
        size *= 2
    return size
