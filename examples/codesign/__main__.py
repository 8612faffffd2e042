"""Measures the applications with plain partial batch retrieval and with co-design.

    python -m examples.codesign [next-word | clicks | histories] ... [--out FOLDER]
    python -m examples.codesign next-word --data wikitext-2 --out results
    python -m examples.codesign clicks --kept FOLDER/clicks.json   only what a clock measures

For each application: the model's quality in the clear and under every layout that a trade-off
shows, the cheapest layouts that keep it, through two real servers; and what co-design saves. Writes
one JSON document and the trade-offs' plots for each application.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hushtable import ConfigError, Error
from hushtable.tune import load_costs

from . import kept
from .compare import (
    COMM_KB_MAX,
    LATENCY_MS_MAX,
    PAPER_TOLERANCE,
    PLAIN,
    PRF_CALLS_MAX,
    TOLERANCE,
    UNBATCHED,
    Application,
    Choice,
    Comparison,
    engine_ms,
)
from .curves import draw_curves
from .savings import DESIGNED, LOSSLESS, entry, savings
from .served import Served, serve

#: Table II: quality, KB an inference, milliseconds, inferences/s; CPU without co-design, and a V100
#: with it.
PAPER: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "next-word": {"cpu": (92, 239, 62, 5.7), "gpu": (92, 425, 8, 1_230)},
    "clicks": {"cpu": (0.785, 154, 30.6, 44), "gpu": (0.785, 52, 82.4, 4_200)},
    "histories": {"cpu": (0.595, 2.8, 160, 8_000), "gpu": (0.595, 5.4, 150, 256_000)},
}
#: Layouts of each kind that are tried for throughput: the model of time leaves the wire out.
THROUGHPUT_TRIES = 3


def load(name: str, folder: Path | None, say: Callable[[str], None]) -> Application:
    """An application by name, of published files in ``folder`` where one is given; trains its model
    the first time.

    Raises:
        hushtable.data.DataError: a file is missing or has another format.
    """
    # Imported where needed: each brings its own framework.
    if name == "next-word":
        from examples.nextword.app import App as NextWord

        return (
            NextWord.load_wikitext(folder, progress=say) if folder else NextWord.load(progress=say)
        )
    if name == "clicks":
        from examples.clicks.app import App as Clicks

        return Clicks.load_20m(folder, progress=say) if folder else Clicks.load(progress=say)
    from examples.histories.app import App as Histories

    return Histories.load_taobao(folder, progress=say) if folder else Histories.load(progress=say)


def describe(comparison: Comparison, data: str) -> dict[str, Any]:
    """What needs no clock: the model, the layouts and what they save, as JSON."""
    app = comparison.app
    return {
        "application": app.name,
        "data": data,
        "metric": app.metric,
        "higher_is_better": app.higher_is_better,
        "rows": comparison.table.info.rows,
        "row_bytes": comparison.table.info.row_bytes,
        "quality_clear": {"validation": comparison.clear, "test": comparison.clear_test},
        "limits": {
            "comm_kb": COMM_KB_MAX,
            "latency_ms": LATENCY_MS_MAX,
            "prf_calls": PRF_CALLS_MAX[app.name],
            "quality_tolerance": TOLERANCE,
            "quality_tolerance_paper": PAPER_TOLERANCE,
        },
        "paper": {
            system: dict(zip(("quality", "comm_kb", "latency_ms", "per_s"), row, strict=True))
            for system, row in PAPER[app.name].items()
        },
        "families": [],
        "savings": [saving.to_dict() for saving in savings(comparison)],
        "throughput": {},
        "search": comparison.facts,
        "points": kept.to_dict(comparison),
    }


def choose(comparison: Comparison) -> list[tuple[str, Choice | None]]:
    """Of each kind the layout with the least work of the engine within the limits."""
    found: list[tuple[str, Choice | None]] = []
    for kind in comparison.kinds():
        best = comparison.best(engine_ms, [kind])
        found.append((kind, comparison.choice(best[0]) if best else None))
    return found


def measure(
    comparison: Comparison,
    document: dict[str, Any],
    seconds: float | None,
    say: Callable[[str], None],
) -> None:
    """Fills in families and throughput; ``seconds`` of load on each layout, None for no servers."""
    app = comparison.app
    say(_HEAD)
    measured: list[tuple[str, Choice, Served]] = []
    document["families"] = []
    for kind, choice in choose(comparison):
        if choice is None:
            say(f"  {kind:36} no layout within the limits keeps quality")
            document["families"].append({"family": kind, "layout": None})
            continue
        served = None
        if seconds is not None:
            layout = comparison.layout(choice.point)
            served = serve(app, comparison.table, layout, seconds=seconds)
            measured.append((kind, choice, served))
        say(_line(kind, choice, served))
        document["families"].append({"family": kind} | _entry(choice, served))
    for saving in document["savings"]:
        ratio, limit = saving["ratio"], f"{saving['what']} at {saving['limit']}"
        text = "no plain layout, or no co-design, keeps it" if ratio is None else f"{ratio:.2f} x"
        say(f"  {limit}, {app.metric} within {saving['tolerance']:.1%}: {text}")
    if seconds is not None:
        document["throughput"] = _throughput(comparison, measured, seconds, say)


_HEAD = (
    f"  {'cheapest layout that keeps quality':36} {'KB':>6} {'ms':>6} {'drop':>6} {'quality':>8}"
    f" {'alone':>8} {'whole/s':>8}"
)


def _line(kind: str, choice: Choice, served: Served | None) -> str:
    point = choice.point
    text = (
        f"  {kind:36} {point.comm_kb:6.1f} {engine_ms(point):6.3f}"
        f" {choice.test_drop:6.2%} {choice.test_quality:8.4g}"
    )
    if served is not None:
        text += f" {served.p50_ms:6.1f}ms {served.inferences_per_s:8.0f}"
    return text


def _entry(choice: Choice, served: Served | None) -> dict[str, Any]:
    return entry(choice) | {"served": None if served is None else asdict(served)}


def _throughput(
    comparison: Comparison,
    measured: list[tuple[str, Choice, Served]],
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Whole inferences a second, end to end: the best layout without batches, the best plain one,
    the best co-design and the best lossless one, of those ``measured`` before and a few more."""
    app = comparison.app
    groups = {
        "unbatched": (UNBATCHED,),
        "plain": (PLAIN,),
        "designed": DESIGNED,
        "lossless": LOSSLESS,
    }
    found: dict[str, Any] = {"paper_v100_per_s": PAPER[app.name]["gpu"][3]}
    rates: dict[str, float] = {}
    for label, kinds in groups.items():
        before = [(choice, served) for kind, choice, served in measured if kind in kinds]
        best = max(before, key=lambda pair: pair[1].inferences_per_s, default=None)
        # By the engine's time and by bytes: which of them bounds depends on the machine.
        tried = comparison.best(engine_ms, kinds, count=THROUGHPUT_TRIES)
        tried += comparison.best(
            lambda p: engine_ms(p) + 0.002 * p.comm_kb, kinds, count=THROUGHPUT_TRIES
        )
        done = {choice.point.spec for choice, _ in before}
        for point in {point.spec: point for point in tried}.values():
            if point.spec in done:
                continue
            layout = comparison.layout(point)
            served = serve(app, comparison.table, layout, bags=50, seconds=seconds)
            if best is None or served.inferences_per_s > best[1].inferences_per_s:
                best = comparison.choice(point), served
        found[label] = None if best is None else _entry(*best)
        if best is not None:
            rates[label] = best[1].inferences_per_s
            say(f"  whole inferences/s, {label}: {rates[label]:,.0f}")
    for name, under in (("ratio", "plain"), ("ratio_unbatched", "unbatched")):
        has_both = "designed" in rates and under in rates
        found[name] = rates["designed"] / rates[under] if has_both else None
    if found["ratio"] is not None:
        per_s = found["paper_v100_per_s"]
        say(f"  throughput: {found['ratio']:.2f} x plain (the paper's V100: {per_s:,}/s)")
    return found


def run(name: str, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything about one application, as JSON; its plots go into the folder."""
    app = load(name, options.data, say)
    started = time.perf_counter()
    if options.kept:
        document = json.loads(options.kept.read_text(encoding="utf-8"))
        document = document.get("applications", {}).get(name, document)
        if document.get("application") != name:
            raise ConfigError(f"{options.kept} holds no result of {name}: leave --kept out")
        comparison = kept.from_dict(app, document, load_costs())
    else:
        comparison = Comparison.search(app, evaluations=options.evaluations, say=say)
    data = data_name(name, options.data)
    document = describe(comparison, data)
    say(f"{app.metric} in the clear: {comparison.clear_test:.4g} (test); data: {data}")
    measure(comparison, document, None if options.no_servers else options.seconds, say)
    document["seconds"] = round(time.perf_counter() - started, 1)
    document["machine"] = {"cpu": _cpu(), "system": platform.platform()}
    return document


def data_name(name: str, folder: Path | None) -> str:
    """What the figures are of."""
    stand_ins = {
        "next-word": "Brown corpus",
        "clicks": "MovieLens-1M",
        "histories": "MovieLens-1M as histories, in a table of Ali-CCP's size",
    }
    published = {
        "next-word": "WikiText-2",
        "clicks": "MovieLens-20M",
        "histories": "Ad Display/Click Data on Taobao.com",
    }
    return stand_ins[name] if folder is None else published[name]


def main() -> int:
    """The command."""
    names = list(PAPER)
    parser = argparse.ArgumentParser(
        prog="python -m examples.codesign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("applications", nargs="*", choices=[*names, []], help="all by default")
    parser.add_argument("--out", type=Path, default=Path("codesign-results"), help="a folder")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the published files of the one application named"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="of load on each layout")
    parser.add_argument("--evaluations", type=int, default=600, help="layouts of each search")
    parser.add_argument("--no-servers", action="store_true", help="leave out what a clock measures")
    parser.add_argument(
        "--kept", type=Path, metavar="FILE", help="take layouts and quality from an earlier result"
    )
    options = parser.parse_args()
    if options.data and len(options.applications) != 1:
        parser.error("--data needs one application: its files are of that one")
    options.out.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        print(line, flush=True)

    for name in options.applications or names:
        say(f"== {name}")
        try:
            document = run(name, options, say)
        except (Error, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        path = options.out / f"{name}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        drawn = draw_curves(document, options.out / name, (".svg", ".png"))
        say(f"  written to {path}, and {len(drawn)} plots")
    return 0


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
