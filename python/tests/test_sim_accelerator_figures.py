"""``hushtable sim accelerator``: IVE's numbers beside ours, random arrivals, the command.

IVE is "An Accelerator for Single-Server Private Information Retrieval Using Versatile Processing
Elements"; sections, tables and figures are its.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushtable import errors
from hushtable.sim.accelerator import figures_counts, figures_points
from hushtable.sim.accelerator.published import BOUNDS, FACTS, PUBLISHED, bound, compare
from hushtable.sim.accelerator.serving import (
    Scheduler,
    crossing,
    last_within,
    load,
    loads,
    md1_latency_s,
)

#: 32 ms to read the database, 1.5 ms a query beyond that: about a 16 GB point.
SERVICE = tuple(max(0.032, 0.010 + 0.0016 * size) for size in range(1, 65))


def by_hand(scheduler: Scheduler, arrivals: list[float]) -> list[tuple[float, int]]:
    """The scheduler again, by a clock that ticks whole seconds: (answered, batch) of each query."""
    now, free = 0.0, 0.0
    waiting: list[int] = []
    found: dict[int, tuple[float, int]] = {}
    coming = list(enumerate(arrivals))
    while len(found) < len(arrivals):
        while coming and coming[0][1] <= now:
            waiting.append(coming.pop(0)[0])
        old = bool(waiting) and now - arrivals[waiting[0]] >= scheduler.window_s
        full = len(waiting) >= len(scheduler.service_s)
        if waiting and now >= free and (old or full):
            batch = waiting[: len(scheduler.service_s)]
            waiting = waiting[len(batch) :]
            free = now + scheduler.service_s[len(batch) - 1]
            found.update({index: (free, len(batch)) for index in batch})
        now += 1
    return [found[index] for index in range(len(arrivals))]


class TestScheduler:
    def test_serves_as_a_ticking_clock_does(self) -> None:
        # Whole seconds, so that the clock meets every event.
        scheduler = Scheduler((30, 34, 38, 45), 20)
        rng = np.random.default_rng(3)
        for gap in (200, 30, 14):
            arrivals = np.round(np.cumsum(rng.exponential(gap, 120)))
            answered, sizes = scheduler.serve(arrivals)
            expected = by_hand(scheduler, arrivals.tolist())
            assert answered.tolist() == [at for at, _ in expected]
            assert np.repeat(sizes, sizes).tolist() == [size for _, size in expected]

    def test_a_full_batch_does_not_wait_out_the_window(self) -> None:
        answered, sizes = Scheduler((1.0, 1.0), 10.0).serve(np.array([0.0, 0.5, 0.6]))
        assert sizes.tolist() == [2, 1]
        # The third waits for others for all of its window.
        np.testing.assert_allclose(answered, [1.5, 1.5, 11.6])

    def test_one_at_a_time_is_the_same_either_way(self) -> None:
        arrivals = np.cumsum(np.random.default_rng(5).exponential(0.05, 500))
        alone = Scheduler((0.04,), 0.0).serve(arrivals)[0]
        # A window so short that it changes nothing takes the way through the event loop.
        looped = Scheduler((0.04,), 1e-12).serve(arrivals)[0]
        np.testing.assert_allclose(alone, looped, rtol=1e-9)

    @pytest.mark.parametrize("service", [(), (0.1, 0.0), (-1.0,)])
    def test_refuses_a_batch_that_takes_no_time(self, service: tuple[float, ...]) -> None:
        with pytest.raises(errors.ConfigError, match="more than 0 seconds"):
            Scheduler(service, 0.1)

    def test_refuses_a_window_below_0(self) -> None:
        with pytest.raises(errors.ConfigError, match="window"):
            Scheduler((0.1,), -0.1)


class TestLoad:
    @pytest.mark.parametrize("busy", [0.1, 0.5, 0.8])
    def test_without_batching_is_pollaczek_khinchine(self, busy: float) -> None:
        scheduler = Scheduler((0.032,), 0.0)
        rate = busy / 0.032
        found = load(scheduler, rate, runs=20, queries=20_000)
        expected = md1_latency_s(rate, 0.032)
        # Of twenty intervals of 95 % one may miss; a tenth of the waiting is room enough.
        assert found.mean_s == pytest.approx(expected, rel=0.02)
        assert found.high_s > found.mean_s > found.low_s
        assert found.busy == pytest.approx(busy, rel=0.02)

    def test_formula_at_half_load_waits_half_a_service(self) -> None:
        assert md1_latency_s(0.5, 1.0) == pytest.approx(1.5)
        assert math.isinf(md1_latency_s(1.0, 1.0))

    def test_at_little_load_batching_costs_the_window(self) -> None:
        found = load(Scheduler(SERVICE, 0.028), 0.01)
        assert found.mean_s == pytest.approx(0.028 + 0.032, rel=0.01)
        assert found.batch_mean == pytest.approx(1, rel=0.01)

    def test_a_rate_beyond_saturation_is_not_averaged(self) -> None:
        scheduler = Scheduler(SERVICE, 0.028)
        found = load(scheduler, scheduler.qps_max * 1.01)
        assert not found.is_sustained
        assert math.isnan(found.mean_s)
        assert math.isnan(found.p99_s)
        assert load(scheduler, scheduler.qps_max * 0.9).is_sustained

    def test_batching_sustains_what_one_at_a_time_does_not(self) -> None:
        scheduler = Scheduler(SERVICE, 0.028)
        rate = 2 * scheduler.alone().qps_max
        assert not load(scheduler.alone(), rate).is_sustained
        assert load(scheduler, rate).mean_s < 2 * SERVICE[0]

    def test_same_seed_same_latencies(self) -> None:
        scheduler = Scheduler(SERVICE, 0.028)
        once, again, other = (load(scheduler, 100, seed=seed) for seed in (1, 1, 2))
        assert once == again
        assert once.mean_s != other.mean_s

    def test_intervals_hold_the_truth_as_often_as_they_say(self) -> None:
        scheduler = Scheduler((0.032,), 0.0)
        expected = md1_latency_s(12, 0.032)
        found = [load(scheduler, 12, runs=6, queries=2_000, seed=seed) for seed in range(100)]
        held = sum(one.low_s <= expected <= one.high_s for one in found)
        # 95 of 100 on average; fewer than 86 has a chance below 1 in 1,000.
        assert held >= 86

    @pytest.mark.parametrize("rate", [0, -3, math.inf])
    def test_refuses_a_rate_of_nothing(self, rate: float) -> None:
        with pytest.raises(errors.ConfigError, match="rate"):
            load(Scheduler((0.1,), 0.0), rate)

    def test_says_how_far_it_is(self) -> None:
        seen: list[tuple[int, int]] = []
        loads(
            Scheduler((0.1,), 0.0),
            [1, 2],
            runs=2,
            queries=50,
            progress=lambda *at: seen.append(at),
        )
        assert seen == [(1, 2), (2, 2)]


class TestCrossing:
    def test_is_where_the_wait_of_one_at_a_time_is_the_window(self) -> None:
        # Few queries meet at this rate, so that batching takes its window and one service.
        service, window = 0.056, 0.032
        scheduler = Scheduler((service,) * 64, window)
        busy = 2 * window / service / (1 + 2 * window / service)
        assert crossing(scheduler) == pytest.approx(busy / service, rel=0.08)

    def test_last_within_is_on_the_edge(self) -> None:
        scheduler = Scheduler(SERVICE, 0.028)
        bound = 2 * SERVICE[0]
        edge = last_within(scheduler, bound)
        assert load(scheduler, edge * 0.98).mean_s < bound
        assert load(scheduler, edge * 1.02).mean_s > bound
        assert last_within(scheduler, 0.9 * SERVICE[0]) == 0


class TestCounts:
    def test_row_selection_is_one_product_a_residue_of_the_table_and_half(self) -> None:
        counts = figures_counts.count(2)
        records = 2 * 2**30 // 16_384
        # Two polynomials of 4 x 4096 residues a record; a sum's reduction is under 1 % of that.
        products = records * 2 * 4 * 4096 * figures_counts.PRODUCT
        assert products < counts.total("RowSel") < 1.01 * products

    def test_eight_digits_in_both_steps_give_the_shares_printed(self) -> None:
        eight = figures_points.Digits(8, 8)
        for gb, printed in ((2, 0.58), (16, 0.66)):
            assert figures_counts.count(gb, how=eight).share("RowSel") == pytest.approx(
                printed, rel=0.02
            )

    def test_fewest_multiplications_are_where_the_paper_says(self) -> None:
        totals = {
            d0: sum(map(counts.total, counts.multiplications))
            for d0 in (64, 128, 256, 512, 1024, 2048)
            for counts in [figures_counts.count(2, d0)]
        }
        least = min(totals, key=lambda d0: totals[d0])
        assert bound("Figure 4b", "Figure 4b: D0 of the fewest multiplications").holds(least)

    def test_a_byte_of_the_table_meets_one_or_two_multiplications(self) -> None:
        counts = figures_counts.count(2)
        intensity = counts.total("RowSel") / (counts.table_bytes + counts.row_bytes)
        assert bound("Figure 6", "Figure 6: RowSel's multiplications a byte, batch 1").holds(
            intensity
        )
