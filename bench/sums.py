"""Measures what sums of bags at the servers would take, for docs/layers.md: beside single rows.

    python bench/sums.py [--json] [--write-only]

Engines are timed by a Rust example, one thread, bit and additive keys in turns; predictions on
shares by ``hushtable.infer.plan_shares``. Bytes follow from formats, without what frames them. It
keeps what it measured in bench/results and writes the page's table.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushtable import Table, infer
from hushtable_lab.cli.bench_key import key_record

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "layers.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- measured: begin (bench/sums.py) -->", "<!-- measured: end -->")
ROWS = (1 << 16, 1 << 20)
DIMS = (16, 64, 128, 256)
BAGS = (1, 4, 16, 64)
STORED = ("f32", "f16", "int8", "int4")
#: Keys that an engine answers at once.
BATCH = 256
#: A number of a sum: a word modulo 2^32.
SUM_BYTES = 4
#: What shares of no dense features take beside lookup keys where servers deal: a seed.
SEED_BYTES = 32
#: What the page shows: values of a row, and ids of a bag.
SHOWN = ((64, 16), (256, 16), (256, 64))
SHOWN_ROWS = 1 << 20


@dataclass(frozen=True)
class Point:
    """What one bag takes.

    Attributes:
        way: how: the dtype of rows that the client adds up, or where they are summed.
        isa: instructions of the kernels.
        rows: of the table.
        dim: values of a row.
        max_ids: rows that a bag asks for.
        server_ms: processor time of one server, while the client waits.
        before_ms: what a server does beforehand.
        up_bytes: from the client, to both servers.
        down_bytes: to the client, from both.
        between_bytes: between the servers, both ways.
    """

    way: str
    isa: str
    rows: int
    dim: int
    max_ids: int
    server_ms: float
    before_ms: float
    up_bytes: int
    down_bytes: int
    between_bytes: int

    def link_ms(self, mbit: float) -> float:
        """Milliseconds of its bytes on the client's link."""
        return (self.up_bytes + self.down_bytes) * 8 / (mbit * 1e3)


WAYS = {
    "f32": "rows, `f32`",
    "f16": "rows, `f16`",
    "int8": "rows, `int8`",
    "int4": "rows, `int4`",
    "answers": "sums of answers to additive keys",
    "keys": "sums by additive keys, at best",
    "servers": "sums on shares, servers deal",
    "client": "sums on shares, the client deals",
}
#: Ways that the page has no line for.
UNSHOWN = ("f16", "answers")


def row_bytes(dim: int, stored: str) -> int:
    """Bytes of a row as it is served."""
    return Table.from_weight(np.ones((1, dim), np.float32), dtype=stored).info.row_bytes


def key_bytes(rows: int, group: str) -> int:
    """Bytes of a key for one server."""
    return int(key_record(rows, group)["value"])


def engine_times(isa: str) -> Iterator[dict[str, Any]]:
    """Milliseconds of an answer a key, by rows, bytes of a row and group, and of its expansion."""
    program = ROOT / "target" / "release" / "examples" / "answer_speed"
    widths = {row_bytes(dim, stored) for dim in DIMS for stored in STORED}
    # What shares look up: a byte a value, without a scale.
    widths |= set(DIMS)
    additive = {SUM_BYTES * dim for dim in DIMS}
    for rows in ROWS:
        for width in sorted(widths | additive):
            groups = "bits,z32" if width in additive else "bits"
            print(isa, rows, width, groups, file=sys.stderr)
            out = subprocess.run(
                [program, str(rows), str(width), str(BATCH), "1", groups],
                env=os.environ | {"HUSHTABLE_ISA": isa},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            spread = re.findall(r"(\w+): expansion, .*: ([\d.]+) ns/row", out)
            for group, least in re.findall(r"(\w+): best .*; processor ([\d.]+) ms", out):
                expansion = min(float(ns) for name, ns in spread if name == group)
                yield {
                    "isa": isa,
                    "rows": rows,
                    "row_bytes": width,
                    "group": group,
                    "answer_ms": float(least) / BATCH,
                    "expand_ms": expansion * rows / 1e6,
                }


def description(dim: int, bag: int) -> str:
    """The nearest that shares have to a bag alone: one number of its sum."""
    return (
        f'dense = 1\nbottom = [1]\ntop = [1]\ndim = {dim}\nactivation = "relu"\n'
        f'[[features]]\nname = "bag"\nrows = 64\nbag = {bag}\n'
    )


def shares_times() -> Iterator[dict[str, Any]]:
    """What a prediction on shares takes beside its lookups, by values of a row and bag."""
    for dim in DIMS:
        for bag in BAGS:
            print("shares", dim, bag, file=sys.stderr)
            found = infer.plan_shares(description(dim, bag), runs=9)
            yield {"dim": dim, "bag": bag} | asdict(found)


def points(found: dict[str, Any]) -> Iterator[Point]:
    """All ways of all sizes, from what was measured."""
    engine = {
        (one["isa"], one["rows"], one["row_bytes"], one["group"]): one for one in found["engine"]
    }
    shares = {(one["dim"], one["bag"]): one for one in found["shares"]}
    for isa in dict.fromkeys(one["isa"] for one in found["engine"]):
        for rows in ROWS:
            bits, words = key_bytes(rows, "bits"), key_bytes(rows, "z32")
            for dim in DIMS:
                additive = engine[isa, rows, SUM_BYTES * dim, "z32"]
                product_ms = additive["answer_ms"] - additive["expand_ms"]
                looked_ms = engine[isa, rows, dim, "bits"]["answer_ms"]
                sums_bytes = 2 * SUM_BYTES * dim
                for ids in BAGS:
                    size = (isa, rows, dim, ids)
                    for stored in STORED:
                        width = row_bytes(dim, stored)
                        answer_ms = engine[isa, rows, width, "bits"]["answer_ms"]
                        down = 2 * ids * width
                        yield Point(stored, *size, ids * answer_ms, 0, 2 * ids * bits, down, 0)
                    up = 2 * ids * words
                    each_ms = ids * additive["answer_ms"]
                    yield Point("answers", *size, each_ms, 0, up, sums_bytes, 0)
                    # A bag's shares are added up before the one product with the table.
                    once_ms = ids * additive["expand_ms"] + product_ms
                    yield Point("keys", *size, once_ms, 0, up, sums_bytes, 0)
                    one = shares[dim, ids]
                    up, between = 2 * ids * bits, 2 * one["peer_bytes"]
                    dealt_ms = ids * looked_ms + one["server_ms"]
                    yield Point(
                        "servers",
                        *size,
                        dealt_ms,
                        one["precompute_ms"],
                        up + SEED_BYTES,
                        sums_bytes,
                        between + 2 * one["precompute_peer_bytes"],
                    )
                    up += one["up_bytes"]
                    yield Point("client", *size, dealt_ms, 0, up, sums_bytes, between)


def table(found: dict[str, Any]) -> list[str]:
    """The page's table."""
    isas = list(dict.fromkeys(one["isa"] for one in found["engine"]))
    by = {(one.way, one.isa, one.rows, one.dim, one.max_ids): one for one in points(found)}
    lines = [
        f"{found['cpu']}, one thread, {BATCH} keys at once; {found['date']}. "
        f"2^{SHOWN_ROWS.bit_length() - 1} rows.",
        "",
        "| | "
        + " | ".join(f"a server, {isa}" for isa in isas)
        + " | up | down | 100 Mbit/s | 1 Gbit/s | between servers |",
        "|---|" + "--:|" * (len(isas) + 5),
    ]
    for dim, ids in SHOWN:
        lines.append(f"| **{ids} ids, {dim} values each** |" + " |" * (len(isas) + 5))
        for way, title in WAYS.items():
            if way in UNSHOWN:
                continue
            each = [by[way, isa, SHOWN_ROWS, dim, ids] for isa in isas]
            times = [
                f"{one.server_ms:.1f} ms"
                + (f", {one.before_ms:.0f} ms before" if one.before_ms else "")
                for one in each
            ]
            one = each[0]
            between = f" {one.between_bytes / 1e3:,.0f} kB" if one.between_bytes else ""
            lines.append(
                f"| {title} | "
                + " | ".join(times)
                + f" | {one.up_bytes / 1e3:.1f} kB | {one.down_bytes / 1e3:.1f} kB"
                f" | {one.link_ms(100):.2f} ms | {one.link_ms(1000):.2f} ms |{between} |"
            )
    return lines


def rendered(page: str, found: dict[str, Any]) -> str:
    """The page with the table of what was found."""
    begin, end = MARKS
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not (mark and closing):
        raise SystemExit(f"{PAGE.name} has no {begin} ... {end}")
    return "\n".join([before + begin, *table(found), end]) + after


def newest() -> dict[str, Any]:
    """What was found last."""
    kept = sorted(RESULTS.glob("sums-[0-9]*.json"))
    if not kept:
        raise SystemExit("no sums-*.json in bench/results: measure first")
    found: dict[str, Any] = json.loads(kept[-1].read_text(encoding="utf-8"))
    return found


def measured() -> dict[str, Any]:
    """Builds the example, and times everything."""
    build = "cargo build --release --quiet -p hushtable-pir --example answer_speed"
    subprocess.run(build.split(), cwd=ROOT, check=True)
    doctor = json.loads(
        subprocess.run(
            [sys.executable, "-m", "hushtable", "doctor", "--json"], capture_output=True, check=True
        ).stdout
    )
    isas = dict.fromkeys([doctor["isa"]["used"], "avx2"])
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "cpu": doctor["cpu"]["model"],
        "cores": doctor["cores"]["usable"],
        "isa": doctor["isa"]["used"],
        "engine": [one for isa in isas for one in engine_times(isa)],
        "shares": list(shares_times()),
    }


def main() -> int:
    """Measures, keeps, and writes the page's table; or prints what is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print every point that is kept")
    parser.add_argument(
        "--write-only", action="store_true", help="write the page from what is kept"
    )
    args = parser.parse_args()
    if args.json:
        for point in points(newest()):
            links = {f"link_{mbit}_mbit_ms": point.link_ms(mbit) for mbit in (100, 1000)}
            print(json.dumps(asdict(point) | links))
        return 0
    if not args.write_only:
        found = measured()
        path = RESULTS / f"sums-{found['date']}.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), newest()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
