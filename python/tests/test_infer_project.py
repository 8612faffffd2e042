"""Traces of plans, and what they would take on other machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import run, run_json
from test_infer import build

from hushtable import ConfigError, infer

MACHINES = ("xeon-5218", "lattigo", "a100", "osiris")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    built = build(tmp_path)
    infer.compile(built.path, spec=tmp_path / "model.toml")
    return Path(built.path)


def test_a_trace_has_every_operation_at_its_level(model: Path) -> None:
    found = infer.trace(model)
    plan = infer.describe(model)
    assert (found["degree"], found["levels"]) == (plan.degree, plan.levels)
    levels = [operation["level"] for operation in found["operations"]]
    # From the top to nothing left, and never back.
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == plan.levels
    rescaled = [one["count"] for one in found["operations"] if one["kind"] == "rescale"]
    assert sum(rescaled) == plan.levels
    squares = [one for one in found["operations"] if one["kind"] == "square"]
    assert squares
    assert all(one["layer"] for one in found["operations"])


def test_a_trace_goes_through_a_file_to_every_machine(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    done = run("infer", "trace", model, "-o", out)
    assert done.returncode == 0, done.stderr
    listed = run("infer", "trace", model)
    assert "square" in listed.stdout
    traced = json.loads(out.read_text())
    assert traced == infer.trace(model)
    done = run("infer", "project", out, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["machine"] for row in rows] == list(MACHINES)
    for row in rows:
        assert row["sources"]
        assert row["seconds"] == pytest.approx(sum(seconds for _, seconds in row["layers"]))
        assert row["bootstrap_seconds"] == 0
    assert rows[0]["seconds"] > rows[1]["seconds"] > rows[2]["seconds"] > rows[3]["seconds"]


def test_the_papers_case_study_comes_out_again() -> None:
    done = run("infer", "project", "--paper", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    seconds = {(row["trace"], row["machine"]): row["seconds"] for row in rows}
    assert len(seconds) == 5 * len(MACHINES)
    # HE-LRM, sections 6.3 and 6.4: 230 s and 489 s on the paper's CPU, 1.07 s on the GPU.
    assert seconds["500", "xeon-5218"] == pytest.approx(230, rel=0.25)
    assert seconds["5M", "xeon-5218"] == pytest.approx(489, rel=0.25)
    assert seconds["5M", "a100"] == pytest.approx(1.07, rel=0.25)
    silu = infer.project(infer.paper_trace(85, activation="silu"), "xeon-5218")
    assert silu.seconds < seconds["5M", "xeon-5218"]


def test_ones_own_machine_is_a_file(model: Path, tmp_path: Path) -> None:
    costs = ("add", "multiply_plain", "multiply", "rescale", "rotate", "hoisted_rotate")
    table = {
        "name": "mine",
        "device": "a slide rule",
        "sources": ["guessed"],
        "degree": 8192,
        "costs": {name: [[1, 1.0], [2, 2.0]] for name in costs},
    }
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(table))
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(infer.trace(model)))
    row = run_json("infer", "project", trace, "--machine", path)
    assert (row["machine"], row["sources"]) == ("mine", ["guessed"])
    del table["costs"]["rotate"]
    with pytest.raises(ConfigError, match="no times of"):
        infer.project(infer.paper_trace(1), table)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "either a trace or --paper"),
        (["--paper", "--machine", "abacus"], "no machine"),
        (["nowhere.json"], "nowhere.json"),
        (["--paper", "--machine", "nowhere.json"], "nowhere.json"),
    ],
)
def test_what_cannot_be_projected_is_refused(options: list[str], text: str) -> None:
    done = run("infer", "project", *options)
    assert done.returncode != 0
    assert text in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
