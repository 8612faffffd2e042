"""The engine of `sim inference` against queueing theory, timelines by hand, and published runs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("simpy")

from hushtable.errors import ConfigError
from hushtable_lab.sim.inference.arrivals import Bursty, Poisson, Trace, arrivals_of
from hushtable_lab.sim.inference.deployment import Costs, Deployment, Step
from hushtable_lab.sim.inference.engine import simulate
from hushtable_lab.sim.inference.profile import profile
from hushtable_lab.sim.inference.sweep import saturation_rate, sustained_rate, sweep

DAY = 86_400.0


def _deployment(
    offline: tuple[Step, ...], online: tuple[Step, ...], stored: float = 1.0, **others: object
) -> Deployment:
    """With storage for ``stored`` precomputes; 4 and 8 cores, 8 Mbit/s each way."""
    costs = Costs("toy", "server", offline, online, 100, 10)
    made = Deployment(costs, 4, 8, 8.0, 8.0, stored * 100, 1e6)
    return replace(made, **others)  # type: ignore[arg-type]


# 10 s of the client's cores, then 5 s of the link down.
_OFFLINE = (Step("he", "client", 10.0, 4), Step("circuits", "down", 5e6))
# 2 s of the link down, then 3 s of the client's cores.
_ONLINE = (Step("labels", "down", 2e6), Step("evaluate", "client", 3.0, 4))


def test_a_request_waits_for_the_first_precompute() -> None:
    run = simulate(_deployment(_OFFLINE, _ONLINE), [[4.0, 6.0]], 100.0)
    # Room is given back at 20: the next is made from 20 to 35.
    assert run.waiting_s == pytest.approx([0.0, 14.0])
    assert run.offline_s == pytest.approx([11.0, 15.0])
    assert run.online_s == pytest.approx([5.0, 5.0])
    assert run.precomputes == 3
    assert run.most_stored == 1


def test_phases_share_the_link_and_the_cores() -> None:
    # Made at 15 and 30 with room for two. The request of 26 finds the second one on the link since
    # 25: four of its five seconds are left, and labels of two seconds share the link until 30. The
    # second has 2 s left then, and ends at 32; the client evaluates alone.
    run = simulate(_deployment(_OFFLINE, _ONLINE, stored=2.0), [[26.0]], 33.5)
    assert run.online_s == pytest.approx([7.0])
    assert run.precomputes == 2
    # The next begins when the room is given back, at 33.
    assert run.busy["down"] == pytest.approx((5 + 7) / 33.5)
    assert run.busy["client"] == pytest.approx((10 + 10 + 3 + 0.5) / 33.5)


def test_cores_are_shared_by_threads() -> None:
    offline = (Step("he", "server", 10.0, 6),)
    run = simulate(_deployment(offline, (), clients=2), [[0.0], [0.0]], 14.0)
    # 12 threads on 8 cores: both progress at 2/3.
    assert run.offline_s == pytest.approx([15.0, 15.0][: run.offline_s.size])
    assert run.offline_s.size == 0
    run = simulate(_deployment(offline, (), clients=2), [[0.0], [0.0]], 16.0)
    assert run.offline_s == pytest.approx([15.0, 15.0])


def test_published_phases_do_not_compete() -> None:
    deployment = _deployment(_OFFLINE, _ONLINE, stored=2.5, is_as_published=True)
    run = simulate(deployment, [[27.5, 28.0]], 100.0)
    # Looks: 0, made at 15; looks at 16, made at 31; room from 27.5 on.
    assert run.offline_s == pytest.approx([0.0, 0.0])
    assert run.waiting_s == pytest.approx([0.0, 4.5])
    assert run.online_s == pytest.approx([5.0, 5.0])
    # At 32 and at 48 the next two begin, as room was freed at the start of the online phases.
    assert run.precomputes == 4


def test_published_looks_are_once_a_second_and_strict() -> None:
    deployment = _deployment(_OFFLINE, _ONLINE, stored=1.5, is_as_published=True)
    run = simulate(deployment, [[20.25, 20.5]], 100.0)
    # Freed at 20.25, looked for at 21, made at 36.
    assert run.waiting_s == pytest.approx([0.0, 4.75])
    assert run.offline_s == pytest.approx([0.0, 36 - 25.25])
    full = simulate(replace(deployment, client_storage_bytes=100.0), [[0.0]], 100.0)
    assert full.is_online_only
    assert not simulate(_deployment(_OFFLINE, _ONLINE), [[0.0]], 100.0).is_online_only


def test_online_only_is_the_queue_of_pollaczek_and_khinchine() -> None:
    deployment = _deployment(_OFFLINE, _ONLINE, stored=0.5)
    service, load = 20.0, 0.6
    rng = np.random.default_rng(5)
    means = []
    for _ in range(20):
        arrivals = Poisson(load / service).draw(DAY, rng)
        run = simulate(deployment, [arrivals], DAY)
        assert run.is_online_only
        assert run.offline_s == pytest.approx(15.0)
        means.append(run.waiting_s.mean())
    expected = load * service / (2 * (1 - load))
    error = 3 * np.std(means, ddof=1) / math.sqrt(len(means))
    assert error < 0.1 * expected
    assert abs(np.mean(means) - expected) < error


@pytest.mark.parametrize("is_as_published", [False, True])
def test_nothing_is_lost_and_stores_are_bounded(is_as_published: bool) -> None:
    rng = np.random.default_rng(2)
    deployment = _deployment(
        _OFFLINE,
        _ONLINE,
        stored=3.5,
        clients=3,
        precomputes_at_once=2,
        server_storage_bytes=45.0,
        is_as_published=is_as_published,
    )
    drawn = [Bursty(0.04).draw(3_000.0, rng) for _ in range(3)]
    run = simulate(deployment, drawn, 3_000.0)
    assert run.arrivals == sum(map(len, drawn)) > 0
    assert run.arrival_s.size + run.left == run.arrivals
    assert 0 < run.most_stored <= 3
    assert run.most_stored_bytes <= 45.0
    assert (run.waiting_s >= 0).all() and (run.offline_s >= 0).all()
    # First in, first out, of each client.
    for client in range(3):
        assert (np.diff(run.arrival_s[run.client == client]) > 0).all()


def test_more_storage_or_bandwidth_is_no_worse() -> None:
    rates = [0.02]
    base = _deployment(_OFFLINE, _ONLINE)
    means = [
        sweep(one, rates, runs=8, seconds=20_000.0, jobs=1)[0].mean
        for one in (
            base,
            replace(base, client_storage_bytes=400.0),
            replace(base, client_storage_bytes=400.0, up_mbps=80.0, down_mbps=80.0),
        )
    ]
    assert means[0] > means[1] > means[2]


def test_the_same_seed_is_the_same_day_in_any_process() -> None:
    deployment = _deployment(_OFFLINE, _ONLINE)
    said: list[tuple[int, int]] = []
    args = {"runs": 3, "seconds": 5_000.0, "seed": 7}
    one = sweep(deployment, [0.01, 0.02], jobs=1, **args)  # type: ignore[arg-type]
    two = sweep(
        deployment,
        [0.01, 0.02],
        jobs=2,
        progress=lambda done, total: said.append((done, total)),
        **args,  # type: ignore[arg-type]
    )
    assert one == two
    assert said == [(done, 6) for done in range(1, 7)]
    assert one != sweep(deployment, [0.01, 0.02], runs=3, seconds=5_000.0, seed=8, jobs=1)


def test_beyond_saturation_there_is_no_latency() -> None:
    deployment = _deployment(_OFFLINE, _ONLINE)
    most = saturation_rate(deployment)
    assert most == pytest.approx(1 / 20)
    points = sweep(deployment, [0.3 * most, 0.6 * most, 2 * most], runs=3, jobs=1)
    assert [one.is_sustained for one in points] == [True, True, False]
    assert math.isnan(points[2].mean) and math.isnan(points[2].p99)
    assert points[2].left > 1_000
    assert sustained_rate(points) == 0.6 * most
    # With room for more, phases overlap: faster than one after the other, but no faster than 13 s
    # of all of the client's cores a request.
    roomy = replace(deployment, client_storage_bytes=1_000.0)
    assert 1 / 20 < saturation_rate(roomy) <= 1 / 13


def test_the_published_runs_of_figure_7() -> None:
    deployment = profile("paper").deployment(
        "resnet18",
        64,
        "server",
        client_storage_gb=128,
        client_gc_threads=4,
        server_gc_threads=4,
        is_as_published=True,
    )
    # Online minutes of 30 runs each of the authors' code.
    rates = [1 / every / 60 for every in (167, 63, 48, 39, 32.7)]
    points = sweep(deployment, rates, runs=50, jobs=1, keep_unsustained=True)
    for point, minutes in zip(points, (4.05, 4.06, 4.05, 4.04, 4.07), strict=True):
        assert point.online / 60 == pytest.approx(minutes, rel=0.05)
    # Latency rises with the rate, and the last is at the edge.
    assert all(a.mean < b.mean for a, b in itertools.pairwise(points))
    assert points[3].is_sustained and points[4].left == pytest.approx(2.33, abs=1.0)
    assert 60 / (saturation_rate(deployment) * 3600) == pytest.approx(31.0, rel=0.01)


def test_the_published_runs_of_figure_12() -> None:
    for garbler, gigabytes, said in (("client", 16, 0.49), ("server", 64, 1.15)):
        deployment = profile("paper").deployment(
            "resnet18",
            32,
            garbler,  # type: ignore[arg-type]
            client_storage_gb=gigabytes,
            is_as_published=True,
        )
        point = sweep(deployment, [0.001], runs=50, jobs=1)[0]
        assert point.mean / 60 == pytest.approx(said, rel=0.05)


def test_bursts_keep_the_mean_rate_and_spread_more() -> None:
    rng = np.random.default_rng(1)
    counts = {
        kind: np.array([arrivals_of(kind)(0.01).draw(DAY, rng).size for _ in range(200)])
        for kind in ("poisson", "bursty")
    }
    for each in counts.values():
        assert each.mean() == pytest.approx(864, rel=0.05)
    assert counts["poisson"].var() == pytest.approx(864, rel=0.4)
    assert counts["bursty"].var() > 5 * counts["poisson"].var()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n3\n2\n", "line 3.*comes before 3"),
        ("seconds\n1\nlater\n", "line 3.*'later' is no time"),
        ("-1\n", "line 1.*0 or more"),
        ("1\ninf\n", "line 2.*finite"),
        ("# none\n", "no request"),
    ],
)
def test_a_bad_trace_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        Trace(path)


def test_a_trace_is_drawn_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seconds,who\n1,a\n\n2.5,b\n90,c\n")
    drawn = arrivals_of("trace", trace=path)(1.0).draw(50.0, np.random.default_rng(1))
    assert drawn.tolist() == [1.0, 2.5]
    with pytest.raises(ConfigError, match="cannot be read"):
        Trace(tmp_path / "none.csv")


def test_what_cannot_be_simulated_says_why() -> None:
    deployment = _deployment(_OFFLINE, _ONLINE)
    with pytest.raises(ConfigError, match="not sorted"):
        simulate(deployment, [[2.0, 1.0]], 10.0)
    with pytest.raises(ConfigError, match="2 clients, but 1"):
        simulate(deployment, [[], []], 10.0)
    with pytest.raises(ConfigError, match="must be above 0"):
        simulate(deployment, [[]], 0.0)
    with pytest.raises(ConfigError, match="a rate is 0"):
        sweep(deployment, [0.0], jobs=1)
    with pytest.raises(ConfigError, match="no rate"):
        sweep(deployment, [], jobs=1)
    with pytest.raises(ConfigError, match="parallel|poisson, bursty"):
        arrivals_of("often")
