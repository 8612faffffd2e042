"""Writes the figures of a file in bench/results into README.md and docs/onion.md, between marks.

    .venv/bin/python bench/readme.py [FILE]

FILE is the newest in bench/results if not given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Which benchmarks each page shows. A page of whose benchmarks a file has none stays as it is.
PAGES = {"README.md": ("expand", "dpf", "serve"), "docs/onion.md": ("ntt", "onion")}
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
    if record["bench"] == "ntt":
        return f"one {params['direction']} transform, N = {params['degree']:,}, one prime of" + (
            f" {params['modulus_bits']} bits"
        )
    batch = "one query" if params["batch"] == 1 else f"batch of {params['batch']}"
    threads = f", {record['threads']} threads" if record["threads"] > 1 else ""
    if record["bench"] == "onion":
        table = f"{params['table_mib']:,} MiB of {params['row_bytes']:,} B rows"
        named = "" if params["parameters"] == "n4096_128" else f", {params['parameters']}"
        return f"{batch}, {table}{threads}{named}"
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
    if record["bench"] == "onion":
        shares = " / ".join(
            f"{detail[f'{stage}_share']:.0%}" for stage in ("expand", "row_select", "tournament")
        )
        return f"{detail['ms_per_query']:,.0f} ms a query: {shares}"
    return f"bound by {detail['bound']}" if "bound" in detail else ""


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


def sizes(results: list[dict[str, Any]]) -> list[str]:
    """What lookups from one server take besides time, of each parameter set's first record."""
    lines = [
        "",
        "| | keys | query | response | prepared | resident"
        " | client (keys, query, decode) | failure |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    first: dict[str, dict[str, Any]] = {}
    for record in results:
        if record["bench"] == "onion":
            first.setdefault(record["params"]["parameters"], record["detail"])
    for name, detail in first.items():
        client = ", ".join(f"{detail[f'{part}_ms']:.2f}" for part in ("keys", "query", "decode"))
        lines.append(
            f"| {name} | {detail['key_bytes']:,} B | {detail['query_bytes']:,} B"
            f" | {detail['response_bytes']:,} B | {detail['prepare_gb_per_s']:.2f} GB/s"
            f" | {detail['resident_bytes_per_table_byte']:.2f} B/B | {client} ms"
            f" | 2^{detail['failure_log2']:.0f} |"
        )
    return lines if first else []


def write(page: Path, facts: dict[str, Any], results: list[dict[str, Any]]) -> bool:
    """Puts the figures of ``results`` between a page's marks; False where it has none."""
    doctor = facts["doctor"]
    intro = (
        f"{doctor['cpu']['model']} with {doctor['cores']['usable']} cores, reading"
        f" {doctor['read_gb_per_s']['one_thread']:.0f} GB/s on one; {facts['date']}, one thread"
        " unless said."
    )
    if any(record["bench"] == "onion" for record in results):
        intro += " Shares of a query's time are of ExpandQuery, RowSel and ColTor."
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        return False
    body = "\n".join([BEGIN, intro, "", *table(results), *sizes(results), END])
    page.write_text(before + body + after, encoding="utf-8")
    return True


def main() -> int:
    """Rewrites the pages."""
    files = sorted((ROOT / "bench" / "results").glob("cpu-*.json"))
    if len(sys.argv) > 1:
        files = [Path(sys.argv[1])]
    if not files:
        print("no file in bench/results: run bench/run.py first", file=sys.stderr)
        return 1
    recorded = json.loads(files[-1].read_text())
    for name, benches in PAGES.items():
        results = [record for record in recorded["results"] if record["bench"] in benches]
        if not results:
            print(f"{name}: no figures in {files[-1]}")
        elif write(ROOT / name, recorded["machine"], results):
            print(f"{name}: {len(results)} figures of {files[-1]}")
        else:
            print(f"{name} has no {BEGIN} ... {END}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
