"""Puts what the simulators' checks found into docs/evidence.md.

    .venv/bin/python bench/evidence.py [--measure [sim-inference] [sim-accelerator]]

``--measure`` first runs one or both of ``hushtable sim inference --check --json`` and ``hushtable
sim accelerator --check --json`` and keeps what they print in bench/results, with the machine. The
newest file of each then fills its cells and its table of every number; the rest is written by
hand.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
SIMULATORS = ("sim-inference", "sim-accelerator")
#: Between the marks: ours, a bar, the paper's.
_CELL = re.compile(r"<!-- (sim-\w+) (Text|(?:Figure|Table) \w+) -->(.*?)<!-- end -->")
#: A cell prints this many numbers one by one; of more it prints the furthest.
_LISTED = 3

Comparisons = list[dict[str, Any]]


def measure(names: Sequence[str]) -> None:
    """Runs the checks, and writes bench/results/NAME-DATE.json."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    doctor = json.loads(_printed("doctor", "--json"))
    facts = {"date": today, "platform": platform.platform(), "doctor": doctor}
    for name in names:
        record = json.loads(_printed(*name.split("-"), "--check", "--json"))
        out = ROOT / "bench" / "results" / f"{name}-{today}.json"
        out.write_text(json.dumps({"machine": facts, "results": [record]}, indent=2) + "\n")
        print(f"wrote {out}", file=sys.stderr)


def _printed(*words: str) -> str:
    print("$ hushtable", *words, file=sys.stderr)
    command = [sys.executable, "-m", "hushtable", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def newest(name: str) -> Comparisons | None:
    """The comparisons of a simulator's newest file; None where there is none."""
    files = sorted((ROOT / "bench" / "results").glob(f"{name}-*.json"))
    if not files:
        return None
    record = json.loads(files[-1].read_text(encoding="utf-8"))["results"][0]
    found: Comparisons = record["detail"]["comparisons"]
    return found


def render(text: str, found: dict[str, Comparisons | None]) -> str:
    """The page with its marked parts written anew."""
    text = _CELL.sub(
        lambda mark: f"<!-- {mark[1]} {mark[2]} -->{cells(mark[2], found[mark[1]])}<!-- end -->",
        text,
    )
    for name, comparisons in found.items():
        begin = f"<!-- every {name}: begin (bench/evidence.py) -->"
        end = f"<!-- every {name}: end -->"
        before, mark, rest = text.partition(begin)
        _, closing, after = rest.partition(end)
        if not mark or not closing:
            raise ValueError(f"the page has no {begin} ... {end}")
        text = before + "\n".join([begin, *table(comparisons or []), end]) + after
    return text


def cells(where: str, comparisons: Comparisons | None) -> str:
    """Ours and the paper's of one figure or table, with the bar between them."""
    if comparisons is None:
        return "no result is kept yet | "
    here = [one for one in comparisons if _is_of(where, one["source"])]
    if not here:
        return "drawn | no number in the text to compare with"
    if len(here) <= _LISTED:
        ours = "; ".join(f"{one['name']}: {_value(one, 'ours')}{_mark(one)}" for one in here)
        return f"{ours} | {'; '.join(_value(one, 'paper') for one in here)}"
    fitted = sum(one["is_fitted"] for one in here)
    within = sum(one["is_within"] for one in here if not one["is_fitted"])
    furthest = max(here, key=lambda one: (not one["is_fitted"], abs(one["error"])))
    used = f", {fitted} more fitted" if fitted else ""
    return (
        f"{within} of {len(here) - fitted} numbers within their tolerance{used}; furthest:"
        f" {furthest['name']}: {_value(furthest, 'ours')} ({_percent(furthest['error'])})"
        f" | {_value(furthest, 'paper')}"
    )


def table(comparisons: Comparisons) -> list[str]:
    """Every number, one row each."""
    if not comparisons:
        return []
    lines = [
        "",
        "Every number that the check compares:",
        "",
        "| where | what | ours | the paper's | difference | tolerance | |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for one in comparisons:
        tolerance = "fitted" if one["is_fitted"] else f"{100 * one['tolerance']:g} %"
        lines.append(
            f"| {one['source']} | {one['name']} | {_value(one, 'ours')} | {_value(one, 'paper')}"
            f" | {_percent(one['error'])} | {tolerance} | {_remark(one)} |"
        )
    return lines


def _is_of(where: str, source: str) -> bool:
    """Whether "Figure 13a, artifact" is of "Figure 13", and "section 4.2" of "Text"."""
    wanted = "[Ss]ection" if where == "Text" else rf"{re.escape(where)}[a-z]?(?![\w.])"
    return re.match(wanted, source) is not None


def _value(one: dict[str, Any], of: str) -> str:
    value, unit = one[of], one["unit"]
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{shown} {unit}".rstrip()


def _percent(error: float) -> str:
    return f"{100 * error:+.2f} %"


def _mark(one: dict[str, Any]) -> str:
    return " (fitted)" if one["is_fitted"] else "" if one["is_within"] else " (off)"


def _remark(one: dict[str, Any]) -> str:
    off = [] if one["is_within"] else ["off"]
    return "; ".join([*off, *([one["note"]] if one["note"] else [])])


def main() -> int:
    """Rewrites docs/evidence.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measure", nargs="*", choices=SIMULATORS, help="run these checks first; both by default"
    )
    chosen = parser.parse_args().measure
    if chosen is not None:
        measure(chosen or SIMULATORS)
    found = {name: newest(name) for name in SIMULATORS}
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    for name, comparisons in found.items():
        print(f"{PAGE.name}: {len(comparisons or [])} numbers of {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
