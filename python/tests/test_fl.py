"""Federated training of rows: the plain table, and Flower's messages around a controller."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hushtable import RoundError
from hushtable.fl import DUMMY, PlainTable
from hushtable.fl.aggregate import aggregate_of
from hushtable_lab.sim.fl import probabilities

USERS, SLOTS, DIM, ROWS = 4, 3, 2, 20


def make_table(**options: Any) -> PlainTable:
    rows = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)
    options.setdefault("clip", None)  # what is sent here is large, to be seen
    return PlainTable(rows, users=USERS, slots=SLOTS, **options)


def requests(*ids: list[int]) -> np.ndarray:
    found = np.full((USERS, SLOTS), DUMMY, np.uint32)
    for user, own in enumerate(ids):
        found[user, : len(own)] = own
    return found


def test_a_round_updates_each_row_by_the_mean_over_those_who_sent_it() -> None:
    table = make_table()
    before = table.export()
    assert table.begin(requests([5, 7], [7], [7, 9], [])) == 3
    rows, found = table.rows(0)
    assert found.tolist() == [True, True, False]
    np.testing.assert_array_equal(rows, [before[5], before[7], [0, 0]])
    ones = np.ones((SLOTS, DIM), np.float32)
    table.add(0, ones, 3.0)
    table.add(1, 5 * ones, 1.0)
    # User 2 never answers: row 9 stays, and row 7 is the mean of the other two.
    report = table.commit()
    after = table.export()
    np.testing.assert_allclose(before[5] - after[5], 1)
    np.testing.assert_allclose(before[7] - after[7], (3 * 1 + 1 * 5) / 4)
    untouched = [row for row in range(ROWS) if row not in (5, 7)]
    np.testing.assert_array_equal(after[untouched], before[untouched])
    assert (report.accesses, report.union_rows, report.uploaded) == (3, 3, 2)


def test_an_abandoned_round_changes_nothing() -> None:
    table = make_table()
    before = table.export()
    table.begin(requests([1]))
    table.add(0, np.ones((SLOTS, DIM), np.float32), 1.0)
    table.abandon()
    np.testing.assert_array_equal(table.export(), before)
    assert table.begin(requests([1])) == 1


@pytest.mark.parametrize("name", ["fed_adagrad", "fed_adam"])
def test_adaptive_updates_follow_their_papers(name: str) -> None:
    table = make_table(aggregate={"name": name, "learning_rate": 0.5, "tau": 0.01})
    expected = table.export()[4].astype(np.float64)
    first, second = np.zeros(DIM), np.zeros(DIM)
    for gradient in ([1.0, -2.0], [0.5, 4.0], [-3.0, 0.0]):
        table.begin(requests([4]))
        table.add(0, np.array([gradient] * SLOTS, np.float32), 7.0)
        table.commit()
        slope = np.array(gradient)
        if name == "fed_adagrad":
            first, second = slope, second + slope**2
        else:
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        expected -= 0.5 * first / (np.sqrt(second) + 0.01)
    np.testing.assert_allclose(table.export()[4], expected, rtol=1e-5)


def test_the_noise_is_two_sided_geometric_and_clamped() -> None:
    epsilon, rounds = 1.0, 6000
    start, noisy = np.zeros((40, 1), np.float32), {"mechanism": "geometric", "seed": 1}
    table = PlainTable(start, users=40, slots=1, epsilon=epsilon, **noisy)  # type: ignore[arg-type]
    asked = np.arange(40, dtype=np.uint32)[:, None].copy()
    asked[20:] = DUMMY
    noise = []
    for _ in range(rounds):
        noise.append(table.begin(asked) - 20)
        table.abandon()
    share = math.exp(-epsilon)
    mean = 2 * share / (1 - share**2)
    assert abs(np.abs(noise).mean() - mean) < 0.06  # 0.851
    counts = {x: noise.count(x) for x in (-2, -1, 0, 1, 2)}
    for near, far in ((0, 1), (0, -1), (1, 2), (-1, -2)):
        assert 0.8 < counts[far] / counts[near] / share < 1.25
    low = PlainTable(start, users=2, slots=1, epsilon=0.01, **noisy)  # type: ignore[arg-type]
    found = set()
    for _ in range(50):
        found.add(low.begin(np.array([[3], [4]], np.uint32)))
        low.abandon()
    assert found == {1, 2}


@pytest.mark.parametrize("mechanism", ["shifted:by=4,least=15", "eq3", "eq3:y=power,exponent=5"])
def test_the_plain_table_reads_as_many_rows_as_the_mechanism_says(mechanism: str) -> None:
    rounds, union = 3000, 20
    table = PlainTable(
        np.zeros((40, 1), np.float32), users=40, slots=1, epsilon=0.3, mechanism=mechanism, seed=1
    )
    asked = np.arange(40, dtype=np.uint32)[:, None].copy()
    asked[union:] = DUMMY
    found = np.zeros(40)
    for _ in range(rounds):
        found[table.begin(asked) - 1] += 1
        table.abandon()
    expected = rounds * probabilities(mechanism, 40, union, 0.3)
    assert (found[expected == 0] == 0).all()
    likely = expected > 5
    statistic = ((found - expected)[likely] ** 2 / expected[likely]).sum()
    # Far out in the tail of a chi-square of so many degrees of freedom.
    assert statistic < likely.sum() + 6 * math.sqrt(2 * likely.sum())


def test_a_lost_row_is_lost_for_all_and_gets_no_update() -> None:
    table = make_table(epsilon=0.05, mechanism="geometric", seed=3)
    before, lost_once = table.export(), set()
    for _ in range(60):
        before = table.export()
        asked = requests([1, 2, 3], [3, 4, 5], [5, 6, 1], [2, 4, 6])
        k = table.begin(asked)
        found = np.stack([table.rows(user)[1] for user in range(USERS)])
        lost = {int(row) for row in asked[~found]}
        assert lost.isdisjoint(int(row) for row in asked[found])
        assert len(lost) == max(0, 6 - k)
        for user in range(USERS):
            table.add(user, np.ones((SLOTS, DIM), np.float32), 1.0)
        table.commit()
        moved = set(np.flatnonzero((table.export() != before).any(axis=1)).tolist())
        assert moved == {1, 2, 3, 4, 5, 6} - lost
        lost_once |= lost
    # Not always the same ones, as where the lowest ids were kept.
    assert lost_once == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda t: t.rows(0), "no round is open"),
        (lambda t: t.begin(requests([ROWS])), "row id 20 is out of range"),
        (lambda t: t.begin(requests([1]).astype(np.int64)), "expected uint32"),
        (lambda t: t.begin(requests([1])[:2]), "expected uint32 (4, 3)"),
        (lambda t: (t.begin(requests([1])), t.begin(requests([1]))), "a round is open"),
        (lambda t: (t.begin(requests([1])), t.rows(USERS)), "user 4 is out of range"),
        (lambda t: add(t, np.ones((SLOTS, 9), np.float32)), "expected float32 (3, 2)"),
        (lambda t: add(t, np.full((SLOTS, DIM), np.nan, np.float32)), "not finite"),
        (lambda t: add(t, weight=-1.0), "weight of user 0 is -1.0"),
        (lambda t: (add(t), t.add(0, np.ones((SLOTS, DIM), np.float32), 1.0)), "already"),
    ],
)
def test_wrong_calls_say_what_is_wrong(wrong: Callable[[PlainTable], Any], message: str) -> None:
    with pytest.raises(RoundError) as caught:
        wrong(make_table())
    assert message in str(caught.value)


def add(table: PlainTable, gradients: np.ndarray | None = None, weight: float = 1.0) -> None:
    table.begin(requests([1]))
    table.add(0, np.ones((SLOTS, DIM), np.float32) if gradients is None else gradients, weight)


def test_a_refused_upload_leaves_the_round_as_it_was() -> None:
    table = make_table()
    before = table.export()
    table.begin(requests([1], [1]))
    with pytest.raises(RoundError):
        table.add(0, np.full((SLOTS, DIM), np.inf, np.float32), 1.0)
    table.add(1, np.ones((SLOTS, DIM), np.float32), 1.0)
    table.commit()
    np.testing.assert_allclose(table.export()[1], before[1] - 1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "sgd"}, "expected one of fed_avg"),
        ({"name": "fed_adam", "eta": 1}, "no option eta"),
        ({"name": "fed_adam", "beta1": 1.0}, "beta1 of fed_adam is 1.0"),
        ({"name": "fed_avg", "learning_rate": 0}, "out of range"),
        ({}, "aggregate None"),
    ],
)
def test_wrong_aggregates_say_what_is_wrong(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aggregate_of(spec)


@pytest.mark.parametrize(
    "options", [{"epsilon": 0}, {"users": 0}, {"slots": 0}, {"rows": np.zeros((2, 2))}]
)
def test_wrong_tables_are_refused(options: dict[str, Any]) -> None:
    rows = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match="expected"):
        PlainTable(**{"rows": rows, "users": 1, "slots": 1, **options})
