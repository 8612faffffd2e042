"""Runs the benchmarks of the README and writes one JSON file into bench/results.

    .venv/bin/python bench/run.py [--quick] [--only NAME] [--out FILE]

Each benchmark is the ``hushtable bench`` command that a reader would type. The file holds what
they printed, in order, and the machine they ran on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROWS = {"2^14": 1 << 14, "2^16": 1 << 16, "2^20": 1 << 20, "2^22": 1 << 22}


def commands(quick: bool) -> list[list[str]]:
    """The benchmarks, as arguments of ``hushtable bench``."""
    rows, large = (ROWS["2^16"], ROWS["2^16"]) if quick else (ROWS["2^20"], ROWS["2^22"])

    def dpf(rows: int, batch: int, *more: str, threads: int = 1) -> list[str]:
        shape = ["--rows", str(rows), "--row-bytes", "256", "--batch", str(batch)]
        return ["dpf", *shape, "--threads", str(threads), *more]

    def onion(row_bytes: int, batch: int, *more: str, threads: int = 1) -> list[str]:
        shape = ["--table-mib", "16" if quick else "1024", "--row-bytes", str(row_bytes)]
        return ["onion", *shape, "--batch", str(batch), "--threads", str(threads), *more]

    return [
        ["expand", "--rows", str(rows)],
        *(dpf(rows, batch) for batch in (1, 32, 256)),
        dpf(ROWS["2^14"], 256),
        dpf(ROWS["2^16"], 256),
        dpf(large, 256),
        dpf(rows, 256, threads=2),
        dpf(ROWS["2^16"], 256, "--isa", "avx2"),
        dpf(ROWS["2^16"], 256, "--isa", "portable"),
        *(
            ["serve", "--clients", "64", "--keys-per-request", keys, "--rows", str(rows)]
            for keys in ("1", "4")
        ),
        ["ntt"],
        ["ntt", "--inverse"],
        *(onion(256, batch) for batch in (1, 4, 16)),
        onion(256, 16, threads=2),
        *(onion(4096, batch) for batch in (1, 16)),
        onion(256, 16, "--parameters", "ive_paper"),
    ]


def bench(arguments: list[str]) -> Any:
    """What ``hushtable bench ARGUMENTS --json`` prints."""
    command = [sys.executable, "-m", "hushtable", "bench", *arguments, "--json"]
    print("$ hushtable bench", *arguments, file=sys.stderr)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(printed.strip(), file=sys.stderr)
    return json.loads(printed)


def machine() -> Any:
    """What ``hushtable doctor --json`` says of this machine."""
    command = [sys.executable, "-m", "hushtable", "doctor", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Runs everything and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables, for a smoke test")
    parser.add_argument("--only", help="one benchmark: expand, dpf, serve, ntt or onion")
    parser.add_argument("--out", type=Path, help="default: bench/results/cpu-DATE.json")
    arguments = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    out = arguments.out or Path(__file__).parent / "results" / f"cpu-{today}.json"
    chosen = [
        command for command in commands(arguments.quick) if arguments.only in (None, command[0])
    ]
    results = [bench(command) for command in chosen]
    facts = {"date": today, "platform": platform.platform(), "doctor": machine()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": facts, "results": results}, indent=2) + "\n")
    print(f"wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
