"""The paper's data sets, by the shares of distinct rows among their requests; and its Table 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from .privacy import Accesses, mean_accesses

__all__ = ["CHUNK", "DATASETS", "TABLE_1", "TABLE_1_REQUESTS", "Dataset", "Table1Row", "round_of"]

#: Requests that the paper's union takes in one piece (section 4.2: 16K).
CHUNK = 16_384
#: K of Table 1's padded rows: 100 users of 100 values (section 6.1). Without padding K is smaller
#: and the union the same, so that the shares of both give K: 887 / 0.475 and 95 / 0.4889.
TABLE_1_REQUESTS = 10_000
_MOVIELENS_REQUESTS = 1_867
_TAOBAO_REQUESTS = 194


@dataclass(frozen=True, slots=True)
class Dataset:
    """How alike the requests of a round are.

    Attributes:
        name: as in Figures 7 and 8.
        union_share: k_union / K, in the mean.
        values: n, the values hidden together, so that each is hidden at epsilon / n.
        spread: standard deviation of k_union over its mean, between rounds.
        source: where ``union_share`` is from.
    """

    name: str
    union_share: float
    values: int
    spread: float
    source: str


#: In the order of the figures' bars.
DATASETS = (
    Dataset(
        "Kaggle",
        1 / 1.56,
        1,
        0.0,
        "section 6.2: epsilon = 1 lives 1.56 times as long as 0; Table 1 does not have it",
    ),
    Dataset("Taobao, values", 0.4889, 1, 0.0, "Table 1, 51.11 % reduced at infinite epsilon"),
    Dataset("MovieLens, values", 0.475, 1, 0.0, "Table 1, 52.5 % reduced at infinite epsilon"),
    Dataset("MovieLens, counts", 0.0887, 100, 0.0, "Table 1, 91.13 % reduced at infinite epsilon"),
    Dataset("Taobao, counts", 0.0095, 100, 0.35, "Table 1, 99.05 % reduced at infinite epsilon"),
)


@dataclass(frozen=True, slots=True)
class Table1Row:
    """A row of Table 1, in percent; the AUC needs the data and is not modelled."""

    dataset: str
    epsilon: float
    reduced: float
    dummy: float
    lost: float
    requests: int = TABLE_1_REQUESTS


TABLE_1 = (
    Table1Row("MovieLens, values", math.inf, 52.5, 0, 0, _MOVIELENS_REQUESTS),
    Table1Row("MovieLens, values", 1.0, 52.5, 0.1, 0.1, _MOVIELENS_REQUESTS),
    Table1Row("MovieLens, values", 0.1, 52.5, 1.1, 1.1, _MOVIELENS_REQUESTS),
    Table1Row("Taobao, values", math.inf, 51.11, 0, 0, _TAOBAO_REQUESTS),
    Table1Row("Taobao, values", 1.0, 51.11, 1.01, 1.01, _TAOBAO_REQUESTS),
    Table1Row("Taobao, values", 0.1, 51.06, 9.89, 9.77, _TAOBAO_REQUESTS),
    Table1Row("MovieLens, counts", math.inf, 91.13, 0, 0),
    Table1Row("MovieLens, counts", 1.0, 91.02, 11.65, 10.47),
    Table1Row("MovieLens, counts", 0.1, 78.37, 156.0, 12.16),
    Table1Row("Taobao, counts", math.inf, 99.05, 0, 0),
    Table1Row("Taobao, counts", 1.0, 97.69, 156.0, 12.89),
    Table1Row("Taobao, counts", 0.1, 80.78, 1924.0, 2.42),
)


@cache
def round_of(
    dataset: Dataset, mechanism: str, requests: int, epsilon: float, *, chunk: int | None = None
) -> Accesses:
    """The mean accesses of a round of ``requests`` of a data set.

    Args:
        chunk: take the union piece by piece, as the paper does beyond 16K requests. Each piece has
            the data set's share of distinct rows, and noise of its own. The paper's synthetic
            data keeps a round's duplicates as K grows, so the share is that of its Table 1.
    """
    each = epsilon / dataset.values
    pieces = 1 if chunk is None else -(-requests // chunk)
    size = -(-requests // pieces)
    union = max(1.0, size * dataset.union_share)
    mean = mean_accesses(mechanism, size, union, each, spread=dataset.spread)
    times = requests / size
    return Accesses(
        requests, mean.k_union * times, mean.k * times, mean.dummy * times, mean.lost * times
    )
