"""Writes docs/processor.md from the newest bench/results/gpu-pir-cpu-*.json.

    .venv/bin/python bench/processor_pir.py [--out FOLDER]

The page sets Tables III and V and Figures 10 and 11 of Lam et al., "GPU-based Private Information
Retrieval for On-Device Machine Learning Inference", beside the same on a processor:
``python bench/run.py --suite gpu-pir-cpu`` measures it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "processor.md"
PLOTS = ROOT / "docs" / "plots"
RESULTS = ROOT / "bench" / "results"
SIZES = {1 << 14: "16K", 1 << 16: "64K", 1 << 20: "1M", 1 << 22: "4M"}
#: Table III: upload bytes; queries/s and ms of the GPU, of a processor's 1 thread, of its 32.
TABLE_3 = {
    1 << 14: (896, (60_347, 3.2), (22, 9), (281, 0.71)),
    1 << 16: (1024, (15_258, 18.5), (5, 36), (688, 2.9)),
    1 << 20: (1280, (1_358, 1.4), (1.3, 638), (21.2, 36)),
    1 << 22: (1408, (468, 4.18), (0.78, 2579.8), (12, 160.1)),
}
#: Table V: ms and queries/s of a V100, 2^20 rows, batches of 512.
TABLE_5 = {
    "aes128": (591, 965),
    "salsa20": (174, 3640),
    "salsa12": (113, 5598),
    "sha256": (659, 921),
    "siphash24": (82.3, 7447),
    "highwayhash": (320, 1973),
}
BATCH = 256


class Results:
    """The records of a file, by what they are of."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.records = records

    def find(self, bench: str, **wanted: Any) -> dict[str, Any] | None:
        """The record with these parameters, or threads."""
        for record in self.records:
            facts = record["params"] | {"threads": record["threads"]}
            if record["bench"] == bench and wanted.items() <= facts.items():
                return record
        return None

    def dpf(
        self, rows: int, batch: int, threads: int, row_bytes: int = 256, prg: str = "aes128"
    ) -> dict[str, Any] | None:
        """A measurement of the engine."""
        return self.find(
            "dpf", rows=rows, row_bytes=row_bytes, batch=batch, threads=threads, prg=prg
        )


def cell(record: dict[str, Any] | None, what: str) -> str:
    """A number of a record: its rate, or the milliseconds of a batch."""
    if record is None:
        return "-"
    value = record["value"] if what == "rate" else record["detail"]["ms_per_batch"]
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def table_3(results: Results) -> Iterator[str]:
    """Upload, throughput and latency by rows."""
    yield (
        "| rows | | upload, bytes | queries/s, 1 thread | queries/s, more threads | ms alone,"
        " 1 thread | ms alone, more threads |"
    )
    yield "|--:|---|--:|--:|--:|--:|--:|"
    for rows, (upload, gpu, one, many) in TABLE_3.items():
        name = SIZES[rows]
        yield f"| {name} | the paper's V100 | {upload:,} | {gpu[0]:,} | | {gpu[1]} | |"
        yield (
            f"| {name} | the paper's processor, 32 threads | {upload:,} | {one[0]} | {many[0]}"
            f" | {one[1]:,} | {many[1]} |"
        )
        key = results.find("key", rows=rows, group="bits")
        yield (
            f"| {name} | ours, 2 threads | {'-' if key is None else format(key['value'], ',')}"
            f" | {cell(results.dpf(rows, BATCH, 1), 'rate')}"
            f" | {cell(results.dpf(rows, BATCH, 2), 'rate')}"
            f" | {cell(results.dpf(rows, 1, 1), 'ms')} | {cell(results.dpf(rows, 1, 2), 'ms')} |"
        )


def key_table(results: Results) -> Iterator[str]:
    """Bytes of a key by rows and output group, and the calls that expand it."""
    yield "| rows | the paper | bits | z8 | z32 | PRF calls, leaves of one row | bits | z8 | z32 |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for rows, (upload, *_rest) in TABLE_3.items():
        keys = [results.find("key", rows=rows, group=group) for group in ("bits", "z8", "z32")]
        sizes = " | ".join("-" if key is None else f"{key['value']:,}" for key in keys)
        calls = " | ".join(
            "-" if key is None else f"{key['detail']['prf_calls']:,}" for key in keys
        )
        yield f"| {SIZES[rows]} | {upload:,} | {sizes} | {2 * rows:,} | {calls} |"


def table_5(results: Results) -> Iterator[str]:
    """Generators."""
    yield "| generator | V100, queries/s | ms | ours, queries/s | ms | ours over V100 |"
    yield "|---|--:|--:|--:|--:|--:|"
    for record in results.records:
        if record["bench"] != "prg":
            continue
        name = record["params"]["prg"]
        rate, ms = cell(record, "rate"), cell(record, "ms")
        paper = TABLE_5.get(name)
        if paper is None:
            yield f"| {name} | | | {rate} | {ms} | |"
        else:
            ratio = record["value"] / paper[1]
            yield f"| {name} | {paper[1]:,} | {paper[0]} | {rate} | {ms} | {ratio:.2f} |"


def row_bytes_of(results: Results) -> list[int]:
    """The lengths of rows that were measured at the paper's number of rows."""
    found = {
        record["params"]["row_bytes"]
        for record in results.records
        if record["bench"] == "dpf" and record["params"]["rows"] == 1 << 20
    }
    return sorted(found)


def figure_10(results: Results) -> Iterator[str]:
    """Row bytes."""
    yield "| row bytes | queries/s, 1 thread | GB/s of products | ms alone |"
    yield "|--:|--:|--:|--:|"
    for row_bytes in row_bytes_of(results):
        batched = results.dpf(1 << 20, BATCH, 1, row_bytes)
        alone = results.dpf(1 << 20, 1, 1, row_bytes)
        rate = "-" if batched is None else f"{batched['value'] * row_bytes * 2**20 / 1e9:,.0f}"
        yield f"| {row_bytes:,} | {cell(batched, 'rate')} | {rate} | {cell(alone, 'ms')} |"
    if results.records:
        yield ""
        yield "![Throughput by bytes of a row](plots/processor-row-bytes.svg)"


def figure_11(results: Results) -> Iterator[str]:
    """Throughput by rows, with a second generator."""
    yield (
        "| rows | AES-128, 1 thread | AES-128, 2 threads | Salsa20/12, 2 threads |"
        " the paper's 32 threads | its V100 |"
    )
    yield "|--:|--:|--:|--:|--:|--:|"
    for rows, (_upload, gpu, _one, many) in TABLE_3.items():
        salsa = results.dpf(rows, BATCH, 2, prg="salsa12")
        yield (
            f"| {SIZES[rows]} | {cell(results.dpf(rows, BATCH, 1), 'rate')}"
            f" | {cell(results.dpf(rows, BATCH, 2), 'rate')} | {cell(salsa, 'rate')}"
            f" | {many[0]} | {gpu[0]:,} |"
        )
    if results.records:
        yield ""
        yield "![Throughput by rows](plots/processor-throughput.svg)"


def render(text: str, results: Results) -> str:
    """``text`` with its tables made anew."""
    bodies = {
        "table 3": table_3,
        "keys": key_table,
        "table 5": table_5,
        "figure 10": figure_10,
        "figure 11": figure_11,
    }
    for name, body in bodies.items():
        begin, end = f"<!-- {name}: begin (bench/processor_pir.py) -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise SystemExit(f"{PAGE} has no {begin} ... {end}")
        text = before + "\n".join([begin, *body(results), end]) + after
    return text


def draw(results: Results, folder: Path) -> None:
    """Figures 10 and 11."""
    import matplotlib
    from matplotlib.figure import Figure

    lines: dict[str, tuple[str, dict[str, list[tuple[float, float]]]]] = {
        "processor-row-bytes": (
            "bytes of a row, 2^20 rows (as Figure 10)",
            {
                f"{BATCH} queries at once, 1 thread": [
                    (size, record["value"])
                    for size in row_bytes_of(results)
                    if (record := results.dpf(1 << 20, BATCH, 1, size))
                ],
                "one query, 1 thread": [
                    (size, record["value"])
                    for size in row_bytes_of(results)
                    if (record := results.dpf(1 << 20, 1, 1, size))
                ],
            },
        ),
        "processor-throughput": (
            "rows of 256 bytes (as Figure 11)",
            {
                **{
                    f"ours, {name}": [
                        (rows, record["value"])
                        for rows in SIZES
                        if (record := results.dpf(rows, BATCH, threads, prg=prg))
                    ]
                    for name, threads, prg in (
                        ("AES-128, 1 thread", 1, "aes128"),
                        ("AES-128, 2 threads", 2, "aes128"),
                        ("Salsa20/12, 2 threads", 2, "salsa12"),
                    )
                },
                "paper: processor, 1 thread": [(rows, row[2][0]) for rows, row in TABLE_3.items()],
                "paper: processor, 32 threads": [
                    (rows, row[3][0]) for rows, row in TABLE_3.items()
                ],
                "paper: V100": [(rows, row[1][0]) for rows, row in TABLE_3.items()],
            },
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hushtable"}):
        for name, (label, curves) in lines.items():
            sheet = Figure(figsize=(6.4, 4.4), layout="constrained")
            axes = sheet.subplots()
            for (curve, points), style in zip(
                curves.items(), ("o-", "s-", "^-", "x:", "+:", "*:"), strict=False
            ):
                if points:
                    axes.plot(*zip(*points, strict=True), style, label=curve)
            axes.set(xscale="log", yscale="log", xlabel=label, ylabel="queries/s")
            axes.grid(True, color="#dddddd", linewidth=0.6)
            axes.legend(fontsize=8, frameon=False)
            sheet.savefig(folder / f"{name}.svg", metadata={"Date": None})


def newest() -> Results:
    """The newest result; nothing where there is none, and then the page has the paper's side."""
    found = sorted(RESULTS.glob("gpu-pir-cpu-[0-9]*.json"))
    return Results(json.loads(found[-1].read_text(encoding="utf-8"))["results"] if found else [])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=PLOTS, help="a folder for the plots")
    options = parser.parse_args()
    results = newest()
    if results.records:
        draw(results, options.out)
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results.records)} figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
