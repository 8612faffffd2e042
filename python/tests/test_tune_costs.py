"""The model of time and the estimates, against the engine and the planner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quiet import hold

from hushtable import ConfigError
from hushtable.tune import CostModel, LayoutSpec, PartSpec, costs, load_costs, measure, save_costs
from hushtable.tune.screen import Screen, layout_costs, overflow
from hushtable.tune.spec import seed_text
from hushtable.tune.trace import Trace

CONSTANTS = (1e-5, 1e-7, 2e-8, 3e-7, 6e-9, 6e-13, 1.5e-11, 2e-11, 1e-11, 4e-9)


def spec_of(hot: PartSpec | None, full: PartSpec | None) -> LayoutSpec:
    return LayoutSpec(hot, full, ids_max=256, drop="most-frequent", seed=seed_text(1))


def random_specs(count: int, rows: int) -> Iterator[LayoutSpec]:
    random = np.random.default_rng(4)

    def part(rows: int) -> PartSpec:
        bins = int(2 ** random.uniform(0, np.log2(min(rows, 4000))))
        queries, hashes, companions = (int(random.integers(1, n)) for n in (5, 4, 5))
        return PartSpec(rows, bins, queries, hashes, companions)

    for _ in range(count):
        hot = part(int(2 ** random.uniform(0, np.log2(rows)))) if random.random() < 0.6 else None
        full = part(rows) if hot is None or random.random() < 0.8 else None
        yield spec_of(hot, full)


def test_costs_are_those_of_the_engine() -> None:
    for rows, row_bytes in ((5000, 64), (70_001, 12)):
        for spec in random_specs(40, rows):
            native = measure.design_shape(rows, row_bytes, spec).costs()
            assert layout_costs(spec, row_bytes) == native, spec.describe()


def test_overflow_is_that_of_balls_in_bins() -> None:
    random = np.random.default_rng(7)
    for bins, queries, balls in ((1, 3, 8), (5, 1, 8), (40, 2, 60), (16, 6, 90)):
        thrown = random.integers(0, bins, (4000, balls))
        loads = np.stack([np.bincount(row, minlength=bins) for row in thrown])
        found = np.maximum(loads - queries, 0).sum(axis=1)
        error = 5 * found.std() / np.sqrt(len(found)) + 1e-9
        assert abs(overflow(bins, queries, 90)[balls] - found.mean()) <= error
    assert not overflow(7, 12, 10).any()


def test_estimated_drops_are_near_the_planners() -> None:
    from hushtable import _native

    random = np.random.default_rng(9)
    rows, bags, ids = 4000, 500, 30
    table = _native.Table.from_weight("t", np.zeros((rows, 4), dtype=np.float32), "f32")
    trace = Trace(random.integers(0, rows, bags * ids), np.arange(bags + 1) * ids)
    arrays = trace.ids.astype(np.uint32), trace.offsets.astype(np.uint64)
    profile = _native.Profile(*arrays, rows)
    model = CostModel(CONSTANTS, CONSTANTS, 0, 0, "", "", "")
    screen = Screen(trace, profile.ranked(rows), 16, model)
    fulls = [PartSpec(rows, 30), PartSpec(rows, 64, 2), PartSpec(rows, 8, 4)]
    found = screen.drops([None], fulls)[0]
    for full, drop in zip(fulls, found, strict=True):
        spec = spec_of(None, full)
        kept = profile.design(table, spec.to_json()).simulate(*arrays)
        assert screen.drop(spec) == pytest.approx(drop)
        assert drop == pytest.approx(1 - kept.mean(), rel=0.1)
    # What the hot part has no room for goes to the full part, and the planner sees which fits.
    for hot, full in (
        (PartSpec(2000, 16), PartSpec(rows, 20)),
        (PartSpec(500, 8), PartSpec(rows, 40)),
    ):
        spec = spec_of(hot, full)
        kept = profile.design(table, spec.to_json()).simulate(*arrays)
        assert 0.7 < screen.drops([hot], [full])[0, 0] / (1 - kept.mean()) < 1.6


def test_the_fit_finds_the_constants_through_spoiled_measurements() -> None:
    truth = CostModel(CONSTANTS, CONSTANTS[::-1], 0, 0, "", "", "")
    random = np.random.default_rng(3)
    samples = []
    for rows, row_bytes, spec in measure.SHAPES:
        counted = layout_costs(spec, row_bytes)
        noise = 1 + 0.01 * random.random(2)
        samples.append(
            costs.Sample(
                rows,
                row_bytes,
                spec,
                counted,
                truth.alone_seconds(counted, spec) * noise[0],
                truth.batch_seconds(counted, spec) * noise[1],
            )
        )
    samples[3] = replace(samples[3], batch_seconds=3 * samples[3].batch_seconds)
    model = costs.fit_costs(samples)
    assert model.error_median < 0.02
    for spec in random_specs(50, 60_000):
        counted = layout_costs(spec, 64)
        for name in ("alone_seconds", "batch_seconds"):
            expected = getattr(truth, name)(counted, spec)
            assert getattr(model, name)(counted, spec) == pytest.approx(expected, rel=0.25)
    with pytest.raises(ConfigError, match="9 layouts cannot fit 10 constants"):
        costs.fit_costs(samples[:9])


def test_rows_that_no_core_keeps_cost_what_the_next_cache_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As measured on a core with 2 MiB of its own: 11 ns a KiB there, 35 ns past it.
    monkeypatch.setattr(costs, "cache_bytes", lambda: (2 << 20, 480 << 20))
    samples, between = [], []
    for rows, row_bytes, spec in measure.SHAPES:
        counted = layout_costs(spec, row_bytes)
        kib = counted["stored_bytes"] / 1024
        between.append(1536 < kib < 3072)
        seconds = 1e-6 + kib * (11e-9 if kib <= 1536 else 35e-9) + 30e-9 * counted["prf_blocks"]
        samples.append(costs.Sample(rows, row_bytes, spec, counted, seconds, 64 * seconds))
    model = costs.fit_costs(samples)
    errors = np.abs([model.errors(sample)[0] for sample in samples])
    assert np.median(errors) < 0.02
    # A table about as large as the cache is partly kept.
    assert errors[np.logical_not(between)].max() < 0.15


#: None is among the layouts that the model is fitted to.
UNSEEN = [
    (48 << 10, 96, spec_of(None, PartSpec(48 << 10, 24))),
    (24 << 10, 128, spec_of(PartSpec(2 << 10, 16), PartSpec(24 << 10, 8, 2))),
    (100 << 10, 64, spec_of(None, PartSpec(100 << 10, 20, companions=1))),
    (10 << 10, 256, spec_of(None, PartSpec(10 << 10, 20))),
    (90 << 10, 64, spec_of(PartSpec(5 << 10, 10, 2), PartSpec(90 << 10, 12, 2))),
    (30 << 10, 64, spec_of(None, PartSpec(30 << 10, 24, hashes=3))),
]


@pytest.mark.timed
def test_predicted_times_are_near_measured_ones() -> None:
    found: list[CostModel] = []

    def once() -> float:
        # A busy machine is looked at for longer.
        rounds = min(64, 8 << (len(found) // 3))
        model, samples = measure.calibrate(seconds=0.02, rounds_max=rounds)
        assert len(samples) == len(measure.SHAPES)
        measured = measure.measure_specs(UNSEEN, seconds=0.02, rounds_max=rounds)
        found.append(model)
        errors = np.abs([model.errors(sample) for sample in measured])
        return float(np.median(errors, axis=0).max())

    hold(once, 0.15)
    model = found[-1]
    assert CostModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.timed
def test_what_messages_cost_is_predicted_too() -> None:
    # An engine that takes no time: it takes little beside the messages.
    model = CostModel((0.0,) * 10, (0.0,) * 10, 0, 0, "", "", "")
    found: list[CostModel] = []

    def once() -> float:
        found.append(measure.measure_wire(model, seconds=0.6))
        each, byte = found[-1].wire
        sent, seconds = measure._measure_messages(model, 0.6, 2048, 512, 64)
        return abs((each + byte * sent) / seconds - 1)

    hold(once, 0.25)
    assert 1e-6 < found[-1].wire[0] < 1e-2
    assert CostModel.from_dict(json.loads(json.dumps(found[-1].to_dict()))) == found[-1]


def test_models_are_kept_by_machine_and_version(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "costs.json"
    assert load_costs(path) is None
    machine = costs._machine()
    model = CostModel(CONSTANTS, CONSTANTS, 0.01, 0.1, *machine, (3e-5, 1e-9))
    other = replace(model, cpu="another processor")
    save_costs(other, path)
    assert load_costs(path) is None
    save_costs(model, path)
    assert load_costs(path) == model
    save_costs(replace(model, version="9.9.9"), path)
    assert load_costs(path) == model
    assert len(json.loads(path.read_text())["models"]) == 3
    assert [file.name for file in path.parent.iterdir()] == ["costs.json"]
    for damage in (
        "",
        "[]",
        '{"format": 2, "models": []}',
        path.read_text().replace("1e-05", '""'),
    ):
        path.write_text(damage)
        assert load_costs(path) is None
    path.write_text("{")
    save_costs(model, path)
    assert load_costs(path) == model
