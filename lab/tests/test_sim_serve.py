"""``hushtable sim serve``: queues against closed forms, profiles, prices and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hushtable.cli import app
from hushtable.errors import ConfigError
from hushtable.model import Model
from hushtable_lab.sim.serve import (
    Deployment,
    Front,
    Hedging,
    Load,
    Need,
    Profile,
    Stalls,
    TableSize,
    answer,
    carried,
    choose,
    read_prices,
    read_profile,
    simulate,
)
from hushtable_lab.sim.serve.check import SHARDS, compare, queue
from hushtable_lab.sim.serve.clock import Clock, Cores, Thread
from hushtable_lab.sim.serve.closed import alone, slowest_mean, slowest_quantile
from hushtable_lab.sim.serve.deployment import key_bytes
from hushtable_lab.sim.serve.measured import measure, stalls_of
from hushtable_lab.sim.serve.passes import Curve, Reading, read_measured
from hushtable_lab.sim.serve.plan import deployments, remedy

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "gpu-pir-cpu-2026-11-23.json"
PASS_S = 0.01
TABLE = TableSize("t", 1 << 20, 64)
_NOTHING, _CALM = Front(), Stalls()


def profile(
    keys: tuple[int, ...] = (1, 256),
    seconds: tuple[float, ...] = (PASS_S, PASS_S),
    front: Front = _NOTHING,
    stalls: Stalls = _CALM,
) -> Profile:
    """One shard's pass as it is said here, of the whole table; of a part it is less."""
    return Profile(
        "t", "made up", 256, Reading(50), front, stalls, (Curve(1 << 20, 64, 1, keys, seconds),)
    )


def deployed(
    of: Profile | None = None, counts: tuple[int, int, int] = (1, 1, 1), **more: Any
) -> Any:
    return Deployment((TABLE,), *counts, of or profile(), **{"hop": 0.0, **more})


# Queues and shards, in closed form.


@pytest.mark.parametrize("busy", [0.3, 0.7])
def test_one_lookup_a_pass_waits_as_in_a_queue_of_equal_jobs(busy: float) -> None:
    assert [one for one in queue(busy, lookups=25_000) if not one.is_within] == []


def test_the_slowest_of_shards_is_the_nth_root_of_a_quantile() -> None:
    spread = Stalls(spread=0.1)
    for shards in (1, 4, 64):
        found = slowest_quantile(1.0, spread, shards, 0.99)
        # P(all within t) = F(t)^n.
        one = 0.5 * (1 + math.erf(math.log(found) / 0.1 / math.sqrt(2)))
        assert one**shards == pytest.approx(0.99, abs=1e-6)
    draws = np.exp(np.random.default_rng(1).normal(0, 0.1, (100_000, 8))).max(axis=1)
    assert slowest_mean(1.0, spread, 8) == pytest.approx(draws.mean(), rel=0.002)


@pytest.mark.parametrize("shards", SHARDS)
def test_closed_forms_are_those_of_independent_shards(shards: int) -> None:
    p50, p99, _hedged = SHARDS[shards]
    stalls = Stalls(0.1, 0.002, 0.05)
    for part, known in ((0.5, p50), (0.99, p99)):
        ours = 1e3 * slowest_quantile(0.1 / shards, stalls, shards, part) + 1
        assert abs(ours - known) <= 0.5 + 0.06 * known


@pytest.mark.parametrize("shards", [1, 8, 16])
def test_simulated_shards_are_as_slow_as_independent_ones(shards: int) -> None:
    assert [one for one in compare(shards) if not one.is_within] == []


def test_utilisation_and_the_number_that_wait_are_as_they_must_be() -> None:
    one = deployed(profile((1, 256), (0.01, 0.02)), (4, 2, 2), passes_at_once=1)
    run = simulate(one, Load(300.0, 20_000))
    for side in run.sides:
        assert side.lookups_mean * side.passes == 20_000
        # A pass of 1 to 256 lookups on a quarter of the rows takes 2.5 to 5 ms.
        busy = side.passes / 2 * one.pass_seconds(side.lookups_mean) / (20_000 / 300)
        assert side.shard_busy == pytest.approx(busy, rel=0.05)
    # Little's law: who is inside at the last arrival is the rate times the time inside.
    inside = float(np.mean(run.sides[0].ended_s - run.sides[0].asked_s)) * 300
    assert abs(run.sides[0].waited - inside) < 6 * math.sqrt(inside) + 6


# A front's rules.


def test_a_lone_lookup_waits_for_nobody_but_where_a_window_is_set() -> None:
    quick = simulate(deployed(), Load(0.1, 200), sides=1)
    waits = simulate(deployed(window=0.003), Load(0.1, 200), sides=1)
    assert quick.quantile(0.5) == pytest.approx(PASS_S)
    assert waits.quantile(0.5) == pytest.approx(PASS_S + 0.003)


def test_clients_of_a_closed_loop_share_each_pass() -> None:
    costs = Front(request=50e-6, once=100e-6, shard=20e-6, key=1e-6, hop=400e-6)
    one = deployed(profile((1, 256), (0.01, 0.03), costs), (4, 1, 1), hop=None)
    run = simulate(one, Load(clients=32, lookups=4000), sides=1)
    side = run.sides[0]
    assert side.lookups_mean == pytest.approx(32, rel=0.02)
    # A cycle: all are taken in and answered one by one, and the pass goes out and comes back. The
    # first to be answered asks again while the last ones are.
    cycle = one.pass_seconds(32) + one.own_seconds(32) + 400e-6 + 32 * 2 * 50e-6
    assert run.per_s == pytest.approx(32 / cycle, rel=0.03)


def test_what_a_side_carries_is_what_it_answers_under_full_load() -> None:
    one = deployed(profile((1, 256), (0.01, 0.03)), (2, 1, 1))
    run = simulate(one, Load(clients=1024, lookups=40_000), sides=1)
    found = carried(one)
    assert run.sides[0].lookups_mean == pytest.approx(256, rel=0.03)
    assert run.per_s == pytest.approx(found.per_s, rel=0.03)
    # Two fronts have two passes under way, which two replicas answer at once.
    two = deployed(profile((1, 256), (0.01, 0.03)), (2, 2, 2))
    assert carried(two).per_s == pytest.approx(2 * found.per_s)
    run = simulate(two, Load(clients=2048, lookups=60_000), sides=1)
    assert 1.7 * found.per_s < run.per_s < 2.02 * found.per_s


def test_shards_on_shared_cores_take_turns() -> None:
    alone_s = deployed(profile(), (4, 1, 1)).pass_seconds(1)
    assert alone_s == pytest.approx(PASS_S / 4)
    for cores, wanted in ((1, PASS_S), (2, PASS_S / 2), (4, PASS_S / 4)):
        run = simulate(deployed(profile(), (4, 1, 1), cores=cores), Load(0.1, 200), sides=1)
        assert run.quantile(0.5) == pytest.approx(wanted)
        # What a front waits is what it saw a pass take, with the cores as they are.
        assert deployed(profile(), (4, 1, 1), cores=cores).window_seconds == pytest.approx(wanted)
    clock, ended = Clock(), []
    shared = Cores(clock, 1)
    # Two at half speed: the short one ends at 2, the long one has 2 left of its own then.
    shared.begin(3.0, 1, lambda: ended.append(("long", clock.now)))
    shared.begin(1.0, 1, lambda: ended.append(("short", clock.now)))
    clock.run()
    assert ended == [("short", 2.0), ("long", 4.0)]
    thread = Thread(shared)
    for name in ("first", "second"):
        thread.run(1.0, lambda name=name: ended.append((name, clock.now)))
    clock.run()
    assert ended[2:] == [("first", 5.0), ("second", 6.0)]


def test_hedging_keeps_to_its_budget_and_takes_stalls_away() -> None:
    stalls = Stalls(0.05, 0.02, 0.2)
    one = deployed(profile(stalls=stalls), (8, 2, 1))
    plain = replace(one, hedging=Hedging(quantile=None))
    load = Load(2.0, 4000)
    hedged, slow = (simulate(each, load, sides=1) for each in (one, plain))
    side = hedged.sides[0]
    assert 0 < side.hedges <= 0.05 * side.parts + 10
    assert slow.sides[0].hedges == 0
    assert hedged.quantile(0.99) < 0.4 * slow.quantile(0.99)
    # Where all is late, the budget holds.
    tight = replace(one, hedging=Hedging(quantile=0.2, slack=0.5, budget=0.03))
    side = simulate(tight, load, sides=1).sides[0]
    assert side.hedges == pytest.approx(0.03 * side.parts, abs=11)


def test_a_seed_says_all() -> None:
    one = deployed(profile(stalls=Stalls(0.1, 0.01, 0.05)), (4, 2, 2))
    first, second, other = (simulate(one, Load(50.0, 1000), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.latency_s, second.latency_s)
    assert not np.array_equal(first.latency_s, other.latency_s)


# Passes.


def test_profiles_give_back_what_was_measured() -> None:
    for name in ("sapphire-rapids", "epyc"):
        one = read_profile(name)
        for curve in one.curves:
            for keys, seconds in zip(curve.keys, curve.seconds, strict=True):
                found = one.seconds(curve.rows, curve.row_bytes, keys, curve.threads)
                assert found == pytest.approx(seconds)
        largest = one.seconds(one.rows_max, 256, 1)
        assert one.seconds(4 * one.rows_max, 256, 1) == pytest.approx(4 * largest)
        assert one.seconds(1 << 17, 256, 1) < one.seconds(1 << 18, 256, 1)
        # Cores beyond those measured: no faster than memory is read.
        floor = (1 << 22) * 256 / (one.reading.gb_per_s * 1e9)
        assert one.seconds(1 << 22, 256, 1, 64) == pytest.approx(floor)
        twice = one.reads(2 * one.reading.gb_per_s)
        assert twice.seconds(1 << 22, 256, 1, 64) == pytest.approx(floor / 2)
        with pytest.raises(ConfigError, match="but not of 16384"):
            one.seconds(1 << 20, 16384, 1)


def test_a_profile_is_written_as_it_is_read(tmp_path: Path) -> None:
    one = read_profile("epyc")
    path = tmp_path / "mine.toml"
    path.write_text(one.as_toml())
    again = read_profile(str(path))
    assert again.curves == one.curves and again.stalls == one.stalls
    assert again.front.as_us() == pytest.approx(one.front.as_us())
    for broken, words in (
        (one.as_toml().replace("rows = 16384", "rows = -1", 1), "rows is -1"),
        (one.as_toml().replace("hop_us", "hope_us"), "hope_us is not known"),
        (one.as_toml().replace("keys = [1, 2", "keys = [2, 1", 1), "rising"),
        ("format = 2", "format is 2"),
        ("what", "cannot be read as TOML"),
    ):
        path.write_text(broken)
        with pytest.raises(ConfigError, match=words):
            read_profile(str(path))
    with pytest.raises(ConfigError, match="sapphire-rapids, this"):
        read_profile("z80")


def test_results_of_bench_are_passes(tmp_path: Path) -> None:
    found = read_measured([RESULTS], read_profile("epyc"))
    records = json.loads(RESULTS.read_text())["results"]
    (one,) = (
        each["detail"]["ms_per_batch"]
        for each in records
        if each["bench"] == "dpf"
        and each["threads"] == 1
        and each["params"] == {"rows": 1 << 20, "row_bytes": 512, "batch": 256, "prg": "aes128"}
    )
    assert found.seconds(1 << 20, 512, 256) == pytest.approx(one / 1e3)
    # As `bench dpf --json >> FILE` leaves it, with a front's costs of `bench shards`.
    lines = [
        {"bench": "dpf", "params": {"rows": 4096, "row_bytes": 8, "batch": batch}, "threads": 1,
         "detail": {"ms_per_batch": ms}}
        for batch, ms in ((1, 2.0), (3, 4.0))
    ] + [{"bench": "shards", "params": {}, "detail": {"shard_us": 7.0}}]  # fmt: skip
    path = tmp_path / "bench.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    found = read_measured([path], found)
    assert found.seconds(4096, 8, 2) == pytest.approx(3e-3)
    assert found.front.as_us()["shard_us"] == pytest.approx(7)
    path.write_text('{"bench": "oram"}')
    with pytest.raises(ConfigError, match="has no pass"):
        read_measured([path], found)


@pytest.fixture(scope="module")
def this_machine() -> Profile:
    return measure([(1 << 15, 64)], Front(), threads=(1,), seconds=0.02)


@pytest.mark.timed
def test_a_pass_of_this_machine_takes_milliseconds_and_of_more_keys_longer(
    this_machine: Profile,
) -> None:
    found = this_machine
    assert 0 < found.seconds(1 << 15, 64, 1) < 0.05
    assert found.seconds(1 << 15, 64, 4 * found.batch_keys_max) > found.seconds(1 << 15, 64, 1)


def test_this_machine_is_measured(this_machine: Profile) -> None:
    found = this_machine
    assert found.seconds(1 << 15, 64, 1) > 0
    assert found.rows_max == 1 << 15 and found.reading.gb_per_s > 0
    times = np.concatenate([np.full(990, 1.0), np.full(10, 3.0)])
    assert stalls_of(times) == Stalls(0.0, 0.01, 2.0)


# Hosts, bytes and money.


def test_bytes_and_memory_are_counted() -> None:
    # As docs/key-format.md has them.
    assert [key_bytes(rows) for rows in (512, 1 << 16, 1 << 20, 1 << 32)] == [88, 201, 266, 459]
    one = Deployment((TableSize("t", 1 << 20, 60, keys=3),), 4, 2, 2, profile())
    assert one.part_bytes == (3 * 266, 3 * 60)
    # Rows are padded to 8 bytes; two versions, and what a server has besides.
    assert one.memory_bytes(2) == 2 * (1 << 20) * 64 / 4 + (256 << 20)
    assert one.lookups_max == 256 // 3


def need(**more: Any) -> Need:
    prices = read_prices()
    given: dict[str, Any] = {
        "tables": (TableSize("t", 1 << 26, 256),),
        "rate": 100.0,
        "prices": prices,
        "profile": read_profile("sapphire-rapids"),
        "instances": prices.of("aws"),
        "settings": {"hop": 1e-3},
        "lookups": 1000,
    }
    return Need(**{**given, **more})


def test_money_is_that_of_the_hosts_and_bytes() -> None:
    asked = need(shards=8, replicas=2, fronts=3, zones=2)
    host = asked.prices.instance("r7i.xlarge")
    (one,) = deployments(asked, host)
    found = answer(asked, one, host)
    front = found.front_instance
    assert front.vcpus >= 4 and found.hosts == 2 * (8 * 2 + 3)
    hosts = 2 * (16 * host.dollars_per_hour + 3 * front.dollars_per_hour) * 730
    assert found.hosts_dollars == pytest.approx(hosts)
    down, up = 256, key_bytes(1 << 26)
    to_clients = 2 * 100 * (down + 150) * 730 * 3600 / 1e9 * 0.09
    hedged = sum(s.hedges for s in found.run.sides) / sum(s.parts for s in found.run.sides)  # type: ignore[union-attr]
    between = 2 * 100 * 8 * (1 + hedged) * (up + down) * 730 * 3600 / 1e9 * 0.02 / 2
    assert found.bytes_dollars == pytest.approx(to_clients + between)


def test_the_cheapest_that_is_fast_enough_is_chosen() -> None:
    slow, fast = (choose(need(p99_s=p99_s)) for p99_s in (2.5, 0.7))
    for found, p99_s in ((slow, 2.5), (fast, 0.7)):
        assert found.is_sustained and found.p99_s <= p99_s
        assert found.rate <= 0.7 * found.carried.per_s
        assert found.memory_bytes <= 0.95 * found.instance.memory_gib * 2**30
        assert alone(found.deployment, 0.5) < found.run.quantile(0.5)  # type: ignore[union-attr]
    assert fast.deployment.shards > slow.deployment.shards
    assert fast.dollars > slow.dollars
    small = choose(need(p99_s=2.5, memory_bytes=4 * 2**30))
    assert small.memory_bytes <= 4 * 2**30 and small.dollars >= slow.dollars


def test_what_cannot_be_says_what_is_the_limit() -> None:
    with pytest.raises(ConfigError, match="meets no other takes .* at best"):
        choose(need(p99_s=0.001))
    with pytest.raises(ConfigError, match=r"4 shards of 16 GiB .* it takes [0-9]+ shards"):
        choose(need(shards=4, memory_bytes=2 * 2**30))
    with pytest.raises(ConfigError, match="no host has room"):
        choose(need(memory_bytes=2**20))
    with pytest.raises(ConfigError, match="no deployment carries 1e.08 lookups a second"):
        choose(need(rate=1e8))
    asked = need(shards=4, replicas=2, fronts=2, rate=5000.0)
    host = asked.prices.instance("r7i.xlarge")
    (one,) = deployments(asked, host)
    said = remedy(asked, one, host)
    assert "2 fronts, which have 1 pass under way each" in said
    # What it says would do does.
    words = said.split()
    replicas, fronts = (int(words[words.index(name) - 1]) for name in ("replicas", "fronts"))
    found = carried(replace(one, replicas=replicas, fronts=fronts))
    assert asked.rate <= 0.71 * found.per_s


def test_a_price_list_is_checked(tmp_path: Path) -> None:
    listed = read_prices()
    text = listed.path.read_text()
    assert {one.provider for one in listed.instances} == set(listed.providers)
    assert all(2 * one.cores == one.vcpus for one in listed.instances)
    mine = tmp_path / "mine.toml"
    for changed, words in (
        (text.replace("dollars_per_hour = 0.1323", ""), "dollars_per_hour is missing"),
        (text.replace("vcpus = 2", "cpus = 2", 1), "cpus is not known"),
        (text.replace("date = 2026-11-25", 'date = "today"'), "date is 'today'"),
        (text.replace('name = "gcp"', 'name = "other"'), "provider is 'gcp'"),
        (text.replace('"r7i.xlarge"', '"r7i.large"'), "of one instance alone"),
    ):
        mine.write_text(changed)
        with pytest.raises(ConfigError, match=words):
            read_prices(mine)
    with pytest.raises(ConfigError, match="provider is 'ibm'"):
        listed.of("ibm")


# The command.


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["sim", "serve", *arguments])


SET = ("--rows", "67108864", "--row-bytes", "256", "--replicas", "2", "--fronts", "2")
FEW = ("--lookups", "1000")


def test_the_command_prints_a_table_and_json() -> None:
    shown = invoke(*SET, *FEW, "--rate", "20", "--shards", "4", "--shards", "8")
    assert shown.exit_code == 0, shown.output
    for words in ("16 GiB", "4 x 2", "8 x 2", "list prices", "$/month"):
        assert words in shown.output
    found = invoke(*SET, *FEW, "--rate", "20", "--shards", "8", "--json", "--p99-ms", "1000")
    record = json.loads(found.stdout)
    detail = record["detail"]
    assert record["value"] == detail["hosts_dollars"] + detail["bytes_dollars"]
    assert detail["hosts"] == 2 * (8 * 2 + 2) and detail["is_sustained"]
    assert 0 < detail["p50_ms"] < detail["p99_ms"] <= 1000
    assert detail["prices_date"] == "2026-11-25"
    again = invoke(*SET, *FEW, "--rate", "20", "--shards", "8", "--json", "--p99-ms", "1000")
    assert again.stdout == found.stdout


def test_stalls_make_it_slower() -> None:
    def p99_ms(*more: str) -> float:
        found = invoke(*SET, *FEW, "--rate", "5", "--shards", "8", "--json", *more)
        assert found.exit_code == 0, found.output
        return float(json.loads(found.stdout)["detail"]["p99_ms"])

    stalled = ("--stalls", "0.02", "--stall-ms", "2000")
    calm, slow, hedged = p99_ms(), p99_ms(*stalled, "--no-hedge"), p99_ms(*stalled)
    assert calm < hedged < slow


def test_a_model_is_asked_for_all_its_features(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "m.npz",
        users=np.ones((5000, 64), np.float32),
        items=np.ones((700, 64), np.float32),
    )
    Model.build(tmp_path / "m.npz", tmp_path / "m", tables=["users", "items"], max_ids=4)
    shape = ("--shards", "1", "--replicas", "1", "--fronts", "1", "--rate", "1", "--json")
    found = invoke("--model", str(tmp_path / "m"), *shape, *FEW)
    assert found.exit_code == 0, found.output
    asked = {(one["rows"], one["keys"]) for one in json.loads(found.stdout)["params"]["tables"]}
    assert asked == {(5000, 4), (700, 4)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "10"], "--row-bytes, or a --model"),
        (["--rows", "10", "--row-bytes", "8"], "--rate is missing"),
        (["--rows", "0", "--row-bytes", "8", "--rate", "1"], "rows of the table is 0"),
        ([*SET, "--rate", "nan"], "--rate is nan"),
        ([*SET, "--rate", "1", "--p99-ms", "0"], "--p99-ms is 0"),
        ([*SET, "--rate", "1", "--provider", "ibm"], "provider is 'ibm'"),
        ([*SET, "--rate", "1", "--instance", "vax"], "instance is 'vax'"),
        ([*SET, "--rate", "1", "--jitter", "-1"], "spread of stalls is -1"),
        ([*SET, "--rate", "1e6", "--shards", "4"], "fronts, which have 1 pass under way each"),
        ([*SET, "--rate", "1", "--machine", "this", "--measured", "x"], "leave --measured out"),
        (["--model", "none", "--rows", "1", "--rate", "1"], "--model has rows"),
    ],
)
def test_bad_input_is_said(arguments: list[str], words: str) -> None:
    found = invoke(*arguments)
    assert isinstance(found.exception, ConfigError), found.output
    assert words in str(found.exception)
