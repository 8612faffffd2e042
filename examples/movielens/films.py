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
from .servers import Mismatch, Served, assert_same_bits
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
        key_count: keys (queries, by a single server) that each server got with each lookup.
        bytes_up, bytes_down: of one lookup, both servers together.
        upload_bytes: a client's keys, sent to a single server once before; 0 with two.
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
    upload_bytes: int
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

    if client.onion is not None:
        client.lookup([])  # uploads the keys
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
        upload_bytes=0 if client.onion is None else client.onion.key_bytes,
        p50_ms=float(np.median(milliseconds)),
        p95_ms=float(np.quantile(milliseconds, 0.95)),
    )


def pick(split: Split, judgement: Judgement, count: int) -> list[tuple[Person, Ranking]]:
    """The first test users, as they were dealt."""
    return list(zip(split.test, judgement.rankings, strict=True))[:count]


@dataclass(frozen=True)
class Overheard:
    """What one server got, noted behind its TLS: the left one, or the only one.

    Attributes:
        film: the film that was looked up twice.
        header_bytes: first bytes of a key (or query) that are the same for everyone.
        once, again: the first key of each of the two requests for it.
        other: the first key of a request for another film.
        counts: keys in each request: for 1 film, for 1 film, for 1 film, for 100 films.
        same_differ: share of bits in which two keys for one film differ, over many.
        other_differ: the same for keys for different films.
        senders: what the requests say of who asks, each once; none with two servers.
    """

    film: int
    header_bytes: int
    once: bytes
    again: bytes
    other: bytes
    counts: tuple[int, ...]
    same_differ: float
    other_differ: float
    senders: tuple[bytes, ...]


def overhear(served: Served, film: int, other: int) -> Overheard:
    """Looks films up through a tap at a server and reports what went by."""
    many, header_bytes = np.arange(100), served.wire.header_bytes
    with Tap(served.watched_url, served.certificates, served.wire) as tap:
        with served.connect(HISTORY_MAX, watched_url=tap.url) as client:
            for ids in ([film], [film], [other], many):
                client.lookup(ids)
            counts = tuple(map(len, tap.requests))
            once, again, another = (keys[0] for keys in tap.requests[:3])
            same = [keys[0] for keys in tap.requests[:2]]
            client.lookup(np.full(len(many), film))
            same += tap.requests[-1][: len(many)]
        return Overheard(
            film=film,
            header_bytes=header_bytes,
            once=once,
            again=again,
            other=another,
            counts=counts,
            same_differ=_differing_share(same, header_bytes),
            other_differ=_differing_share(tap.requests[3][: len(many)], header_bytes),
            senders=tuple(dict.fromkeys(tap.senders)),
        )


def _differing_share(keys: list[bytes], header_bytes: int) -> float:
    """Share of differing bits between neighbours, headers left out."""
    bits = np.unpackbits(
        np.array([np.frombuffer(key, np.uint8)[header_bytes:] for key in keys]), axis=1
    )
    return float((bits[1:] != bits[:-1]).mean())


def titles(ratings: MovieLens, films: Ints) -> list[str]:
    """The films' names."""
    return [ratings.titles[film] for film in films]
