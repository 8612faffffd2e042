"""The accelerator's core: units and queues, what the register file holds, and whole batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hushtable.errors import ConfigError
from hushtable_lab.sim.accelerator.engine import Tasks, run_tasks, run_tree
from hushtable_lab.sim.accelerator.machine import Machine, machine, machine_names
from hushtable_lab.sim.accelerator.schedule import SCHEDULES, expansion, plan, tournament
from hushtable_lab.sim.accelerator.system import Result, simulate
from hushtable_lab.sim.accelerator.workload import KsPir, Retrieval, SimplePir

GB = 1 << 30
CT = 114_688


@pytest.fixture(scope="module")
def ive() -> Machine:
    return machine("ive")


def test_tasks_wait_for_units_and_for_results() -> None:
    tasks = Tasks()
    load = tasks.add(1, 10, 0, [])
    first = tasks.add(0, 4, 3, [load])
    second = tasks.add(0, 4, 3, [load])
    third = tasks.add(0, 4, 3, [load])
    last = tasks.add(1, 1, 0, [first, third])
    done = run_tasks(tasks, [2, 1])
    # Two units take the first two at 10; the third starts as one of them is free, at 14, although
    # their results are there at 17 only.
    assert [done[one] for one in (load, first, second, third, last)] == [10, 17, 17, 21, 22]


def test_a_pipelined_unit_takes_the_next_before_the_first_is_out() -> None:
    tasks = Tasks()
    for _ in range(5):
        tasks.add(0, 2, 100, [])
    assert run_tasks(tasks, [1]) == [102, 104, 106, 108, 110]


def test_a_unit_takes_what_is_ready_before_what_is_not() -> None:
    tasks = Tasks()
    slow = tasks.add(1, 50, 0, [])
    blocked = tasks.add(0, 5, 0, [slow])
    ready = tasks.add(0, 5, 0, [])
    done = run_tasks(tasks, [1, 1])
    assert (done[ready], done[blocked]) == (5, 55)


@pytest.mark.parametrize(("depth", "reduction"), [(1, 1.0), (2, 9 / 5), (3, 21 / 9)])
def test_ciphertexts_moved_are_those_of_the_closed_formula(depth: int, reduction: float) -> None:
    """(3 * 2^h - 3) / (2^h + 1), where whole subtrees of depth h make up the tree."""
    leaves = 64  # six levels: made of subtrees of 1, 2 and 3
    tree = tournament(leaves, CT, 10 * CT, 5)
    schedule = SCHEDULES["dfs-hs-ro"]
    room = tree.subtree_bytes(depth, schedule)
    moves = plan(tree, schedule, room)
    assert moves.depth == depth
    breadth = plan(tree, SCHEDULES["bfs"], 1 << 22)
    assert breadth.ct_bytes == 3 * (leaves - 1) * CT
    assert breadth.ct_bytes / moves.ct_bytes == pytest.approx(reduction)
    assert moves.key_bytes == breadth.key_bytes == 6 * 10 * CT


def test_an_expansion_moves_what_its_mirror_image_moves() -> None:
    for name in ("bfs", "bfs-hs", "dfs-hs-ro"):
        down = plan(expansion(64, CT, 10 * CT, 5), SCHEDULES[name], 1 << 24)
        up = plan(tournament(64, CT, 10 * CT, 5), SCHEDULES[name], 1 << 24)
        if down.depth == up.depth:
            assert down.ct_bytes == up.ct_bytes


def test_every_operation_is_done_once_after_its_inputs() -> None:
    for leaves in (2, 3, 55, 96, 100):
        for schedule in SCHEDULES.values():
            moves = plan(tournament(leaves, CT, 10 * CT, 5), schedule, 1 << 22)
            assert len(moves.ops) == leaves - 1
            assert all(back <= at for at, op in enumerate(moves.ops) for back in op.after)
            moves = plan(expansion(leaves, CT, 8 * CT, 8), schedule, 1 << 22)
            assert sum(op.outputs - 1 for op in moves.ops) == leaves - 1


def test_a_register_file_too_small_for_the_keys_fetches_them_again() -> None:
    tree = tournament(256, CT, 10 * CT, 5)
    small = plan(tree, SCHEDULES["dfs"], 1 << 22)
    large = plan(tree, SCHEDULES["dfs"], 1 << 25)
    assert large.key_bytes == 8 * 10 * CT
    assert large.ct_bytes == (256 + 1) * CT
    assert small.key_bytes > 10 * large.key_bytes


@pytest.mark.parametrize("schedule", ["bfs", "dfs-hs", "dfs-hs-ro"])
def test_the_steady_state_is_what_running_everything_gives(ive: Machine, schedule: str) -> None:
    tree = tournament(2048, CT, 10 * CT, 5)
    chosen = SCHEDULES[schedule]
    moves = plan(tree, chosen, ive.rf_bytes).repeated(2)
    short = run_tree(ive, tree, moves, 4096, 4, chosen.overlaps)
    whole = run_tree(ive, tree, moves, 4096, 4, chosen.overlaps, extrapolates=False)
    assert short.simulated_ops < whole.simulated_ops == 2 * 2047
    assert short.cycles == pytest.approx(whole.cycles, rel=1e-12)
    assert short.busy == whole.busy


def test_no_unit_is_busy_for_longer_than_there_is_time(ive: Machine) -> None:
    tree = tournament(512, CT, 10 * CT, 5)
    run = run_tree(ive, tree, plan(tree, SCHEDULES["dfs-hs-ro"], ive.rf_bytes), 4096, 4, True)
    for name, cycles in run.busy.items():
        count = 1 if name == "hbm" else ive.units[name].count
        assert 0 <= cycles <= count * run.cycles
    # Memory-bound: the channel hardly ever waits.
    assert run.busy["hbm"] > 0.95 * run.cycles


def _closed(machine: Machine, workload: Retrieval) -> float:
    """Seconds of a batch from traffic and unit cycles alone, in sums and maxima."""
    rounds = workload.batch / machine.cores
    product = max(48 * 64 / 2, CT * 9 / 7 / machine.hbm_bytes_per_cycle)
    substitution = max(36 * 64 / 2, 40 * 64, CT * 3 / 1.86 / machine.hbm_bytes_per_cycle)
    trees = workload.columns * product + workload.substitutions * substitution
    gemm = workload.batch * workload.row_macs / machine.macs_per_cycle * (256 + 46) / 256
    comm = workload.batch * workload.pcie_bytes / machine.pcie_bytes_per_s
    return (rounds * trees + gemm) / machine.clock_hz + comm


@pytest.mark.parametrize("gigabytes", [2, 8, 16])
def test_a_closed_form_agrees(ive: Machine, gigabytes: int) -> None:
    workload = Retrieval(gigabytes * GB)
    assert simulate(ive, workload).latency_s == pytest.approx(_closed(ive, workload), rel=0.07)


def test_published_rates_that_fitted_nothing(ive: Machine) -> None:
    for gigabytes, qps, tolerance in ((4, 2350, 0.05), (8, 1242, 0.05), (16, 591, 0.1)):
        ours = simulate(ive, Retrieval(gigabytes * GB)).qps
        assert ours == pytest.approx(qps, rel=tolerance)
    for gigabytes, qps in ((288, 544.6),):
        ours = simulate(ive, Retrieval(gigabytes * GB, 128), systems=16).qps
        assert ours == pytest.approx(qps, rel=0.1)
    assert simulate(ive, SimplePir(4 * GB)).qps == pytest.approx(5883, rel=0.05)
    assert simulate(ive, KsPir(4 * GB)).qps == pytest.approx(1288, rel=0.05)


def test_more_of_anything_is_never_slower(ive: Machine) -> None:
    workload = Retrieval(2 * GB, 40)
    before = simulate(ive, workload).latency_s
    for change in (
        {"hbm_bytes_per_s": 2 * ive.hbm_bytes_per_s},
        {"pcie_bytes_per_s": 2 * ive.pcie_bytes_per_s},
        {"noc_bytes_per_s": 2 * ive.noc_bytes_per_s},
        {"clock_hz": 2 * ive.clock_hz},
    ):
        assert simulate(ive.scaled(**change), workload).latency_s < before, change


def test_a_batch_smaller_than_the_cores_shares_them(ive: Machine) -> None:
    one, four, many = (simulate(ive, Retrieval(2 * GB, batch)) for batch in (1, 4, 32))
    assert one.latency_s < four.latency_s < many.latency_s
    assert one.seconds["tournament"] < 0.3 * many.seconds["tournament"]
    assert one.qps < four.qps < many.qps


def _is_whole(result: Result) -> bool:
    return all(0 <= fraction <= 1.0 for fraction in result.busy.values())


@pytest.mark.parametrize("name", machine_names())
def test_fractions_are_fractions(name: str) -> None:
    assert _is_whole(simulate(machine(name), Retrieval(GB)))


def test_a_large_table_is_streamed_from_lpddr(ive: Machine) -> None:
    large = simulate(ive, Retrieval(128 * GB, 128))
    assert (large.memory, simulate(ive, Retrieval(16 * GB)).memory) == ("lpddr", "hbm")
    assert large.passes > 1
    alone = simulate(ive, Retrieval(128 * GB, 1))
    assert alone.seconds["row_select"] >= 128 * GB * 3.5 / ive.lpddr_bytes_per_s


def test_a_table_that_fits_no_memory_says_so(ive: Machine) -> None:
    with pytest.raises(ConfigError, match="bytes of HBM or 549,755,813,888 of LPDDR"):
        simulate(ive, Retrieval(256 * GB))
    with pytest.raises(ConfigError, match="batch of 1000000 takes"):
        simulate(ive, Retrieval(GB, 1_000_000))


def test_bad_arguments_say_so(ive: Machine) -> None:
    with pytest.raises(ConfigError, match="schedule 'zigzag' is not known"):
        simulate(ive, Retrieval(GB), "zigzag")
    with pytest.raises(ConfigError, match="systems is 0"):
        simulate(ive, Retrieval(GB), systems=0)
    with pytest.raises(ConfigError, match="batch is 0"):
        Retrieval(GB, 0)
    with pytest.raises(ConfigError, match="power of two"):
        Retrieval(GB, first_dimension=100)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cores = 32", "cores = 0", "cores is 0"),
        ("clock_hz = 1e9", "clock_hz = -1.0", "clock_hz is -1.0"),
        ("clock_hz = 1e9", "clock_hz = nan", "clock_hz is nan"),
        ("rf_bytes = 4194304", "", "rf_bytes is missing"),
        ("count = 2", "count = 2.5", "units.ntt.count is 2.5"),
        ('unit = "ntt"', 'unit = "abacus"', "gemm.unit is 'abacus'"),
        ("[units.icrt]", "[units.abacus]", "units.abacus no such unit"),
        ("cores = 32", "cores = 32\nwheels = 4", "wheels is not known"),
        ("cores = 32", "cores = ", "not TOML"),
    ],
)
def test_a_machine_with_bad_values_says_which(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    folder = Path(__file__).parents[1] / "hushtable_lab" / "sim" / "accelerator" / "machines"
    text = (folder / "ive.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=says):
        machine(path)
    with pytest.raises(ConfigError, match="cannot read the machine"):
        machine(tmp_path / "none.toml")


def test_area_and_power_are_those_of_the_component_table(ive: Machine) -> None:
    assert ive.area_mm2 == pytest.approx(155.3, abs=0.1)
    assert ive.power_w == pytest.approx(239.1, abs=0.1)
    assert 32 * ive.core_area_mm2 == pytest.approx(93.1, abs=0.1)


def test_energy_is_power_for_as_long_as_it_is_drawn(ive: Machine) -> None:
    result = simulate(ive, Retrieval(2 * GB))
    watts = result.joules.total / result.latency_s
    assert 0 < watts < ive.power_w
    doubled = replace(ive, hbm_power_w=2 * ive.hbm_power_w)
    more = simulate(doubled, Retrieval(2 * GB)).joules.by_component
    assert more["hbm"] == pytest.approx(2 * result.joules.by_component["hbm"])
