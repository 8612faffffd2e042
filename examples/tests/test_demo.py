"""The demo itself: real data, real servers over TLS, for fewer users than `make demo` shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.movielens.split import HISTORY_MAX

ROOT = Path(__file__).resolve().parents[2]


def run_demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.movielens", "--users", "100", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    done = run_demo("--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_private_and_clear_agree_and_beat_popularity(figures: dict[str, Any]) -> None:
    films = figures["films"]
    assert films["auc"] == films["auc_clear"]
    assert films["rows"] > 5000
    assert films["low"] < films["auc"] < films["high"]
    # The private history is worth something: even the low end passes what needs none.
    assert films["low"] > films["auc_popular"] > 0.5


def test_a_server_sees_the_bound_and_coin_flips(figures: dict[str, Any]) -> None:
    films = figures["films"]
    assert films["table_rows"] == 3706
    assert films["keys_seen"] == [HISTORY_MAX] * 4
    # About 100,000 bits each: 0.02 is more than ten standard deviations.
    assert films["same_differ"] == pytest.approx(0.5, abs=0.02)
    assert films["other_differ"] == pytest.approx(0.5, abs=0.02)


def test_words_find_their_neighbours(figures: dict[str, Any]) -> None:
    words = figures["words"]
    assert words["table_rows"] == 400_000
    nearest = {answer["question"]: answer["nearest"] for answer in words["answers"]}
    assert nearest["king - man + woman"][0] == "queen"
    assert "insulin" in nearest["metformin"]


def test_the_story_is_plain_where_there_is_no_terminal() -> None:
    done = run_demo()
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert "AUC, private lookups" in done.stdout
    assert "done in" in done.stdout
