"""What users lose over rounds, against sums that can be done by hand."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from typing import Any

import numpy as np
import pytest

from hushtable.errors import ConfigError
from hushtable.fl import accountant as module
from hushtable.fl.accountant import Accountant, BudgetSpent, MissingExtra


def after(rounds: int, epsilon: float, composition: str, **options: Any) -> float:
    booked = Accountant(epsilon, composition=composition, **options)  # type: ignore[arg-type]
    for _ in range(rounds):
        booked.spend("ann")
    return booked.epsilon("ann")


def randomized_response(epsilon: float, rounds: int, delta: float) -> float:
    """The exact epsilon of so many rounds (Kairouz, Oh and Viswanath), by bisection."""
    heads = np.arange(rounds + 1)
    ways = [
        math.lgamma(rounds + 1) - math.lgamma(h + 1) - math.lgamma(rounds - h + 1) for h in heads
    ]
    log_p = np.array(ways) + heads * epsilon - rounds * math.log1p(math.exp(epsilon))
    losses = (2 * heads - rounds) * epsilon
    low, high = 0.0, rounds * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        hockey_stick = np.sum(np.exp(log_p) * np.maximum(-np.expm1(middle - losses), 0))
        low, high = (middle, high) if hockey_stick > delta else (low, middle)
    return high


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def equation_3(epsilon: float, requests: int, shape: np.ndarray) -> np.ndarray:
    """Probabilities [unions, reads] of equation 3."""
    distance = np.abs(np.subtract.outer(np.arange(requests), np.arange(requests)))
    terms = shape * np.exp(-epsilon / 2 * distance)
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


def geometric(epsilon: float, requests: int) -> np.ndarray:
    """Probabilities [unions, reads] of the clamped two-sided geometric mechanism."""
    decay = math.exp(-epsilon)
    distance = np.abs(np.subtract.outer(np.arange(requests), np.arange(requests)))
    rows = (1 - decay) / (1 + decay) * decay**distance
    rows[:, 0] = decay ** distance[:, 0] / (1 + decay)
    rows[:, -1] = decay ** distance[:, -1] / (1 + decay)
    assert np.allclose(rows.sum(axis=1), 1)
    return np.asarray(rows)


def test_hundred_rounds_of_an_exponential_mechanism() -> None:
    options = {"mechanism": "exponential", "delta": 1e-6}
    assert after(100, 1.0, "basic", **options) == 100
    assert after(100, 1.0, "zcdp", **options) == pytest.approx(38.8, abs=0.05)
    assert after(100, 0.1, "zcdp", **options) == pytest.approx(2.75, abs=0.01)
    assert after(1000, 0.1, "zcdp", **options) == pytest.approx(9.56, abs=0.01)


def test_the_geometric_mechanism_adds_up_to_more() -> None:
    # rho = T eps tanh(eps / 2), not T eps^2 / 8: its losses are -eps and eps.
    rho = 100 * math.tanh(0.5)
    expected = rho + 2 * math.sqrt(rho * math.log(1e6))
    assert after(100, 1.0, "zcdp") == pytest.approx(expected)
    assert 96 < expected < 98
    # At the same noise, eps / 2, there is not much between them.
    assert (
        0.9 < after(1000, 0.05, "zcdp") / after(1000, 0.1, "zcdp", mechanism="exponential") < 1.01
    )


def test_one_round_is_never_worse_than_basic() -> None:
    for mechanism in ("geometric", "exponential"):
        for composition in ("basic", "zcdp"):
            assert after(1, 0.3, composition, mechanism=mechanism) == pytest.approx(0.3)


def loss(mechanism: str, cost: float, worst: float | None = None) -> module._Loss:
    width = 2 * cost if mechanism == "geometric" else cost
    return module._Loss(width=width, worst=worst or cost)


def neighbours(table: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs = list(itertools.pairwise(table))
    return pairs + [(q, p) for p, q in pairs]


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    logs = order * np.log(p) + (1 - order) * np.log(q)
    return float(np.log(np.exp(logs - logs.max()).sum()) + logs.max()) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_rho_bounds_every_renyi_divergence(epsilon: float) -> None:
    requests = 40
    orders = (1.001, 1.5, 2, 5, 20, 100)
    uniform = equation_3(epsilon, requests, np.ones(requests))
    power = equation_3(epsilon, requests, np.arange(1.0, requests + 1) ** 5)
    worst = {
        name: max(renyi(p, q, order) / order for p, q in neighbours(table) for order in orders)
        for name, table in (
            ("geometric", geometric(epsilon, requests)),
            ("uniform", uniform),
            ("power", power),
        )
    }
    # Nothing is given away for the geometric one.
    rho = loss("geometric", epsilon).rho
    assert 0.999 * rho < worst["geometric"] <= rho * (1 + 1e-9)
    assert max(worst["uniform"], worst["power"]) <= loss("exponential", epsilon).rho
    known = loss("exponential", epsilon, module.uniform_worst_loss(epsilon))
    assert worst["uniform"] <= known.rho <= loss("exponential", epsilon).rho


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_uniform_worst_loss_is_the_worst(epsilon: float) -> None:
    bound = module.uniform_worst_loss(epsilon)
    found = 0.0
    for requests in (2, 3, 30, 400):
        table = equation_3(epsilon, requests, np.ones(requests))
        found = float(np.abs(np.diff(np.log(table), axis=0)).max())
        assert found <= bound + 1e-9
    assert found > 0.999 * bound
    assert module.uniform_worst_loss(1.0) == pytest.approx(0.714, abs=5e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_profiles_bound_every_pair_of_neighbours(epsilon: float) -> None:
    grid = np.linspace(-1.2 * epsilon, 1.2 * epsilon, 25)
    known = module.uniform_worst_loss(epsilon)
    for requests in (2, 3, 30):
        ramp = np.arange(1.0, requests + 1)
        uniform = equation_3(epsilon, requests, np.ones(requests))
        for bound, table in (
            (loss("geometric", epsilon), geometric(epsilon, requests)),
            (loss("exponential", epsilon), uniform),
            (loss("exponential", epsilon, known), uniform),
            (loss("exponential", epsilon), equation_3(epsilon, requests, ramp**5)),
            (loss("exponential", epsilon), equation_3(epsilon, requests, ramp**-30)),
        ):
            deltas = bound.profile(grid)
            for p, q in neighbours(table):
                found = np.array([hockey_stick(p, q, at) for at in grid])
                assert np.all(found <= deltas + 1e-12)
    p, q = geometric(epsilon, 3)[:2]
    exact = [hockey_stick(p, q, at) for at in grid]
    assert np.allclose(exact, loss("geometric", epsilon).profile(grid))


def test_distributions_of_losses_are_exact_for_randomized_response() -> None:
    pytest.importorskip("dp_accounting", reason="optional: pip install 'hushtable[fl]'")
    for epsilon, rounds in ((1.0, 10), (1.0, 100), (0.1, 100), (0.3, 37)):
        exact = randomized_response(epsilon, rounds, 1e-6)
        found = after(rounds, epsilon, "pld")
        assert exact - 1e-6 <= found <= exact * 1.01 + 1e-3


def test_distributions_of_losses_are_tighter() -> None:
    pytest.importorskip("dp_accounting", reason="optional: pip install 'hushtable[fl]'")
    for epsilon, rounds in ((1.0, 100), (0.1, 100), (0.1, 1000)):
        by = {c: after(rounds, epsilon, c) for c in ("zcdp", "pld")}
        assert 0.7 * by["zcdp"] < by["pld"] < 0.95 * by["zcdp"]
        # The worst of all mechanisms of a range, at each order, is about as much as zCDP's.
        plain = {"mechanism": "exponential"}
        known = {**plain, "worst_loss": module.uniform_worst_loss(epsilon)}
        for options in (plain, known):
            by = {c: after(rounds, epsilon, c, **options) for c in ("basic", "zcdp", "pld")}
            assert 0.8 * by["zcdp"] < by["pld"] <= by["zcdp"] < by["basic"]
        assert by["basic"] == pytest.approx(rounds * known["worst_loss"])
    few = {c: after(8, 1.0, c, mechanism="exponential") for c in ("zcdp", "pld")}
    assert few["pld"] < 0.99 * few["zcdp"]
    # Costs that differ.
    booked = Accountant(0.1, composition="pld")
    for values in (1, 5, 5, 9):
        booked.spend("ann", values=values)
    assert 1.0 < booked.epsilon("ann") <= booked.epsilon("ann", composition="basic")


def test_within_a_round() -> None:
    booked = Accountant(0.01)
    assert booked.cost() == 0.01
    # The number of up to 100 values is hidden.
    assert booked.cost(values=100) == pytest.approx(1.0)
    # Chunks by position compose in parallel; by value they do not.
    assert booked.cost(values=3, chunks=7) == pytest.approx(0.03)
    assert booked.cost(values=3, chunks=7, chunks_by_position=False) == pytest.approx(0.21)
    # A value that may fill all of a user's slots.
    assert booked.cost(slots_distinct=False, slots=40) == pytest.approx(0.4)
    assert booked.cost(slots_distinct=False, slots=4, chunks=2) == pytest.approx(0.04)


def test_zcdp_of_a_group_is_of_its_whole_cost() -> None:
    together, apart = Accountant(0.05), Accountant(0.05)
    for _ in range(40):
        together.spend("ann", values=10)
    for _ in range(400):
        apart.spend("ann")
    assert together.epsilon("ann", composition="basic") == pytest.approx(20)
    assert together.epsilon("ann") > 2 * apart.epsilon("ann")


def test_users_are_apart() -> None:
    booked = Accountant(1.0, composition="basic")
    booked.spend("ann")
    booked.spend("ann")
    booked.spend("bob")
    assert (booked.epsilon("ann"), booked.epsilon("eve")) == (2, 0)
    assert (booked.rounds("ann"), booked.rounds("eve")) == (2, 0)
    assert booked.users == ["ann", "bob"]


def test_a_budget_refuses_and_books_nothing() -> None:
    booked = Accountant(1.0, composition="basic", limit=3.0)
    for _ in range(3):
        booked.spend("ann")
    with pytest.raises(BudgetSpent, match="'ann' has lost epsilon 3 and would have lost 4") as info:
        booked.spend("ann")
    assert (info.value.user, info.value.spent, info.value.needed, info.value.limit) == (
        "ann",
        3.0,
        4.0,
        3.0,
    )
    assert booked.epsilon("ann") == 3
    booked.spend("bob", values=3)
    assert booked.epsilon("bob") == 3
    with pytest.raises(BudgetSpent):
        booked.spend("bob")


def test_extremes() -> None:
    assert after(100, 0.0, "zcdp") == 0
    assert after(1, math.inf, "zcdp") == math.inf
    with pytest.raises(BudgetSpent):
        Accountant(math.inf, limit=1e9).spend("ann")


def test_outlives_the_process() -> None:
    booked = Accountant(0.1, mechanism="exponential", delta=1e-8, limit=1.5)
    for user, values in (("ann", 1), ("ann", 4), ("bob", 2), ("ann", 1)):
        booked.spend(user, values=values)
    again = Accountant.from_json(booked.to_json())
    assert again.users == ["ann", "bob"]
    assert again.epsilon("ann") == booked.epsilon("ann") > 0.5
    assert again.to_json() == booked.to_json()
    assert repr(again) == repr(booked)
    with pytest.raises(BudgetSpent):
        again.spend("ann", values=50)


@pytest.mark.parametrize(
    "damage",
    [
        lambda fields: fields.pop("users"),
        lambda fields: fields.update(users=[1]),
        lambda fields: fields.update(users={"ann": [[0.1]]}),
        lambda fields: fields.update(users={"ann": [[-0.1, 3]]}),
        lambda fields: fields.update(users={"ann": [[0.1, -3]]}),
        lambda fields: fields.update(epsilon="lots"),
        lambda fields: fields.update(more=1),
    ],
)
def test_refuses_foreign_text(damage: Any) -> None:
    fields = json.loads(Accountant(0.1).to_json())
    damage(fields)
    with pytest.raises(ConfigError):
        Accountant.from_json(json.dumps(fields))
    with pytest.raises(ConfigError, match="expected what to_json wrote"):
        Accountant.from_json("[]")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"mechanism": "laplace"}, "expected one of 'geometric', 'shifted', 'exponential'"),
        ({"composition": "rdp"}, "expected one of 'basic', 'zcdp', 'pld'"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"limit": -1.0}, "limit is -1.0"),
        ({"worst_loss": 0.7}, "epsilon itself for the geometric"),
        ({"worst_loss": 0.7, "mechanism": "shifted"}, "epsilon itself for the shifted"),
        ({"worst_loss": 0.7, "mechanism": "uniform"}, "known for mechanism 'uniform'"),
        ({"worst_loss": 0.4, "mechanism": "exponential"}, "expected 0.5 (half of epsilon) to 1"),
    ],
)
def test_refuses_what_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        Accountant(**{"epsilon": 1.0, **options})


def test_refuses_counts_that_cannot_be() -> None:
    booked = Accountant(1.0)
    for options, says in (
        ({"values": 0}, "values is 0"),
        ({"chunks": 0}, "chunks is 0"),
        ({"slots_distinct": False}, "slots is None"),
        ({"slots_distinct": False, "slots": 2, "values": 3}, "slots is 2"),
    ):
        with pytest.raises(ConfigError, match=says):
            booked.spend("ann", **options)  # type: ignore[arg-type]
    assert booked.users == []


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(MissingExtra, match=r"pip install 'hushtable\[fl\]'"):
        Accountant(1.0, composition="pld")
    Accountant(1.0).spend("ann")


def test_each_mechanism_is_charged_what_it_loses() -> None:
    """A shift costs what the geometric does, Y = 1 its own largest loss, and a constant nothing."""
    for composition in ("basic", "zcdp"):
        for rounds in (1, 7, 300):
            costs = {
                name: after(rounds, 0.4, composition, mechanism=name)
                for name in ("geometric", "shifted", "exponential", "uniform", "delta")
            }
            assert costs["shifted"] == costs["geometric"] >= costs["exponential"]
            assert costs["exponential"] >= costs["uniform"] > costs["delta"] == 0
    worst = module.uniform_worst_loss(0.4)
    assert after(3, 0.4, "basic", mechanism="uniform") == pytest.approx(3 * worst)
    known = {"mechanism": "exponential", "worst_loss": worst}
    assert after(9, 0.4, "zcdp", mechanism="uniform") == after(9, 0.4, "zcdp", **known)


def test_books_of_every_mechanism_are_read_again() -> None:
    for name in ("shifted", "uniform", "delta"):
        booked = Accountant(0.4, mechanism=name)
        booked.spend("ann")
        again = Accountant.from_json(booked.to_json())
        assert again.epsilon("ann") == booked.epsilon("ann")
        assert again.mechanism == name
