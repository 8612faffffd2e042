"""The demo itself: real data, real servers over TLS, for fewer users than `make demo` shows."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.movielens.alone import LoneStory
from examples.movielens.films import Overheard
from examples.movielens.split import HISTORY_MAX
from rich.console import Console

from hushtable.data import MovieLens

ROOT = Path(__file__).resolve().parents[2]


#: The demo, which learns once for all that run here: it would come to the same each time.
LEARNT = """
import pickle, sys
from pathlib import Path
from examples.movielens import films
from examples.movielens.__main__ import main

path, train = Path(sys.argv.pop(1)), films.train

def learnt(*arguments):
    if not path.exists():
        path.write_bytes(pickle.dumps(train(*arguments)))
    return pickle.loads(path.read_bytes())

films.train = learnt
main()
"""


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learnt") / "films"


def run_demo(learnt: Path, *options: str, users: int = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LEARNT, str(learnt), "--users", str(users), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def figures(learnt: Path) -> dict[str, Any]:
    done = run_demo(learnt, "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.fixture(scope="module")
def lone_figures(learnt: Path) -> dict[str, Any]:
    """By a single server, for few users: each lookup is 128 encrypted queries."""
    done = run_demo(learnt, "--scheme", "onion", "--json", users=5)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_private_and_clear_agree_and_beat_popularity(figures: dict[str, Any]) -> None:
    films = figures["films"]
    assert films["auc"] == films["auc_clear"]
    assert films["rows"] > 1000
    assert films["low"] < films["auc"] < films["high"]
    # The private history is worth something: even the low end passes what needs none.
    assert films["low"] > films["auc_popular"] > 0.5


def test_a_server_sees_the_bound_and_coin_flips(figures: dict[str, Any]) -> None:
    films = figures["films"]
    assert films["table_rows"] == 3706
    assert films["keys_seen"] == [HISTORY_MAX] * 4
    assert (films["senders"], films["upload_bytes"]) == (0, 0)
    # About 100,000 bits each: 0.02 is more than ten standard deviations.
    assert films["same_differ"] == pytest.approx(0.5, abs=0.02)
    assert films["other_differ"] == pytest.approx(0.5, abs=0.02)


def test_words_find_their_neighbours(figures: dict[str, Any]) -> None:
    words = figures["words"]
    assert words["table_rows"] == 400_000
    nearest = {answer["question"]: answer["nearest"] for answer in words["answers"]}
    assert nearest["king - man + woman"][0] == "queen"
    assert "insulin" in nearest["metformin"]


def test_one_server_gives_what_the_table_holds(lone_figures: dict[str, Any]) -> None:
    films = lone_figures["films"]
    assert films["auc"] == films["auc_clear"]
    assert films["rows"] > 100
    nearest = {one["question"]: one["nearest"] for one in lone_figures["words"]["answers"]}
    assert nearest["king - man + woman"][0] == "queen"


def test_one_server_sees_the_bound_coin_flips_and_whose_keys(
    lone_figures: dict[str, Any],
) -> None:
    films = lone_figures["films"]
    assert lone_figures["scheme"] == "onion"
    assert films["keys_seen"] == [HISTORY_MAX] * 4
    assert films["same_differ"] == pytest.approx(0.5, abs=0.02)
    assert films["other_differ"] == pytest.approx(0.5, abs=0.02)
    # All lookups of one client name the same keys: the story says so, and this is why.
    assert films["senders"] == 1
    assert films["upload_bytes"] > 0
    assert films["bytes_up"] % HISTORY_MAX == 0


def test_the_story_of_one_server_says_what_it_sees() -> None:
    printed = io.StringIO()
    story = LoneStory(Console(file=printed, width=80))
    ratings = MovieLens(*[("a",)] * 2, ((),), *[np.zeros(1)] * 4)  # type: ignore[arg-type]
    queries = (bytes(8), bytes(range(8)), bytes(range(8, 16)))
    story.opening()
    story.overheard(
        ratings, Overheard(0, 4, *queries, (128,) * 4, 0.5, 0.499, (bytes.fromhex("ab" * 32),))
    )
    said = " ".join(printed.getvalue().split())
    assert "a single server" in said
    assert "all 5 requests name the keys that answer them (abababababababab...)" in said
    assert "The server can tell that they come from one client" in said
    assert "128, 128, 128 queries, one of 100 films 128" in said
    assert "0405 0607" in said


def test_the_story_is_plain_where_there_is_no_terminal() -> None:
    # As it is typed, and learning.
    done = subprocess.run(
        [sys.executable, "-m", "examples.movielens", "--users", "100"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert "AUC, private lookups" in done.stdout
    assert "done in" in done.stdout
