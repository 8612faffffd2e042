"""Measures what private features are worth in federated training, for examples/fedrec/README.md.

    .venv/bin/python bench/fedrec.py [--write-only]

Runs ``python -m examples.fedrec``, keeps what it found in bench/results and its plot in docs/plots,
and writes the table of the example's page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "examples" / "fedrec" / "README.md"
PLOT = ROOT / "docs" / "plots" / "fedrec.svg"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- study: begin (bench/fedrec.py) -->", "<!-- study: end -->"


def table(document: dict[str, Any]) -> list[str]:
    """One line a setting."""
    lines = [
        "| | AUC, mean ± standard deviation | of the gain: mean, least | k/K | dummies | lost |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for entry in document["settings"]:
        auc = f"{entry['auc_mean']:.4f} ± {entry['auc_std']:.4f}"
        kept = f"{entry['gain_kept_mean']:.1%}, {entry['gain_kept_min']:.1%}"
        cells = ["", "", "", ""]
        if accesses := entry.get("accesses"):
            share = f"{1 - accesses['reduced']:.3f}"
            cells = [kept, share, f"{accesses['dummy']:.2%}", f"{accesses['lost']:.2%}"]
        lines.append(f"| {entry['name']} | {auc} | {' | '.join(cells)} |")
    recipe, seeds = document["recipe"], len(document["recipe"]["seeds"])
    lines += [
        "",
        f"{seeds} seeds each, {recipe['rounds']} rounds; {document['seconds']:.0f} s in all on two"
        f" busy cores of {document['machine']['cpu']}.",
    ]
    return lines


def write_page(document: dict[str, Any]) -> None:
    """Replaces what stands between the marks of the page."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no {BEGIN} ... {END}")
    PAGE.write_text(before + "\n".join([BEGIN, *table(document), END]) + after, encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-only", action="store_true", help="only write the page")
    options = parser.parse_args()
    kept = sorted(RESULTS.glob("fedrec-*.json"))
    path = kept[-1] if options.write_only and kept else None
    if path is None:
        path = RESULTS / f"fedrec-{datetime.date.today().isoformat()}.json"
        command = [sys.executable, "-m", "examples.fedrec", "--out", str(path), "--plot", str(PLOT)]
        subprocess.run(command, check=True, cwd=ROOT)
    write_page(json.loads(path.read_text(encoding="utf-8")))
    print(f"{PAGE.relative_to(ROOT)}: figures of {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
