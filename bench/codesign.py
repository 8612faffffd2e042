"""Measures layouts on the applications and on a real access trace, for docs/layouts.md.

    .venv/bin/python bench/codesign.py [--only NAME] [--counts | --timed | --write-only]

Runs ``python -m examples.codesign`` for every application, the tuner on the trace *recs*, and
``python -m examples.codesign.collocation``; keeps what they found in bench/results, and writes the
plots and tables of docs/layouts.md. ``--counts`` leaves out what needs a quiet machine, ``--timed``
measures only that, on the layouts that are kept, and ``--write-only`` measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hushtable
from hushtable import data
from hushtable.tune import Budgets, tune
from hushtable.tune.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
# The examples are no installed package.
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "layouts.md"
PLOTS = ROOT / "docs" / "plots"
RESULTS = ROOT / "bench" / "results"
BAG_IDS = 64
APPLICATIONS = ("next-word", "clicks", "histories")
#: What the figures show that have no place among the paper's twelve.
OTHERS = {
    "communication-quality-blocks": "Figure 13 by our leaves",
    "communication-quality-scaled": "Figure 13 with as many calls a row as the paper's",
    "communication-computation-strict": "Figure 14 within 0.5 %",
}
COLLOCATION_PLOTS = (
    "![Bytes without companions over bytes with them](plots/collocation-comm-kb.svg)",
    "",
    "The same of [PRF calls](plots/collocation-prf-calls.svg), and of",
    "[a server's time](plots/collocation-server-us.svg), which is predicted.",
)
#: What the paper compares, as docs/layouts.md names it.
KINDS = {"unbatched": "no batches", "plain": "plain bins", "designed": "best co-design"}


def recs() -> dict[str, Any]:
    """The access trace: bags of 64 consecutive requests; how few are dropped within 300 KB."""
    ids = data.load_requests(data.fetch("recs", say=print))
    ids = ids[: len(ids) // BAG_IDS * BAG_IDS]
    trace = Trace(ids, np.arange(0, len(ids) + 1, BAG_IDS))
    # Drops and bytes do not depend on what is in the rows: 64 bytes each.
    weight = np.zeros((int(ids.max()) + 1, 32), dtype=np.float32)
    table = hushtable.Table.from_weight(weight, name="recs", dtype="f16")
    result = tune(table, trace, Budgets(comm_kb_max=300, drop_max=0.01))
    points = [point for point in result.points if point.comm_kb <= 300]
    found: dict[str, Any] = {"facts": result.facts, "families": {}}
    for family in dict.fromkeys(point.family for point in points):
        of_family = [point for point in points if point.family == family]
        kept = [point for point in of_family if point.drop <= 0.01]
        found["families"][family] = {
            "least_drop": min(of_family, key=lambda point: (point.drop, point.comm_kb)).to_dict(),
            "fastest_under_1_percent": min(kept, key=lambda p: p.batch_ms).to_dict()
            if kept
            else None,
            "least_comm_under_1_percent": min(kept, key=lambda p: p.comm_kb).to_dict()
            if kept
            else None,
        }
    return found


def application(name: str, folder: Path, *more: str) -> dict[str, Any]:
    """What ``python -m examples.codesign NAME`` wrote."""
    command = [sys.executable, "-m", "examples.codesign", name, "--out", str(folder), *more]
    subprocess.run(command, check=True, cwd=ROOT)
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return document


def collocation(path: Path) -> None:
    """Writes the result of ``python -m examples.codesign.collocation`` to ``path``."""
    command = [sys.executable, "-m", "examples.codesign.collocation", "--out", str(path)]
    subprocess.run(command, check=True, cwd=ROOT)


def family_table(document: dict[str, Any]) -> Iterator[str]:
    """The cheapest layout of each family that keeps quality."""
    metric = document["metric"]
    yield (
        f"| cheapest layout that keeps {metric} | {metric} | dropped | KB | engine, us | alone, ms"
        " | whole/s |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|"
    yield f"| in the clear | {document['quality_clear']['test']:.4g} | | | | | |"
    for entry in document["families"]:
        if entry["layout"] is None:
            yield f"| {entry['family']} | none within the limits | | | | | |"
            continue
        layout, served = entry["layout"], entry["served"]
        line = (
            f"| {entry['family']} | {entry['test_quality']:.4g} | {entry['test_drop']:.1%}"
            f" | {layout['comm_kb']:.1f} | {server_us(layout):.1f} |"
        )
        if served is None:
            yield f"{line} | |"
        else:
            yield f"{line} {served['p50_ms']:.1f} | {served['inferences_per_s']:,.0f} |"


def plot_table(document: dict[str, Any]) -> Iterator[str]:
    """The paper's four figures, and links to the others."""
    from examples.codesign.curves import figures_of

    name = document["application"]
    paths = {figure.name: f"plots/{name}-{figure.name}.svg" for figure in figures_of(document)}
    shown = (
        ("computation-quality", "communication-quality"),
        ("communication-computation", "throughput-quality"),
    )
    yield "| | |"
    yield "|---|---|"
    for pair in shown:
        yield (
            "| "
            + " | ".join(f"![{one.replace('-', ' and ')}]({paths.pop(one)})" for one in pair)
            + " |"
        )
    yield ""
    yield "Also: " + ", ".join(f"[{OTHERS[one]}]({path})" for one, path in paths.items()) + "."


def server_us(layout: dict[str, Any]) -> float:
    """Microseconds of one core of one server for one inference in a full pass."""
    return float(layout["batch_ms"] / layout["batch"] * 1e3)


def saving_table(documents: dict[str, dict[str, Any]]) -> Iterator[str]:
    """How many times what co-design costs plain batch retrieval costs, and no batches."""
    yield "| quality within | least | limit | " + " | ".join(documents) + " | the paper |"
    yield "|--:|---|---|" + "--:|" * (len(documents) + 1)
    rows: dict[tuple[float, str, str], dict[str, dict[str, Any]]] = {}
    for name, document in documents.items():
        for saving in document["savings"]:
            limit = saving["limit"]
            # The limit of calls is a number of its own for each application.
            if saving["what"] == "communication":
                limit = "PRF calls, " + limit.partition(" PRF calls, ")[2]
            rows.setdefault((saving["tolerance"], saving["what"], limit), {})[name] = saving
    for (tolerance, what, limit), found in rows.items():
        cells = [saving_cell(found.get(name)) for name in documents]
        paper = next(iter(found.values()))["paper"]
        text = "" if paper is None else f"{paper[0]:g} to {paper[1]:g} x"
        yield f"| {tolerance:.1%} | {what} | {limit} | " + " | ".join(cells) + f" | {text} |"


def saving_cell(saving: dict[str, Any] | None) -> str:
    """Plain over co-design, and in brackets no batches over co-design."""
    if saving is None:
        return ""
    chosen = saving["chosen"]
    if chosen["designed"] is None:
        return "none keeps it"
    plain = "plain cannot" if saving["ratio"] is None else f"{saving['ratio']:.2f} x"
    if chosen["unbatched"] is None:
        return f"{plain} (cannot)"
    return f"{plain} ({saving['ratio_unbatched']:,.3g} x)"


def baseline_table(documents: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Table II beside ours: quality, bytes, latency and throughput without and with co-design."""
    yield "| | | quality | KB | alone, ms | whole/s |"
    yield "|---|---|--:|--:|--:|--:|"
    for name, document in documents.items():
        paper = document["paper"]
        lines = {
            "the paper's processor, no batches": paper["cpu"],
            "the paper's V100, co-design": paper["gpu"],
        }
        for what, row in lines.items():
            yield (
                f"| {name} | {what} | {row['quality']} {document['metric']} | {row['comm_kb']}"
                f" | {row['latency_ms']} | {row['per_s']:,} |"
            )
        for label, what in KINDS.items():
            found = document["throughput"]
            entry = found.get(label)
            if entry is None:
                text = "none within the limits" if label in found else "not measured"
                yield f"| {name} | ours, {what} | {text} | | | |"
                continue
            served = entry["served"]
            yield (
                f"| {name} | ours, {what} | {entry['test_quality']:.4g}"
                f" | {entry['layout']['comm_kb']:.1f} | {served['p50_ms']:.1f}"
                f" | {served['inferences_per_s']:,.0f} |"
            )


def recs_table(found: dict[str, Any]) -> Iterator[str]:
    """Drop rates on the access trace."""
    yield "| family | least dropped within 300 KB | KB | under 1 % with the least KB | engine, us |"
    yield "|---|--:|--:|--:|--:|"
    for family, points in found["families"].items():
        least, small = points["least_drop"], points["least_comm_under_1_percent"]
        words = "never" if small is None else f"{small['drop']:.2%} at {small['comm_kb']:.0f} KB"
        took = "" if small is None else f"{server_us(small):.0f}"
        yield f"| {family} | {least['drop']:.2%} | {least['comm_kb']:.0f} | {words} | {took} |"


def company_table(records: list[dict[str, Any]]) -> Iterator[str]:
    """How much together the rows of each trace are read, real ones and made-up ones."""
    yield (
        "| trace | ids a bag | top companion in the bag | lift | ids a key, 1 companion | 3 | 7 |"
        " bytes saved, rows of 64 B, 1 % dropped |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for one in records:
        params, detail = one["params"], one["detail"]
        saved = ""
        if one["bench"] == "company":
            name, company = params["trace"], detail
        elif (params["row_bytes"], params["drop"]) == (64, 0.01):
            name = f"made up: groups of {params['group_rows']}, {params['together']:.0%} together"
            name += f", Zipf {params['exponent']:g}"
            company, saved = detail["company"], saving_text(one["value"])
        else:
            continue
        keys = " | ".join(f"{company['ids_a_key'][count]:.2f}" for count in ("1", "3", "7"))
        yield (
            f"| {name} | {company['ids_mean']:.1f} | {company['companion_share']:.1%}"
            f" | {company['lift']:.1f} | {keys} | {saved} |"
        )


def saving_text(ratio: float | None) -> str:
    """A ratio of a sweep."""
    return "-" if ratio is None else f"{ratio:.2f} x"


def render(text: str, results: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """``text`` with what stands between its marks made anew.

    An application whose result is of an earlier form, or missing, keeps what is there.
    """
    documents = {
        name: document
        for name, document in results["applications"].items()
        if "savings" in document
    }
    bodies = {
        name: [*family_table(document), "", *plot_table(document)]
        for name, document in documents.items()
    }
    if documents:
        bodies["savings"] = list(saving_table(documents))
        bodies["baselines"] = list(baseline_table(documents))
    if "recs" in results:
        bodies["recs"] = list(recs_table(results["recs"]))
    if records:
        bodies["company"] = [*company_table(records), "", *COLLOCATION_PLOTS]
    for name, lines in bodies.items():
        begin, end = f"<!-- {name}: begin (bench/codesign.py) -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise SystemExit(f"{PAGE} has no {begin} ... {end}")
        text = before + "\n".join([begin, *lines, end]) + after
    return text


def draw_plots(results: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Draws the curves of every application, and those of the made-up traces."""
    from examples.codesign.collocation import draw
    from examples.codesign.curves import draw_curves

    for name, document in results["applications"].items():
        if "points" not in document:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for path in draw_curves(document, Path(folder), (".svg",)):
                (PLOTS / f"{name}-{path.name}").write_bytes(path.read_bytes())
    if records:
        draw(records, PLOTS)


def newest(name: str) -> Path | None:
    """The newest result of a name."""
    found = sorted(RESULTS.glob(f"{name}-[0-9]*.json"))
    return found[-1] if found else None


def measure(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """Runs what the command line asks for."""
    more: list[str] = ["--no-servers"] if options.counts else []
    for name in APPLICATIONS:
        if options.only not in (None, name):
            continue
        kept: list[str] = []
        if options.timed:
            options.work.mkdir(parents=True, exist_ok=True)
            path = options.work / f"kept-{name}.json"
            path.write_text(json.dumps(results["applications"][name]), encoding="utf-8")
            kept = ["--kept", str(path.resolve())]
        document = application(name, options.work.resolve(), *more, *kept)
        if options.counts:
            # What an earlier run measured stays until the next one with a clock.
            document["throughput"] = results["applications"].get(name, {}).get("throughput", {})
        results["applications"][name] = document
    if options.only in (None, "recs") and not options.timed:
        results["recs"] = recs()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = (*APPLICATIONS, "recs", "collocation")
    parser.add_argument("--only", choices=parts, help="measure one of them")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--counts", action="store_true", help="no servers: what needs no clock")
    modes.add_argument("--timed", action="store_true", help="servers alone, on what is kept")
    modes.add_argument("--write-only", action="store_true", help="only write page and plots")
    parser.add_argument("--work", type=Path, default=Path("codesign-results"), help="a folder")
    options = parser.parse_args()
    kept, made = newest("codesign"), newest("collocation")
    results: dict[str, Any] = {"applications": {}}
    if kept:
        results |= json.loads(kept.read_text(encoding="utf-8"))
    if not options.write_only:
        started = time.perf_counter()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        measure(options, results)
        if options.only in (None, "collocation") and not options.timed:
            made = RESULTS / f"collocation-{today}.json"
            collocation(made)
        if options.only != "collocation":
            kept = RESULTS / f"codesign-{today}.json"
            kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"took {(time.perf_counter() - started) / 60:.1f} minutes")
    records = json.loads(made.read_text(encoding="utf-8"))["results"] if made else []
    draw_plots(results, records)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(render(page, results, records), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: figures of {kept} and {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
