"""``hushtable sim fl``: the trees, bytes, losses and costs, held against FEDORA's printed figures.

FEDORA is "Federated training of embedding tables", ASPLOS 2025; sections are its.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks
from waiting import COMMAND_HUNG_S

from hushtable import _native, errors
from hushtable._fdp import Mechanism
from hushtable.errors import ConfigError
from hushtable.fl.controller import fdp_spec
from hushtable_lab.sim.fl import (
    DATASETS,
    FEDORA,
    HUSHTABLE,
    PATH_PLUS,
    REQUESTS,
    TABLES,
    Design,
    Point,
    TableSize,
    Times,
    accesses,
    mean_accesses,
    own_tree,
    path_tree,
    points,
    probabilities,
    raw_tree,
    read_runs,
    simulate,
    table_1,
)
from hushtable_lab.sim.fl.counts import distinct_nodes
from hushtable_lab.sim.fl.geometry import margin

KEY = tuple[str, int, str, str]
SETS = [dataset.name for dataset in DATASETS]
DAYS = 12 / 365.25


def grid(published: str) -> dict[KEY, Point]:
    found = points(TABLES.values(), REQUESTS, Times.load(published))
    return {(p.table.name, p.requests, p.label, p.dataset): p for p in found}


@pytest.fixture(scope="module")
def paper() -> dict[KEY, Point]:
    """Every point, with the times of the authors' machine."""
    return grid("paper")


@pytest.fixture(scope="module")
def artifact() -> dict[KEY, Point]:
    """Every point, with the artifact's times on a machine like this."""
    return grid("artifact")


# The trees.


@pytest.mark.parametrize(
    ("name", "slots", "period", "levels", "written"),
    [("small", 58, 92, 18, 801), ("medium", 30, 43, 22, 2096), ("large", 15, 18, 25, 5689)],
)
def test_the_papers_tables_have_the_papers_trees(
    name: str, slots: int, period: int, levels: int, written: int
) -> None:
    table = TABLES[name]
    tree = raw_tree(table.rows, table.row_bytes)
    assert (tree.slots, tree.period, tree.levels) == (slots, period, levels)
    moved = FEDORA.pages(tree, 10_000, 10_000)
    assert moved.written_bytes / 10_000 == pytest.approx(written, abs=0.6)
    assert tree.tree_bytes == ((1 << levels) - 1) * 4096


@pytest.mark.parametrize(
    ("name", "slots", "levels", "pages", "gb", "written"),
    [
        ("small", 3, 23, 6, 2.29, 49_152),
        ("medium", 4, 24, 8, 9.82, 65_536),
        ("large", 5, 26, 13, 91.6, 106_496),
    ],
)
def test_the_baselines_trees(
    name: str, slots: int, levels: int, pages: int, gb: float, written: int
) -> None:
    table = TABLES[name]
    tree = path_tree(table.rows, table.row_bytes)
    assert (tree.slots, tree.levels, tree.path_pages) == (slots, levels, pages)
    assert tree.tree_bytes / 1e9 == pytest.approx(gb, rel=2e-3)
    moved = PATH_PLUS.pages(tree, 500, 500)
    assert moved.written_bytes / 500 == moved.read_bytes / 500 == written


@pytest.mark.parametrize("row_bytes", [8, 16, 48, 64, 100, 128, 256, 512, 900])
def test_the_period_is_the_largest_that_bounds_the_stash(row_bytes: int) -> None:
    tree = raw_tree(1 << 20, row_bytes)
    assert margin(tree.slots, tree.period) > 0 >= margin(tree.slots, tree.period + 1)
    # A row more a bucket would not fit: 3 B of id and at least 2 of leaf go with each.
    assert tree.slots * (row_bytes + 5) <= 4064 < (tree.slots + 1) * (row_bytes + 6)


@pytest.mark.parametrize(
    ("name", "slots", "period", "levels", "fan"),
    [("small", 58, 81, 17, 5), ("medium", 30, 43, 22, 2), ("large", 15, 17, 25, 3)],
)
def test_our_trees_are_those_that_are_built(
    name: str, slots: int, period: int, levels: int, fan: int
) -> None:
    table = TABLES[name]
    tree = HUSHTABLE.tree(table.rows, table.row_bytes)
    assert (tree.slots, tree.period, tree.levels, tree.fan) == (slots, period, levels, fan)
    # No more than A rows a leaf, which every bound needs.
    assert tree.rows <= tree.period * tree.nodes(levels - 1)


@pytest.mark.parametrize("rows", [1, 10, 5000])
def test_tables_that_fit_the_cached_levels_still_write_their_leaves(rows: int) -> None:
    point = simulate(TableSize("", rows, 64), 100, HUSHTABLE, 30, Times.load())
    assert 0 < point.pages.written < 1
    assert 0 < point.costs.life_months < math.inf


@pytest.mark.parametrize(
    ("rows", "row_bytes", "word"),
    [(0, 64, "rows"), (1 << 32, 64, "rows"), (10, 0, "row_bytes"), (10, 2000, "bytes")],
)
def test_what_has_no_tree_is_refused(rows: int, row_bytes: int, word: str) -> None:
    for solve in (raw_tree, path_tree, own_tree):
        with pytest.raises(errors.ConfigError, match=word):
            solve(rows, row_bytes)


# Bytes.


def test_the_formulas_give_the_bytes_that_were_counted() -> None:
    runs = Times.load("artifact").shipped
    assert len(runs) == 5
    for run in runs:
        tree = run.design.tree(run.rows, run.row_bytes)
        model = run.design.pages(tree, run.requests, run.k)
        counted = run.counted()
        assert model.read == pytest.approx(counted.read, rel=0.005)
        assert model.written == pytest.approx(counted.written, rel=0.005)


def test_the_formulas_give_what_our_files_moved() -> None:
    raw = [run for run in Times.load("artifact").own if run.oram == "raw"]
    assert len(raw) == 4
    for run in raw:
        tree = run.design.tree(run.rows, run.row_bytes)
        model = run.design.pages(tree, run.requests, run.k)
        counted = run.counted()
        assert model.written == pytest.approx(counted.written, rel=0.02)
        # A read goes through a gap of a page or two rather than be two reads; of a young tree, what
        # no eviction has passed yet is not read.
        assert 0.7 * model.read <= counted.read <= 1.25 * model.read


def test_distinct_nodes_are_those_of_random_paths() -> None:
    random = np.random.default_rng(5)
    for level, paths in ((0, 7), (3, 7), (9, 300), (12, 300)):
        trials = [len(np.unique(random.integers(0, 1 << level, paths))) for _ in range(400)]
        assert distinct_nodes(1 << level, paths) == pytest.approx(np.mean(trials), rel=0.02)


@pytest.mark.parametrize(
    ("name", "paper_gb", "most"),
    [("small", 1.074, 1.5), ("medium", 17.18, 1.1), ("large", 137.4, 1.6)],
)
def test_our_files_are_near_the_papers(name: str, paper_gb: float, most: float) -> None:
    table = TABLES[name]
    published = raw_tree(table.rows, table.row_bytes)
    assert published.tree_bytes / 1e9 == pytest.approx(paper_gb, rel=0.001)
    before = own_tree(table.rows, table.row_bytes, is_paired=True)
    assert before.file_bytes == 2 * before.tree_bytes >= 2 * published.tree_bytes
    for requests in (10_000, 100_000):
        tree = HUSHTABLE.tree(table.rows, table.row_bytes, requests)
        assert tree.tree_bytes < HUSHTABLE.file_bytes(tree) < most * published.tree_bytes
        assert tree.buckets * tree.bucket_pages == tree.pages


def test_levers_move_fewer_bytes_as_predicted() -> None:
    table = TABLES["small"]
    tree = raw_tree(table.rows, table.row_bytes)
    for requests, coalesced, united in ((10_000, 1.48, 3.6), (100_000, 2.03, 9.3)):
        plain = FEDORA.pages(tree, requests, requests)
        both = Design("", "raw", True, union_reads=True, coalesce=True)
        moved = both.pages(tree, requests, requests)
        assert plain.written / moved.written == pytest.approx(coalesced, rel=0.01)
        assert plain.read / moved.read == pytest.approx(united, rel=0.02)
    top = Design("", "raw", True, cached_levels=10)
    share = FEDORA.pages(tree, 1e4, 1e4).written / top.pages(tree, 1e4, 1e4).written
    assert share == pytest.approx(18 / 8)
    # The target: 400 B written a row with coalescing and cached levels.
    ours = HUSHTABLE.tree(table.rows, table.row_bytes)
    assert HUSHTABLE.pages(ours, 10_000, 4_490).written_bytes / 4_490 < 400
    assert HUSHTABLE.file_bytes(ours) == ours.file_bytes > ours.tree_bytes


def test_larger_buckets_write_fewer_bytes() -> None:
    from dataclasses import replace

    table = TABLES["small"]
    wrote = []
    for bucket_kib in (4, 8, 16):
        design = replace(HUSHTABLE, bucket_kib=bucket_kib)
        tree = design.tree(table.rows, table.row_bytes)
        wrote.append(tree.levels * tree.bucket_pages * 4096 / tree.period)
    # Section 6.6: 18 % more life at 16 KB.
    assert wrote[0] > wrote[1] > wrote[2]
    assert wrote[0] / wrote[2] > 1.18


# Losses.


@pytest.mark.parametrize("epsilon", [1e-3, 0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize(
    "mechanism", ["eq3", "geometric", "shifted", "shifted:loss=0.01", "shifted:by=7,least=40"]
)
def test_closed_forms_equal_the_sums_over_outcomes(mechanism: str, epsilon: float) -> None:
    for requests, k_union in ((1, 1), (2, 1), (100, 30), (100, 100), (3000, 7)):
        chances = probabilities(mechanism, requests, k_union, epsilon)
        noise = np.arange(1, requests + 1) - k_union
        mean = accesses(mechanism, requests, k_union, epsilon)
        assert chances.sum() == pytest.approx(1)
        assert mean.dummy == pytest.approx(chances @ np.maximum(noise, 0), rel=1e-9, abs=1e-12)
        assert mean.lost == pytest.approx(chances @ np.maximum(-noise, 0), rel=1e-9, abs=1e-12)
        assert mean.k == pytest.approx(chances @ np.arange(1, requests + 1))


def test_the_geometric_has_less_noise_than_equation_3() -> None:
    for epsilon, ours, theirs in ((1.0, 0.851, 1.919), (0.1, 9.98, 19.99), (0.01, 100, 200)):
        requests = 100_000
        for mechanism, expected in (("geometric", ours), ("eq3", theirs)):
            mean = accesses(mechanism, requests, requests // 2, epsilon)
            assert mean.dummy + mean.lost == pytest.approx(expected, rel=2e-3)


def test_the_extremes_are_the_strawmen() -> None:
    for mechanism in ("eq3", "geometric", "shifted"):
        assert accesses(mechanism, 100, 30, 0.0).k == 100
        exact = accesses(mechanism, 100, 30, math.inf)
        assert (exact.k, exact.dummy, exact.lost) == (30, 0, 0)


def test_table_1() -> None:
    """Reduced within 0.5 point, dummy and lost within 5 % or the last printed place, of a k_union
    of 887 (MovieLens) and 95 (Taobao) in the mean, with padding and without."""
    rows = table_1("eq3")
    assert len(rows) == 12
    for row, mean in rows:
        assert mean.reduced_percent == pytest.approx(row.reduced, abs=0.5)
        last = 0.05 if row.dummy < 2 and "MovieLens" in row.dataset else 0.005
        assert mean.dummy_percent == pytest.approx(row.dummy, rel=0.05, abs=last)
        assert mean.lost_percent == pytest.approx(row.lost, rel=0.05, abs=last)
    assert {round(mean.k_union) for _, mean in rows} == {887, 95}


def test_taobaos_losses_need_a_k_union_that_varies_between_rounds() -> None:
    """95 in every round would lose 9.5 % less than Table 1 has at epsilon 0.1. One spread gives
    both of Taobao's losses within 1 %, and leaves the other figures where they were."""
    same = accesses("eq3", 10_000, 95, 0.1 / 100)
    assert same.lost_percent == pytest.approx(2.19, abs=0.01)
    for epsilon, lost in ((0.1, 2.42), (1.0, 12.89)):
        varied = mean_accesses("eq3", 10_000, 95, epsilon / 100, spread=0.35)
        assert varied.lost_percent == pytest.approx(lost, rel=0.01)
        fixed = accesses("eq3", 10_000, 95, epsilon / 100)
        assert varied.dummy_percent == pytest.approx(fixed.dummy_percent, rel=0.02)
        assert varied.reduced_percent == pytest.approx(fixed.reduced_percent, abs=0.05)


def test_the_geometric_saves_more_and_at_a_small_union_loses_more() -> None:
    """The clamp moves whatever falls below 1 to 1: fewer dummies, but where the noise is wider than
    the union, half of the rounds read almost nothing. Plan for it (docs/sim-fl.md)."""
    for (row, ours), (_, theirs) in zip(table_1("geometric"), table_1("eq3"), strict=True):
        assert ours.dummy <= theirs.dummy
        assert ours.k <= theirs.k
        if row.epsilon == 0.1 and "counts" in row.dataset:
            assert ours.lost > 2 * theirs.lost


def test_the_default_has_fewer_dummies_and_losses_than_equation_3() -> None:
    """Why it is the default: at each row of Table 1 with the number of values hidden."""
    assert HUSHTABLE.mechanism == "shifted"
    for (row, ours), (_, theirs) in zip(table_1("shifted"), table_1("eq3"), strict=True):
        if "counts" in row.dataset and row.epsilon < math.inf:
            assert ours.dummy < theirs.dummy
            assert ours.lost < theirs.lost
        assert ours.lost_percent < 10


@pytest.mark.parametrize("share", [0.3, 0.1, 0.02, 0.001])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("requests", [1, 12, 100, 3000])
def test_no_union_loses_more_than_the_shift_allows(
    share: float, epsilon: float, requests: int
) -> None:
    name = f"shifted:loss={share}"
    means = [accesses(name, requests, u, epsilon) for u in range(1, requests + 1)]
    assert max(mean.lost / mean.k_union for mean in means) <= share * (1 + 1e-9)
    by, least = Mechanism.parse(name).shift(epsilon, requests)
    if by > 1 and by < requests:
        # One row less would be too few, somewhere.
        tight = f"shifted:by={by - 1},least={least}"
        worst = max(accesses(tight, requests, u, epsilon).lost / u for u in range(1, requests + 1))
        # The continuous maximum that the shift is made for lies above the largest whole one.
        assert worst > share * (1 - 0.5 * epsilon) or requests < 100


def test_shapes_of_equation_3_have_what_their_sums_say() -> None:
    for name in ("eq3:y=power,exponent=5", "eq3:y=square,low=25,high=100", "eq3:y=delta"):
        chances = probabilities(name, 100, 30, 0.3)
        mean = accesses(name, 100, 30, 0.3)
        assert chances.sum() == pytest.approx(1)
        assert mean.k == pytest.approx(chances @ np.arange(1, 101))
    assert accesses("eq3:y=delta", 100, 30, 0.3).k == 100
    assert probabilities("eq3:y=square,low=25,high=100", 100, 30, 0.3)[:24].sum() == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("laplace", "must be one of geometric, shifted, eq3"),
        ("geometric:by=3", "geometric has no 'by'"),
        ("shifted:loss=2", "loss is a share"),
        ("shifted:loss=0.1,by=3", "leave them out"),
        ("shifted:by=1.5", "a number of rows"),
        ("shifted:by=-1", "is no by=NUMBER"),
        ("eq3:y=cubic", "y is one of uniform, square, power, delta"),
        ("eq3:y=square,low=3", "needs high="),
        ("eq3:y=uniform,at=3", "has no 'at'"),
    ],
)
def test_mechanisms_that_cannot_be(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        accesses(name, 100, 30, 1.0)


# Figure 7.


@pytest.mark.parametrize(
    ("times", "table", "requests", "label", "months"),
    [
        ("paper", "small", 10_000, "Path ORAM+", 1.2),
        ("paper", "medium", 10_000, "Path ORAM+", 3.9),
        ("paper", "large", 1_000_000, "Path ORAM+", 2.0),
        ("paper", "large", 10_000, "Path ORAM+", 23.0),
        # Of these two the paper prints no time of its own, and the ranges' ends give 1.6 and 6.5.
        ("artifact", "small", 1_000_000, "Path ORAM+", 2 * DAYS),
        ("artifact", "medium", 1_000_000, "Path ORAM+", 8 * DAYS),
        ("paper", "small", 1_000_000, "FEDORA ε=0", 1.4),
        ("paper", "small", 10_000, "FEDORA ε=0", 36.0),
        ("paper", "medium", 1_000_000, "FEDORA ε=0", 10.0),
        ("paper", "large", 1_000_000, "FEDORA ε=0", 2.7 * 12),
    ],
)
def test_lifetimes_of_the_text_within_a_tenth(
    times: str, table: str, requests: int, label: str, months: float, request: Any
) -> None:
    found = request.getfixturevalue(times)[table, requests, label, "all"]
    assert found.costs.life_months == pytest.approx(months, rel=0.10)


def test_medium_tables_live_for_over_ten_years(paper: dict[KEY, Point]) -> None:
    assert paper["medium", 10_000, "FEDORA ε=0", "all"].costs.life_months > 120


def test_how_much_longer_ssds_live_within_30_percent(paper: dict[KEY, Point]) -> None:
    """Section 6.2: 1.56 (Kaggle) to 38 times (Taobao, counts) of epsilon 0, in the mean of tables
    and K; 21 to over 1000 times of Path ORAM+, 158 in the mean."""

    def ratios(dataset: str, label: str) -> list[float]:
        return [
            paper[name, requests, "FEDORA ε=1", dataset].costs.life_months
            / paper[name, requests, label, "all"].costs.life_months
            for name in TABLES
            for requests in REQUESTS
        ]

    assert np.mean(ratios("Kaggle", "FEDORA ε=0")) == pytest.approx(1.56, rel=0.3)
    assert np.mean(ratios("Taobao, counts", "FEDORA ε=0")) == pytest.approx(38, rel=0.3)
    of_path = [ratio for name in SETS for ratio in ratios(name, "Path ORAM+")]
    assert min(of_path) == pytest.approx(21, rel=0.3)
    assert max(of_path) > 1000
    assert np.mean(ratios("mean", "Path ORAM+")) == pytest.approx(158, rel=0.3)


# Figure 8.


@pytest.mark.parametrize(
    ("requests", "label", "dataset", "lowest", "highest"),
    [
        (100_000, "Path ORAM+", "all", 0.39, 0.75),
        (1_000_000, "Path ORAM+", "all", 3.54, 8.38),
        (100_000, "FEDORA ε=0", "all", 0.32, 0.42),
        (1_000_000, "FEDORA ε=0", "all", 3.22, 4.46),
        (100_000, "FEDORA ε=1", "mean", 0.10, 0.15),
        (1_000_000, "FEDORA ε=1", "mean", 1.04, 1.55),
    ],
)
def test_overheads_of_the_text_within_30_percent(
    paper: dict[KEY, Point],
    requests: int,
    label: str,
    dataset: str,
    lowest: float,
    highest: float,
) -> None:
    overheads = [paper[name, requests, label, dataset].costs.overhead for name in TABLES]
    assert min(overheads) == pytest.approx(lowest, rel=0.3)
    assert max(overheads) == pytest.approx(highest, rel=0.3)


def test_the_artifact_on_another_machine_has_the_papers_overheads(
    artifact: dict[KEY, Point],
) -> None:
    """Medium and Large were not run there: they are carried over from 1M and 10M rows of 64 B."""
    for label, lowest, highest in (("Path ORAM+", 3.54, 8.38), ("FEDORA ε=0", 3.22, 4.46)):
        overheads = [artifact[name, 1_000_000, label, "all"].costs.overhead for name in TABLES]
        assert min(overheads) == pytest.approx(lowest, rel=0.3)
        assert max(overheads) == pytest.approx(highest, rel=0.3)


@pytest.mark.parametrize(
    ("requests", "label", "lowest", "highest"),
    [
        # At 10K the paper has 2 to 24 times of Path ORAM+: its union and maps of 10K entries are
        # scanned, which is quicker there than the per-request time of 1M, the one that is printed.
        (100_000, "Path ORAM+", 1.9, 9.1),
        (1_000_000, "Path ORAM+", 1.8, 9.7),
        (100_000, "FEDORA ε=0", 1.6, 6.2),
        (1_000_000, "FEDORA ε=0", 1.6, 6.0),
    ],
)
def test_how_much_sooner_rounds_end_within_30_percent(
    paper: dict[KEY, Point], requests: int, label: str, lowest: float, highest: float
) -> None:
    ratios = [
        paper[name, requests, label, "all"].costs.overhead
        / paper[name, requests, "FEDORA ε=1", dataset].costs.overhead
        for name in TABLES
        for dataset in SETS
    ]
    assert min(ratios) == pytest.approx(lowest, rel=0.3)
    assert max(ratios) == pytest.approx(highest, rel=0.3)


# Figure 9.


def test_hardware_is_6_to_22_times_cheaper_than_dram(paper: dict[KEY, Point]) -> None:
    """Section 6.5 does not say of which K; 10K gives its range."""
    found = [paper[name, 10_000, "FEDORA ε=1", "mean"] for name in TABLES]
    saved = [point.in_dram.dollars / point.costs.dollars for point in found]
    assert min(saved) == pytest.approx(6, rel=0.15)
    assert max(saved) == pytest.approx(22, rel=0.15)
    # While the baseline wears out too fast to be cheap (small), or is cheap at 10K alone.
    for requests in REQUESTS:
        point = paper["small", requests, "Path ORAM+", "all"]
        assert point.costs.dollars > 2 * point.in_dram.dollars


def test_energy_is_of_the_papers_order(paper: dict[KEY, Point]) -> None:
    """Section 6.5 has 1.9 to 23 times, again without a K. No K gives both ends: 100K gives 1.2 to
    33, so this holds the order, within a factor of two."""
    found = [paper[name, 100_000, "FEDORA ε=1", "mean"] for name in TABLES]
    saved = [point.in_dram.joules / point.costs.joules for point in found]
    assert 1.9 / 2 < min(saved) < 1.9 * 2
    assert 23 / 2 < max(saved) < 23 * 2


def test_costs_are_the_formulas(paper: dict[KEY, Point]) -> None:
    point = paper["small", 1_000_000, "FEDORA ε=0", "all"]
    gb = point.tree.tree_bytes / 1e9
    period = 120 + point.time.seconds
    rounds = point.tree.tree_bytes * 5437 / (1e6 * 18 * 4096 / 92)
    life_s = rounds * period
    assert point.costs.life_months == pytest.approx(life_s / (365.25 * 86400 / 12))
    beside = (point.in_dram.dollars - 3.15 * gb) / 3.15  # GB of DRAM that both need
    replaced = 5 * 365.25 * 86400 / life_s
    assert replaced > 30
    assert point.costs.dollars == pytest.approx(3.15 * beside + 0.1 * gb * replaced)
    watts = 0.375 * beside + 6.2 * point.time.ssd_seconds / period
    assert point.costs.watts == pytest.approx(watts)
    assert point.costs.joules == pytest.approx(watts * period)


def test_longer_rounds_wear_slower() -> None:
    times = Times.load()
    short, long = (
        simulate(TABLES["small"], 10_000, FEDORA, 10_000, times, round_seconds=seconds)
        for seconds in (120.0, 1200.0)
    )
    assert long.costs.life_months > 9 * short.costs.life_months
    assert long.costs.overhead == pytest.approx(short.costs.overhead / 10)


# Measured times.


def bench(**changes: Any) -> dict[str, Any]:
    """A line of ``hushtable bench oram --json``."""
    record: dict[str, Any] = {
        "bench": "oram",
        "params": {
            "rows": 10_000_000,
            "row_bytes": 64,
            "requests": 10_000,
            "oram": "raw",
            "epsilon": 1,
            "bucket_kib": 4,
        },
        "value": 100.0,
        "unit": "us/request",
        "k": 4490,
        "steps": {"union": 8.0, "read": 40.0, "find": 20.0, "serve": 12.0, "write": 20.0},
        "read_bytes_per_request": 12_000,
        "written_bytes_per_request": 150,
    }
    return {**record, **changes}


def write(folder: Path, *records: Any) -> Path:
    path = folder / "bench.json"
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_a_run_carries_over_to_itself(tmp_path: Path) -> None:
    record = bench(read_bytes_per_request=None, written_bytes_per_request=None)
    times = Times.load(measured=[write(tmp_path, record)])
    tree = HUSHTABLE.tree(10_000_000, 64)
    time = times.round_time(HUSHTABLE, tree, 10_000, 4490)
    assert time.seconds == pytest.approx(1.0)
    assert time.ssd_seconds == pytest.approx(0.6)


def test_each_step_grows_by_its_law(tmp_path: Path) -> None:
    record = bench(read_bytes_per_request=None, written_bytes_per_request=None)
    times = Times.load(measured=[write(tmp_path, record)])
    tree, wide = HUSHTABLE.tree(10_000_000, 64), HUSHTABLE.tree(250_000_000, 256)
    then = HUSHTABLE.pages(tree, 10_000, 4490)
    now = HUSHTABLE.pages(wide, 10_000, 8000)
    expected = 8 + 12 + 40 * now.read / then.read + 20 * now.written / then.written
    expected += 20 * (8000 * wide.levels) / (4490 * tree.levels)
    found = times.round_time(HUSHTABLE, wide, 10_000, 8000)
    assert found.seconds == pytest.approx(expected / 100)
    # A step may say its law.
    record["laws"] = {"serve": "write"}
    other = Times.load(measured=[write(tmp_path, record)])
    later = other.round_time(HUSHTABLE, wide, 10_000, 8000)
    assert later.seconds == pytest.approx((expected + 12 * (now.written / then.written - 1)) / 100)


def test_counted_bytes_go_before_the_models(tmp_path: Path) -> None:
    twice = {"read_bytes_per_request": 2 * 12_000}
    seconds = []
    for record in (bench(), bench(**twice)):
        times = Times.load(measured=[write(tmp_path, record)])
        tree = HUSHTABLE.tree(10_000_000, 64)
        seconds.append(times.round_time(HUSHTABLE, tree, 10_000, 4490).seconds)
    model = HUSHTABLE.pages(tree, 10_000, 4490).read_bytes / 10_000
    # More pages in the same time are quicker pages.
    assert seconds[0] - seconds[1] == pytest.approx(0.4 * model / 12_000 / 2)


def test_measured_runs_are_for_what_they_measured(tmp_path: Path) -> None:
    path = write(tmp_path, bench(), bench(params={**bench()["params"], "oram": "path"}, k=10_000))
    times = Times.load(measured=[path])
    plain = Times.load()
    for name in TABLES:
        size = TABLES[name]
        for design, is_changed in ((PATH_PLUS, True), (FEDORA, False), (HUSHTABLE, True)):
            tree = design.tree(size.rows, size.row_bytes)
            both = [t.round_time(design, tree, 10_000, 10_000).seconds for t in (plain, times)]
            assert (both[0] != both[1]) == is_changed


def test_paths_cost_more_where_they_are_longer(tmp_path: Path) -> None:
    steps = {"union": 8, "take": 200, "serve": 12, "put": 180, "other": 17}
    path = bench(
        params={**bench()["params"], "oram": "path"},
        k=4490,
        steps=steps,
        laws={"take": "read", "put": "write"},
        value=417,
    )
    times = Times.load(measured=[write(tmp_path, path)])
    found = []
    for name in ("small", "large"):
        tree = PATH_PLUS.tree(TABLES[name].rows, TABLES[name].row_bytes)
        whole = times.round_time(PATH_PLUS, tree, 10_000, 10_000)
        # Reading and writing is the SSD's time, and of all requests it is more than of k of them.
        assert whole.ssd_seconds > 0.8 * whole.seconds
        found.append((tree.path_pages, whole.ssd_seconds))
    assert found[1][1] / found[0][1] == pytest.approx(found[1][0] / found[0][0])


def test_runs_are_read_as_benchmarks_print_them(tmp_path: Path) -> None:
    flat = read_runs(write(tmp_path, bench()))
    own = {"bench", "params", "value", "unit"}
    record = bench()
    nested = {k: v for k, v in record.items() if k in own}
    nested["detail"] = {k: v for k, v in record.items() if k not in own}
    assert read_runs(write(tmp_path, nested)) == flat
    assert read_runs(write(tmp_path, [record])) == flat
    assert read_runs(write(tmp_path, {"source": "here", "runs": [record]})) == flat
    assert read_runs(write(tmp_path, record, record)) == flat * 2
    # What the steps leave out is a step, and steps that overlap are scaled to the whole.
    (left,) = read_runs(write(tmp_path, bench(value=130.0)))
    assert left.steps["unnamed"] == pytest.approx(30)
    (over,) = read_runs(write(tmp_path, bench(value=50.0)))
    assert sum(over.steps.values()) == pytest.approx(50)
    assert over.steps["read"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"bench": "dpf"}, "bench"),
        ([], "1 to"),
        (7, "1 to"),
        ([7], "bench"),
        (bench(unit="s"), "us/request"),
        (bench(value=0), "value"),
        (bench(value=float("nan")), "value"),
        (bench(value="fast"), "value"),
        (bench(k=20_000), '"k"'),
        (bench(steps=[1]), "steps"),
        (bench(steps={"read": -1}), '"read"'),
        (bench(laws={"read": "cubic"}), "laws"),
        (bench(params=None), "params"),
        (bench(detail=3), "detail"),
        (bench(params={**bench()["params"], "rows": True}), '"rows"'),
        (bench(params={**bench()["params"], "oram": "ring"}), "ring"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, record: Any, word: str) -> None:
    with pytest.raises(errors.ConfigError, match=word):
        read_runs(write(tmp_path, record))


def test_what_is_no_file_of_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        read_runs(tmp_path / "none.json")
    for text in ("", "{", "[" * 100_000, "\xff"):
        (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(errors.ConfigError, match="bad.json"):
            read_runs(tmp_path / "bad.json")
    with pytest.raises(errors.ConfigError, match="artifact, paper"):
        Times.load("rumour")


# The command.


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return forks.run("sim", "fl", *arguments, env={**os.environ, "COLUMNS": "200"})


def test_help_has_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "$ hushtable sim fl --table small" in done.stdout
    assert "--json" in done.stdout


def test_json_lines_are_records() -> None:
    done = run("--table", "small", "--requests", 10_000, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    priced = [r for r in records if r["bench"] == "sim fl"]
    # Path ORAM+; FEDORA and hushtable with k = K, of five data sets and their mean.
    assert len(priced) == 1 + 2 * 7
    fedora = next(
        r["detail"]
        for r in priced
        if (r["params"]["design"], r["params"]["epsilon"]) == ("FEDORA", 0)
    )
    assert fedora["written_bytes_per_request"] == pytest.approx(801.4, abs=0.1)
    assert fedora["us_per_request"] == pytest.approx(437, rel=1e-3)
    losses = [r for r in records if r["bench"] == "sim fl accesses"]
    assert len(losses) == 24
    assert [r["params"]["mechanism"] for r in losses[::12]] == ["eq3", "shifted"]
    counts = [r for r in losses if r["params"]["dataset"] == "MovieLens, counts"]
    assert counts[1]["value"] == pytest.approx(91.02, abs=0.5)


def test_a_table_and_k_of_ones_own(tmp_path: Path) -> None:
    own = ("--rows", 40_000_000, "--row-bytes", 96, "--requests", 20_000, "--k", 6_000)
    done = run(*own, "--measured", write(tmp_path, bench()), "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    records = [json.loads(line) for line in done.stdout.splitlines()]
    found = [r for r in records if r["bench"] == "sim fl" and r["params"]["epsilon"] == 1]
    assert [(r["params"]["design"], r["detail"]["k"]) for r in found] == [
        ("FEDORA", 6_000),
        ("hushtable", 6_000),
    ]
    times = Times.load(measured=[tmp_path / "bench.json"])
    point = simulate(TableSize("", 40_000_000, 96), 20_000, HUSHTABLE, 6_000, times)
    assert found[1]["value"] == pytest.approx(point.costs.life_months)


def test_a_narrow_terminal_shows_all_figures() -> None:
    done = run("--table", "large", "--requests", 1_000_000)
    wide = max(map(len, done.stdout.splitlines()))
    command = [sys.executable, "-m", "hushtable", "sim", "fl", "--table", "large"]
    environment = {**os.environ, "COLUMNS": "80"}
    narrow = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=COMMAND_HUNG_S
    )
    assert wide <= 80
    assert "…" not in narrow.stdout
    assert "106,496" in narrow.stdout


def test_the_table_for_people() -> None:
    done = run("--table", "medium", "--requests", 100_000, "--datasets")
    assert done.returncode == 0, done.stderr
    assert "medium, 100,000 requests a round" in done.stdout
    for name in SETS:
        assert name in done.stdout
    assert "91.02/11.65/10.47" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--table", "huge"), "huge"),
        (("--rows", 10), "--row-bytes"),
        (("--rows", 0, "--row-bytes", 64), "rows is 0"),
        (("--rows", 10, "--row-bytes", 5000), "row_bytes is 5000"),
        (("--requests", 0), "requests is 0"),
        (("--requests", 10, "--k", 11), "k is 11"),
        (("--epsilon", -1), "epsilon is -1"),
        (("--epsilon", "nan"), "epsilon is nan"),
        (("--round-seconds", 0), "round_seconds is 0"),
        (("--published", "rumour"), "rumour"),
        (("--measured", "none.json"), "none.json"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[object, ...], word: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_figures_are_drawn_and_alike_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the optional extra `plot` is not installed")
    from hushtable_lab.sim.fl.plots import draw

    found = list(points([TABLES["small"]], (10_000, 1_000_000), Times.load()))
    first, second = (draw(found, tmp_path / name) for name in ("first", "second"))
    names = ["lifetime", "overhead", "cost"]
    assert [path.name for path in first] == [n + s for n in names for s in (".svg", ".png")]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    text = first[0].read_text()
    for label in ("Path ORAM+", "FEDORA ε=0", "hushtable ε=1, Kaggle", "1,000,000 updates a round"):
        assert label in text


def test_no_data_set_at_a_k_of_ones_own_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the optional extra `plot` is not installed")
    own = ("--table", "small", "--requests", 10_000, "--k", 3_000)
    done = run(*own, "--plots", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "figures").iterdir())) == 6


@pytest.mark.parametrize(
    "name",
    [
        "geometric",
        "shifted",
        "shifted:by=20,least=3",
        "eq3",
        "eq3:y=power,exponent=5",
        "eq3:y=square,low=25,high=90",
        "eq3:y=delta",
    ],
)
def test_planned_with_what_controllers_draw_by(name: str) -> None:
    """The closed forms here against the sampler's own integers."""
    for epsilon in (0.05, 1.0):
        for union in (1, 30, 95, 100):
            fdp = fdp_spec(epsilon, name, 1, 100)
            exact = _native.fdp_expect(json.dumps(fdp), 100, union)
            mean = accesses(name, 100, union, epsilon)
            assert exact["reads"] == pytest.approx(mean.k, rel=1e-6)
            assert exact["lost"] * union == pytest.approx(mean.lost, rel=1e-5, abs=1e-6)
            assert exact["spent"] == pytest.approx(
                Mechanism.parse(name).worst_loss(epsilon), rel=1e-6
            )
            again = Mechanism.of_spec(fdp["mechanism"])
            assert again.spec(epsilon, 100) == fdp["mechanism"]
