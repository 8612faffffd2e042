"""`hushtable bench onion --sweep` and `bench serve --rate`: counts, refusals, and small runs."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from test_cli import run

from hushtable.errors import ConfigError
from hushtable_lab.cli import _bench_load as load
from hushtable_lab.cli import _onion_sweep as sweep
from hushtable_lab.cli._onion_figures import figures
from hushtable_lab.sim.accelerator.figures_counts import count


def records_of(*arguments: str) -> list[dict[str, Any]]:
    done = run("bench", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def counted() -> list[dict[str, Any]]:
    return records_of("onion", "--sweep", "counts")


def of(records: list[dict[str, Any]], bench: str, **params: Any) -> list[dict[str, Any]]:
    wanted = params.items()
    return [
        one
        for one in records
        if one["bench"] == bench and all(one["params"][key] == value for key, value in wanted)
    ]


def test_the_paper_set_multiplies_nearly_as_often_as_the_model(
    counted: list[dict[str, Any]],
) -> None:
    """The model has another D0 and other leaves, but the same primes, digits and rules."""
    for gib in (2, 16):
        (found,) = of(
            counted,
            "onion-operations",
            figure="4a",
            parameters="ive_paper",
            table_mib=gib << 10,
        )
        model = count(gib, found["detail"]["matrix_rows"])
        assert found["value"] == pytest.approx(model.share("RowSel"), abs=0.05)


def test_a_larger_first_dimension_costs_leaves_and_saves_games(
    counted: list[dict[str, Any]],
) -> None:
    for parameters in sweep.SETS:
        own = of(counted, "onion-operations", figure="4b", parameters=parameters)
        totals = {
            one["detail"]["matrix_rows"]: (
                sum(one["detail"]["by_step"]["ExpandQuery"].values()),
                sum(one["detail"]["by_step"]["ColTor"].values()),
            )
            for one in own
        }
        rows = sorted(totals)
        assert len(rows) == (3 if parameters == "n4096_128" else 5)
        # A larger D0 has more leaves and fewer columns.
        assert all(totals[a][0] < totals[b][0] for a, b in itertools.pairwise(rows))
        assert all(totals[a][1] > totals[b][1] for a, b in itertools.pairwise(rows))


def test_a_batch_has_more_multiplications_for_each_byte(counted: list[dict[str, Any]]) -> None:
    for parameters in sweep.SETS:
        own = of(counted, "onion-intensity", parameters=parameters)
        values = [one["value"] for one in own]
        assert [one["params"]["batch"] for one in own] == [1, 2, 4, 8, 16, 32, 64]
        assert values == sorted(values)
        # The table is read once for all: without the queries' own bytes it would be 64 times.
        assert 2 < values[-1] / values[0] < 64
        # Nobody's key serves another's query.
        assert len({one["detail"]["expand"] for one in own}) == 1


def test_the_ledger_moves_what_figure_8_says_at_the_chips_sizes(
    counted: list[dict[str, Any]],
) -> None:
    at = {"parameters": "ive_paper", "scratchpad": "chip", "batch": 32, "table_mib": 8192}
    (breadth,) = of(counted, "onion-traffic", schedule="breadth", overlap=False, **at)
    (inside,) = of(counted, "onion-traffic", schedule="hierarchical", overlap=False, **at)
    (ours,) = of(counted, "onion-traffic", schedule="hierarchical", overlap=True, **at)
    assert breadth["detail"]["tournament_reduction"] == pytest.approx(1.0)
    assert ours["detail"]["tournament_reduction"] == pytest.approx(2.24, rel=0.1)
    gain = ours["detail"]["tournament_reduction"] / inside["detail"]["tournament_reduction"]
    assert gain == pytest.approx(1.23, rel=0.1)
    # Residues of 28 bits, but 32 in the prepared table.
    assert breadth["detail"]["row_select"]["table"] == pytest.approx(4.0 * (8 << 30), rel=0.03)


def test_figures_are_drawn_of_counts_and_measurements(
    counted: list[dict[str, Any]], tmp_path: Path
) -> None:
    measured = list(sweep.measure("13c", "n4096_128", 8, [1, 2], 1, 0.0))
    assert [one["params"]["batch"] for one in measured] == [1, 2]
    assert all(one["value"] > 0 and one["detail"]["row_select_ms"] > 0 for one in measured)
    orders = list(
        sweep.measure("13b", "n4096_128", 8, [2], 1, 0.0, schedule="breadth", overlap=True)
    )
    assert orders[0]["params"]["overlap"] is True
    numbers = set()
    for figure in figures([*counted, *measured, *orders]):
        numbers.add(figure.number.split("-")[0])
        assert all(path.stat().st_size > 0 for path in figure.write(tmp_path, "onion"))
    assert numbers == {"4a", "4b", "6", "8", "13b", "13c"}
    paper = (tmp_path / "onion-4a-ive_paper-paper.csv").read_text()
    assert "0.58" in paper and "0.66" in paper


@pytest.mark.timed
def test_a_pass_without_preparation_answers_the_same_and_takes_longer() -> None:
    engine = sweep._engine("n4096_128", 8, 1, None, False, None)
    without = engine.unprepared_seconds(1)
    prepared = min(engine.answer_seconds(1, seconds=0.0)[0])
    assert without[2] > 2 * prepared[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["onion", "--sweep", "all"], "counts, quick, evidence, whole"),
        (["onion", "--plots", "x"], "--sweep"),
        (["serve", "--rate", "0"], "above 0"),
        (["serve", "--rate", "1", "--rates", "2"], "not both"),
        (["serve", "--rates", "1,x"], "numbers with commas"),
        (["serve", "--rate", "1", "--modes", "none"], "window, no-window, one"),
        (["serve", "--rate", "1", "--scheme", "three"], "pair or onion"),
        (["serve", "--scheme", "onion"], "give --rate"),
        (["serve", "--fixed", "--bags"], "leave out the rest"),
        (["serve", "--fixed", "--row-bytes", "6"], "multiple of 4"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(arguments: list[str], says: str) -> None:
    done = run("bench", *arguments)
    assert done.returncode != 0
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_arrivals_are_a_poisson_process_that_a_seed_repeats() -> None:
    times = load.arrivals(50.0, 200.0, 3)
    assert times == load.arrivals(50.0, 200.0, 3) != load.arrivals(50.0, 200.0, 4)
    assert times == sorted(times) and times[0] > 0 and times[-1] < 200
    # 10,000 expected, and as many as their variance.
    assert abs(len(times) - 10_000) < 5 * math.sqrt(10_000)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="server and clients need a core each")
@pytest.mark.parametrize(
    ("scheme", "rate"), [("pair", 40.0), ("onion", 4.0)], ids=["pair", "onion"]
)
def test_a_real_server_is_loaded_with_arrivals(scheme: str, rate: float, tmp_path: Path) -> None:
    records = records_of(
        *["serve", "--scheme", scheme, "--rows", "2000", "--row-bytes", "64"],
        *["--rate", str(rate), "--modes", "window,one", "--connections", "4"],
        *["--seconds", "1.5", "--warmup", "0.2", "--plots", str(tmp_path)],
    )
    assert [one["bench"] for one in records] == ["load", "load", "load-summary"]
    for one in records[:2]:
        detail = one["detail"]
        measured = [t for t in load.arrivals(rate, 1.7, 1) if t >= 0.2]
        assert detail["arrived"] == len(measured)
        assert detail["errors"] == detail["unanswered"] == 0
        assert detail["answered"] + detail["rejected"] == detail["arrived"]
        assert 0 < detail["p50_ms"] <= detail["p90_ms"] <= detail["p99_ms"] <= detail["max_ms"]
    assert (tmp_path / f"load-14b-{scheme}.csv").exists()


@pytest.mark.timed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="server and clients need a core each")
def test_what_a_request_costs_is_the_server_s_time_and_all_of_it() -> None:
    (one,) = records_of("serve", "--fixed", "--seconds", "1.5", "--warmup", "0.2")
    detail = one["detail"]
    assert one["bench"] == "serve-fixed" and one["params"]["connections"] == 1
    assert one["floor"] < one["value"]
    assert one["value"] == pytest.approx(detail["server_user_us"] + detail["server_system_us"])
    # One connection asks again once it has its answer: the server cannot work for longer than that.
    assert 0 < detail["server_busy"] <= 1.05
    assert one["value"] <= 1.5e6 / detail["requests_per_s"]


def test_rates_and_modes_are_read() -> None:
    assert load.read_rates(3.0, None) == (3.0,)
    assert load.read_rates(None, "5,1,2.5") == (1.0, 2.5, 5.0)
    assert load.read_rates(None, "auto") == ()
    assert load.read_modes("one,window") == ("one", "window")
    with pytest.raises(ConfigError, match="not none"):
        load.read_rates(None, None)
