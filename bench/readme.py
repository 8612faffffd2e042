"""Writes the figures of a file in bench/results into README.md, between its two marks.

    .venv/bin/python bench/readme.py [FILE]

FILE is the newest in bench/results if not given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures: begin (bench/readme.py) -->", "<!-- figures: end -->"


def shape(params: dict[str, Any]) -> str:
    """Rows, and their bytes: `2^20 x 256 B`."""
    rows = params["rows"]
    text = f"2^{rows.bit_length() - 1}" if rows & (rows - 1) == 0 else f"{rows:,}"
    return f"{text} x {params['row_bytes']} B" if "row_bytes" in params else f"{text} rows"


def what(record: dict[str, Any]) -> str:
    """What a record measures, for people."""
    params = record["params"]
    if record["bench"] == "expand":
        return f"expand one key, {shape(params)}"
    if record["bench"] == "serve":
        load = f"{params['clients']} clients x {params['keys_per_request']} keys"
        return f"through the whole stack: TLS, {load}, {shape(params)}"
    batch = "one query" if params["batch"] == 1 else f"batch of {params['batch']}"
    threads = f", {record['threads']} threads" if record["threads"] > 1 else ""
    return f"{batch}, {shape(params)}{threads}"


def figure(value: float, unit: str) -> str:
    """A value with as many digits as are worth reading."""
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def remark(record: dict[str, Any]) -> str:
    """What else a reader asks of this figure."""
    detail = record["detail"]
    if record["bench"] == "serve":
        window = f"window {detail['window_ms']:.1f} ms"
        return f"p50 {detail['p50_ms']:.1f} ms, p99 {detail['p99_ms']:.1f} ms, {window}"
    if record["bench"] == "dpf" and record["params"]["batch"] == 1:
        return f"{1e3 / record['value']:.2f} ms a query"
    return f"bound by {detail['bound']}"


def table(results: list[dict[str, Any]]) -> list[str]:
    """One Markdown row for each record."""
    lines = ["| one server | measured | floor | of it | | kernel |", "|---|--:|--:|--:|---|---|"]
    for record in results:
        floor = record["floor"]
        share = f"{record['of_floor']:.0%}" if floor is not None else ""
        bound = figure(floor, record["unit"]) if floor is not None else ""
        lines.append(
            f"| {what(record)} | {figure(record['value'], record['unit'])} | {bound} | {share}"
            f" | {remark(record)} | {record['isa']} |"
        )
    return lines


def main() -> int:
    """Rewrites README.md."""
    results = sorted((ROOT / "bench" / "results").glob("cpu-*.json"))
    if len(sys.argv) > 1:
        results = [Path(sys.argv[1])]
    if not results:
        print("no file in bench/results: run bench/run.py first", file=sys.stderr)
        return 1
    source = results[-1]
    recorded = json.loads(source.read_text())
    facts = recorded["machine"]
    doctor = facts["doctor"]
    intro = (
        f"{doctor['cpu']['model']} with {doctor['cores']['usable']} cores, reading"
        f" {doctor['read_gb_per_s']['one_thread']:.0f} GB/s on one; {facts['date']}, one thread"
        " unless said."
    )
    page = ROOT / "README.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        print(f"README.md has no {BEGIN} ... {END}", file=sys.stderr)
        return 1
    body = "\n".join([BEGIN, intro, "", *table(recorded["results"]), END])
    page.write_text(before + body + after, encoding="utf-8")
    print(f"README.md: {len(recorded['results'])} figures of {source}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
