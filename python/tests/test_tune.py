"""The tuner: what it finds, chooses, refuses and writes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import hushtable
from hushtable import ConfigError, Table, _native
from hushtable.tune import (
    BudgetError,
    Budgets,
    CostModel,
    LayoutSpec,
    PartSpec,
    Point,
    Trace,
    TraceError,
    TuneResult,
    choose,
    draw,
    pareto,
    tune,
)
from hushtable.tune.front import dominated, families_of
from hushtable.tune.goals import spread_out
from hushtable.tune.report import (
    COLUMNS,
    best_by_family,
    family_rows,
    front_rows,
    short_count,
    table_lines,
    to_json,
)

ROWS, DIM = 3000, 16
#: About what the engine takes on one core: figures do not depend on the machine that tests run on.
CONSTANTS = (1e-5, 1e-7, 2e-8, 3e-7, 6e-9, 6e-13, 1.5e-11, 0.0, 1e-11, 4e-9)
MODEL = CostModel(CONSTANTS, CONSTANTS, 0.02, 0.1, "a processor", "portable", "0", (1e-6, 1e-10))
BUDGETS = Budgets(comm_kb_max=60, drop_max=0.02)


def skewed_trace(bags: int, seed: int) -> Trace:
    """Bags whose ids fall by Zipf's law, half of them read together with another of their group."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, ROWS + 1) ** 1.1
    names = np.random.default_rng(0).permutation(ROWS)
    found = []
    for _ in range(bags):
        first = random.choice(ROWS, random.integers(6, 16), p=weights / weights.sum())
        friends = first // 3 * 3 + random.integers(0, 3, len(first))
        found.append(names[np.minimum(np.concatenate((first, friends)), ROWS - 1)])
    return Trace(np.concatenate(found), np.cumsum([0, *map(len, found)]))


@pytest.fixture(scope="module")
def table() -> Table:
    weight = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    return Table.from_weight(weight, name="items")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return skewed_trace(900, seed=5)


def search(table: Table, trace: Trace, budgets: Budgets = BUDGETS, **options: object) -> TuneResult:
    options = {"costs": MODEL, "evaluations": 90, "sample_bags": 100, **options}
    return tune(table, trace, budgets, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(table: Table, trace: Trace) -> TuneResult:
    return search(table, trace)


def test_the_choice_meets_the_budgets_on_bags_it_has_not_seen(
    result: TuneResult, trace: Trace
) -> None:
    best = result.best
    assert BUDGETS.meets(best)
    layout = result.layout()
    costs = layout.costs()
    assert costs == best.costs
    assert best.comm_kb == costs["comm_bytes"] / 1000 <= 60
    ids, offsets = result.held_out.ids, result.held_out.offsets
    assert np.array_equal(ids, trace.split()[1].ids)
    kept = layout.simulate(ids.astype(np.uint32), offsets.astype(np.uint64))
    assert best.drop == pytest.approx(1 - kept.mean(), abs=1e-12)
    assert best.drop <= 0.02
    assert np.array_equal(result.kept(), kept)
    bytes_each = costs["up_right_bytes"] + costs["down_bytes"]
    assert best.wire_ms == pytest.approx(0.001 + 1e-7 * bytes_each)
    assert best.inferences_per_s == pytest.approx(1e3 / (best.batch_ms / 64 + best.wire_ms))
    assert best.latency_ms > best.wire_ms
    within = [point for point in result.points if BUDGETS.meets(point)]
    assert best.inferences_per_s == max(point.inferences_per_s for point in within)


def test_every_family_is_tried_and_co_design_wins(result: TuneResult) -> None:
    families = families_of(result.points)
    for family in ("plain", "hot", "collocated", "hot+collocated", "hot-only", "cuckoo"):
        assert family in families
    best = {point.family: point for point in best_by_family(result)}
    # Half of the reads go to a few dozen rows.
    assert best["hot"].inferences_per_s > 1.2 * best["plain"].inferences_per_s
    assert all(BUDGETS.meets(point) for point in best.values())


def test_the_front_is_what_no_other_beats(result: TuneResult) -> None:
    def figures(point: Point) -> tuple[float, float, float]:
        return (point.server_ms, point.comm_kb, point.drop)

    front = {point.spec for point in result.front}
    for point in result.points:
        mine = figures(point)
        beaten = any(
            figures(other) != mine
            and all(a <= b for a, b in zip(figures(other), mine, strict=True))
            for other in result.points
        )
        if beaten:
            assert point.spec not in front
        elif point.spec not in front:  # it is there under another spec with the same figures
            assert mine in [figures(other) for other in result.front]


def test_one_seed_one_result(result: TuneResult, table: Table, trace: Trace) -> None:
    again = search(table, trace)
    drop_times = {"seconds": 0.0}
    assert to_json(again) | drop_times == to_json(result) | drop_times
    assert again.layout().to_bytes() == result.layout().to_bytes()
    other = search(table, trace, seed=1)
    assert other.layout().to_bytes() != result.layout().to_bytes()


def test_quality_is_asked_where_it_matters(table: Table, trace: Trace) -> None:
    calls: list[float] = []
    held_out = trace.split()[1]

    def loss(kept: npt.NDArray[np.bool_]) -> float:
        assert kept.dtype == bool
        assert kept.shape == held_out.ids.shape
        calls.append(float(kept.mean()))
        return 100.0 + 50.0 * (1 - calls[-1])

    budgets = Budgets(comm_kb_max=60, quality_limit=100.5, lower_is_better=True)
    result = search(table, trace, budgets, quality=loss, quality_evaluations=24)
    assert len(calls) <= 24
    assert calls[0] == 1.0
    assert result.quality_clear == 100.0
    best = result.best
    assert best.quality is not None
    assert best.quality <= 100.5
    assert best.quality == pytest.approx(100 + 50 * best.drop)
    # The loss allows 1 % of drops: the choice is near what that as a budget would be.
    bound = search(table, trace, Budgets(comm_kb_max=60, drop_max=0.01)).best
    assert best.inferences_per_s > 0.8 * bound.inferences_per_s
    assert all(point.quality is not None for point in result.front)
    # It looked where quality allows to, not at some drop of its own.
    assert 0.002 < best.drop <= 0.01 + 1e-9


def test_without_a_limit_of_loss_the_most_is_served(table: Table, trace: Trace) -> None:
    result = search(table, trace, Budgets(comm_kb_max=8))
    within = [point for point in result.points if point.comm_kb <= 8]
    assert result.best.drop == min(point.drop for point in within)


@pytest.mark.parametrize(
    ("budgets", "binding", "said"),
    [
        (Budgets(comm_kb_max=1, drop_max=0.01), {"comm_kb_max", "drop_max"}, "--max-comm-kb 1 or"),
        (Budgets(comm_kb_max=0.01), {"comm_kb_max"}, "--max-comm-kb 0.01, which binds"),
        (Budgets(latency_ms_max=1e-3, comm_kb_max=500), {"latency_ms_max"}, "--max-latency-ms"),
    ],
)
def test_budgets_that_nothing_meets_are_told(
    table: Table, trace: Trace, budgets: Budgets, binding: set[str], said: str
) -> None:
    with pytest.raises(BudgetError, match=said) as error:
        search(table, trace, budgets, evaluations=40)
    assert set(error.value.binding) == binding
    assert "The nearest layout is" in str(error.value)
    assert f"{error.value.nearest.comm_kb:,.4g} KB" in str(error.value)
    assert not budgets.meets(error.value.nearest)


def test_bad_arguments_are_refused(table: Table, trace: Trace) -> None:
    outside = Trace(np.array([1, ROWS]), np.array([0, 1, 2]), source="t.csv")
    with pytest.raises(TraceError, match=f"bag 1 of t.csv has id {ROWS}, but the table has 3,000"):
        search(table, outside)
    longest = int(trace.lengths.max())
    with pytest.raises(TraceError, match=f"over ids_max, {longest - 1}"):
        search(table, trace, ids_max=longest - 1)
    for options, said in (
        ({"budgets": Budgets()}, "give at least one budget"),
        ({"budgets": Budgets(quality_limit=1.0)}, "needs its measure"),
        ({"drop_rule": "latest"}, "most-frequent, earliest or random"),
        ({"ids_max": 0}, "ids_max is 0"),
        ({"evaluations": 1}, "evaluations is 1, but must be at least 20"),
        ({"train": 1.0}, "train is 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            search(table, trace, **options)  # type: ignore[arg-type]
    for limits in ({"comm_kb_max": 0}, {"drop_max": 1}, {"latency_ms_max": float("inf")}):
        with pytest.raises(ConfigError, match="but must be a"):
            Budgets(**limits)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="returned nan"):
        search(table, trace, quality=lambda kept: float("nan"))


def test_a_held_out_trace_of_ones_own(table: Table, trace: Trace) -> None:
    other = skewed_trace(150, seed=8)
    result = search(table, trace, held_out=other, evaluations=40)
    assert result.held_out is other
    assert result.facts["trace"]["bags_learned"] == trace.bag_count
    assert result.best.accesses == len(other.ids)


def test_the_chosen_layout_goes_into_a_bundle(
    result: TuneResult, table: Table, tmp_path: Path
) -> None:
    bundle = tmp_path / "tuned"
    layout = result.apply(bundle)
    assert hushtable.verify_table(bundle).ok
    opened = Table.open(bundle)
    assert opened.info.version == table.info.version
    assert np.array_equal(opened.rows([0, 7, ROWS - 1]), table.rows([0, 7, ROWS - 1]))
    stored = _native.Layout.of_bundle(bundle)
    assert stored is not None
    assert stored.version() == layout.version()
    assert json.loads((bundle / "layout.json").read_text())["layout"] == result.best.spec.to_dict()
    # Another choice takes its place.
    other = next(point for point in result.points if point.spec != result.best.spec)
    second = result.apply(bundle, other)
    replaced = _native.Layout.of_bundle(bundle)
    assert replaced is not None
    assert replaced.version() == second.version() != layout.version()
    assert [path.name for path in tmp_path.iterdir()] == ["tuned"]


def test_the_report_says_what_a_reader_wants_first(result: TuneResult) -> None:
    assert COLUMNS[1:3] == ("KB", "inf./s")
    rows = front_rows(result)
    assert sum(row[0].startswith("*") for row in rows) == 1
    assert all(len(row) == len(COLUMNS) + 1 for row in rows + family_rows(result))
    chosen = next(row for row in rows if row[0].startswith("*"))
    assert chosen[1] == f"{result.best.comm_kb:,.1f}"
    lines = table_lines(rows)
    assert max(map(len, lines)) <= 80
    # Every figure and every word of a layout is there, cut by nothing.
    words = [word for line in lines for word in line.split()]
    assert words[len(COLUMNS) :] == [word for row in rows for cell in row for word in cell.split()]
    document = json.loads(json.dumps(to_json(result)))
    assert document["best"]["spec"] == result.best.spec.to_dict()
    assert {point["family"] for point in document["points"]} >= {"plain", "hot"}
    assert document["points"][0]["costs"].keys() >= {"prf_calls", "stored_bytes", "map_bytes"}
    assert document["trace"]["bags_held_out"] == 180


def test_the_largest_layouts_fit_eighty_columns() -> None:
    figures = ["* hot+collocated+cuckoo", "123,456.7", "123,456", "100.000%", "0.12346", "1.23e+03"]
    layout = "hot 16,777,216 rows: 1,048,576 bins x 4 queries, 3 hashes, +15; full: 65,536 bins"
    lines = table_lines([[*figures, short_count(123_456_789_012), "1,234,567.8", layout]])
    assert max(map(len, lines)) <= 80, lines
    assert lines[1] == figures[0]
    assert lines[2].split()[:2] == figures[1:3]
    assert " ".join(lines[3:]).split() == layout.split()


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0"), (9_999, "9999"), (12_345, "12.35k"), (1_234_567, "1.235M")]
)
def test_long_counts_are_short(count: int, said: str) -> None:
    assert short_count(count) == said


def small(trace: Trace, bags: int) -> Trace:
    return trace.take(np.arange(bags))


def test_a_trace_too_small_to_hold_anything_out_is_refused(table: Table, trace: Trace) -> None:
    with pytest.raises(TraceError, match="has 99 inferences, of which 79 would be .* and 20 held"):
        search(table, small(trace, 99))
    with pytest.raises(TraceError, match="has 4 .* but each needs 20 or more: give a trace of 100"):
        search(table, small(trace, 4))
    # By halves forty are enough, and another trace to measure on is one too.
    with pytest.raises(TraceError, match="a share nearer to one half by --train"):
        search(table, small(trace, 40))
    search(table, small(trace, 40), Budgets(comm_kb_max=60), train=0.5, evaluations=20)
    search(table, small(trace, 4), Budgets(comm_kb_max=60), held_out=trace, evaluations=20)
    with pytest.raises(TraceError, match="19 inferences, but layouts are measured on 20 or more"):
        search(table, trace, held_out=small(trace, 19))


def test_plots_have_a_line_for_each_family(result: TuneResult, tmp_path: Path) -> None:
    written = draw(result, tmp_path / "plots")
    names = {path.name for path in written}
    for name in ("computation-quality", "communication-quality", "communication-computation"):
        assert {name + ".svg", name + ".png"} <= names
    text = (tmp_path / "plots" / "throughput-quality.svg").read_text()
    for family in ("plain", "hot", "collocated", "hot+collocated", "cuckoo"):
        assert f">{family}</text>" in text
    assert "at most 60 KB an inference" in text
    again = draw(result, tmp_path / "again")
    for first, second in zip(written, again, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_missing_matplotlib_is_said(
    result: TuneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'hushtable\[plot\]'"):
        draw(result, tmp_path)


def point(seconds: float, comm: int, drop: float, family: int = 0) -> Point:
    spec = LayoutSpec(None, PartSpec(100, 1 + family), 8, "earliest", "0" * 64)
    costs = {"comm_bytes": comm, "prf_calls": 1}
    return Point(spec, costs, seconds, 64 * seconds, 64, drop, 100)


def test_fronts_are_those_of_brute_force() -> None:
    random = np.random.default_rng(6)
    values = random.integers(0, 6, (80, 3)).astype(float)
    lost = dominated(values)
    for i, mine in enumerate(values):
        better = (values <= mine).all(axis=1) & (values < mine).any(axis=1)
        same_before = (values[:i] == mine).all(axis=1).any()
        assert lost[i] == (better.any() or same_before)
    points = [point(a + 1, int(b), c / 10, i) for i, (a, b, c) in enumerate(values)]
    assert [p.spec for p in pareto(points)] == [
        p.spec
        for p in sorted(
            (p for p, gone in zip(points, lost, strict=True) if not gone),
            key=lambda p: (p.server_ms, p.comm_kb, p.drop),
        )
    ]


def test_the_choice_is_fastest_or_serves_most() -> None:
    points = [point(1, 3000, 0.05), point(2, 2000, 0.009, 1), point(3, 1000, 0.0, 2)]
    assert choose(points, Budgets(drop_max=0.01)) is points[1]
    assert choose(points, Budgets(comm_kb_max=2.5)) is points[2]
    assert choose(points, Budgets(comm_kb_max=3, drop_max=0.05)) is points[0]
    with pytest.raises(BudgetError, match="--max-comm-kb 0.5 binds: without it") as error:
        choose(points, Budgets(comm_kb_max=0.5, drop_max=0.01))
    assert error.value.binding == ("comm_kb_max",)
    assert error.value.nearest is points[2]
    good = [replace(p, quality=q) for p, q in zip(points, (0.7, 0.78, 0.8), strict=True)]
    assert choose(good, Budgets(quality_limit=0.75)) is good[1]
    assert choose(good, Budgets(quality_limit=0.79, lower_is_better=True)) is good[0]
    with pytest.raises(BudgetError, match="--min-quality 0.9 binds"):
        choose(good, Budgets(quality_limit=0.9, comm_kb_max=5))


def test_spread_rows_are_distinct_and_hold_the_extremes() -> None:
    values = np.random.default_rng(0).normal(size=(60, 3))
    chosen = spread_out(values, 12)
    assert len(set(chosen)) == 12
    assert {int(i) for i in values.argmin(axis=0)} <= set(chosen)
    assert spread_out(values[:5], 12) == [0, 1, 2, 3, 4]
    assert spread_out(np.zeros((9, 2)), 4) == [0]
