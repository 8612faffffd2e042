"""What sums of bags at the servers would take: the page's table, and what it is reckoned from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import hushtable
from hushtable import infer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sums() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_sums", ROOT / "bench" / "sums.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_sums"] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_newest_result(sums: ModuleType) -> None:
    page = sums.PAGE.read_text(encoding="utf-8")
    assert sums.rendered(page, sums.newest()) == page, "run bench/sums.py --write-only"


def test_bytes_of_rows_are_those_that_a_client_counts(sums: ModuleType, tmp_path: Path) -> None:
    rows, dim, ids = 3_000, 24, 16
    for stored in ("f32", "int8"):
        path = tmp_path / stored
        weight = np.random.default_rng(1).normal(size=(rows, dim)).astype(np.float32)
        hushtable.Table.from_weight(weight, name="items", dtype=stored).save(path)
        with (
            hushtable.ServerProcess(path, "left", threads=1) as left,
            hushtable.ServerProcess(path, "right", threads=1) as right,
            hushtable.connect(left.url, right.url) as client,
        ):
            client.lookup(np.arange(ids))
            stats = client.last_stats
        assert stats is not None and stats.keys == ids
        # A few bytes frame each key and each message, and replies carry a version.
        up, down = 2 * ids * sums.key_bytes(rows, "bits"), 2 * ids * sums.row_bytes(dim, stored)
        assert up <= stats.bytes_up <= up + 200, stored
        assert down <= stats.bytes_down <= down + 200, stored


def test_bytes_of_shares_are_a_word_a_bit_that_is_looked_up(sums: ModuleType) -> None:
    found = infer.plan_shares(sums.description(24, 10), runs=1)
    bits = 8 * 24 * 10
    # Beside them two seeds and one dense feature.
    assert found.up_bytes == 4 * bits + 2 * sums.SEED_BYTES + 4
    assert found.peer_bytes == bits // 8


def test_a_point_is_what_was_measured_as_often_as_it_is_done(sums: ModuleType) -> None:
    widths = {sums.row_bytes(dim, one) for dim in sums.DIMS for one in sums.STORED}
    engine = [
        {"isa": "x", "rows": rows, "row_bytes": width, "group": group, "answer_ms": answer_ms}
        | {"expand_ms": 2.0}
        for rows in sums.ROWS
        for width in widths | set(sums.DIMS)
        for group, answer_ms in (("bits", 1.0), ("z32", 5.0))
    ]
    one = {"server_ms": 0.5, "precompute_ms": 30.0, "up_bytes": 1_000, "peer_bytes": 100}
    one |= {"precompute_peer_bytes": 700}
    shares = [{"dim": dim, "bag": bag} | one for dim in sums.DIMS for bag in sums.BAGS]
    of_way = {
        point.way: point
        for point in sums.points({"engine": engine, "shares": shares})
        if (point.rows, point.dim, point.max_ids) == (1 << 20, 64, 16)
    }
    assert of_way.keys() == sums.WAYS.keys()
    # A key over 2^20 rows has 11 levels, or 16 of 16 rows a leaf: 16 B each and a bit.
    bits, words = 24 + 16 * 11 + 2 + 64, 24 + 16 * 16 + 2 + 64

    def of(way: str) -> tuple[float, ...]:
        it = of_way[way]
        return it.server_ms, it.before_ms, it.up_bytes, it.down_bytes, it.between_bytes

    assert of("f32") == (16, 0, 32 * bits, 32 * 256, 0)
    assert of("int8") == (16, 0, 32 * bits, 32 * 68, 0)
    assert of("answers") == (80, 0, 32 * words, 512, 0)
    # 16 expansions and one product.
    assert of("keys") == (35, 0, 32 * words, 512, 0)
    assert of("servers") == (16.5, 30, 32 * bits + 32, 512, 1_600)
    assert of("client") == (16.5, 0, 32 * bits + 1_000, 512, 200)
    assert of_way["keys"].link_ms(100) == pytest.approx((32 * words + 512) * 8 / 1e5)
