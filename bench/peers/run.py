"""Times hushtable's CKKS beside Lattigo's and poulpy's, in one run on one core.

    .venv/bin/python bench/peers/run.py [--runs 20] [--out FILE] [--only lattigo|poulpy]

The peers are built here, from what is pinned beside this file, by Go and by Rust's nightly; a peer
whose tools are missing is left out, and the file says so. Nothing of hushtable depends on either.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"

#: (operation, degree, limbs): what is compared. Peers measure the same degree, and ciphertexts of
#: about as many bits; a transform is of 512 diagonals, at level 5 of the largest degree.
COMPARED: tuple[tuple[str, int, int], ...] = (
    ("rotate", 1 << 13, 4),
    ("multiply", 1 << 13, 4),
    ("rescale", 1 << 13, 4),
    ("transform", 1 << 13, 4),
    ("rotate", 1 << 14, 9),
    ("multiply", 1 << 14, 9),
    ("rescale", 1 << 14, 9),
    ("rotate", 1 << 15, 16),
    ("multiply", 1 << 15, 16),
    ("rescale", 1 << 15, 16),
    ("transform", 1 << 15, 6),
)


class Missing(Exception):
    """A peer that cannot be built or run here; the text says why."""


def printed(command: list[str], *, where: Path, **more: str) -> str:
    """What a command prints; what it says on the side goes to the terminal."""
    environment = {**os.environ, **more}
    try:
        done = subprocess.run(
            command, cwd=where, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{' '.join(command)}: {error}") from error
    return done.stdout


def pinned(command: list[str]) -> list[str]:
    """The command, on one core where the system can say which."""
    return ["taskset", "--cpu-list", "0", *command] if shutil.which("taskset") else command


def lattigo(runs: int) -> list[Any]:
    """Lattigo's lines."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    built = HERE / "lattigo" / "build" / "lattigo_peer"
    more = {"GOFLAGS": "-mod=readonly", "GOMAXPROCS": "1"}
    printed([go, "build", "-o", str(built), "."], where=HERE / "lattigo", **more)
    text = printed(pinned([str(built), "-runs", str(runs)]), where=HERE, **more)
    return [json.loads(line) for line in text.splitlines()]


def poulpy(runs: int) -> list[Any]:
    """poulpy-ckks' lines."""
    folder = HERE / "poulpy"
    more = {"RUSTFLAGS": "-C target-cpu=native"}
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
    printed(["cargo", "+nightly", "build", "--release", "--locked"], where=folder, **more)
    text = printed(pinned([str(target / "release" / "poulpy_peer"), str(runs)]), where=HERE)
    return [json.loads(line) for line in text.splitlines()]


def ours() -> Iterator[Any]:
    """What ``hushtable bench ckks`` prints of each comparison."""
    for operation, degree, limbs in COMPARED:
        shape = ["--operation", operation, "--degree", str(degree), "--limbs", str(limbs)]
        command = [sys.executable, "-m", "hushtable", "bench", "ckks", *shape]
        text = printed(pinned([*command, "--threads", "1", "--json"]), where=HERE)
        yield {"operation": operation, "degree": degree, "limbs": limbs, "found": json.loads(text)}


def compare(own: list[Any], peers: dict[str, list[Any]]) -> list[Any]:
    """One entry a comparison: the least time, and how many times as long each peer takes."""
    lines = []
    for one in own:
        line = {key: one[key] for key in ("operation", "degree", "limbs")}
        line["ms"] = one["found"]["value"]
        for name, found in peers.items():
            for entry in found:
                if (entry["operation"], entry["degree"]) == (one["operation"], one["degree"]):
                    line[f"{name}_ms"] = entry["best_ms"]
                    line[f"{name}_ratio"] = entry["best_ms"] / line["ms"]
        lines.append(line)
    return lines


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="counted runs of each operation")
    parser.add_argument("--only", choices=["lattigo", "poulpy"], help="one peer, and not us")
    parser.add_argument("--out", type=Path, help="default: bench/results/peers-DATE.json")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    peers: dict[str, list[Any]] = {}
    missing: dict[str, str] = {}
    for name, measure in {"lattigo": lattigo, "poulpy": poulpy}.items():
        if options.only in (None, name):
            try:
                peers[name] = measure(options.runs)
            except Missing as error:
                missing[name] = str(error)
                print(f"left out: {error}", file=sys.stderr)
    if options.only:
        print(json.dumps(peers, indent=2))
        return 1 if missing else 0
    try:
        own = list(ours())
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    out = options.out or RESULTS / f"peers-{today}.json"
    document = {
        "date": today,
        "platform": platform.platform(),
        "load": os.getloadavg()[0],
        "missing": missing,
        "compared": compare(own, peers),
        "ours": own,
        **peers,
    }
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
