"""The benchmark of encrypted embedding lookups."""

from __future__ import annotations

import math
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
    assert record["params"] == {"dim": 4, "base": 4, "digits": 2, "left": 0}
    assert (record["unit"], record["threads"]) == ("ms", 1)
    detail = record["detail"]
    assert detail["ratio"] == pytest.approx(detail["coded_ms"] / record["value"])
    assert detail["same_ring_ratio"] == pytest.approx(detail["coded_ms"] / detail["same_ring_ms"])
    assert (detail["coded_levels"], detail["linear_levels"]) == (10, 1)
    assert detail["linear_error"] < 1e-4 < detail["coded_error"] < 0.02
    assert detail["linear_degree"] < detail["coded_degree"]
    assert detail["coded_error_bits"] == pytest.approx(-math.log2(detail["coded_error"]))


def test_levels_are_said(record: dict[str, Any]) -> None:
    detail = record["detail"]
    assert (detail["levels_needed"], detail["levels_max"]) == (10, 41)
    assert (detail["leveled_until_base"], detail["bootstraps_from_base"]) == (64, None)
    assert detail["coded_bootstraps"] == 0
    assert not any(name.startswith("bootstrapped_") for name in detail)


def test_levels_are_left() -> None:
    options = ("--dim", 2, "--digits", 2, "--left", 1, "--runs", 1)
    detail = run_json("bench", "paper", "coded", *options)["detail"]
    assert (detail["levels_needed"], detail["coded_levels"], detail["linear_levels"]) == (11, 11, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--left", 32), "leave at most 31"),
        (("--base", 64, "--left", 21), "leave at most 20, or take tables of 32 rows"),
        (("--left", 40, "--bootstraps"), "leave at most 22"),
    ],
)
def test_too_few_levels_are_refused(options: tuple[object, ...], words: str) -> None:
    done = run("bench", "paper", "coded", "--dim", 2, *options)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("option", "value"), [("--base", 5), ("--dim", 0), ("--digits", 99)])
def test_what_cannot_be_looked_up_is_refused(option: str, value: int) -> None:
    done = run("bench", "paper", "coded", option, value)
    assert done.returncode != 0
    assert str(value) in done.stderr
    assert "Traceback" not in done.stderr
