"""A federated round through an oblivious memory on an SSD: what it costs, by table, K and design.

The points of Figures 7 to 9 of FEDORA (ASPLOS 2025), from counted bytes and measured times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hushtable._fdp import DEFAULT
from hushtable.errors import ConfigError

from .cost import ROUND_SECONDS, Costs, dram_bytes, dram_costs, ssd_costs
from .counts import FEDORA, HUSHTABLE, PATH_PLUS, Design, Pages
from .datasets import (
    DATASETS,
    TABLE_1,
    Dataset,
    Table1Row,
    round_of,
)
from .geometry import Tree
from .measured import RunTime, Times
from .privacy import REQUESTS_MAX, Accesses

__all__ = [
    "REQUESTS",
    "TABLES",
    "Point",
    "TableSize",
    "geometric_mean",
    "mean_point",
    "points",
    "simulate",
    "table_1",
]


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table to plan for."""

    name: str
    rows: int
    row_bytes: int


#: Section 6.1.
TABLES = {
    "small": TableSize("small", 10_000_000, 64),
    "medium": TableSize("medium", 50_000_000, 128),
    "large": TableSize("large", 250_000_000, 256),
}
#: K: updates a round.
REQUESTS = (10_000, 100_000, 1_000_000)
#: A round whose users ask for the rows of no data set in particular.
ALL = "all"
#: The geometric mean over the data sets.
MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Point:
    """A bar of the figures.

    Attributes:
        table, tree: the table, and the tree it is in.
        requests: K.
        design: Path ORAM+, FEDORA or hushtable.
        epsilon: of feature-level privacy; 0 for k = K.
        dataset: whose requests; ``all`` where their rows make no difference, or k was given;
            ``mean`` for the data sets' geometric mean.
        k: rows accessed.
        pages: moved a round.
        time: of a round.
        costs: with the main ORAM on SSD.
        in_dram: of the same with the main ORAM in DRAM.
    """

    table: TableSize
    tree: Tree
    requests: int
    design: Design
    epsilon: float
    dataset: str
    k: float
    pages: Pages
    time: RunTime
    costs: Costs
    in_dram: Costs

    @property
    def us_per_request(self) -> float:
        """Microseconds of the server a request."""
        return self.time.seconds * 1e6 / self.requests

    @property
    def label(self) -> str:
        """The design and its epsilon."""
        if self.design.oram == "path":
            return self.design.name
        return f"{self.design.name} ε={self.epsilon:g}"


def simulate(
    table: TableSize,
    requests: int,
    design: Design,
    k: float,
    times: Times,
    *,
    epsilon: float = 0.0,
    dataset: str = ALL,
    round_seconds: float = ROUND_SECONDS,
) -> Point:
    """One point.

    Raises:
        ConfigError: a table without a tree, or more accesses than requests.
    """
    if not 1 <= requests <= REQUESTS_MAX:
        raise ConfigError(f"requests is {requests}, but must be 1 to {REQUESTS_MAX}")
    if not (math.isfinite(round_seconds) and round_seconds > 0):
        raise ConfigError(f"round_seconds is {round_seconds:g}, but must be above 0")
    tree = design.tree(table.rows, table.row_bytes, requests)
    pages = design.pages(tree, requests, k)
    time = times.round_time(design, tree, requests, k)
    dram = dram_bytes(tree, design, requests)
    # The alternative in DRAM is FEDORA's own tree; see cost.dram_costs.
    plain = FEDORA.tree(table.rows, table.row_bytes)
    fedora_time = times.round_time(FEDORA, plain, requests, k)
    return Point(
        table,
        tree,
        requests,
        design,
        epsilon,
        dataset,
        k,
        pages,
        time,
        ssd_costs(design, tree, pages, time, dram, round_seconds),
        dram_costs(plain, fedora_time, dram_bytes(plain, FEDORA, requests), round_seconds),
    )


def points(
    tables: Iterable[TableSize],
    requests: Sequence[int],
    times: Times,
    *,
    epsilon: float = 1.0,
    k: float | None = None,
    round_seconds: float = ROUND_SECONDS,
    datasets: Sequence[Dataset] = DATASETS,
    mechanism: str = DEFAULT,
    bucket_kib: int = 4,
) -> Iterator[Point]:
    """All points of Figures 7 to 9, table by table.

    Path ORAM+; then FEDORA and hushtable with k = K, and with ``epsilon`` for each data set and in
    their mean, or with ``k`` where that is given.

    FEDORA draws k by Eq. 3 from each 16K requests, hushtable by ``mechanism`` from all, and its
    buckets have ``bucket_kib`` KiB.
    """
    ours = replace(HUSHTABLE, mechanism=mechanism, bucket_kib=bucket_kib)
    for table in tables:
        for count in requests:
            yield simulate(table, count, PATH_PLUS, count, times, round_seconds=round_seconds)
            for design in (FEDORA, ours):
                yield simulate(table, count, design, count, times, round_seconds=round_seconds)
                if k is not None:
                    yield simulate(
                        table,
                        count,
                        design,
                        k,
                        times,
                        epsilon=epsilon,
                        round_seconds=round_seconds,
                    )
                    continue
                if epsilon == 0:
                    continue
                drawn = []
                for dataset in datasets:
                    found = _accesses(design, dataset, count, epsilon)
                    drawn.append(
                        simulate(
                            table,
                            count,
                            design,
                            found.k,
                            times,
                            epsilon=epsilon,
                            dataset=dataset.name,
                            round_seconds=round_seconds,
                        )
                    )
                yield from drawn
                yield mean_point(drawn)


def mean_point(group: Sequence[Point]) -> Point:
    """The geometric mean over data sets of points that differ in nothing else."""
    first = group[0]

    def of_costs(name: str) -> Costs:
        costs = [getattr(point, name) for point in group]
        fields = ("life_months", "overhead", "dollars", "watts", "joules")
        return Costs(*(geometric_mean([getattr(c, field) for c in costs]) for field in fields))

    return Point(
        first.table,
        first.tree,
        first.requests,
        first.design,
        first.epsilon,
        MEAN,
        geometric_mean([point.k for point in group]),
        Pages(
            geometric_mean([point.pages.read for point in group]),
            geometric_mean([point.pages.written for point in group]),
        ),
        RunTime(
            geometric_mean([point.time.seconds for point in group]),
            geometric_mean([point.time.ssd_seconds for point in group]),
        ),
        of_costs("costs"),
        of_costs("in_dram"),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The figures' *geomean*; infinite where a value is, 0 where one is 0."""
    if any(value == 0 for value in values):
        return 0.0
    return math.exp(sum(math.log(value) for value in values) / len(values))


def table_1(mechanism: str = "eq3") -> list[tuple[Table1Row, Accesses]]:
    """Table 1's rows, each with what a mechanism gives there."""
    sets = {dataset.name: dataset for dataset in DATASETS}
    return [
        (row, round_of(sets[row.dataset], mechanism, row.requests, row.epsilon)) for row in TABLE_1
    ]


def _accesses(design: Design, dataset: Dataset, requests: int, epsilon: float) -> Accesses:
    return round_of(dataset, design.mechanism, requests, epsilon, chunk=design.chunk)
