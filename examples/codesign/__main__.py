"""Measures the applications with plain partial batch retrieval and with co-design.

    python -m examples.codesign [next-word | clicks | histories] ... [--out FOLDER]

For each application: the model's quality in the clear, the cheapest layouts that keep it, family by
family, through two real servers; and what co-design saves. Writes one JSON document and the
trade-offs' plots for each application.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hushtable.tune import TuneResult
from hushtable.tune.plots import draw

from .compare import (
    COMM_KB_MAX,
    LATENCY_MS_MAX,
    PLAIN,
    TOLERANCE,
    Application,
    Choice,
    Comparison,
    Ratio,
    batch_ms,
    ratios,
)
from .served import Served, serve

#: Whole inferences a second of the paper's V100 (Table II).
PAPER_PER_S = {"next-word": 1_230, "clicks": 4_200, "histories": 256_000}
#: Share of drops at which communication is drawn against computation.
DROP_DRAWN = 0.02
#: Layouts of each kind that are tried for throughput: the model of time leaves the wire out.
THROUGHPUT_TRIES = 3


def load(name: str, say: Callable[[str], None]) -> Application:
    """An application by name; trains its model the first time."""
    # Imported where needed: each brings its own framework.
    if name == "next-word":
        from examples.nextword.app import App as NextWord

        return NextWord.load(progress=say)
    if name == "clicks":
        from examples.clicks.app import App as Clicks

        return Clicks.load(progress=say)
    from examples.histories.app import App as Histories

    return Histories.load(progress=say)


def measure(
    app: Application, seconds: float, plots: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Everything about one application, as JSON; the trade-offs are drawn into ``plots``."""
    started = time.perf_counter()
    comparison = Comparison(app)
    say(
        f"searched {len(comparison.result.points)} layouts in {time.perf_counter() - started:.0f} s"
    )
    document: dict[str, Any] = {
        "application": app.name,
        "metric": app.metric,
        "rows": comparison.table.info.rows,
        "row_bytes": comparison.table.info.row_bytes,
        "quality_clear": {"validation": comparison.clear, "test": comparison.clear_test},
        "limits": {
            "comm_kb": COMM_KB_MAX,
            "latency_ms": LATENCY_MS_MAX,
            "quality_tolerance": TOLERANCE,
        },
        "families": [],
        "ratios": [],
        "throughput": {},
    }
    say(f"{app.metric} in the clear: {comparison.clear_test:.4g} (test)")
    say(_HEAD)
    measured: list[tuple[Choice, Served]] = []
    for family in comparison.families():
        found = comparison.best(batch_ms, [family])
        if not found:
            say(f"  {family:22} no layout within the limits keeps quality")
            document["families"].append({"family": family, "layout": None})
            continue
        choice = comparison.choice(family, found[0])
        served = serve(app, comparison.table, comparison.result.layout(found[0]), seconds=seconds)
        say(_line(family, choice, served))
        document["families"].append({"family": family} | _entry(choice, served))
        measured.append((choice, served))
    for ratio in ratios(comparison):
        document["ratios"].append(_ratio(ratio, say))
    document["throughput"] = _throughput(app, comparison, measured, seconds, say)
    # Against drops: those are measured of every layout, the model's figure of some.
    draw(by_drop(comparison.result), plots)
    document["search"] = comparison.result.facts
    document["points"] = [point.to_dict() for point in comparison.result.points]
    return document


def by_drop(result: TuneResult) -> TuneResult:
    """The same search as if no model had judged it."""
    budgets = replace(result.budgets, quality_limit=None, drop_max=DROP_DRAWN)
    return replace(result, budgets=budgets, quality_clear=None)


_HEAD = (
    f"  {'cheapest layout that keeps quality':36} {'KB':>6} {'ms':>6} {'drop':>6} {'quality':>8}"
    f" {'alone':>8} {'whole/s':>8}"
)


def _line(family: str, choice: Choice, served: Served) -> str:
    point = choice.point
    return (
        f"  {family:36} {point.comm_kb:6.1f} {point.batch_ms / point.batch:6.3f}"
        f" {choice.test_drop:6.2%} {choice.test_quality:8.4g}"
        f" {served.p50_ms:6.1f}ms {served.inferences_per_s:8.0f}"
    )


def _entry(choice: Choice, served: Served | None) -> dict[str, Any]:
    return {
        "layout": choice.point.to_dict(),
        "test_quality": choice.test_quality,
        "test_drop": choice.test_drop,
        "served": None if served is None else asdict(served),
    }


def _ratio(ratio: Ratio, say: Callable[[str], None]) -> dict[str, Any]:
    value = ratio.ratio
    text = "none: no plain layout keeps quality within the limit"
    if value is not None:
        text = f"{value:.2f} x"
    elif ratio.designed is None:
        text = "none: no co-design keeps quality within the limit"
    say(f"  {ratio.what} at {ratio.limit}: {text}")
    return {
        "what": ratio.what,
        "limit": ratio.limit,
        "ratio": value,
        "plain": None if ratio.plain is None else _entry(ratio.plain, None),
        "designed": None if ratio.designed is None else _entry(ratio.designed, None),
    }


def _throughput(
    app: Application,
    comparison: Comparison,
    measured: list[tuple[Choice, Served]],
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Whole inferences a second, end to end: the best plain layout and the best co-design, of those
    ``measured`` before and a few more."""
    designed = [family for family in comparison.families() if family != PLAIN]
    found: dict[str, Any] = {"paper_v100_per_s": PAPER_PER_S[app.name]}
    for label, families in (("plain", [PLAIN]), ("designed", designed)):
        before = [pair for pair in measured if pair[0].point.family in families]
        best = max(before, key=lambda pair: pair[1].inferences_per_s, default=None)
        # By the engine's time and by bytes: which of them bounds depends on the machine.
        tried = comparison.best(batch_ms, families, count=THROUGHPUT_TRIES)
        tried += comparison.best(
            lambda p: p.batch_ms / p.batch + 0.002 * p.comm_kb, families, count=THROUGHPUT_TRIES
        )
        for point in {point.spec: point for point in tried}.values():
            served = serve(
                app, comparison.table, comparison.result.layout(point), bags=50, seconds=seconds
            )
            if best is None or served.inferences_per_s > best[1].inferences_per_s:
                best = comparison.choice(f"throughput, {label}", point), served
        found[label] = None if best is None else _entry(*best)
        if best is not None:
            say(f"  whole inferences/s, {label}: {best[1].inferences_per_s:,.0f}")
    plain, best_designed = found["plain"], found["designed"]
    if plain and best_designed:
        found["ratio"] = (
            best_designed["served"]["inferences_per_s"] / plain["served"]["inferences_per_s"]
        )
        say(f"  throughput: {found['ratio']:.2f} x (the paper's V100: {PAPER_PER_S[app.name]:,}/s)")
    return found


def main() -> int:
    """The command."""
    names = list(PAPER_PER_S)
    parser = argparse.ArgumentParser(prog="python -m examples.codesign", description=__doc__)
    parser.add_argument("applications", nargs="*", choices=[*names, []], help="all by default")
    parser.add_argument("--out", type=Path, default=Path("codesign-results"), help="a folder")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load on each layout")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        print(line, flush=True)

    for name in options.applications or names:
        say(f"== {name}")
        document = measure(load(name, say), options.seconds, options.out / name, say)
        document["machine"] = {"cpu": _cpu(), "system": platform.platform()}
        path = options.out / f"{name}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        say(f"  written to {path}")
    return 0


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
