"""Holds what ``sim accelerator --machine this`` predicts beside what ``bench onion`` takes.

    .venv/bin/python bench/processor.py [--seconds 1.5]

Prints a line for each size, batch and number of threads, and keeps them in bench/results, with the
machine. Operations are measured between the sizes; each time is the best of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from pathlib import Path
from typing import Any

from hushtable import _native
from hushtable._machine import cores
from hushtable_lab import native
from hushtable_lab.measure.records import bench_record
from hushtable_lab.sim.accelerator.measured import best_of, measure
from hushtable_lab.sim.accelerator.passes import Table, predict

ROOT = Path(__file__).resolve().parents[1]
MIB, BATCHES, ROW_BYTES, PARAMETERS = (16, 64, 256, 512, 1024), (1, 4, 16), 256, "n4096_128"


def main() -> None:
    """Measures, predicts, prints and keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Whole)
    parser.add_argument("--seconds", type=float, default=1.5, help="of measuring each point")
    asked = parser.parse_args()
    processor = best_of(measure(PARAMETERS), measure(PARAMETERS))
    taken: list[tuple[int, int, int, tuple[float, float, float, float]]] = []
    for threads in sorted({1, cores()}):
        for mib in MIB:
            engine = native.OnionBench(
                (mib << 20) // ROW_BYTES,
                ROW_BYTES,
                parameters=PARAMETERS,
                threads=threads,
                levels=None,
                schedule=None,
            )
            for batch in BATCHES:
                passes, _ = engine.answer_seconds(batch, seconds=asked.seconds)
                taken.append((mib, threads, batch, min(passes)))
            processor = best_of(processor, measure(PARAMETERS))
    found = [_record(processor, *one) for one in taken]
    print("| MiB | threads | queries | measured, ms | predicted | ExpandQuery | RowSel | ColTor |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    for one in found:
        params, detail = one["params"], one["detail"]
        ratios = (detail[f"{step}_ratio"] for step in ("expand", "row_select", "tournament"))
        print(
            f"| {params['table_mib']} | {one['threads']} | {params['batch']} "
            f"| {detail['measured_ms']:.1f} | {detail['predicted_ms']:.1f} ({one['value']:.2f}) | "
            + " | ".join(f"{ratio:.2f}" for ratio in ratios)
            + " |"
        )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = {"date": today, "platform": platform.platform(), "processor": processor.measured}
    out = ROOT / "bench" / "results" / f"sim-processor-{today}.json"
    out.write_text(json.dumps({"machine": facts, "results": found}, indent=2) + "\n")
    print(f"wrote {out}")


def _record(
    processor: Any, mib: int, threads: int, batch: int, taken: tuple[float, float, float, float]
) -> dict[str, Any]:
    """Of a point; the value is predicted over measured."""
    total, expand, row_select, tournament = taken
    predicted = predict(processor, Table.of(mib, ROW_BYTES, PARAMETERS), batch, threads)
    return bench_record(
        "sim processor",
        {"table_mib": mib, "row_bytes": ROW_BYTES, "batch": batch, "parameters": PARAMETERS},
        predicted.total / total,
        "predicted over measured",
        None,
        None,
        threads,
        _native.platforms().chosen,
        measured_ms=1e3 * total,
        predicted_ms=1e3 * predicted.total,
        expand_ratio=predicted.expand / expand,
        row_select_ratio=predicted.row_select / row_select,
        tournament_ratio=predicted.tournament / tournament,
    )


class _Whole(argparse.RawDescriptionHelpFormatter):
    """Leaves the description's lines as they are."""


if __name__ == "__main__":
    main()
