"""``hushtable bench layer`` on small tables: that it runs, and says what it measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_cli import RECORD, run


def test_bench_layer() -> None:
    options = ["--rows", 2000, "--row-bytes", 16, "--rounds", 3, "--ids", 5, "--ids", 32]
    done = run("bench", "layer", *options, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    records: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["params"]["ids"] for one in records] == [5, 32]
    assert [one["params"]["keys"] for one in records] == [8, 32]
    for record in records:
        assert set(record) == RECORD
        assert record["value"] > 0
        assert record["detail"]["ratio"] == pytest.approx(record["value"] / record["floor"])
        assert record["detail"]["bag_ms"] > 0
        assert record["detail"]["repeats"] == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [(["--row-bytes", "7"], "multiple of 4"), (["--rounds", "1"], "rounds is 1")],
)
def test_bench_layer_refuses_what_it_cannot_measure(options: list[str], text: str) -> None:
    done = run("bench", "layer", *options, "--json")
    assert done.returncode == 2
    assert text in done.stdout + done.stderr
