"""bench/gpu.py where there is no GPU: its arguments, its report, its plots.

All figures here are made up, and no file of them is kept.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from waiting import COMMAND_HUNG_S

from hushtable._machine import gpu_report
from hushtable_lab.measure import gpu as _gpu

BENCH = Path(__file__).resolve().parents[2] / "bench"
PAPER = json.loads((BENCH / "papers" / "gpu-pir.json").read_text(encoding="utf-8"))
PROBE = _gpu.Probe(read_gb_per_s=100.0, int8_tmac_per_s=10.0, int32_gop_per_s=1000.0)
FACTS = {"capability": (8, 0), "multiprocessors": 10, "name": "made up"}


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCH)
        yield patch


@pytest.fixture(scope="module")
def report(patch: pytest.MonkeyPatch) -> ModuleType:
    return importlib.import_module("gpu_report")


@pytest.fixture(scope="module")
def bench(patch: pytest.MonkeyPatch) -> ModuleType:
    # Under another name: `gpu` is too short to be this one's alone.
    spec = importlib.util.spec_from_file_location("bench_gpu_script", BENCH / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


class Engine:
    """Stands for an engine on a device: times that grow with the work, answers that are right."""

    def __init__(self, rows: int, row_bytes: int, device: int) -> None:
        self.work = rows * row_bytes
        self.facts = FACTS
        self.description = "made up"

    def check(
        self,
        batch: int,
        *,
        strategy: str,
        prg: str,
        group: str,
        leaf: str | None = None,
        streams: bool = False,
    ) -> None:
        assert leaf in {None, *_gpu.LEAVES}
        if leaf is not None:
            # No step but the paper's; trees with a leaf for each row are of words.
            assert strategy.partition(":")[0] in {step.partition(":")[0] for step in _gpu.STEPS}
            assert leaf == "wide" or group == "z32"
        name, _, tuning = strategy.partition("+")
        assert name.partition(":")[0] in _names()
        assert ("K" in name, tuning) in {(False, ""), (False, "bitsliced"), (False, "multiplied")}
        assert prg in _gpu.OPERATIONS
        if strategy == "level-by-level" and self.work >= 1 << 30:
            raise Failed("the level buffer does not fit")

    def step_bytes(self, batch: int, *, strategy: str, leaf: str, **_: str) -> tuple[int, int]:
        return (24 * batch, 4 * batch) if strategy == "level-by-level" else (0, 4 * batch)

    def answer_ms(self, batch: int, *, seconds: float, **_: Any) -> dict[str, list[float]]:
        return {"device": [batch * self.work / 1e9], "wall": [batch * self.work / 1e9 + 1]}

    def answer_seconds(self, batch: int, **_: Any) -> list[float]:
        return [batch * self.work / 1e9]

    threads = 2


class BinsEngine:
    """The same of a layout's bins."""

    facts = FACTS

    def __init__(self, layout: Any, device: int) -> None:
        self.work = {
            "keys": 9,
            "inner_nodes": 10,
            "leaves": 20,
            "product_bytes": 1 << 20,
            "stored_bytes": layout.facts().stored_bytes,
        }

    def check(self, batch: int, *, prg: str) -> None:
        assert prg in _gpu.OPERATIONS

    def answer_ms(self, batch: int, *, prg: str, seconds: float) -> dict[str, list[float]]:
        return {"device": [0.01 * batch + 0.1], "wall": [0.01 * batch + 1]}


class CpuEngine(Engine):
    def __init__(self, rows: int, row_bytes: int, *, threads: int, isa: None) -> None:
        super().__init__(rows, row_bytes, 0)
        self.threads = threads or 2


from hushtable.errors import Error as Failed  # noqa: E402


def _names() -> set[str]:
    return {name.partition(":")[0] for name in _gpu.STRATEGIES}


@pytest.fixture(scope="module")
def made_up(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of every stage but the sanitizer's on an engine that is none."""
    out = tmp_path_factory.mktemp("made-up") / "made-up.json"
    run = bench.Run(out, 0, 0.01, False, list(_gpu.OPERATIONS))
    run.document |= {"machine": {}, "results": [], "refused": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.gpu, "open_bench", Engine)
        patch.setattr(bench.gpu, "open_bins", BinsEngine)
        patch.setattr(bench._native.bench, "Bench", CpuEngine)
        patch.setattr(bench.gpu, "probe", lambda device: PROBE)
        for name in bench.STAGES:
            if name != "sanitize":
                bench.STAGES[name](run)
    return run


def test_every_stage_runs_and_is_written(made_up: Any) -> None:
    written = json.loads(made_up.out.read_text())
    assert written == made_up.document
    assert not made_up.out.with_suffix(".partial").exists()
    stages = {record["stage"] for record in written["results"]}
    assert stages == {
        *("engine", "one", "sizes", "table_iii", "table_iv", "table_v", "large"),
        *("figure_9", "figure_10", "figure_11", "factors", "tunings", "table_ii"),
    }
    assert written["checked"] > 100
    # What a strategy cannot do is kept with its reason, and the run goes on.
    assert all("does not fit" in refused["why"] for refused in written["refused"])
    assert len(written["refused"]) > 0
    for rows in (1 << 14, 1 << 16, 1 << 20, 1 << 22):
        found = [r for r in written["results"] if r["params"]["rows"] == rows]
        assert {r["stage"] for r in found} >= {"table_iii", "table_iv", "figure_9"}


def test_each_step_is_measured_beside_the_step_before(made_up: Any, bench: ModuleType) -> None:
    def of(stage: str, **params: Any) -> list[dict[str, Any]]:
        return [
            record
            for record in made_up.document["results"]
            if record["stage"] == stage
            and all(record["params"].get(name) == value for name, value in params.items())
        ]

    # Table IV's ratio is of two records that differ in the strategy's name alone.
    for rows in (1 << 14, 1 << 16, 1 << 20, 1 << 22):
        for leaf in ("row", "wide"):
            pair = of("table_iv", rows=rows, leaf=leaf)
            assert [r["params"]["strategy"].partition(":")[0] for r in pair] == ["hybrid", "fused"]
            before, after = (dict(r["params"]) for r in pair)
            assert (
                before.pop("strategy").partition(":")[2] == after.pop("strategy").partition(":")[2]
            )
            assert before == after
    # Figure 9 has all steps at each batch, of the paper's trees and of ours.
    steps = of("figure_9", rows=1 << 20, batch=64, leaf="row")
    assert [r["params"]["strategy"].partition(":")[0] for r in steps] == list(bench.STEPS)
    by_level = of("figure_9", rows=1 << 14, batch=64, leaf="row", strategy="level-by-level")
    assert by_level[0]["detail"]["node_bytes"] == 24 * 64
    # Whole inferences: each application by its layout, by plain bins, and a query an id.
    found = of("table_ii")
    assert {r["detail"]["application"] for r in found} == {"next-word", "clicks", "histories"}
    assert {r["detail"]["family"] for r in found} == {"designed", "plain", "unbatched"}
    assert all("quality" in r["detail"] for r in found)


def test_the_report_names_what_is_met_and_missed(
    made_up: Any, report: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    document = made_up.document
    report.show(document, PAPER, None)
    printed = capsys.readouterr().out
    titles = ("Table II", "Table III", "Table IV", "Table V", "Figure 9", "Figure 10", "Figure 11")
    for title in (*titles, "Bars"):
        assert f"### {title}" in printed
    # The made-up device takes 2^28 / 10^9 ms a query of the usual table.
    assert "| 2^20 x 256 B, batch 512, chacha20 | 3,725 queries/s | 150,000 | NO |" in printed
    assert "missed: 2^20 x 256 B, batch 512" in printed
    assert "not measured" not in printed
    # The paper's figures stand beside.
    assert "60,347 (3.20 ms)" in printed or "60,347 (3.2 ms)" in printed
    assert "5,578 (56.5 ms)" in printed


def test_bars(report: ModuleType) -> None:
    fast = report.Bar("a rate", 200.0, "queries/s", 150.0, 400.0)
    assert (fast.reaches(fast.must), fast.reaches(fast.aim)) == (True, False)
    short = report.Bar("a time", 90.0, "us", 150.0, 80.0)
    assert (short.reaches(short.must), short.reaches(short.aim)) == (True, False)
    assert report.Bar("nothing", None, "us", 1.0, 1.0).reaches(1.0) is None
    # An empty run has all bars, none measured.
    text = report.bar_table([], PAPER)
    assert text.count("-") >= 8
    assert "missed: none" in text
    assert "not measured: 2^20 x 256 B, batch 512" in text


def test_plots(made_up: Any, report: ModuleType, tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("svg")
    written = report.draw(made_up.document, PAPER, tmp_path / "plots", pyplot)
    assert sorted(path.name for path in written) == [
        "gpu-figure-10.svg",
        "gpu-figure-11.svg",
        "gpu-figure-9-1048576.svg",
        "gpu-figure-9-16384.svg",
        "gpu-figure-9-4194304.svg",
        "gpu-figure-9-65536.svg",
    ]
    assert all("<svg" in path.read_text() for path in written)


def test_a_wrong_answer_ends_the_run(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(Engine):
        def check(self, batch: int, **how: str) -> None:
            if how["strategy"] == "tensor":
                raise Failed("byte 3 of answer 0 came back wrong")

    monkeypatch.setattr(bench.gpu, "open_bench", Wrong)
    monkeypatch.setattr(bench.gpu, "open_bins", BinsEngine)
    run = bench.Run(tmp_path / "made-up.json", 0, 0.01, True, ["aes128"])
    run.document |= {"results": [], "refused": []}
    with pytest.raises(bench.WrongAnswer, match="tensor, aes128, z8: byte 3"):
        bench.check(run)
    with pytest.raises(bench.WrongAnswer, match="1,048,576 x 256 B"):
        bench.engine(run)
    assert run.document["results"] == []


def test_correctness_comes_before_figures(bench: ModuleType) -> None:
    assert bench.chosen(None)[:3] == ["check", "sanitize", "engine"]
    assert bench.chosen("one, check") == ["one", "check"]
    with pytest.raises(SystemExit, match="no stage 'figure_8'"):
        bench.chosen("figure_8")
    session = (BENCH / "gpu_session.sh").read_text()
    stages = session.partition("--stages check,engine,")[2].partition(" ")[0]
    assert sorted(["check", "engine", *stages.split(",")]) == sorted(bench.STAGES)


@pytest.mark.skipif(gpu_report()["available"], reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_and_exits_with_2(tmp_path: Path) -> None:
    out = tmp_path / "none.json"
    command = [sys.executable, str(BENCH / "gpu.py"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_HUNG_S)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("no GPU to measure: ")
    assert "nothing was checked and nothing measured" in done.stderr
    assert not out.exists()


def test_it_needs_numpy_and_the_package_alone(tmp_path: Path) -> None:
    """A leased machine may have neither typer nor rich."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("typer", "rich", "matplotlib", "torch"):
        (blocked / f"{name}.py").write_text("raise ImportError('blocked')\n")
    path = f"import sys; sys.path[:0] = [{str(blocked)!r}, {str(BENCH)!r}]\n"
    code = path + "import runpy; runpy.run_path(sys.argv[1]); import gpu_report\n"
    code += "gpu_report.show({'results': []}, __import__('json').load(open(sys.argv[2])), "
    code += "__import__('pathlib').Path('.'))\n"
    arguments = [str(BENCH / "gpu.py"), str(BENCH / "papers" / "gpu-pir.json")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    assert "no plots: matplotlib is not installed" in done.stdout


def test_the_session_script_wants_its_wheels() -> None:
    done = subprocess.run(["bash", str(BENCH / "gpu_session.sh")], capture_output=True, text=True)
    assert done.returncode != 0
    assert "which folder has the wheels?" in done.stderr
    checked = subprocess.run(["bash", "-n", str(BENCH / "gpu_session.sh")])
    assert checked.returncode == 0
