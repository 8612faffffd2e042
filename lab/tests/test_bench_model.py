"""``hushtable bench model`` on small tables: that it runs, and says what it measured."""

from __future__ import annotations

from typing import Any

import pytest
from test_cli import RECORD, run, run_json


def test_bench_model() -> None:
    options = ["--tables", "20000,300", "--scale", 0.1, "--dim", 4, "--batch", 8]
    record = run_json("bench", "model", *options, "--seconds", 0.05, "--rounds", 3)
    assert set(record) == RECORD
    assert (record["bench"], record["unit"], record["threads"]) == ("model", "inferences/s", 1)
    detail = record["detail"]
    assert (detail["table_count"], detail["rows"]) == (2, 2030)
    assert detail["read_bytes"] == 2030 * 16
    assert record["value"] > 0
    assert record["of_floor"] == pytest.approx(record["value"] / record["floor"])
    expected = detail["a_process_a_table_ms"] / detail["latency_ms"]
    assert detail["latency_ratio"] == pytest.approx(expected)
    assert detail["latency_ratio_concurrent"] > 0
    assert detail["bytes_up"] > detail["bytes_down"] > 0
    expected = detail["latency_floor_ms"] / detail["latency_ms"]
    assert 0 < detail["latency_of_floor"] == pytest.approx(expected)
    assert 0 < detail["best_latency_of_floor"] < 1


@pytest.fixture(scope="module")
def engine() -> dict[str, Any]:
    options = ["--tables", "300,30,3", "--scale", 1, "--batch", 1, "--seconds", 0.01]
    return dict(run_json("bench", "model", *options, "--no-latency"))


def test_the_engine_alone(engine: dict[str, Any]) -> None:
    assert "latency_ms" not in engine["detail"]
    assert engine["detail"]["bound"]


@pytest.mark.timed
def test_memory_bounds_one_inference(engine: dict[str, Any]) -> None:
    assert engine["detail"]["bound"] == "memory"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--tables", "taobao"], "must be criteo or numbers of rows"),
        (["--scale", "0"], "--scale is 0"),
        (["--rounds", "1"], "--rounds at least 3"),
        (["--tables", "10", "--batch", "0"], "batch is 0"),
    ],
)
def test_what_bench_model_cannot_measure(options: list[str], text: str) -> None:
    done = run("bench", "model", *options, "--no-latency", "--json")
    assert done.returncode == 2
    assert text in done.stdout + done.stderr
