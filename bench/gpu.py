"""Measures the GPU engine: correctness first, then the tables and figures of the paper.

    .venv/bin/python bench/gpu.py [--stages check,engine,...] [--quick] [--out FILE]

Needs the package ``hushtable`` and numpy; plots need matplotlib. Every strategy is checked against
the engine for processors before anything is timed, and the first wrong answer ends the run. Stages
run in order of importance, and the file is written after each measurement, so that a run that is
cut off keeps what it has. Without a GPU it says so and exits with 2.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_report

from hushtable import Error, _native
from hushtable._machine import gpu_report as report_of_gpu
from hushtable_lab import native
from hushtable_lab.measure import gpu
from hushtable_lab.measure.layout import random_layout

ROOT = Path(__file__).resolve().parents[1]
PAPER = json.loads((ROOT / "bench" / "papers" / "gpu-pir.json").read_text(encoding="utf-8"))
GROUPS = ("bits", "z8", "z32")
SIZES = (1 << 14, 1 << 16, 1 << 20, 1 << 22)
MILLION = 1 << 20
#: The paper's steps in its order (§III-C), each one change from the one before. `hybrid` and
#: `fused` have the same factor K, which the paper leaves to be found by trial: see `factors`.
STEPS = ("block-per-key", "level-by-level", "hybrid", "fused", "cooperative")
#: All that a server may be told.
ABLATION = (*STEPS, "tensor")
FACTORS = (64, 128, 256, 512)
#: How a strategy is measured: by the paper's steps with a leaf for each row, as its trees have; by
#: the same steps with our wider leaves, another algorithm; or, without these, as a server does.
PAPER_LEAF = {"leaf": "row", "group": "z32"}
WIDE_LEAF = {"leaf": "wide", "group": "z32"}
#: Kernels of which only a measurement says which way is faster.
TUNINGS = {
    "aes128": ("tensor", "tensor+bitsliced"),
    "chacha20": ("tensor", "tensor+multiplied"),
    "chacha12": ("tensor", "tensor+multiplied"),
}
#: Odd sizes (rows, bytes, keys): one row, less than a leaf, leaves cut short, rows of one byte, of
#: no whole word or tile, of several strips. Every generator goes over the first two, the figures'
#: own width among them, so that their kernels are compiled; two generators over the others.
CHECKS = (
    (700, 33, 17),
    (5000, 256, 35),
    (1, 1, 1),
    (63, 7, 2),
    (65, 8, 3),
    (4097, 40, 5),
    (3000, 600, 48),
    (70_001, 8, 130),
)
CHECKED_BY_ALL = 2
FEW = ("aes128", "chacha20")
SANITIZE_SECONDS = 600
#: Fewest rows of a tree with a leaf for each.
LEAF_ROWS_LEAST = 64


@dataclass
class Run:
    """A run: where it goes, and what it has so far."""

    out: Path
    device: int
    seconds: float
    quick: bool
    #: Generators to check, and processes to do it by.
    prgs: Sequence[str] = ()
    jobs: int = 1
    document: dict[str, Any] = field(default_factory=dict)
    #: Batches of steps that do not fit the device are answered in smaller ones, not refused.
    streams: bool = False
    #: Of the strategies that have a factor, the one to use: one for all, so that it is no change.
    factors: dict[str, int] = field(default_factory=lambda: {"hybrid": 128, "fused": 128})
    _engine: tuple[tuple[int, int], Any] | None = None

    def write(self, indent: int | None = None) -> None:
        """Writes the file, whole or not at all. To indent it takes ten times as long."""
        partial = self.out.with_suffix(".partial")
        partial.write_text(json.dumps(self.document, indent=indent) + "\n", encoding="utf-8")
        partial.replace(self.out)

    def engine(self, rows: int, row_bytes: int) -> Any:
        """An engine over a random table; the last one is kept."""
        if self._engine is None or self._engine[0] != (rows, row_bytes):
            self._engine = None  # its memory, before the next one takes its own
            engine = gpu.open_bench(rows, row_bytes, self.device)
            self._engine = ((rows, row_bytes), engine)
        return self._engine[1]

    def named(self, strategy: str) -> str:
        """A strategy with its factor, where it has one."""
        return f"{strategy}:{self.factors[strategy]}" if strategy in self.factors else strategy

    def measure(
        self,
        stage: str,
        rows: int,
        row_bytes: int,
        batch: int,
        strategy: str,
        *,
        prg: str = "chacha20",
        group: str = "z8",
        leaf: str | None = None,
        **detail: Any,
    ) -> dict[str, Any] | None:
        """Times one shape and keeps the record; a shape that a strategy cannot do is kept too."""
        strategy = self.named(strategy)
        shape = f"{stage}: {rows:,} x {row_bytes} B, batch {batch}, {strategy}, {prg}, {group}"
        shape += f", leaf {leaf}" if leaf else ""
        engine = self.engine(rows, row_bytes)
        how = {"strategy": strategy, "prg": prg, "group": group}
        if leaf is not None:
            node_bytes, share_bytes = engine.step_bytes(batch, leaf=leaf, **how)
            detail |= {"node_bytes": node_bytes, "share_bytes": share_bytes}
            how |= {"leaf": leaf, "streams": self.streams}
        try:
            engine.check(min(batch, 8), **how)
            times = engine.answer_ms(batch, seconds=self.seconds, **how)
        except Error as error:
            if is_wrong(error):
                raise WrongAnswer(f"{shape}: {error}") from error
            # A level buffer that does not fit, a batch that cooperative groups do not take.
            print(f"{shape}: {error}", file=sys.stderr)
            self.document["refused"].append({"stage": stage, "what": shape, "why": str(error)})
            self.write()
            return None
        record = gpu.gpu_record(
            "gpu",
            engine.facts,
            gpu.probe(self.device),
            times,
            rows=rows,
            row_bytes=row_bytes,
            batch=batch,
            strategy=strategy,
            group=group,
            prg=prg,
            leaf=leaf,
            **detail,
        )
        self.keep(stage, record)
        print(
            f"{shape}: {record['value']:,.0f} queries/s, "
            f"{record['detail']['ms_per_batch']:.3f} ms, {record['of_floor']:.0%} of the floor",
            flush=True,
        )
        return record

    def measure_bins(
        self,
        stage: str,
        rows: int,
        row_bytes: int,
        layout: dict[str, Any],
        batches: Sequence[int],
        prg: str,
        **detail: Any,
    ) -> None:
        """Times whole inferences by a layout, checked against the engine for processors first."""
        self._engine = None  # its memory
        _, found = random_layout(rows, row_bytes, layout)
        engine = gpu.open_bins(found, self.device)
        for batch in batches:
            self._measure_bins(
                engine, stage, rows, row_bytes, layout, batch=batch, prg=prg, **detail
            )

    def _measure_bins(
        self,
        engine: Any,
        stage: str,
        rows: int,
        row_bytes: int,
        layout: dict[str, Any],
        *,
        batch: int,
        prg: str,
        **detail: Any,
    ) -> None:
        shape = f"{stage}: {rows:,} x {row_bytes} B by a layout, batch {batch}, {prg}"
        try:
            engine.check(min(batch, 8), prg=prg)
            times = engine.answer_ms(batch, prg=prg, seconds=self.seconds)
        except Error as error:
            if is_wrong(error):
                raise WrongAnswer(f"{shape}: {error}") from error
            print(f"{shape}: {error}", file=sys.stderr)
            self.document["refused"].append({"stage": stage, "what": shape, "why": str(error)})
            self.write()
            return
        parts = {name: layout[name] for name in ("hot", "full") if layout.get(name)}
        record = gpu.bins_record(
            "gpu-bins",
            engine.facts,
            gpu.probe(self.device),
            times,
            work=engine.work,
            rows=rows,
            row_bytes=row_bytes,
            layout=parts,
            batch=batch,
            prg=prg,
            **detail,
        )
        self.keep(stage, record)
        print(f"{shape}: {record['value']:,.0f} inferences/s", flush=True)

    def measure_cpu(
        self, stage: str, rows: int, row_bytes: int, batch: int, **options: Any
    ) -> None:
        """Times our engine for processors on the same shape, on one thread and on all."""
        prg = options.get("prg", "aes128")
        for threads in (1, 0):
            engine = native.Bench(rows, row_bytes, threads=threads, isa=None)
            times = sorted(engine.answer_seconds(batch, prg=prg, seconds=min(1.0, self.seconds)))
            median = times[len(times) // 2]
            params = {"rows": rows, "row_bytes": row_bytes, "batch": batch, "prg": prg}
            params |= {"group": "bits", "strategy": "cpu"}
            record = gpu.bench_record(
                "dpf",
                params,
                batch / median,
                "queries/s",
                None,
                None,
                engine.threads,
                _native.platforms().chosen,
                ms_per_batch=median * 1e3,
                repeats=len(times),
            )
            self.keep(stage, record)
            rate = f"{record['value']:,.0f} queries/s on {engine.threads} thread(s)"
            print(f"{stage}: processor, {rows:,} x {row_bytes} B: {rate}", flush=True)

    def keep(self, stage: str, record: dict[str, Any]) -> None:
        """Adds a record and writes the file."""
        self.document["results"].append({"stage": stage, **record})
        self.write()


class WrongAnswer(Exception):
    """The device computed something else than the processor."""


def is_wrong(error: Error) -> bool:
    """Whether an error says that an answer was wrong, and not that a shape cannot be done."""
    return "came back wrong" in str(error)


def is_pointless(strategy: str, batch: int, group: str, prg: str) -> bool:
    """Whether another strategy would answer in its place, or the very same kernels.

    The tensor cores multiply bytes, cooperative groups take one key at a time, a tuning is of one
    generator.
    """
    name, _, tuning = strategy.partition("+")
    if tuning and strategy not in TUNINGS.get(prg, ()):
        return True
    return (name == "tensor" and group != "z8") or (name == "cooperative" and batch > 64)


#: Layouts that are checked: rows, bytes of one, parts with bins of one leaf and of several, short
#: ones, several keys a bin, rows in three bins; then the batch.
CHECKED_LAYOUTS: tuple[tuple[int, int, dict[str, Any], int], ...] = (
    (3000, 44, {"full": {"bins": 40}}, 5),
    (3000, 12, {"full": {"bins": 2, "queries": 3, "hashes": 3}}, 9),
    (3000, 600, {"hot": {"rows": 50, "bins": 7}, "full": {"bins": 7, "queries": 2}}, 33),
    (70_001, 64, {"hot": {"rows": 1000, "bins": 1, "queries": 9}, "full": {"bins": 33}}, 130),
    (20, 4, {"full": {"bins": 1}}, 1),
)


def check_layouts(run: Run) -> None:
    """Whole inferences by odd layouts, both sides, every generator in one of them."""
    for number, (rows, row_bytes, layout, batch) in enumerate(CHECKED_LAYOUTS):
        _, found = random_layout(rows, row_bytes, layout)
        engine = gpu.open_bins(found, run.device)
        for prg in run.prgs:
            if number and prg not in FEW:
                continue
            what = f"{rows} x {row_bytes} B by {layout}, batch {batch}, {prg}"
            try:
                engine.check(batch, prg=prg)
            except Error as error:
                raise WrongAnswer(f"{what}: {error}") from error
            run.document["checked"] += 1
        if run.quick:
            break
    print("check: whole inferences: as the processor answers", flush=True)
    run.write()


def check(run: Run) -> None:
    """Every strategy, generator and group on odd sizes, against the engine for processors."""
    run.document["checked"] = 0
    if run.jobs > 1 and len(run.prgs) > 1:
        check_in_parallel(run)
        return
    for number, (rows, row_bytes, batch) in enumerate(CHECKS[:1] if run.quick else CHECKS):
        engine = run.engine(rows, row_bytes)
        strategies = [run.named(strategy) for strategy in ("auto", *ABLATION)]
        # What differs in a generator's kernels only is tried where it is chosen.
        strategies += ["fused:2", "hybrid:1024", "tensor+bitsliced", "tensor+multiplied"]
        for prg in run.prgs:
            if number >= CHECKED_BY_ALL and prg not in FEW:
                continue
            for strategy in strategies:
                for group in GROUPS:
                    if is_pointless(strategy, batch, group, prg):
                        continue
                    what = f"{rows} x {row_bytes} B, batch {batch}, {strategy}, {prg}, {group}"
                    try:
                        engine.check(batch, strategy=strategy, prg=prg, group=group)
                    except Error as error:
                        raise WrongAnswer(f"{what}: {error}") from error
                    run.document["checked"] += 1
            check_steps(run, engine, (rows, row_bytes, batch), prg)
        print(f"check: {rows:,} x {row_bytes} B: as the processor answers", flush=True)
        run.write()
    check_layouts(run)


def check_steps(run: Run, engine: Any, shape: tuple[int, int, int], prg: str) -> None:
    """The paper's steps, with a leaf for each row, where there are rows enough, and with ours."""
    rows, row_bytes, batch = shape
    for leaf, group in (("row", "z32"), *(("wide", group) for group in GROUPS)):
        if leaf == "row" and rows < LEAF_ROWS_LEAST:
            continue
        for step in STEPS:
            strategy = run.named(step)
            what = f"{rows} x {row_bytes} B, batch {batch}, {strategy}, {prg}, {group}, {leaf}"
            try:
                engine.check(batch, strategy=strategy, prg=prg, group=group, leaf=leaf)
            except Error as error:
                raise WrongAnswer(f"{what}: {error}") from error
            run.document["checked"] += 1


def check_in_parallel(run: Run) -> None:
    """The same, a process a generator: most of its time goes into compiling kernels."""
    command = [sys.executable, __file__, "--stages", "check", "--device", str(run.device)]
    command += ["--quick"] if run.quick else []

    def child(prg: str) -> tuple[str, int, str, int]:
        out = run.out.with_suffix(f".{prg}.json")
        done = subprocess.run(
            [*command, "--prgs", prg, "--jobs", "1", "--out", str(out)],
            capture_output=True,
            text=True,
        )
        checked = 0
        if out.exists():
            checked = json.loads(out.read_text(encoding="utf-8")).get("checked", 0)
            out.unlink()
        return prg, done.returncode, done.stderr, checked

    with ThreadPoolExecutor(run.jobs) as pool:
        for prg, code, said, checked in pool.map(child, run.prgs):
            run.document["checked"] += checked
            run.write()
            if code != 0:
                pool.shutdown(cancel_futures=True)
                raise WrongAnswer(f"{prg}: {said.strip() or f'ended with {code}'}")
            print(f"check: {prg}: {checked} as the processor answers", flush=True)


def sanitize(run: Run) -> None:
    """compute-sanitizer on small sizes, where it is on the PATH."""
    tool = shutil.which("compute-sanitizer")
    found: dict[str, str] = {}
    run.document["sanitizer"] = found
    if tool is None:
        found["not run"] = "compute-sanitizer is not on the PATH"
        print(f"sanitize: {found['not run']}", flush=True)
        run.write()
        return
    out = run.out.with_suffix(".sanitized.json")
    command = [sys.executable, __file__, "--stages", "check", "--quick", "--out", str(out)]
    command += ["--device", str(run.device), "--jobs", "1", "--prgs", ",".join(FEW)]
    for kind in ("memcheck", "racecheck"):
        options = ["--tool", kind, "--error-exitcode", "9", "--target-processes", "all"]
        try:
            done = subprocess.run(
                [tool, *options, *command], capture_output=True, text=True, timeout=SANITIZE_SECONDS
            )
        except subprocess.TimeoutExpired:
            found[kind] = f"gave up after {SANITIZE_SECONDS} s"
        else:
            found[kind] = "clean" if done.returncode == 0 else (done.stdout + done.stderr)[-6000:]
            if done.returncode == 9:
                run.write()
                raise WrongAnswer(f"compute-sanitizer's {kind}: {found[kind]}")
        print(f"sanitize: {kind}: {found[kind].splitlines()[-1]}", flush=True)
        run.write()
    out.unlink(missing_ok=True)


def engine(run: Run) -> None:
    """The bar: batches on 2^20 rows of 256 B, ChaCha20, our engine; what chooses itself beside."""
    for batch in (512, 1024, 2048, 4096, 256, 64, 16):
        run.measure("engine", MILLION, 256, batch, "tensor")
    for batch in (512, 4096):
        run.measure("engine", MILLION, 256, batch, "auto", group="bits")
        run.measure("engine", MILLION, 256, batch, "auto", group="z32")


def one(run: Run) -> None:
    """One query at 2^20 rows of 256 B."""
    for group in ("bits", "z8"):
        run.measure("one", MILLION, 256, 1, "auto", group=group)
        run.measure("one", MILLION, 256, 1, "cooperative", group=group)


def factors(run: Run) -> None:
    """The factor K: the one by which the fused step is fastest is used for all from here on."""
    found: dict[int, float] = {}
    for k in FACTORS:
        for step in ("hybrid", "fused"):
            record = run.measure(
                "factors", MILLION, 256, 512, f"{step}:{k}", prg="salsa12", **PAPER_LEAF
            )
            if record is not None and step == "fused":
                found[k] = record["value"]
    if found:
        best = max(found, key=found.__getitem__)
        run.factors = dict.fromkeys(run.factors, best)


def tunings(run: Run) -> None:
    """Both ways of the kernels that have two."""
    for prg, strategies in TUNINGS.items():
        for strategy in strategies:
            run.measure("tunings", MILLION, 256, 512, strategy, prg=prg)


def sizes(run: Run) -> None:
    """The other sizes of the paper, batched, our engine."""
    for rows, batches in (
        (1 << 14, (4096, 16384)),
        (1 << 16, (4096, 8192)),
        (1 << 22, (512, 1024)),
    ):
        for batch in batches:
            run.measure("sizes", rows, 256, batch, "tensor")


def table_iii(run: Run) -> None:
    """AES-128 at four sizes: the paper's last step, ours, and our engine for processors."""
    for rows in SIZES:
        batch = batch_of(rows)
        for leaf in (PAPER_LEAF, WIDE_LEAF):
            run.measure("table_iii", rows, 256, batch, "fused", prg="aes128", **leaf)
        run.measure("table_iii", rows, 256, batch, "tensor", prg="aes128")
        run.measure("table_iii", rows, 256, 1, "auto", prg="aes128", group="bits")
        run.measure_cpu("table_iii", rows, 256, 256)


def table_iv(run: Run) -> None:
    """With and without fusion at four sizes, Salsa20/12: one K, leaf and product; ours beside."""
    for rows in SIZES:
        for leaf in (PAPER_LEAF, WIDE_LEAF):
            for step in ("hybrid", "fused"):
                run.measure("table_iv", rows, 256, batch_of(rows), step, prg="salsa12", **leaf)
        run.measure("table_iv", rows, 256, batch_of(rows), "tensor", prg="salsa12")


def table_v(run: Run) -> None:
    """Every generator at 2^20 rows, batches of 512."""
    for prg in _native.prg_names():
        for leaf in (PAPER_LEAF, WIDE_LEAF):
            run.measure("table_v", MILLION, 256, 512, "fused", prg=prg, **leaf)
        run.measure("table_v", MILLION, 256, 512, "tensor", prg=prg)


def figure_9(run: Run) -> None:
    """Throughput against latency of each step, over batches, at four sizes; ours beside."""
    for rows in SIZES:
        for batch in (1, 4, 16, 64, 256, 1024, 4096):
            if batch > 4 * batch_of(rows):
                continue
            for leaf in (PAPER_LEAF, WIDE_LEAF):
                for step in STEPS:
                    run.measure("figure_9", rows, 256, batch, step, prg="salsa12", **leaf)
            run.measure("figure_9", rows, 256, batch, "tensor", prg="salsa12")


def figure_10(run: Run) -> None:
    """Row bytes from 64 to 2,048 at 2^20 rows."""
    for row_bytes in (64, 128, 256, 512, 1024, 2048):
        for leaf in (PAPER_LEAF, WIDE_LEAF):
            run.measure("figure_10", MILLION, row_bytes, 512, "fused", prg="salsa12", **leaf)
        run.measure("figure_10", MILLION, row_bytes, 512, "tensor", prg="salsa12")


def figure_11(run: Run) -> None:
    """Against processors: AES-128 and Salsa20/12 beside Table III's figures of our processors."""
    for rows in SIZES:
        run.measure("figure_11", rows, 256, batch_of(rows), "fused", prg="salsa12", **PAPER_LEAF)
        run.measure("figure_11", rows, 256, batch_of(rows), "tensor", prg="salsa12")


def table_ii(run: Run) -> None:
    """Whole inferences by layouts, for Figures 8 and 15 and Table II.

    For each application of the newest co-design result: the layout found best, the best of plain
    bins, and no layout: a query for each id of an inference, on the whole table. Each record has
    the application's quality and communication beside.
    """
    for name, application in codesign().items():
        rows, row_bytes = application["rows"], application["row_bytes"]
        for family in ("designed", "plain"):
            point = application["throughput"][family]
            layout, quality = point["layout"]["spec"], point["test_quality"]
            run.measure_bins(
                "table_ii",
                rows,
                row_bytes,
                layout,
                (1, 64, 256),
                "aes128",
                application=name,
                family=family,
                metric=application["metric"],
                quality=quality,
                comm_kb=point["layout"]["comm_kb"],
            )
        # A search a tolerance, all of the same trace; one alone in results of before.
        searches = application["search"]
        first = searches[0] if isinstance(searches, list) else searches
        ids = first["trace"]["distinct_ids_mean"]
        clear = application["quality_clear"]["test"]
        alone = {"application": name, "family": "unbatched", "metric": application["metric"]}
        alone |= {"quality": clear, "ids": ids}
        for strategy, leaf in (("fused", PAPER_LEAF), ("auto", {"group": "z8"})):
            run.measure("table_ii", rows, row_bytes, 512, strategy, prg="aes128", **leaf, **alone)


def codesign() -> dict[str, Any]:
    """The applications of the newest co-design result, by name."""
    found = sorted((ROOT / "bench" / "results").glob("codesign-????-??-??.json"))
    if not found:
        return {}
    document: dict[str, Any] = json.loads(found[-1].read_text(encoding="utf-8"))
    return document["applications"]


def large(run: Run) -> None:
    """2^26 rows of 64 B, resident, batches of 256."""
    run.measure("large", 1 << 26, 64, 256, "tensor")
    run.measure("large", 1 << 26, 64, 1, "auto", group="bits")


def batch_of(rows: int) -> int:
    """A batch that fills the device at this size: as many keys as make 2^29 rows, 128 at least."""
    return max(128, min(8192, (1 << 29) // rows))


STAGES: dict[str, Callable[[Run], None]] = {
    "check": check,
    "sanitize": sanitize,
    "engine": engine,
    "one": one,
    "sizes": sizes,
    "factors": factors,
    "tunings": tunings,
    "table_iii": table_iii,
    "table_v": table_v,
    "table_iv": table_iv,
    "table_ii": table_ii,
    "large": large,
    "figure_10": figure_10,
    "figure_11": figure_11,
    "figure_9": figure_9,
}


def chosen(text: str | None) -> list[str]:
    """Stage names from a list with commas, in its order; all, the most important first."""
    names = list(STAGES) if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in STAGES:
            raise SystemExit(f"there is no stage {name!r}: {', '.join(STAGES)}")
    return names


def default_out(device_name: str) -> Path:
    """bench/results/gpu-DEVICE-DATE.json."""
    name = "".join(c if c.isalnum() else "-" for c in device_name.lower().replace("nvidia ", ""))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return ROOT / "bench" / "results" / f"gpu-{name}-{today}.json"


def machine(report: dict[str, Any], device: int) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": _native.platforms().chosen,
        "hushtable": _native.__version__,
        "gpu": report | {"used": device},
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", help=f"some of {', '.join(STAGES)}; default: all")
    parser.add_argument("--device", type=int, default=0, help="the GPU's number, from 0 on")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each is measured")
    parser.add_argument("--quick", action="store_true", help="only one shape in the check")
    parser.add_argument(
        "--stream", action="store_true", help="answer in parts what does not fit, not refuse it"
    )
    parser.add_argument("--prgs", help="generators to check, with commas; default: all")
    parser.add_argument("--jobs", type=int, default=8, help="processes that check")
    parser.add_argument("--out", type=Path, help="default: bench/results/gpu-DEVICE-DATE.json")
    parser.add_argument("--report", type=Path, help="only print and plot what that file holds")
    parser.add_argument("--plots", type=Path, help="folder of the plots; default: none")
    arguments = parser.parse_args()
    if arguments.report is not None:
        document = json.loads(arguments.report.read_text(encoding="utf-8"))
        gpu_report.show(document, PAPER, arguments.plots)
        return 0
    names = chosen(arguments.stages)
    report = report_of_gpu()
    if not report["available"]:
        print(f"no GPU to measure: {report['reason']}", file=sys.stderr)
        print("nothing was checked and nothing measured", file=sys.stderr)
        return 2
    out = arguments.out or default_out(report["devices"][arguments.device]["name"])
    out.parent.mkdir(parents=True, exist_ok=True)
    prgs = arguments.prgs.split(",") if arguments.prgs else _native.prg_names()
    jobs = min(arguments.jobs, len(os.sched_getaffinity(0)))
    run = Run(out, arguments.device, arguments.seconds, arguments.quick, prgs, jobs)
    run.streams = arguments.stream
    run.document |= {"machine": machine(report, arguments.device), "results": [], "refused": []}
    if set(names) - {"check", "sanitize"}:
        run.document["machine"]["probe"] = vars_of(gpu.probe(arguments.device))
    for name in names:
        started = time.monotonic()
        try:
            STAGES[name](run)
        except WrongAnswer as error:
            print(f"WRONG: {error}", file=sys.stderr)
            run.document["wrong"] = str(error)
            run.write(indent=1)
            return 1
        run.document.setdefault("stage_seconds", {})[name] = time.monotonic() - started
        run.write(indent=1)
    print(f"wrote {out}", file=sys.stderr)
    gpu_report.show(run.document, PAPER, arguments.plots)
    return 0


def vars_of(probe: gpu.Probe) -> dict[str, float]:
    """A probe's figures, for the file."""
    return {name: getattr(probe, name) for name in probe.__slots__}


if __name__ == "__main__":
    sys.exit(main())
