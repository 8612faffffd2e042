"""``hushtable tune`` and ``hushtable bench layout``, as processes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks, plain
from waiting import COMMAND_HUNG_S

from hushtable import Table
from hushtable.tune import CostModel, costs, measure, save_costs, stored_costs
from hushtable.tune.costs import FEATURES

ROWS = 800
CONSTANTS = (1e-5, 1e-7, 2e-8, 3e-7, 6e-9, 6e-13, 1.5e-11, 2e-11, 1e-11, 4e-9)
FAST = ("--evaluations", "30", "--sample-bags", "60")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle, traces, and a model of time kept in a cache."""
    folder = tmp_path_factory.mktemp("tune")
    random = np.random.default_rng(3)
    weight = random.normal(size=(ROWS, 8)).astype(np.float32)
    Table.from_weight(weight, name="items").save(folder / "items")
    ids = np.minimum(random.zipf(1.3, 6000) - 1, ROWS - 1)
    np.savez(folder / "trace.npz", ids=ids, offsets=np.arange(0, 6001, 12))
    lines = "\n".join(" ".join(map(str, bag)) for bag in ids.reshape(-1, 12))
    (folder / "trace.csv").write_text(lines)
    model = CostModel(CONSTANTS, CONSTANTS, 0.02, 0.1, *costs._machine())
    save_costs(model, folder / "cache" / "hushtable" / "layout-costs.json")
    (folder / "measure.py").write_text("def served(kept):\n    return kept.mean()\n\nnothing = 3\n")
    return folder


def run(work: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(work / "cache"), "COLUMNS": "200"}
    if options:
        command = [sys.executable, "-m", "hushtable", *map(str, arguments)]
        return plain(command, cwd=work, env=environment, **options)
    return forks.run(*arguments, cwd=work, env=environment)


def test_two_processes_write_the_same_bytes(work: Path) -> None:
    bundles = []
    for name in ("first", "second"):
        out = ("--out", work / name, "--no-plots", "--apply", work / f"{name}-bundle")
        budgets = ("--max-comm-kb", 20, "--max-drop", 0.02, "--seed", 7)
        done = run(work, "tune", "items", "trace.npz", *budgets, *out, *FAST, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        assert done.stderr == ""
        document = json.loads(done.stdout)
        assert document["best"]["comm_kb"] <= 20
        assert document["best"]["drop"] <= 0.02
        front = json.loads((work / name / "front.json").read_text())
        assert front["front"] == document["front"]
        assert document["applied"]["bundle"] == str(work / f"{name}-bundle")
        bundles.append(work / f"{name}-bundle")
    for file in ("layout.json", "layout.map"):
        first, second = ((bundle / file).read_bytes() for bundle in bundles)
        assert first == second
        assert first
    fronts = [json.loads((work / name / "front.json").read_text()) for name in ("first", "second")]
    assert fronts[0]["points"] == fronts[1]["points"]


def test_the_table_for_people(work: Path) -> None:
    budgets = ("--max-comm-kb", 20, "--max-drop", 0.02)
    done = run(work, "tune", "items", "trace.csv", *budgets, *FAST)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    head = done.stdout.splitlines()[0].split()
    assert head[:3] == ["family", "KB", "inf./s"]
    assert done.stdout.count("\n* ") == 2  # in the front, and among the families
    assert "chosen" in done.stdout
    assert "held-out accesses" in done.stdout
    # On a terminal of 80 columns, as on this one of 200, nothing wraps and nothing is cut.
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout


def test_a_small_trace_is_one_line(work: Path) -> None:
    (work / "small.csv").write_text("1 2 3\n" * 7)
    done = run(work, "tune", "items", "small.csv", "--max-drop", "0.1", *FAST)
    assert done.returncode == 2
    assert done.stderr.startswith("error: small.csv has 7 inferences, of which 6 would be learned")
    assert "give a trace of 100 inferences, or another trace by --held-out" in done.stderr


def test_quality_comes_from_a_file(work: Path) -> None:
    options = ("--quality", "measure.py:served", "--min-quality", "0.97", "--max-comm-kb", 30)
    done = run(work, "tune", "items", "trace.npz", *options, *FAST, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(done.stdout)
    assert document["quality_clear"] == 1.0
    assert document["best"]["quality"] >= 0.97
    assert document["best"]["quality"] == pytest.approx(1 - document["best"]["drop"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give at least one budget"),
        (("--max-drop", "2"), "drop_max is 2, but must be a share"),
        (("--max-comm-kb", "0.01"), "--max-comm-kb 0.01, which binds"),
        (("--max-drop", "0.1", "--ids-max", "5"), "bag 0 of trace.npz has 12 ids, over ids_max, 5"),
        (("--max-drop", "0.1", "--quality", "measure"), "must be module:function"),
        (("--max-drop", "0.1", "--quality", "no.py:f"), "there is no file no.py"),
        (("--max-drop", "0.1", "--quality", "no_such:f"), "no_such cannot be imported"),
        (("--max-drop", "0.1", "--quality", "measure.py:f"), "has no function f"),
        (("--max-drop", "0.1", "--quality", "measure.py:nothing"), "has no function nothing"),
        (("--max-drop", "0.1", "--column", "x"), "only Parquet files have a column"),
    ],
)
def test_bad_options_are_one_line(work: Path, options: tuple[str, ...], said: str) -> None:
    done = run(work, "tune", "items", "trace.npz", *options, *FAST)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_traces_are_one_line(work: Path) -> None:
    (work / "outside.csv").write_text(f"1,2\n3,{ROWS}\n")
    (work / "empty.csv").write_text("\n\n")
    for name, said in (
        ("outside.csv", f"bag 1 of outside.csv has id {ROWS}, but the table has 800 rows"),
        ("empty.csv", "empty.csv is empty"),
        ("missing.csv", "missing.csv: no such file"),
    ):
        done = run(work, "tune", "items", name, "--max-drop", "0.1", "--json")
        assert done.returncode == 2
        error = json.loads(done.stdout)["error"]
        assert said in error["message"]
        assert error["exit_code"] == 2


def test_progress_is_for_terminals_only(work: Path) -> None:
    leader, follower = pty.openpty()
    done = run(
        work,
        *("tune", "items", "trace.npz", "--max-drop", "0.05", *FAST),
        capture_output=False,
        stdout=subprocess.PIPE,
        stderr=follower,
    )
    os.close(follower)
    assert done.returncode == 0
    assert b"searching" in os.read(leader, 1 << 16)
    os.close(leader)
    assert "searching" not in done.stdout


def test_bench_layout_keeps_what_it_measured(work: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "hushtable", "bench", "layout", "--json"]
    command += ["--seconds", "0.004", "--rounds-max", "2"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=COMMAND_HUNG_S
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["bench"] == "layout"
    assert record["threads"] == 1
    kept = Path(record["detail"]["kept_in"])
    assert kept.is_relative_to(tmp_path)
    models = json.loads(kept.read_text())["models"]
    assert list(models.values()) == [record["detail"]["model"]]
    assert set(record["detail"]["model"]["batch"]) == set(FEATURES)
    assert len(record["detail"]["samples"]) == len(measure.SHAPES)


@pytest.mark.parametrize("command", ["tune", "bench layout"])
def test_help_has_examples(work: Path, command: str) -> None:
    done = run(work, *command.split(), "--help")
    assert done.returncode == 0
    assert f"$ hushtable {command}" in done.stdout
    assert "--json" in done.stdout


def test_models_lie_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stored_costs() == tmp_path / "hushtable" / "layout-costs.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stored_costs() == tmp_path / ".cache" / "hushtable" / "layout-costs.json"
