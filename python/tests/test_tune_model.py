"""``hushtable tune MODEL --trace``: one budget over the tables of a model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_line import forks

from hushtable import ConfigError, Model, ServerProcess, connect, verify_model
from hushtable.tune import (
    CostModel,
    ShareError,
    Trace,
    TraceError,
    costs,
    save_costs,
    split_budget,
    tune_model,
)

CONSTANTS = (1e-5, 1e-7, 2e-8, 3e-7, 6e-9, 6e-13, 1.5e-11, 0.0, 1e-11, 4e-9)
MODEL = CostModel(CONSTANTS, CONSTANTS, 0.02, 0.1, "a processor", "portable", "0", (1e-6, 1e-10))
SPEC = """
[[feature]]
name = "seen"
table = "items"
max_ids = 32
[[feature]]
name = "cart"
table = "items"
max_ids = 8
[[feature]]
name = "shops"
max_ids = 6
[[feature]]
name = "user"
[tables.items]
key = "item.weight"
[tables.shops]
key = "shop.weight"
[tables.user]
key = "user.weight"
"""


def trace_of(rows: int, ids: int, seed: int, bags: int = 240) -> Trace:
    random = np.random.default_rng(seed)
    drawn = np.minimum(random.zipf(1.4, bags * ids) - 1, rows - 1)
    return Trace(drawn, np.arange(0, bags * ids + 1, ids))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A skewed model: most lookups are of the items, and the shops' table is small."""
    folder = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(1)
    sizes = {"item.weight": (3000, 8), "shop.weight": (500, 8), "user.weight": (200, 4)}
    weights = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    np.savez(folder / "checkpoint.npz", **weights)
    (folder / "spec.toml").write_text(SPEC)
    Model.build(folder / "checkpoint.npz", folder / "clicks", spec=folder / "spec.toml")
    for name, trace in traces().items():
        np.savez(folder / f"{name}.npz", ids=trace.ids, offsets=trace.offsets)
    save_costs(
        CostModel(CONSTANTS, CONSTANTS, 0.02, 0.1, *costs._machine()),
        folder / "cache" / "hushtable" / "layout-costs.json",
    )
    return folder


def traces() -> dict[str, Trace]:
    return {
        "seen": trace_of(3000, 32, seed=2),
        "cart": trace_of(3000, 8, seed=3),
        "shops": trace_of(500, 6, seed=4),
    }


def run(work: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(work / "cache"), "COLUMNS": "80"}
    return forks.run("tune", *arguments, cwd=work, env=environment)


NAMED = ("--trace", "seen=seen.npz", "--trace", "cart=cart.npz", "--trace", "shops=shops.npz")
FAST = ("--evaluations", "30", "--sample-bags", "60")


def test_tables_share_a_budget_and_are_served_by_what_was_chosen(work: Path) -> None:
    budgets = ("--max-comm-kb", 4, "--max-server-us", 900)
    outputs = ("--apply", "tuned", "--out", "found")
    done = run(work, "clicks", *NAMED, *budgets, *FAST, *outputs, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(done.stdout)
    total, even = document["total"], document["even_split"]
    assert total["comm_kb"] <= 4
    assert total["server_us"] <= 900
    assert document["left"] == ["user"]
    tables = document["tables"]
    assert list(tables) == ["items", "shops"]
    # By default a table's weight is its share of the lookups: 32 and 8 of 46.
    assert tables["items"]["weight"] == pytest.approx(40 / 46)
    assert tables["items"]["features"] == 2
    sums = [sum(t["best"][name] for t in tables.values()) for name in ("comm_kb", "latency_ms")]
    assert sums == pytest.approx([total["comm_kb"], total["latency_ms"]])
    # No worse than equal parts, and here far better.
    assert even is not None
    assert total["drop"] < even["drop"] / 3
    assert json.loads((work / "found" / "model.json").read_text())["tables"] == tables

    model = Model.open(work / "tuned")
    assert model.version == document["applied"]["model_version"]
    assert verify_model(work / "tuned").ok
    layouts = {table.name: table.layout for table in model.tables}
    assert layouts["user"] is None
    for name, found in tables.items():
        layout = model.table(name).layout
        assert layout is not None
        assert layout.version == layouts[name]
        # Two features of the items: each sends what the layout says.
        assert layout.comm_bytes * found["features"] == found["best"]["costs"]["comm_bytes"]
    assert not list(work.glob(".tuned-*"))

    with (
        ServerProcess(str(work / "tuned"), "left") as left,
        ServerProcess(str(work / "tuned"), "right") as right,
        connect(left.url, right.url, model=model.name) as client,
    ):
        bags = client.lookup_bags({"seen": [[1, 2, 3]], "shops": [[4]]})
        items = model.table("items")
        kept = bags["seen"].kept
        assert kept.any()
        assert np.array_equal(bags["seen"].rows[kept], items.rows(np.array([[1, 2, 3]]))[kept])


def test_what_people_read_fits_eighty_columns(work: Path) -> None:
    done = run(work, "clicks", *NAMED, "--max-comm-kb", 4, *FAST)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80, done.stdout
    assert lines[0].split()[:4] == ["table", "share", "KB", "us"]
    assert [line.split()[0] for line in lines[1:4]] == ["items", "shops", "total"]
    assert "by equal parts" in done.stdout.replace("\n", " ")
    assert "in no figure: user" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (NAMED, "give a budget for the whole model: --max-comm-kb or --max-server-us"),
        (("--max-comm-kb", "9"), "or of a model's features --trace FEATURE=FILE"),
        ((*NAMED, "--max-drop", "0.1"), "--max-drop is for one table"),
        (("seen.npz", *NAMED, "--max-comm-kb", "9"), "TRACE is for one table"),
        ((*NAMED, "--max-comm-kb", "0"), "--max-comm-kb is 0, but must be over 0"),
        (("--trace", "seen", "--max-comm-kb", "9"), "must be FEATURE=FILE"),
        (("--trace", "no=seen.npz", "--max-comm-kb", "9"), "has no feature 'no'"),
        (
            (*NAMED, "--max-comm-kb", "9", "--weight", "seen=-1"),
            "--weight of seen is '-1', but must be a number of 0 or more",
        ),
        (
            (*NAMED[:2], "--max-comm-kb", "9", "--weight", "cart=1"),
            "a weight of 'cart', but no trace",
        ),
        (
            ("seen.npz", "--feature", "seen", "--max-drop", "1", "--max-server-us", "5"),
            "--max-server-us are of all tables of a model: give --trace",
        ),
    ],
)
def test_bad_options_are_one_line(work: Path, options: tuple[str, ...], said: str) -> None:
    done = run(work, "clicks", *options, *FAST)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_no_model_can_meet_is_said(work: Path) -> None:
    model = Model.open(work / "clicks")
    with pytest.raises(TraceError, match="has 30 inferences, of which 24 would be learned from"):
        tune_model(model, {"seen": trace_of(3000, 32, 2, bags=30)}, comm_kb_max=30, costs=MODEL)
    with pytest.raises(TraceError, match="over ids_max, 8"):
        tune_model(model, {"cart": traces()["seen"]}, comm_kb_max=30, costs=MODEL)
    with pytest.raises(ShareError, match="of all 2 tables meet --max-server-us 1 "):
        tune_model(model, traces(), server_us_max=1, costs=MODEL, evaluations=30, sample_bags=60)
    with pytest.raises(ConfigError, match="of: seen, cart, shops, user"):
        tune_model(model, {}, comm_kb_max=9)


def test_weights_of_the_user_move_the_split(work: Path) -> None:
    model = Model.open(work / "clicks")
    options = {"costs": MODEL, "evaluations": 30, "sample_bags": 60}
    found = tune_model(
        model, traces(), comm_kb_max=4, weights={"shops": 1.0, "seen": 0.0}, **options
    )
    assert found.share.weights == {"items": 0.0, "shops": 1.0}
    by_lookups = split_budget(found.fronts, {"items": 40.0, "shops": 6.0}, comm_kb_max=4)
    assert found.share.points["shops"].drop <= by_lookups.points["shops"].drop
    assert found.share.points["items"].drop >= by_lookups.points["items"].drop
