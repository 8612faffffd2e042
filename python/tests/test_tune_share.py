"""One budget over the tables of a model: exact, no worse than an even split, refused clearly."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from hushtable import ConfigError
from hushtable.tune import LayoutSpec, PartSpec, Point, Share, ShareError, split_budget
from hushtable.tune.share import split_evenly

SPEC = LayoutSpec(None, PartSpec(100, 10, 1, 0, 1), 8, "earliest", "0" * 64)
Fronts = dict[str, list[Point]]


def point(comm_kb: float, server_ms: float, drop: float) -> Point:
    costs = {"comm_bytes": round(comm_kb * 1000), "prf_calls": 1, "stored_bytes": 1}
    return Point(SPEC, costs, server_ms, server_ms, 1, drop, 1000)


def random_fronts(random: np.random.Generator, tables: int, layouts: int) -> Fronts:
    return {
        f"t{table}": [
            point(*random.integers(1, 20, 2).tolist(), float(random.integers(0, 30)) / 100)
            for _ in range(layouts)
        ]
        for table in range(tables)
    }


def best_by_trying_all(
    fronts: Fronts, weights: Mapping[str, float], comm_kb_max: float, server_us_max: float
) -> tuple[float, float, float] | None:
    total = sum(weights.values())
    best = None
    for chosen in itertools.product(*fronts.values()):
        comm, time = sum(p.comm_kb for p in chosen), sum(p.server_ms for p in chosen)
        if comm > comm_kb_max + 1e-9 or time * 1e3 > server_us_max + 1e-6:
            continue
        drops = (weights[name] / total * p.drop for name, p in zip(fronts, chosen, strict=True))
        found = (round(sum(drops), 9), round(time, 9), round(comm, 9))
        best = found if best is None else min(best, found)
    return best


def figures(share: Share) -> tuple[float, float, float]:
    return (round(share.drop, 9), round(share.server_ms, 9), round(share.comm_kb, 9))


@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_the_best_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    fronts = random_fronts(random, tables=int(random.integers(1, 6)), layouts=5)
    weights = {name: float(random.integers(1, 9)) for name in fronts}
    # From budgets that nothing meets to such that everything does.
    comm, time = (float(random.integers(1, 21) * len(fronts)) for _ in range(2))
    best = best_by_trying_all(fronts, weights, comm, time * 1e3)
    if best is None:
        with pytest.raises(ShareError, match="meet --max-comm-kb"):
            split_budget(fronts, weights, comm_kb_max=comm, server_us_max=time * 1e3)
        return
    share = split_budget(fronts, weights, comm_kb_max=comm, server_us_max=time * 1e3)
    assert share.is_exact
    assert share.comm_kb <= comm + 1e-6
    assert share.server_ms <= time + 1e-9
    assert figures(share) == best
    even = split_evenly(fronts, weights, comm_kb_max=comm, server_us_max=time * 1e3)
    assert even is None or share.drop <= even.drop + 1e-12


def skewed_model() -> tuple[Fronts, dict[str, float]]:
    """Four tables: the first is read by nearly all lookups, and drops much without many bytes."""

    def front(scale: float) -> list[Point]:
        return [point(10 * n, 0.1 * n, scale / n**2) for n in (1, 2, 3, 4, 5, 6, 7)]

    fronts = {"items": front(0.5), **{f"user{i}": front(0.02) for i in range(3)}}
    return fronts, {"items": 50.0, "user0": 1.0, "user1": 1.0, "user2": 1.0}


def test_a_skewed_model_gains_over_the_even_split() -> None:
    fronts, weights = skewed_model()
    share = split_budget(fronts, weights, comm_kb_max=100, server_us_max=1000)
    even = split_evenly(fronts, weights, comm_kb_max=100, server_us_max=1000)
    assert even is not None
    assert share.points["items"].comm_kb == 70
    assert even.points["items"].comm_kb == 20
    # 0.5/49 of what items lose where the even split loses 0.5/4: over eight times less of all.
    assert share.drop < even.drop / 8


def test_time_alone_and_bytes_alone_are_budgets_too() -> None:
    fronts, weights = skewed_model()
    assert split_budget(fronts, weights, comm_kb_max=40).comm_kb == 40
    assert split_budget(fronts, weights, server_us_max=500).server_ms == pytest.approx(0.5)
    rich = split_budget(fronts, weights, comm_kb_max=1e6)
    assert [p.comm_kb for p in rich.points.values()] == [70] * 4


def test_weights_move_bytes_between_tables() -> None:
    fronts, weights = skewed_model()
    turned = {**weights, "items": 0.0, "user0": 50.0}
    share = split_budget(fronts, turned, comm_kb_max=100)
    assert share.points["items"].comm_kb == 10
    assert share.points["user0"].comm_kb > 10
    assert share.weights["user0"] == pytest.approx(50 / 52)


def test_many_tables_are_still_split_exactly_enough() -> None:
    # Twenty-six, as Criteo's models have, of sixteen layouts each: 16^26 choices.
    random = np.random.default_rng(1)
    fronts = {
        f"t{i}": [point(n, 0.1 * n, float(random.random()) / n) for n in range(1, 17)]
        for i in range(26)
    }
    share = split_budget(fronts, dict.fromkeys(fronts, 1.0), comm_kb_max=150)
    even = split_evenly(fronts, dict.fromkeys(fronts, 1.0), comm_kb_max=150)
    assert even is not None
    assert share.comm_kb <= 150
    assert share.drop < even.drop


def refused(
    fronts: Mapping[str, Sequence[Point]], weights: Mapping[str, float], **budgets: float
) -> str:
    with pytest.raises((ConfigError, ShareError)) as error:
        split_budget(fronts, weights, **budgets)
    return str(error.value)


def test_what_cannot_be_split_is_said() -> None:
    fronts, weights = skewed_model()
    assert "a budget for the whole model" in refused(fronts, weights)
    assert "--max-comm-kb is -1, but must be over 0" in refused(fronts, weights, comm_kb_max=-1)
    assert "--max-server-us is nan" in refused(fronts, weights, server_us_max=float("nan"))
    assert "'items' is in one of them only" in refused(fronts, {"user0": 1}, comm_kb_max=9)
    assert "not all 0" in refused(fronts, dict.fromkeys(fronts, 0.0), comm_kb_max=9)
    assert "needs at least one" in refused({"items": []}, {"items": 1.0}, comm_kb_max=9)
    said = refused(fronts, weights, comm_kb_max=39, server_us_max=1000)
    assert "all 4 tables meet --max-comm-kb 39 (at least 40 KB) and --max-server-us 1000" in said
