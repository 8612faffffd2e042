"""What bench/gpu.py found, for people: tables beside the paper's figures, bars, plots."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]

#: Colours of Okabe and Ito, told apart by people who do not see all colours, and a marker of each.
#: A name that ends in ``/wide`` is the same step with our wider leaves: another algorithm.
STYLES = {
    "block-per-key": ("#000000", "o", "base"),
    "level-by-level": ("#D55E00", "s", "base + e"),
    "hybrid": ("#0072B2", "^", "base + e + m"),
    "fused": ("#56B4E9", "v", "base + e + m, fused"),
    "cooperative": ("#009E73", "D", "base + e + m, fused + c"),
    "block-per-key/wide": ("#000000", "o", "base, wider leaf"),
    "level-by-level/wide": ("#D55E00", "s", "base + e, wider leaf"),
    "hybrid/wide": ("#0072B2", "^", "base + e + m, wider leaf"),
    "fused/wide": ("#56B4E9", "v", "fused, wider leaf"),
    "cooperative/wide": ("#009E73", "D", "+ c, wider leaf"),
    "tensor": ("#CC79A7", "*", "tensor cores (our algorithm)"),
    "cpu": ("#777777", "P", "our processors"),
}


@dataclass(frozen=True)
class Bar:
    """Something that must be reached: in queries a second more is better, in microseconds less."""

    what: str
    value: float | None
    unit: str
    must: float
    aim: float | None

    def reaches(self, limit: float | None) -> bool | None:
        """Whether the limit is met; None where nothing was measured or there is no limit."""
        if self.value is None or limit is None:
            return None
        return self.value <= limit if self.unit == "us" else self.value >= limit


def of(results: Iterable[Record], stage: str, **params: Any) -> list[Record]:
    """The records of a stage with these parameters; a strategy without its K matches any."""
    return [
        record
        for record in results
        if record["stage"] == stage
        and all(
            value in (record["params"].get(name), kind(record) if name == "strategy" else None)
            for name, value in params.items()
        )
    ]


def kind(record: Record) -> str:
    """A record's strategy without its K."""
    return str(record["params"]["strategy"]).partition(":")[0]


def line_name(record: Record) -> str:
    """A record's strategy without its K, and whether its leaves are wider than the paper's."""
    return kind(record) + ("/wide" if record["params"].get("leaf") == "wide" else "")


def best(records: Iterable[Record]) -> Record | None:
    """The record of most queries a second."""
    return max(records, key=lambda record: record["value"], default=None)


def bars(results: Sequence[Record], paper: Record) -> list[Bar]:
    """What the engine must reach, and what it reached."""
    limits = paper["bars"]
    batched = limits["batched_queries_per_s"]
    found = []
    for batch in batched["batches"]:
        record = best(of(results, "engine", batch=batch, prg=batched["prg"]))
        value = None if record is None else record["value"]
        what = f"2^20 x 256 B, batch {batch}, {batched['prg']}"
        found.append(Bar(what, value, "queries/s", batched["must"], batched["aim"]))
    record = best(of(results, "one", batch=1))
    us = None if record is None else record["detail"]["ms_per_batch"] * 1e3
    limit = limits["one_query_us"]
    found.append(Bar("2^20 x 256 B, one query", us, "us", limit["must"], limit["aim"]))
    times = limits["times_the_paper"]
    for rows in times["rows"]:
        theirs = paper["table_iv"]["rows"][str(rows)]["fused"][0]
        record = best(of(results, "sizes", rows=rows))
        value = None if record is None else record["value"]
        what = f"{rows:,} x 256 B, batched, {times['must']} x the paper's {theirs:,}"
        found.append(Bar(what, value, "queries/s", times["must"] * theirs, None))
    return found


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left."""
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float | None) -> str:
    """A figure with as many digits as are worth reading."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def pair(record: Record | None) -> str:
    """Queries a second, and ms a batch."""
    if record is None:
        return "-"
    return f"{number(record['value'])} ({number(record['detail']['ms_per_batch'])} ms)"


def theirs(figures: Sequence[float]) -> str:
    """The same of the paper's figures."""
    return f"{number(figures[0])} ({number(figures[1])} ms)"


def ratio(record: Record | None, reference: float) -> str:
    """How many times the paper's figure."""
    return "-" if record is None else f"{record['value'] / reference:.1f} x"


def share(record: Record | None) -> str:
    """The fraction of its floor, and what bounds it."""
    if record is None or record["of_floor"] is None:
        return "-"
    return f"{record['of_floor']:.0%} ({record['detail']['bound']})"


def table_iii(results: Sequence[Record], paper: Record) -> str:
    """AES-128 at four sizes."""
    lines = []
    for rows, figures in paper["table_iii"]["rows"].items():
        at = {"rows": int(rows)}
        step = best(of(results, "table_iii", strategy="fused", leaf="row", **at))
        wide = best(of(results, "table_iii", strategy="fused", leaf="wide", **at))
        ours = best(of(results, "table_iii", strategy="tensor", **at))
        processors = of(results, "table_iii", strategy="cpu", **at)
        lines.append(
            [
                f"{int(rows):,}",
                theirs(figures["gpu"]),
                pair(step),
                "-" if step is None else ratio(step, figures["gpu"][0]),
                upload(step),
                pair(wide),
                pair(ours),
                share(ours),
                upload(ours),
                theirs(figures["cpu_32_threads"]),
                *(
                    pair(best(r for r in processors if (r["threads"] == 1) is single))
                    for single in (True, False)
                ),
            ]
        )
    columns = ["rows", "paper, V100", "fused", "x paper", "upload B", "fused, wider leaf", "tensor"]
    columns += ["of floor", "upload B"]
    columns += ["paper, 32 threads", "our CPU, 1 thread", "our CPU, all threads"]
    return "### Table III: AES-128, 256 B a row\n\n" + grid(columns, lines)


def upload(record: Record | None) -> str:
    """Bytes of a key to one server."""
    return "-" if record is None else f"{record['detail']['upload_bytes']:,}"


def table_iv(results: Sequence[Record], paper: Record) -> str:
    """Fusion at four sizes: the ratio of two steps that differ in nothing else."""
    lines = []
    for rows, figures in paper["table_iv"]["rows"].items():
        at = {"rows": int(rows)}
        steps = {
            (step, leaf): best(of(results, "table_iv", strategy=step, leaf=leaf, **at))
            for leaf in ("row", "wide")
            for step in ("hybrid", "fused")
        }
        lines.append(
            [
                f"{int(rows):,}",
                theirs(figures["unfused"]),
                theirs(figures["fused"]),
                f"{figures['fused'][0] / figures['unfused'][0]:.1f} x",
                pair(steps["hybrid", "row"]),
                pair(steps["fused", "row"]),
                gain(steps["hybrid", "row"], steps["fused", "row"]),
                pair(steps["fused", "wide"]),
                gain(steps["hybrid", "wide"], steps["fused", "wide"]),
                pair(best(of(results, "table_iv", strategy="tensor", **at))),
            ]
        )
    columns = ["rows", "paper, unfused", "paper, fused", "gain", "hybrid", "fused", "gain"]
    columns += ["fused, wider leaf", "gain", "tensor"]
    return "### Table IV: fusion, Salsa20/12, 256 B a row\n\n" + grid(columns, lines)


def gain(before: Record | None, after: Record | None) -> str:
    """How many times the throughput of the step before."""
    if before is None or after is None:
        return "-"
    return f"{after['value'] / before['value']:.1f} x"


def table_v(results: Sequence[Record], paper: Record) -> str:
    """Generators at 2^20 rows."""
    figures = paper["table_v"]["rows"]
    names = dict.fromkeys(r["params"]["prg"] for r in of(results, "table_v"))
    lines = []
    for prg in dict.fromkeys([*figures, *names]):
        step = best(of(results, "table_v", strategy="fused", leaf="row", prg=prg))
        wide = best(of(results, "table_v", strategy="fused", leaf="wide", prg=prg))
        ours = best(of(results, "table_v", strategy="tensor", prg=prg))
        reference = figures.get(prg)
        lines.append(
            [
                prg,
                "-" if reference is None else theirs(reference),
                pair(step),
                "-" if reference is None else ratio(step, reference[0]),
                pair(wide),
                pair(ours),
                share(ours),
            ]
        )
    columns = ["generator", "paper, V100", "fused", "x paper", "fused, wider leaf", "tensor"]
    columns += ["of floor"]
    return "### Table V: generators, 2^20 x 256 B, batch 512\n\n" + grid(columns, lines)


def inferences(record: Record | None) -> float | None:
    """Inferences a second: of single queries, by as many as an inference has ids."""
    if record is None:
        return None
    return float(record["value"]) / float(record["detail"].get("ids", 1))


def table_ii(results: Sequence[Record], paper: Record) -> str:
    """Whole inferences: co-designed, plain bins, and a query for each id, beside the paper's."""
    found = of(results, "table_ii")
    lines = []
    for name in dict.fromkeys(r["detail"]["application"] for r in found):
        own = [record for record in found if record["detail"]["application"] == name]
        figures = paper["table_ii"]["rows"].get(name, {})
        most = {
            family: max(
                (r for r in own if r["detail"]["family"] == family), key=inferences, default=None
            )
            for family in ("designed", "plain", "unbatched")
        }
        rates = {family: inferences(record) for family, record in most.items()}
        times = "-"
        if rates["designed"] is not None and rates["unbatched"] is not None:
            times = f"{rates['designed'] / rates['unbatched']:.1f} x"
        designed = most["designed"]
        quality = "-"
        if designed is not None:
            quality = f"{designed['detail']['quality']:.4g} {designed['detail']['metric']}"
        lines.append(
            [
                name,
                number(figures.get("gpu_inferences_per_s")),
                number(figures.get("cpu_inferences_per_s")),
                *(number(rates[family]) for family in ("designed", "plain", "unbatched")),
                times,
                quality,
            ]
        )
    columns = ["application", "paper, GPU + co-design", "paper, CPU", "co-designed", "plain bins"]
    columns += ["a query an id", "co-designed over that", "quality"]
    title = "Table II, Figures 8 and 15: inferences/s of one server's engine"
    return f"### {title}\n\n" + grid(columns, lines)


def series(results: Sequence[Record], stage: str, title: str, by: str) -> str:
    """All of a stage, one line a measurement."""
    lines = [
        [
            f"{record['params'][by]:,}",
            record["params"]["strategy"]
            + (
                f", a leaf a {record['params']['leaf']}".replace("a leaf a wide", "wider leaf")
                if "leaf" in record["params"]
                else ""
            ),
            f"{record['params']['batch']:,}",
            record["params"]["prg"],
            record["params"]["group"],
            number(record["value"]),
            number(record["detail"]["ms_per_batch"]),
            share(record),
        ]
        for record in of(results, stage)
    ]
    columns = [by, "strategy", "batch", "generator", "group", "queries/s", "ms a batch", "of floor"]
    return f"### {title}\n\n" + grid(columns, lines)


def bar_table(results: Sequence[Record], paper: Record) -> str:
    """What must be reached and what is aimed at, and which are missed."""
    lines, missed, unmeasured = [], [], []
    for bar in bars(results, paper):
        must, aim = bar.reaches(bar.must), bar.reaches(bar.aim)
        words = {True: "yes", False: "NO", None: "-"}
        lines.append(
            [
                bar.what,
                f"{number(bar.value)} {bar.unit}",
                number(bar.must),
                words[must],
                number(bar.aim),
                words[aim],
            ]
        )
        if bar.value is None:
            unmeasured.append(bar.what)
        elif not must:
            missed.append(bar.what)
    text = "### Bars\n\n" + grid(["", "measured", "must", "met", "aim", "met"], lines)
    text += f"\n\nmissed: {'; '.join(missed) or 'none'}"
    if unmeasured:
        text += f"\nnot measured: {'; '.join(unmeasured)}"
    return text


def sections(document: Record, paper: Record) -> Iterable[str]:
    """The report's parts; those of stages that did not run are left out."""
    results = document["results"]
    ran = {record["stage"] for record in results}
    if "checked" in document:
        yield f"{document['checked']} combinations answered as the processor answers them."
    if "sanitizer" in document:
        yield f"compute-sanitizer: {document['sanitizer']}"
    if "engine" in ran:
        yield series(results, "engine", "Batches on 2^20 x 256 B", "rows")
    if "one" in ran:
        yield series(results, "one", "One query on 2^20 x 256 B", "rows")
    if "sizes" in ran:
        yield series(results, "sizes", "Other sizes, batched", "rows")
    if "factors" in ran:
        yield series(results, "factors", "The factor K of hybrid and fused", "rows")
    if "tunings" in ran:
        yield series(results, "tunings", "Kernels made in two ways", "rows")
    for stage, make in (
        ("table_ii", table_ii),
        ("table_iii", table_iii),
        ("table_iv", table_iv),
        ("table_v", table_v),
    ):
        if stage in ran:
            yield make(results, paper)
    for stage, title, by in (
        ("figure_9", f"Figure 9 ({paper['figure_9']})", "rows"),
        ("figure_10", f"Figure 10 ({paper['figure_10']})", "row_bytes"),
        ("figure_11", f"Figure 11 ({paper['figure_11']})", "rows"),
        ("large", "2^26 x 64 B", "rows"),
    ):
        if stage in ran:
            yield series(results, stage, title, by)
    for refused in document.get("refused", []):
        yield f"refused: {refused['what']}: {refused['why']}"
    yield bar_table(results, paper) if results else "nothing was timed"


def show(document: Record, paper: Record, plots: Path | None) -> None:
    """Prints everything; draws the figures where a folder is given and matplotlib is installed."""
    print("\n\n".join(sections(document, paper)))
    if plots is None:
        return
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print("\nno plots: matplotlib is not installed")
        return
    for path in draw(document, paper, plots, pyplot):
        print(f"wrote {path}")


def draw(document: Record, paper: Record, folder: Path, pyplot: Any) -> list[Path]:
    """The plots of the stages that ran, as SVG files."""
    folder.mkdir(parents=True, exist_ok=True)
    results = document["results"]
    written = []
    for rows in sorted({r["params"]["rows"] for r in of(results, "figure_9")}):
        figure, axes = pyplot.subplots(figsize=(5.5, 4))
        for strategy, records in by_strategy(of(results, "figure_9", rows=rows)).items():
            records.sort(key=lambda record: record["params"]["batch"])
            points = [(r["detail"]["ms_per_batch"], r["value"]) for r in records]
            line(axes, strategy, points)
        finish(axes, "ms a batch", "queries/s", f"{rows:,} rows x 256 B, Salsa20/12")
        written.append(save(figure, folder / f"gpu-figure-9-{rows}.svg", pyplot))
    if of(results, "figure_10"):
        figure, axes = pyplot.subplots(figsize=(5.5, 4))
        for strategy, records in by_strategy(of(results, "figure_10")).items():
            records.sort(key=lambda record: record["params"]["row_bytes"])
            line(axes, strategy, [(r["params"]["row_bytes"], r["value"]) for r in records])
        finish(axes, "bytes a row", "queries/s", "2^20 rows, batch 512, Salsa20/12")
        written.append(save(figure, folder / "gpu-figure-10.svg", pyplot))
    compared = [*of(results, "table_iii"), *of(results, "figure_11")]
    if compared:
        figure, axes = pyplot.subplots(figsize=(5.5, 4))
        for strategy, records in by_strategy(compared).items():
            if strategy == "auto":
                continue
            most: dict[int, float] = {}
            for record in records:
                rows = record["params"]["rows"]
                most[rows] = max(most.get(rows, 0.0), record["value"])
            line(axes, strategy, sorted(most.items()))
        for name, label in (("gpu", "paper, V100"), ("cpu_32_threads", "paper, 32 threads")):
            points = [(int(r), f[name][0]) for r, f in paper["table_iii"]["rows"].items()]
            axes.plot(*zip(*points, strict=True), "--", color="#999999", marker="x", label=label)
        finish(axes, "rows", "queries/s", "256 B a row")
        written.append(save(figure, folder / "gpu-figure-11.svg", pyplot))
    return written


def by_strategy(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by strategy, without its K."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(line_name(record), []).append(record)
    return found


def line(axes: Any, strategy: str, points: Sequence[tuple[float, float]]) -> None:
    """One strategy's line."""
    colour, marker, label = STYLES.get(strategy, ("#777777", ".", strategy))
    dashes = "--" if strategy.endswith("/wide") else "-"
    axes.plot(*zip(*points, strict=True), dashes, color=colour, marker=marker, label=label)


def finish(axes: Any, x: str, y: str, title: str) -> None:
    """Axes as the paper has them: both logarithmic."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(fontsize=8)


def save(figure: Any, path: Path, pyplot: Any) -> Path:
    """Writes a figure without the date that would change it every time."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
