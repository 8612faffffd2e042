"""Runs the benchmarks of docs/figures.md and writes a JSON file of each suite into bench/results.

    .venv/bin/python bench/run.py [--suite NAME] [--quick] [--out FILE]

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


def onion(quick: bool) -> list[list[str]]:
    """Those of lookups from one server."""
    mib = "64" if quick else "1024"

    def lookups(row_bytes: int, batch: int, *more: str, threads: int = 1) -> list[str]:
        shape = ["--table-mib", mib, "--row-bytes", str(row_bytes), "--batch", str(batch)]
        return ["onion", *shape, "--threads", str(threads), *more]

    return [
        ["ntt"],
        lookups(256, 1),
        lookups(4096, 1),
        lookups(256, 16),
        lookups(256, 16, threads=2),
        lookups(256, 16, "--schedule", "breadth"),
        lookups(256, 16, "--schedule", "depth"),
        lookups(256, 1, "--parameters", "ive_paper"),
        lookups(256, 16, "--parameters", "ive_paper"),
    ]


def two_servers(quick: bool) -> list[list[str]]:
    """Those of lookups from two servers."""
    rows, large = (ROWS["2^16"], ROWS["2^16"]) if quick else (ROWS["2^20"], ROWS["2^22"])

    def dpf(rows: int, batch: int, *more: str, threads: int = 1) -> list[str]:
        shape = ["--rows", str(rows), "--row-bytes", "256", "--batch", str(batch)]
        return ["dpf", *shape, "--threads", str(threads), *more]

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
    ]


def ckks(quick: bool) -> list[list[str]]:
    """Those of encrypted inference: operations, then whole models."""

    def operation(name: str, log_degree: int, limbs: int) -> list[str]:
        size = ["--degree", str(1 << log_degree), "--limbs", str(limbs)]
        return ["ckks", "--operation", name, *size, "--threads", "1"]

    models = ["uci"] if quick else ["uci", "criteo", "criteo-large"]
    larger = [] if quick else [operation("rotate", 15, 16), operation("transform", 15, 6)]
    return [
        operation("rotate", 13, 4),
        *(operation(name, 14, 9) for name in ("rotate", "multiply", "rescale")),
        *larger,
        *(["infer", "--model", model, "--threads", "1"] for model in models),
    ]


def hybrid(quick: bool) -> list[list[str]]:
    """Those of hybrid private inference: garbling, then whole networks by either garbler."""
    sizes = [("lenet", 32)] if quick else [("resnet32", 32), ("resnet18", 32), ("resnet18", 64)]
    # The paper's others are for its figures: `bench paper hybrid`.
    others = [] if quick else [("vgg16", 32), ("resnet32", 64), ("vgg16", 64)]
    return [
        ["garble", "--threads", "1"],
        *(
            ["hybrid", "--network", network, "--size", str(size), "--garbler", garbler]
            for network, size in [*sizes, *others]
            for garbler in ("server", "client")
        ),
    ]


def shares(quick: bool) -> list[list[str]]:
    """Those of predictions on the shares of two servers."""
    size = ["--divisor", "1000", "--seconds", "0.3"] if quick else []
    against = [] if quick else ["--encrypted"]
    return [
        ["shares", "--model", "criteo", "--batch", "1", *size, *against],
        ["shares", "--model", "criteo", "--batch", "64", *size],
        ["shares", "--model", "criteo", "--batch", "1", "--dealer", "servers", *size],
        ["shares", "--model", "top", "--batch", "1", *size],
    ]


def oram(quick: bool) -> list[list[str]]:
    """Those of federated rounds over a table on a disk."""
    small, table = ("20000", "10000") if quick else ("10000000", "1000000")
    requests = "1000" if quick else "10000"

    def rounds(rows: str, *more: str) -> list[str]:
        return ["oram", "--rows", rows, "--row-bytes", "64", "--requests", requests, *more]

    return [
        *(rounds(small, "--epsilon", epsilon) for epsilon in ("0", "1")),
        *(
            rounds(table, "--epsilon", epsilon, "--oram", tree)
            for tree in ("raw", "path")
            for epsilon in ("0", "1")
        ),
        rounds(table, "--epsilon", "1", "--bucket-kib", "16"),
        *(["union", "--requests", count] for count in ("16384", requests if quick else "1000000")),
    ]


def patch(quick: bool) -> list[list[str]]:
    """Changed rows against a table that is built and loaded again."""
    rows = ROWS["2^16"] if quick else ROWS["2^22"]
    shape = ["patch", "--rows", str(rows), "--row-bytes", "64"]
    return [[*shape, "--share", share] for share in ("0.001", "0.0001")]


def onion_counts(quick: bool) -> list[list[str]]:
    """What of IVE's figures needs no clock."""
    return [["onion", "--sweep", "counts"]]


def gpu_pir(quick: bool) -> list[list[str]]:
    """Tables III and V and Figures 10 and 11 of the GPU paper, on a processor."""
    sizes = [ROWS["2^14"], ROWS["2^16"]] if quick else list(ROWS.values())
    large = sizes[-1] if quick else ROWS["2^20"]
    widths = [64, 256] if quick else [64, 128, 256, 512, 1024, 2048, 4096]
    seconds = ["--seconds", "0.2" if quick else "1"]

    def dpf(rows: int, row_bytes: int, batch: int, threads: int, prg: str = "aes128") -> list[str]:
        shape = ["--rows", str(rows), "--row-bytes", str(row_bytes), "--batch", str(batch)]
        return ["dpf", *shape, "--threads", str(threads), "--prg", prg, *seconds]

    return [
        *(["paper", "key", "--rows", str(rows)] for rows in sizes),
        *(
            dpf(rows, 256, batch, threads)
            for rows in sizes
            for batch in (1, 256)
            for threads in (1, 2)
        ),
        *(dpf(rows, 256, 256, 2, "salsa12") for rows in sizes),
        *(
            dpf(large, row_bytes, batch, 1)
            for row_bytes in widths
            for batch in (1, 256)
            if row_bytes != 256
        ),
        ["paper", "prg", "--rows", str(large), *seconds],
    ]


def onion_sweep(quick: bool) -> list[list[str]]:
    """IVE's figures on this processor; `bench onion --sweep whole` measures larger tables too."""
    return [
        ["onion", "--sweep", "quick" if quick else "evidence", "--threads", "1", "--seconds", "2"]
    ]


def load(quick: bool) -> list[list[str]]:
    """Latency of real servers at random arrivals."""
    sizes = {"pair": ROWS["2^16" if quick else "2^20"], "onion": ROWS["2^14" if quick else "2^16"]}
    time = ["--seconds", "1" if quick else "4", "--warmup", "0.5"]
    return [
        ["serve", "--scheme", scheme, "--rows", str(rows), "--rates", "auto", *time]
        for scheme, rows in sizes.items()
    ]


def shards(quick: bool) -> list[list[str]]:
    """What more shards answer than one, and what a front of 64 costs by itself."""
    rows = ["--rows", str(ROWS["2^16" if quick else "2^20"])]
    time = ["--seconds", "2", "--warmup", "1", "--rounds", "1"] if quick else []
    return [
        ["shards", "--shards", "2", *rows, *time],
        # Passes of an eighth of the keys.
        ["shards", "--shards", "1", "--clients", "8", "--keys", "8", *rows, *time],
    ]


def infer_layers(quick: bool) -> list[list[str]]:
    """Encrypted models by their activation; Criteo's with a range take many gigabytes."""
    models = ["uci-silu", "uci-relu", "uci-relu-composite"]
    if not quick:
        models += ["criteo", "criteo-silu", "criteo-relu"]
    return [["infer", "--model", model, "--threads", "1", "--runs", "3"] for model in models]


def bootstrap(quick: bool) -> list[list[str]]:
    """Bootstraps: of one layer's numbers and of all slots."""
    sizes = [(15, 512)] if quick else [(15, 512), (15, 1 << 14), (16, 512), (16, 1 << 15)]
    return [
        [*("ckks", "--operation", "bootstrap"), "--degree", str(1 << log2), "--slots", str(slots)]
        for log2, slots in sizes
    ]


SUITES = {
    "bootstrap": bootstrap,
    "ckks": ckks,
    "cpu": two_servers,
    "gpu-pir-cpu": gpu_pir,
    "hybrid": hybrid,
    "infer-layers": infer_layers,
    "shares": shares,
    "load": load,
    "onion": onion,
    "onion-counts": onion_counts,
    "onion-sweep": onion_sweep,
    "oram": oram,
    "patch": patch,
    "shards": shards,
}


def bench(arguments: list[str]) -> list[Any]:
    """What ``hushtable bench ARGUMENTS --json`` prints: a record a line."""
    command = [sys.executable, "-m", "hushtable", "bench", *arguments, "--json"]
    print("$ hushtable bench", *arguments, file=sys.stderr)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(printed.strip(), file=sys.stderr)
    return [json.loads(line) for line in printed.splitlines() if line.strip()]


def machine() -> dict[str, Any]:
    """The day, and what ``hushtable doctor --json`` says of this machine."""
    command = [sys.executable, "-m", "hushtable", "doctor", "--json"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": today, "platform": platform.platform(), "doctor": json.loads(printed)}


def main() -> None:
    """Runs everything and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=sorted(SUITES), help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="small tables, for a smoke test")
    parser.add_argument("--out", type=Path, help="default: bench/results/SUITE-DATE.json")
    arguments = parser.parse_args()
    if arguments.out and not arguments.suite:
        parser.error("--out needs --suite: each suite has a file of its own")
    facts = machine()
    for suite in [arguments.suite] if arguments.suite else sorted(SUITES):
        out = arguments.out or Path(__file__).parent / "results" / f"{suite}-{facts['date']}.json"
        results = [one for command in SUITES[suite](arguments.quick) for one in bench(command)]
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"machine": facts, "results": results}, indent=2) + "\n")
        print(f"wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
