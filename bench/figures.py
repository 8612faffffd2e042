"""Writes the newest figures in bench/results into docs/figures.md, and draws README.md's chart.

They go between the marks of each suite, and into docs/plots/headlines.svg.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
MARKS = {
    "ckks": ("<!-- ckks figures: begin (bench/figures.py) -->", "<!-- ckks figures: end -->"),
    "cpu": ("<!-- figures: begin (bench/figures.py) -->", "<!-- figures: end -->"),
    "hybrid": ("<!-- hybrid figures: begin (bench/figures.py) -->", "<!-- hybrid figures: end -->"),
    "shares": ("<!-- shares figures: begin (bench/figures.py) -->", "<!-- shares figures: end -->"),
    "onion": (
        "<!-- single-server figures: begin (bench/figures.py) -->",
        "<!-- single-server figures: end -->",
    ),
}

#: What README.md's chart shows: suites, what is measured, and how the chart calls it.
HEADLINES = (
    ("cpu", "batch of 256, 2^20 x 256 B", "a row of a million, two servers, 256 at once"),
    ("cpu", "one query, 2^20 x 256 B", "the same, alone"),
    ("onion", "`n4096_128`, 16 clients, 1 GiB in rows of 256 B", "a row of 1 GiB, one server"),
    (
        "shares",
        "model `criteo`, 26 tables of 3,376,254 rows in all",
        "a click model of 26 tables, on shares",
    ),
    ("ckks", "model `criteo`, from query to logit", "the same shape, encrypted"),
    ("ckks", "model `uci`, from query to logit", "heart patients, encrypted"),
    (
        "hybrid",
        "`resnet32`, 32 x 32, server garbles, offline and online",
        "an image by ResNet-32, hybrid",
    ),
    ("hybrid", "`vgg16`, 32 x 32, server garbles, offline and online", "the same by VGG-16"),
)
CHART = ROOT / "docs" / "plots" / "headlines.svg"
#: The chart's axis in milliseconds, and its places in pixels.
AXIS_MS = (0.1, 10_000.0)
AXIS_PX = (340, 830)
WIDTH, LINE, TOP = 920, 34, 62

FIRSTS = {
    "ckks": "encrypted inference",
    "cpu": "one server of two",
    "hybrid": "hybrid inference",
    "onion": "lookups from one server",
    "shares": "predictions on shares, over TLS",
}


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
    if record["bench"] == "ntt":
        return f"NTT, N = {params['degree']}, one {params['modulus_bits']}-bit prime"
    if record["bench"] == "ckks":
        degree = f"N = 2^{params['degree'].bit_length() - 1}"
        return f"{params['operation']}, {degree}, {params['limbs']} limbs"
    if record["bench"] == "garble":
        return f"garbling, k = {params['bits']}, f = {params['fraction']}, two AES a hash"
    if record["bench"] == "hybrid":
        size = f"{params['size']} x {params['size']}"
        return f"`{params['network']}`, {size}, {params['garbler']} garbles, offline and online"
    if record["bench"] == "infer":
        return f"model `{params['model']}`, from query to logit"
    if record["bench"] == "onion":
        size = f"{params['table_mib'] / 1024:.3g} GiB in rows of {params['row_bytes']:,} B"
        clients = "one client" if params["batch"] == 1 else f"{params['batch']} clients"
        order = "" if params["schedule"] == "default" else f", {params['schedule']}-first"
        threads = f", {record['threads']} threads" if record["threads"] > 1 else ""
        return f"`{params['parameters']}`, {clients}, {size}{order}{threads}"
    if record["bench"] == "shares":
        under_way = "" if params["batch"] == 1 else f", {params['batch']} under way"
        if params["dealer"] == "servers":
            under_way += ", dealt by the servers"
        size = f", 26 tables of {params['rows']:,} rows in all" if params["rows"] else ""
        return f"model `{params['model']}`{size}{under_way}"
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
    if record["bench"] == "ntt":
        return ""
    if record["bench"] == "ckks":
        return f"log QP {detail['log_qp']:.0f}, keys {detail['key_bytes'] / 1e6:.1f} MB"
    if record["bench"] == "garble":
        bytes_, evaluated = detail["stochastic_table_bytes"], detail["evaluate"] / 1e6
        return f"evaluating {evaluated:,.0f}M, {bytes_:,.0f} B a ReLU"
    if record["bench"] == "hybrid":
        online = (detail["online_bytes_up"] + detail["online_bytes_down"]) / 1e6
        kept = detail["client_storage_bytes"] / 1e6
        return (
            f"online {detail['online_s']:.2f} s and {online:,.0f} MB; client keeps {kept:,.0f} MB;"
            f" k = {detail['bits']}"
        )
    if record["bench"] == "infer":
        keys, error = detail["key_bytes"] / 1e6, detail["error_bits"]
        return f"error 2^-{error:.1f}, keys {keys:,.0f} MB, up {detail['up_bytes'] / 1e6:.2f} MB"
    if record["bench"] == "onion":
        shares = [detail[f"{stage}_share"] for stage in ("expand", "row_select", "tournament")]
        parts = " / ".join(f"{share:.0%}" for share in shares)
        return f"{detail['ms_per_query']:.0f} ms a query; {parts}"
    if record["bench"] == "serve":
        window = f"window {detail['window_ms']:.1f} ms"
        return f"p50 {detail['p50_ms']:.1f} ms, p99 {detail['p99_ms']:.1f} ms, {window}"
    if record["bench"] == "shares":
        up, peer = detail["up_bytes"] / 1e6, detail["peer_bytes"] / 1e3
        text = f"{detail['inferences_per_s']:,.0f} a second, {up:.2f} MB up, {peer:.1f} kB each way"
        beside = detail.get("encrypted_over_shares")
        return text if beside is None else f"{text}; encrypted takes {beside:.0f} times as long"
    if record["bench"] == "dpf" and record["params"]["batch"] == 1:
        return f"{1e3 / record['value']:.2f} ms a query"
    return f"bound by {detail['bound']}"


def table(suite: str, results: list[dict[str, Any]]) -> list[str]:
    """One Markdown row for each record."""
    last = "ExpandQuery / RowSel / ColTor" if suite == "onion" else ""
    first = FIRSTS[suite]
    lines = [
        f"| {first} | measured | floor | of it | {last} | kernel |",
        "|---|--:|--:|--:|---|---|",
    ]
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
    first: dict[str, dict[str, Any]] = {}
    for record in results:
        if record["bench"] == "onion":
            first.setdefault(record["params"]["parameters"], record["detail"])
    lines = [
        "",
        "| | keys | query | response | prepared at | resident"
        " | client: keys / query / decode | failure |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, detail in first.items():
        client = " / ".join(f"{detail[f'{part}_ms']:.2f}" for part in ("keys", "query", "decode"))
        lines.append(
            f"| `{name}` | {detail['key_bytes']:,} B | {detail['query_bytes']:,} B"
            f" | {detail['response_bytes']:,} B | {detail['prepare_gb_per_s']:.2f} GB/s"
            f" | {detail['resident_bytes_per_table_byte']:.2f} B a table byte | {client} ms"
            f" | 2^{detail['failure_log2']:.0f} |"
        )
    return lines if first else []


def milliseconds(record: dict[str, Any]) -> tuple[float, float]:
    """What one answer takes of a thread, and its floor."""
    if record["unit"] == "queries/s":
        return 1e3 / record["value"], 1e3 / record["floor"]
    if record["unit"] == "GB/s":
        took = record["detail"]["ms_per_query"]
        return took, took * record["of_floor"]
    return 1e3 * record["value"], 1e3 * record["floor"]


def place(ms: float) -> float:
    """Where a time is on the chart's axis."""
    least, most = map(math.log10, AXIS_MS)
    left, right = AXIS_PX
    return left + (math.log10(ms) - least) / (most - least) * (right - left)


def chart(suites: dict[str, list[dict[str, Any]]]) -> str:
    """README.md's chart: a bar for each headline, and a mark where its floor is."""
    height = TOP + LINE * len(HEADLINES) + 56
    drawn = []

    def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> None:
        drawn.append(
            f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}"{more}>{escape(words)}</text>'
        )

    muted = ' fill="#667085" font-size="13"'
    text(
        28,
        36,
        "Milliseconds of one thread for one answer",
        more=' font-size="16" font-weight="bold"',
    )
    bottom = TOP + LINE * len(HEADLINES)
    ms = AXIS_MS[0]
    while ms <= AXIS_MS[1]:
        x = place(ms)
        drawn.append(f'<path d="M{x:.0f} {TOP - 8}V{bottom}" stroke="#e2e8f0"/>')
        text(x, bottom + 18, f"{ms:,g}", "middle", muted)
        ms *= 10
    for line, (suite, measured, name) in enumerate(HEADLINES):
        record = next((one for one in suites[suite] if what(one) == measured), None)
        if record is None or record["floor"] is None:
            raise SystemExit(f"the newest {suite} results lack {measured!r}, which HEADLINES names")
        took, floor = milliseconds(record)
        y = TOP + LINE * line
        left, right, least = AXIS_PX[0], place(took), place(max(floor, AXIS_MS[0]))
        text(AXIS_PX[0] - 12, y + 15, name, "end")
        drawn.append(
            f'<rect x="{left}" y="{y}" width="{right - left:.0f}" height="20" rx="3"'
            ' fill="#2563a8"/>'
        )
        drawn.append(f'<path d="M{least:.0f} {y - 3}v26" stroke="#f59e0b" stroke-width="3"/>')
        text(right + 8, y + 15, f"{took:,.0f}" if took >= 100 else f"{took:.3g}", more=muted)
    drawn.append(f'<path d="M28 {bottom + 31}v16" stroke="#f59e0b" stroke-width="3"/>')
    text(38, bottom + 44, "what memory or the slowest instruction would allow", more=muted)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
            " aria-labelledby=\"t\" font-family=\"Inter, -apple-system, 'Segoe UI', 'DejaVu Sans',"
            ' Helvetica, Arial, sans-serif" font-size="14" fill="#1f2430">',
            '<title id="t">Milliseconds of one thread for one answer, beside their floor</title>',
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="14" fill="#ffffff"'
            ' stroke="#e2e8f0"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def between(page: Path, marks: tuple[str, str], lines: list[str]) -> None:
    """Puts lines where the page has the marks."""
    begin, end = marks
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"{page.name} has no {begin} ... {end}")
    page.write_text("\n".join([before + begin, *lines, end]) + after, encoding="utf-8")


def main() -> int:
    """Rewrites docs/figures.md, and README.md's chart."""
    suites: dict[str, list[dict[str, Any]]] = {}
    for suite, marks in MARKS.items():
        results = sorted((ROOT / "bench" / "results").glob(f"{suite}-[0-9]*.json"))
        if not results:
            print(f"no {suite}-*.json in bench/results: run bench/run.py first", file=sys.stderr)
            return 1
        recorded = json.loads(results[-1].read_text())
        facts = recorded["machine"]
        doctor = facts["doctor"]
        intro = (
            f"{doctor['cpu']['model']} with {doctor['cores']['usable']} cores, reading"
            f" {doctor['read_gb_per_s']['one_thread']:.0f} GB/s on one; {facts['date']}, one thread"
            " unless said."
        )
        suites[suite] = recorded["results"]
        tables = table(suite, recorded["results"]) + sizes(recorded["results"])
        between(ROOT / "docs" / "figures.md", marks, [intro, "", *tables])
        print(f"docs/figures.md: {len(recorded['results'])} figures of {results[-1]}")
    CHART.write_text(chart(suites), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
