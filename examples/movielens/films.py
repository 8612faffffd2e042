"""Part one: recommend films from a history that never leaves the device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hushtable
from hushtable.data import MovieLens

from . import evaluation, model
from .evaluation import Ranking
from .model import Factors, Floats, Ints
from .servers import Mismatch, Pair, assert_same_bits
from .split import HISTORY_MAX, Person, Split
from .tap import Tap

#: Training ends when a sweep adds less than this to the AUC on the validation users.
GAIN_MIN = 0.0005
SWEEPS_MAX = 8


@dataclass(frozen=True)
class Training:
    """A trained model, and how it did on the users that settings were chosen on."""

    factors: Factors
    sweeps: int
    validation_auc: float


def train(split: Split, film_count: int) -> Training:
    """Sweeps until the validation users see no more gain."""
    best: Training | None = None
    for sweeps, factors in enumerate(model.learn(split.training, film_count), start=1):
        device = model.ship(factors, split.training)
        rankings = evaluation.rank_all(device, split.validation, factors.items.__getitem__)
        now = Training(factors, sweeps, evaluation.mean_auc(rankings))
        gain = now.validation_auc - (best.validation_auc if best else 0.0)
        if best is None or gain > 0:
            best = now
        if gain < GAIN_MIN or sweeps == SWEEPS_MAX:
            return best
    raise AssertionError("learning never ends by itself")


def build(training: Training, out: Path) -> hushtable.Table:
    """The item factors as a bundle, opened as a server opens it."""
    hushtable.Table.from_weight(training.factors.items, name="films").save(out)
    return hushtable.Table.open(out)


@dataclass(frozen=True)
class Judgement:
    """What the test users' rankings came to, by private lookups.

    Attributes:
        rankings: one for each test user, in the split's order.
        auc, low, high: mean over users, and its 95 % bootstrap interval.
        auc_clear: the same from rows read in the clear; equal to the last bit.
        auc_popular: of the ranking by popularity, which needs no history.
        hits, hits_popular: of the ten films ranked first, how many a user went on to watch.
        users_judged: users who went on to watch something of the shortlist.
        rows: rows that were compared bit by bit.
        key_count: keys that each server got with each lookup.
        bytes_up, bytes_down: of one lookup, both servers together.
        p50_ms, p95_ms: of one lookup, as the client sees it.
    """

    rankings: list[Ranking]
    auc: float
    low: float
    high: float
    auc_clear: float
    auc_popular: float
    hits: float
    hits_popular: float
    users_judged: int
    rows: int
    key_count: int
    bytes_up: int
    bytes_down: int
    p50_ms: float
    p95_ms: float


def judge(
    training: Training, split: Split, table: hushtable.Table, client: hushtable.Client
) -> Judgement:
    """Ranks for every test user twice, by private lookups and in the clear.

    Raises:
        Mismatch: a row or a figure is not the same both ways.
    """
    device = model.ship(training.factors, split.training)
    spent: list[hushtable.LookupStats] = []

    def look_up(films: Ints) -> Floats:
        rows, stats = client.lookup_with_stats(films)
        spent.append(stats)
        assert_same_bits(rows, table.rows(films))
        return rows

    private = evaluation.rank_all(device, split.test, look_up)
    clear = evaluation.rank_all(device, split.test, table.rows)
    aucs = evaluation.judged_aucs(private)
    auc, auc_clear = evaluation.mean_auc(private), evaluation.mean_auc(clear)
    if auc != auc_clear:
        raise Mismatch(f"AUC by private lookups {auc!r}, in the clear {auc_clear!r}")
    counts = model.popularity(split.training, len(table))[device.shortlist].astype(np.float32)
    popular = [evaluation.rank(person, device.shortlist, counts) for person in split.test]
    low, high = model.bootstrap_interval(aucs)
    milliseconds = np.array([one.seconds for one in spent]) * 1e3
    # Every lookup costs the same, or its size would tell something.
    (cost,) = {(one.keys, one.bytes_up, one.bytes_down) for one in spent}
    return Judgement(
        rankings=private,
        auc=auc,
        low=low,
        high=high,
        auc_clear=auc_clear,
        auc_popular=evaluation.mean_auc(popular),
        hits=evaluation.mean_hits(private),
        hits_popular=evaluation.mean_hits(popular),
        users_judged=len(aucs),
        rows=sum(one.ids for one in spent),
        key_count=cost[0],
        bytes_up=cost[1],
        bytes_down=cost[2],
        p50_ms=float(np.median(milliseconds)),
        p95_ms=float(np.quantile(milliseconds, 0.95)),
    )


def pick(split: Split, judgement: Judgement, count: int) -> list[tuple[Person, Ranking]]:
    """The first test users, as they were dealt."""
    return list(zip(split.test, judgement.rankings, strict=True))[:count]


@dataclass(frozen=True)
class Overheard:
    """What the left server got, noted behind its TLS.

    Attributes:
        film: the film that was looked up twice.
        once, again: the first key of each of the two requests for it.
        other: the first key of a request for another film.
        counts: keys in each request: for 1 film, for 1 film, for 1 film, for 100 films.
        same_differ: share of bits in which two keys for one film differ, over many.
        other_differ: the same for keys for different films.
    """

    film: int
    once: bytes
    again: bytes
    other: bytes
    counts: tuple[int, ...]
    same_differ: float
    other_differ: float


#: The first bytes of a key say what it is for (format, side, group, generator, rows of the
#: table); they are the same for everyone. The rest is what could tell something.
KEY_HEADER_BYTES = 8


def overhear(pair: Pair, film: int, other: int) -> Overheard:
    """Looks films up through a tap at the left server and reports what went by."""
    many = np.arange(100)
    with Tap(pair.left.url, pair.certificates) as left:
        with hushtable.connect(
            left=left.url, right=pair.right.url, tls=pair.certificates.ca, max_ids=HISTORY_MAX
        ) as client:
            for ids in ([film], [film], [other], many):
                client.lookup(ids)
            counts = tuple(map(len, left.requests))
            once, again, another = (keys[0] for keys in left.requests[:3])
            same = [keys[0] for keys in left.requests[:2]]
            client.lookup(np.full(len(many), film))
            same += left.requests[-1][: len(many)]
        return Overheard(
            film=film,
            once=once,
            again=again,
            other=another,
            counts=counts,
            same_differ=_differing_share(same),
            other_differ=_differing_share(left.requests[3][: len(many)]),
        )


def _differing_share(keys: list[bytes]) -> float:
    """Share of differing bits between neighbours, headers left out."""
    bits = np.unpackbits(
        np.array([np.frombuffer(key, np.uint8)[KEY_HEADER_BYTES:] for key in keys]), axis=1
    )
    return float((bits[1:] != bits[:-1]).mean())


def titles(ratings: MovieLens, films: Ints) -> list[str]:
    """The films' names."""
    return [ratings.titles[film] for film in films]
