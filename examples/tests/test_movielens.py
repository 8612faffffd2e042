"""The demo's model and figures, on ratings made up here."""

from __future__ import annotations

from itertools import islice, product

import numpy as np
import pytest
from examples.movielens import model
from examples.movielens.evaluation import rank
from examples.movielens.split import HISTORY_MAX, Person, deal

from hushtable.data import MovieLens

FILMS = 60


def make_ratings(users: int = 100) -> MovieLens:
    """Users of two tastes: each watches films of one half, rarely of the other."""
    random = np.random.default_rng(7)
    user, item, time = [], [], []
    for number in range(users):
        likes = np.where(np.arange(FILMS) % 2 == number % 2, 0.6, 0.05)
        films = np.flatnonzero(random.random(FILMS) < likes)
        user += [number] * len(films)
        item += films.tolist()
        time += random.integers(0, 50, len(films)).tolist()
    return MovieLens(
        users=tuple(map(str, range(users))),
        titles=tuple(map(str, range(FILMS))),
        genres=((),) * FILMS,
        user=np.array(user, np.int32),
        item=np.array(item, np.int32),
        rating=np.full(len(user), 3, np.float32),
        time=np.array(time, np.int64),
    )


def test_users_are_dealt_once_and_cut_in_time() -> None:
    ratings = make_ratings()
    split = deal(ratings)
    assert (len(split.training), len(split.validation), len(split.test)) == (80, 10, 10)
    everyone = [
        *(set(films) for films in split.training),
        *({*one.seen, *one.future} for one in split.validation + split.test),
    ]
    watched = [set(ratings.item[ratings.user == user]) for user in range(100)]
    assert sorted(map(sorted, everyone)) == sorted(map(sorted, watched))
    for person in split.test:
        owner = watched.index({*person.seen, *person.future})
        when = {
            film: ratings.time[(ratings.user == owner) & (ratings.item == film)][0]
            for film in watched[owner]
        }
        assert len(person.future) >= 1
        assert max(when[film] for film in person.seen) <= min(when[film] for film in person.future)


def test_a_long_history_keeps_its_newest_films() -> None:
    count = 1000
    ratings = MovieLens(
        users=("a", "b"),
        titles=tuple(map(str, range(count))),
        genres=((),) * count,
        user=np.repeat(np.arange(2, dtype=np.int32), count),
        item=np.tile(np.arange(count, dtype=np.int32), 2),
        rating=np.ones(2 * count, np.float32),
        time=np.tile(np.arange(count), 2),
    )
    person = deal(ratings, held_out=0.5).test[0]
    assert person.seen.tolist() == list(range(800))
    assert person.history.tolist() == list(range(800 - HISTORY_MAX, 800))
    assert person.future.tolist() == list(range(800, 1000))


def test_learning_finds_the_two_tastes() -> None:
    split = deal(make_ratings())
    *_, factors = islice(model.learn(split.training, FILMS, dim=4), 4)
    device = model.ship(factors, split.training, shortlist_count=FILMS)
    assert device.shortlist.tolist() == list(range(FILMS))
    scores = device.scores(factors.items[np.arange(0, 20, 2)])
    assert scores[20::2].mean() > scores[21::2].mean()
    figures = [
        rank(person, device.shortlist, device.scores(factors.items[person.history])).auc
        for person in split.test
    ]
    assert np.mean([one for one in figures if one is not None]) > 0.7


def test_the_fold_in_is_the_step_of_training() -> None:
    split = deal(make_ratings())
    factors = next(model.learn(split.training, FILMS, dim=4))
    device = model.ship(factors, split.training)
    users = model._solve_all(factors.items, split.training)
    folded = [device.fold_in(factors.items[films]) for films in split.training]
    assert np.allclose(users, folded, rtol=1e-3, atol=1e-5)


def test_learning_is_repeatable() -> None:
    training = deal(make_ratings()).training
    once, again = (list(islice(model.learn(training, FILMS, dim=4), 2))[-1] for _ in range(2))
    assert np.array_equal(once.items, again.items)


@pytest.mark.parametrize("levels", [3, 1000])
def test_auc_is_the_share_of_pairs_in_order(levels: int) -> None:
    random = np.random.default_rng(levels)
    scores = random.integers(0, levels, 50).astype(np.float32)
    positive = random.random(50) < 0.3
    pairs = [
        1.0 if good > bad else 0.5 if good == bad else 0.0
        for good, bad in product(scores[positive], scores[~positive])
    ]
    assert model.auc(scores, positive) == pytest.approx(np.mean(pairs))


def test_the_interval_narrows_around_the_mean() -> None:
    values = np.random.default_rng(3).normal(0.8, 0.1, 400)
    low, high = model.bootstrap_interval(values)
    assert low < values.mean() < high
    # 1.96 standard errors on each side, to a tenth.
    assert high - low == pytest.approx(2 * 1.96 * 0.1 / 20, rel=0.1)


def test_a_ranking_leaves_out_what_was_seen_and_marks_the_future() -> None:
    person = Person(seen=np.array([1, 2]), history=np.array([2]), future=np.array([5, 9]))
    shortlist = np.array([0, 1, 4, 5])
    ranking = rank(person, shortlist, np.array([0.1, 0.9, 0.3, 0.2], np.float32))
    assert ranking.films.tolist() == [4, 5, 0]
    assert ranking.hit.tolist() == [False, True, False]
    assert ranking.auc == 0.5
    stranger = Person(seen=np.array([1]), history=np.array([1]), future=np.array([9]))
    assert rank(stranger, shortlist, np.zeros(4, np.float32)).auc is None
