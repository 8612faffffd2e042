"""``hushtable bench paper key`` counts what keys really are."""

from __future__ import annotations

import pytest
from reference.pair import make_pair

from hushtable_lab.cli.bench_key import LEAF_ROWS, PAPER_ROWS, key_record


@pytest.mark.parametrize("rows", [1, 16, 512, 513, 70_000, 1 << 20])
@pytest.mark.parametrize(("group", "number"), [("bits", 0), ("z8", 1), ("z32", 2)])
def test_a_key_has_as_many_bytes_as_said(rows: int, group: str, number: int) -> None:
    roots = [bytes(16), bytes([2] * 16)]
    for made in make_pair(1, number, rows, rows - 1, roots):
        assert len(made) == key_record(rows, group)["value"]


def test_calls_are_counted_in_both_ways() -> None:
    for group, leaf_rows in LEAF_ROWS.items():
        detail = key_record(1 << 14, group)["detail"]
        leaves = (1 << 14) // leaf_rows
        assert detail["prf_calls"] == 6 * leaves - 2
        assert detail["prf_calls_one_row_leaves"] == 2 << 14
    # Table III.
    found = [key_record(rows, "bits")["detail"]["paper_upload_bytes"] for rows in PAPER_ROWS]
    assert found == [896, 1024, 1280, 1408]
    assert key_record(1000, "bits")["detail"]["paper_upload_bytes"] is None
