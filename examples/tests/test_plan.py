"""The planning example: what it chooses keeps up, and nothing that would do is passed over."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("simpy", reason="the extra hushtable-lab[sim] is not installed")

from examples.plan import __main__
from examples.plan.inference import Way, best, capacity
from examples.plan.retrieval import MACHINES_MAX, Lookups, core, fleet

from hushtable import ConfigError
from hushtable_lab.sim.accelerator.serving import Scheduler
from hushtable_lab.sim.inference.deployment import Costs, Deployment, Step

FEW = ["--runs", "1", "--hours", "0.5", "--clients", "1", "--storage-gb", "0.1", "1"]
MACHINE = ["--machine", "ive", "--table-gb", "2", "--lookups", "100", "--lookup-ms", "200"]


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = __main__.main([*FEW, *MACHINE, *words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_what_is_chosen_keeps_up_and_asks_for_the_least_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = planned(capsys)
    assert code == 0
    assert {way["garbler"] for way in found["ways"]} == {"server", "client"}
    chosen = found["way"]
    assert chosen["is_enough"]
    assert chosen["p95_s"] <= 5
    assert 3600 * chosen["sustained"] >= 60
    enough = [way for way in found["ways"] if way["is_enough"]]
    assert chosen["storage_gb"] == min(way["storage_gb"] for way in enough)
    assert found["fleet"]["machine"] == "ive"
    assert found["fleet"]["p95_s"] <= 0.2


def test_wishes_that_nothing_fulfils_end_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = planned(capsys, "--prediction-s", "0.001")
    assert (code, found["way"]) == (1, None)
    # Nothing is said of a machine that could not do one lookup in time.
    code, found = planned(capsys, "--lookup-ms", "0.001")
    assert (code, found["fleet"]) == (1, None)
    assert found["fleets"][0]["machines"] is None


def test_a_rate_beyond_what_is_sustained_has_no_mean(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = planned(capsys, "--predictions", "100000")
    assert code == 1
    assert all(way["mean_s"] is None and not way["is_enough"] for way in found["ways"])


def test_the_tables_and_the_decision_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([*FEW, *MACHINE]) == 0
    printed = capsys.readouterr().out
    assert "holds/hour" in printed
    assert "Inference: the " in printed
    assert "Lookups: 1 x ive" in printed


@pytest.mark.parametrize("words", [["--clients", "0"], ["--network", "nonesuch"]])
def test_bad_input_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        __main__.main([*FEW, *MACHINE, *words])
    assert words[0].strip("-") in capsys.readouterr().err


def test_as_few_machines_are_taken_as_answer_in_time() -> None:
    # A lookup a second, one at a time: at 2.5 a second three machines keep up, two do not.
    one = Scheduler((1.0,), 0.0)
    needed = fleet(Lookups(1, 2.5, 1e6), "made up", one)
    assert needed.machines == 3
    sooner = fleet(Lookups(1, 2.5, 1.8), "made up", one)
    assert sooner.machines is not None
    assert sooner.machines > 3
    assert sooner.p95_s <= 1.8 < needed.p95_s
    assert fleet(Lookups(1, 2.5, 0.9), "made up", one).machines is None
    assert fleet(Lookups(1, 2.0 * MACHINES_MAX, 9), "made up", one).machines is None


def test_capacity_is_what_keeps_one_thing_always_busy() -> None:
    steps = (Step("he", "server", 4.0, 2), Step("circuits", "down", 1e6))
    costs = Costs("made up", "server", steps, (Step("evaluate", "client", 1.0),), 1, 1)
    # 8 core seconds of 4 cores, for 3 clients: 6 s a prediction of each.
    deployment = Deployment(costs, 1, 4, 100, 100, 10, 10, clients=3)
    assert capacity(deployment) == pytest.approx(1 / 6)
    # 1 MB at 1 Mbit/s takes 8 s, over a link that nobody shares.
    slow = Deployment(costs, 1, 4, 100, 1, 10, 10, clients=3)
    assert capacity(slow) == pytest.approx(1 / 8)


def test_the_least_room_comes_before_speed() -> None:
    def way(storage_gb: float, p95_s: float, is_enough: bool) -> Way:
        return Way("client", storage_gb, 100, 1, p95_s, p95_s, 1.0, is_enough)

    small, quick, none = way(1, 5, True), way(4, 1, True), way(0.1, math.nan, False)
    assert best([quick, none, small]) is small
    assert best([none]) is None


def test_a_core_takes_what_was_measured_of_it(tmp_path: Path) -> None:
    path = __main__.newest()
    alone, together = (
        next(
            one["detail"]["ms_per_pass"] * 1e-3
            for one in json.loads(path.read_text())["results"]
            if one["bench"] == "onion" and one["threads"] == 1 and one["params"]["batch"] == batch
        )
        for batch in (1, 16)
    )
    passes = core(path)
    assert passes.batch_max == 16
    assert passes.seconds(1, 1) == pytest.approx(alone)
    assert passes.seconds(1, 16) == pytest.approx(together)
    assert alone < passes.seconds(1, 8) < together
    # A query is expanded once, whatever the table.
    assert 1.8 * alone < passes.seconds(2, 1) < 2 * alone
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"results": []}')
    with pytest.raises(ConfigError, match="bench/run"):
        core(wrong)
