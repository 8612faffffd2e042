"""The benchmark of encrypted embedding lookups."""

from __future__ import annotations

from typing import Any

import pytest
from test_cli import RECORD, run, run_json


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return dict(run_json("bench", "paper", "coded", "--dim", 4, "--digits", 2, "--runs", 1))


@pytest.mark.timed
def test_one_linear_map_is_faster(record: dict[str, Any]) -> None:
    assert record["detail"]["ratio"] > 1


def test_one_linear_map_is_closer(record: dict[str, Any]) -> None:
    assert set(record) == RECORD
    assert record["params"] == {"dim": 4, "base": 4, "digits": 2}
    assert (record["unit"], record["threads"]) == ("ms", 1)
    detail = record["detail"]
    assert detail["ratio"] == pytest.approx(detail["coded_ms"] / record["value"])
    assert detail["same_ring_ratio"] == pytest.approx(detail["coded_ms"] / detail["same_ring_ms"])
    assert (detail["coded_levels"], detail["linear_levels"]) == (10, 1)
    assert detail["linear_error"] < 1e-4 < detail["coded_error"] < 0.02
    assert detail["linear_degree"] < detail["coded_degree"]


@pytest.mark.parametrize(("option", "value"), [("--base", 5), ("--dim", 0), ("--digits", 99)])
def test_what_cannot_be_looked_up_is_refused(option: str, value: int) -> None:
    done = run("bench", "paper", "coded", option, value)
    assert done.returncode != 0
    assert str(value) in done.stderr
    assert "Traceback" not in done.stderr
