"""``hushtable bench shards``: real shards and fronts, and stand-ins that answer after a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_cli import run


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    arguments = ["--shards", "2", "--rows", "8192", "--row-bytes", "64", "--rounds", "1"]
    arguments += ["--seconds", "1", "--warmup", "0.2", "--stubs", "8", "--stub-ms", "20"]
    done = run("bench", "shards", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.timed
def test_what_a_front_adds_is_neither_nothing_nor_seconds(record: dict[str, Any]) -> None:
    detail = record["detail"]
    # To passes of 20 ms.
    assert 0 < detail["front_own_ms"] < 1000 and detail["stub_passes"] > 5


def test_shards_are_held_against_one_and_the_front_against_stubs(record: dict[str, Any]) -> None:
    detail = record["detail"]
    assert record["bench"] == "shards" and record["unit"] == "x"
    assert record["value"] == pytest.approx(detail["shards_per_s"] / detail["one_per_s"])
    assert detail["front_own_of_pass"] == pytest.approx(detail["front_own_ms"] / 20)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--row-bytes", "6"], "multiple of 4"),
        (["--shards", "0"], "must be 1 or more"),
        (["--rows", "1024", "--shards", "2"], "make no 64 shards"),
    ],
)
def test_what_makes_no_shards_is_refused(arguments: list[str], words: str) -> None:
    done = run("bench", "shards", *arguments)
    assert done.returncode == 2 and words in done.stderr
