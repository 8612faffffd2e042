"""Measures layouts on the applications and on a real access trace, for docs/layouts.md.

    .venv/bin/python bench/codesign.py [--only NAME] [--write-only]

Runs ``python -m examples.codesign`` for every application and the tuner on the trace *recs*, keeps
what they found in bench/results, the plots in docs/plots, and writes the tables of docs/layouts.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import hushtable
from hushtable import data
from hushtable.tune import Budgets, tune
from hushtable.tune.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "layouts.md"
BAG_IDS = 64
APPLICATIONS = ("next-word", "clicks", "histories")


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


def application(name: str, folder: Path) -> dict[str, Any]:
    """What ``python -m examples.codesign NAME`` wrote, without the points of its plots."""
    command = [sys.executable, "-m", "examples.codesign", name, "--out", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT)
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    del document["points"]
    plots = ROOT / "docs" / "plots"
    plots.mkdir(exist_ok=True)
    for plot in sorted((folder / name).glob("*.svg")):
        shutil.copy(plot, plots / f"{name}-{plot.name}")
    return document


def family_table(document: dict[str, Any]) -> list[str]:
    """The cheapest layout of each family that keeps quality."""
    metric = document["metric"]
    lines = [
        f"| cheapest layout that keeps {metric} | {metric} | dropped | KB | engine, us | alone, ms"
        " | whole/s |",
        "|---|--:|--:|--:|--:|--:|--:|",
        f"| in the clear | {document['quality_clear']['test']:.4g} | | | | | |",
    ]
    for entry in document["families"]:
        if entry["layout"] is None:
            lines.append(f"| {entry['family']} | none within the limits | | | | | |")
            continue
        layout, served = entry["layout"], entry["served"]
        lines.append(
            f"| {entry['family']} | {entry['test_quality']:.4g} | {entry['test_drop']:.1%}"
            f" | {layout['comm_kb']:.1f} | {server_us(layout):.1f}"
            f" | {served['p50_ms']:.1f} | {served['inferences_per_s']:,.0f} |"
        )
    return lines


def server_us(layout: dict[str, Any]) -> float:
    """Microseconds of one core of one server for one inference in a full pass."""
    return layout["batch_ms"] / layout["batch"] * 1e3


def saving_table(documents: dict[str, dict[str, Any]]) -> list[str]:
    """What co-design saves against plain batch retrieval, at equal quality."""
    lines = ["| | " + " | ".join(documents) + " |", "|---|" + "--:|" * len(documents)]
    first = next(iter(documents.values()))
    for number, ratio in enumerate(first["ratios"]):
        what = ratio["what"]
        limit = "the paper's PRF calls" if what == "communication" else ratio["limit"]
        cells = [saving(document["ratios"][number]) for document in documents.values()]
        lines.append(f"| {what}, at {limit} | " + " | ".join(cells) + " |")
    cells = [
        f"{document['throughput']['ratio']:.2f} x" if "ratio" in document["throughput"] else "-"
        for document in documents.values()
    ]
    lines.append("| whole inferences a second, end to end | " + " | ".join(cells) + " |")
    rates = []
    for document in documents.values():
        best = document["throughput"]["designed"]
        rates.append(f"{best['served']['inferences_per_s']:,.0f}" if best else "-")
    lines.append("| … of the best co-design, two cores | " + " | ".join(rates) + " |")
    paper = [f"{document['throughput']['paper_v100_per_s']:,}" for document in documents.values()]
    lines.append("| … of the paper's V100 (its own models) | " + " | ".join(paper) + " |")
    return lines


def saving(ratio: dict[str, Any]) -> str:
    """One ratio."""
    if ratio["ratio"] is not None:
        return f"{ratio['ratio']:.2f} x"
    return "plain cannot" if ratio["plain"] is None and ratio["designed"] else "-"


def recs_table(found: dict[str, Any]) -> list[str]:
    """Drop rates on the access trace."""
    lines = [
        "| family | least dropped within 300 KB | KB | under 1 % with the least KB | engine, us |",
        "|---|--:|--:|--:|--:|",
    ]
    for family, points in found["families"].items():
        least, small = points["least_drop"], points["least_comm_under_1_percent"]
        words = "never" if small is None else f"{small['drop']:.2%} at {small['comm_kb']:.0f} KB"
        time = "" if small is None else f"{server_us(small):.0f}"
        lines.append(
            f"| {family} | {least['drop']:.2%} | {least['comm_kb']:.0f} | {words} | {time} |"
        )
    return lines


def write_page(results: dict[str, Any]) -> None:
    """Replaces what stands between the marks of docs/layouts.md."""
    text = PAGE.read_text(encoding="utf-8")
    bodies = {name: family_table(doc) for name, doc in results["applications"].items()}
    bodies["savings"] = saving_table(results["applications"])
    if "recs" in results:
        bodies["recs"] = recs_table(results["recs"])
    for name, lines in bodies.items():
        begin, end = f"<!-- {name}: begin (bench/codesign.py) -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise SystemExit(f"{PAGE} has no {begin} ... {end}")
        text = before + "\n".join([begin, *lines, end]) + after
    PAGE.write_text(text, encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*APPLICATIONS, "recs"], help="measure one of them")
    parser.add_argument("--write-only", action="store_true", help="only write docs/layouts.md")
    parser.add_argument("--work", type=Path, default=Path("codesign-results"), help="a folder")
    options = parser.parse_args()
    folder = ROOT / "bench" / "results"
    kept = sorted(folder.glob("codesign-*.json"))
    results: dict[str, Any] = {"applications": {}}
    if kept:
        results = json.loads(kept[-1].read_text(encoding="utf-8"))
    path = kept[-1] if options.write_only and kept else None
    if not options.write_only:
        path = folder / f"codesign-{datetime.date.today().isoformat()}.json"
        for name in APPLICATIONS:
            if options.only in (None, name):
                results["applications"][name] = application(name, options.work)
        if options.only in (None, "recs"):
            results["recs"] = recs()
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results)
    print(f"{PAGE.relative_to(ROOT)}: figures of {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
