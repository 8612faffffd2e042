"""When companions pay: made-up traces, and what is counted of traces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="the applications need hushtable[examples]")

from examples.codesign import collocation
from examples.codesign.collocation import Layouts, savings, simulate
from examples.codesign.groups import Company, GroupSpec, top_companions

from hushtable import ConfigError
from hushtable.tune.trace import Trace

SMALL = GroupSpec(rows=2048, group_rows=4, together=1.0, bag_ids=16)


def bags_of(trace: Trace) -> list[list[int]]:
    return [one.tolist() for one in np.split(trace.ids, trace.offsets[1:-1])]


def test_a_made_up_trace_reads_groups_as_whole_as_asked() -> None:
    trace = SMALL.trace(200, seed=3)
    assert trace.bag_count == 200
    assert all(len(set(bag)) == SMALL.bag_ids for bag in bags_of(trace))
    # Groups of four fill bags of sixteen: any row's fellows are found in every bag of it.
    companions = top_companions(trace, 3)
    for bag in bags_of(trace)[:50]:
        for row in bag:
            if row in companions:
                assert len(set(companions[row]) & set(bag)) == 3
    assert (SMALL.trace(200, seed=3).ids == trace.ids).all()
    assert (SMALL.trace(200, seed=4).ids != trace.ids).any()
    alone = replace(SMALL, together=0.0, exponent=0.3).trace(400, seed=3)
    share = [Company.of(one, one).companion_share for one in (alone, trace)]
    assert share[0] < 0.6 < share[1] == 1.0


def test_company_is_what_can_be_counted_by_hand() -> None:
    # Rows 0, 1, 2 always go together, 3 goes with 4, 5 alone with any.
    told = Trace(ids=np.array([0, 1, 2, 5, 3, 4, 0, 1, 2]), offsets=np.array([0, 4, 6, 9]))
    learned = Trace(
        ids=np.array([0, 1, 2, 0, 1, 2, 3, 4, 3, 4, 5]), offsets=np.array([0, 3, 6, 8, 10, 11])
    )
    assert top_companions(learned, 2) == {0: [1, 2], 1: [0, 2], 2: [0, 1], 3: [4], 4: [3]}
    found = Company.of(learned, told, counts=(1, 2))
    assert found.bags == 3
    assert found.ids_mean == 3
    assert found.companion_share == 1.0
    # With one companion: {0, 1}, 2, 5 | {3, 4} | {0, 1}, 2. With two: one less each for the first.
    assert found.ids_a_key == {1: 9 / 6, 2: 9 / 4}
    # Top companions 1, 0, 0 of six reads are in two of three bags, 4 and 3 of two in one of three.
    assert found.lift == pytest.approx(8 / (6 * 2 / 3 + 2 / 3))


def test_companions_pay_where_groups_are_read_whole_and_not_where_they_are_not() -> None:
    even = replace(SMALL, exponent=0.3)
    layouts = Layouts(hot_rows=(0,), full_bins=(4, 8, 16, 32, 64, 128), queries=(1, 2, 3))
    whole = simulate(even, layouts)
    apart = simulate(replace(even, together=0.0), layouts)
    for drop in collocation.DROPS:
        pays, costs = (savings(found, 16, drop, None)["comm_kb"] for found in (whole, apart))
        assert pays["ratio"] > 1.5 > 0.9 > costs["ratio"]
        assert "+" in pays["layout_with"]
        assert "+" not in pays["layout_without"]
    # Long rows make companions dear: bytes are saved less than with short ones.
    ratios = [savings(whole, size, 0.05, None)["comm_kb"]["ratio"] for size in (16, 1024)]
    assert ratios[0] > ratios[1]
    assert savings(whole, 16, -1.0, None)["comm_kb"]["ratio"] is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"group_rows": 17}, "group_rows is 17, but must be 1 to the bag's 16"),
        ({"together": 1.5}, "together is 1.5, but must be a share"),
        ({"rows": 63}, "rows is 63, but must be at least four times"),
        ({"exponent": -1.0}, "exponent is -1, but must be 0 to below 4"),
    ],
)
def test_a_trace_that_cannot_be_made_is_refused(change: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(SMALL, **change)  # type: ignore[arg-type]


def test_the_command_writes_records_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collocation, "LEARNED_BAGS", 300)
    monkeypatch.setattr(collocation, "TOLD_BAGS", 60)
    out, plots = tmp_path / "found.json", tmp_path / "plots"
    options = ["--quick", "--made-only", "--out", str(out), "--plots", str(plots)]
    monkeypatch.setattr("sys.argv", ["x", *options])
    assert collocation.main() == 0
    records = json.loads(out.read_text())["results"]
    assert {one["bench"] for one in records} == {"collocation"}
    assert len(records) == 2 * len(collocation.ROW_BYTES) * len(collocation.DROPS)
    for one in records:
        found = one["detail"]["comm_kb"]
        assert one["value"] == found["ratio"]
        if found["ratio"] is not None:
            assert found["ratio"] == found["without"] / found["with"]
    assert "groups of 4" in (plots / "collocation-comm-kb.svg").read_text()
