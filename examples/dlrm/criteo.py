"""Criteo's click log: its columns, its sizes, its rows, and rows made up in its likeness."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hushtable.data import CRITEO_ROWS, MalformedData
from hushtable.data.criteo import DENSE, impressions
from hushtable.data.criteo import SPARSE as FEATURES
from hushtable.nn.encrypted import Activation, Description, Feature

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

__all__ = [
    "DENSE",
    "FEATURES",
    "Log",
    "deal",
    "describe",
    "hashed",
    "join",
    "make",
    "read",
    "table_rows",
]

#: How steeply the popularity of made-up values falls.
_SKEW = 1.2
#: Values of a column that have a say in made-up clicks: a learner sees each of these often.
_TELLING_RANKS = 1_000


@dataclass(frozen=True)
class Log:
    """Impressions.

    Attributes:
        dense: float32 [impressions, 13], the logarithms of the counts plus one.
        ids: int64 [impressions, 26], for each categorical column the row of its table.
        clicked: bool [impressions].
        is_real: bool [impressions], False where the row is made up.
    """

    dense: Floats
    ids: Ints
    clicked: npt.NDArray[np.bool_]
    is_real: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.clicked)

    def take(self, chosen: Ints) -> Log:
        """The impressions with these numbers."""
        return Log(self.dense[chosen], self.ids[chosen], self.clicked[chosen], self.is_real[chosen])


def table_rows(scale: float) -> tuple[int, ...]:
    """Rows of each column's table at ``scale`` times Criteo's size; three at least."""
    return tuple(max(3, math.ceil(count * scale)) for count in CRITEO_ROWS)


def read(path: Path, rows: tuple[int, ...]) -> Log:
    """The real impressions of a CSV file with the columns Label, I1 to I13 and C1 to C26.

    A category is a row of its table by its hash, as is usual where tables are smaller than
    vocabularies: two categories may share one. A missing category is one of its own, a missing
    count is 0.

    Raises:
        MalformedData: a column that is missing, or a value that is no number.
    """
    dense, ids, clicked = [], [], []
    for one in impressions(path):
        dense.append(one.counts)
        clicked.append(one.clicked)
        ids.append(
            [
                hashed(name, category, count)
                for name, category, count in zip(FEATURES, one.categories, rows, strict=True)
            ]
        )
    if not clicked:
        raise MalformedData("no impressions", path=path)
    return Log(
        np.array(dense, np.float32),
        np.array(ids, np.int64),
        np.array(clicked),
        np.ones(len(clicked), np.bool_),
    )


def hashed(feature: str, category: str, rows: int) -> int:
    """The row of a category, the same on every machine."""
    digest = hashlib.blake2b(f"{feature}\0{category}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % rows


def describe(
    rows: tuple[int, ...],
    activation: Activation,
    threshold: int,
    relu_degree: int | None = None,
) -> Description:
    """HE-LRM's model of Criteo, with tables of ``rows`` rows before compression."""
    return Description(
        dense=len(DENSE),
        bottom=(512, 256, 64, 16),
        top=(512, 256, 1),
        dim=16,
        features=tuple(Feature(name, count) for name, count in zip(FEATURES, rows, strict=True)),
        activation=activation,
        relu_degree=relu_degree,
        threshold=threshold,
    )


def make(count: int, rows: tuple[int, ...], *, seed: int = 7) -> Log:
    """Impressions made up with Criteo's shape: popular and rare values.

    Clicks depend on some of both kinds of columns, so that there is something to learn.
    """
    random = np.random.default_rng(seed)
    taste = random.normal(size=count)
    dense = np.log1p(
        random.poisson(np.exp(np.clip(taste[:, None] + random.normal(size=13), -3, 6)))
    )
    ids = np.empty((count, len(rows)), np.int64)
    logits = -1.6 + 0.5 * taste
    for column, table in enumerate(rows):
        # The inverse of a power law's distribution, cut off at the table's size.
        uniform = random.random(count)
        power = 1 - _SKEW
        ranks = np.floor((1 + uniform * ((table + 1) ** power - 1)) ** (1 / power)).astype(np.int64)
        ranks = np.clip(ranks, 1, table) - 1
        # A multiplier without a common divisor scatters the popular ones over the table.
        step = next(
            one for one in range(max(2, table * 3 // 8), table * 2) if math.gcd(one, table) == 1
        )
        ids[:, column] = ranks * step % table
        effects = random.normal(0, 0.35, min(table, _TELLING_RANKS))
        told = ranks < len(effects)
        logits[told] += effects[ranks[told]]
    clicked = random.random(count) < 1 / (1 + np.exp(-logits))
    return Log(dense.astype(np.float32), ids, clicked, np.zeros(count, np.bool_))


def join(*logs: Log) -> Log:
    """All impressions of all logs."""
    return Log(
        np.concatenate([log.dense for log in logs]),
        np.concatenate([log.ids for log in logs]),
        np.concatenate([log.clicked for log in logs]),
        np.concatenate([log.is_real for log in logs]),
    )


def deal(log: Log, *, test: float = 0.2, seed: int = 1) -> tuple[Log, Log]:
    """A training and a test part, with real and made-up impressions in both."""
    order = np.random.default_rng(seed).permutation(len(log))
    held_out = np.zeros(len(log), np.bool_)
    for kind in (True, False):
        of_kind = order[log.is_real[order] == kind]
        held_out[of_kind[: round(test * len(of_kind))]] = True
    return log.take(np.flatnonzero(~held_out)), log.take(np.flatnonzero(held_out))
