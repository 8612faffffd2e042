"""Times hushtable's CKKS beside Lattigo's and poulpy's, in one run on one core.

    .venv/bin/python bench/peers/run.py [--runs 20] [--out FILE] [--only lattigo|poulpy|openfhe]
    .venv/bin/python bench/peers/run.py --bootstraps 1 [--runs 0]

Bootstraps are measured where ``--bootstraps`` says how often, in a process each: Lattigo's keys at
N = 2^16 take 8 GB, and making them more. ``--runs 0`` leaves the other operations out. OpenFHE is
measured by its bootstraps alone.

The peers are built here, from what is pinned beside this file, by Go, by Rust's nightly and by pip
for a Python 3.10; a peer whose tools are missing is left out, and the file says so. Nothing of
hushtable depends on any.
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

#: (degree, slots): bootstraps of all slots.
BOOTSTRAPS: tuple[tuple[int, int], ...] = ((1 << 15, 1 << 14), (1 << 16, 1 << 15))

#: Of each peer, the sets that are bootstrapped, by their names there.
BOOTSTRAP_SETS: dict[str, tuple[str, ...]] = {
    "lattigo": ("N15QP880H16384H32", "N16QP1546H192H32", "N16QP1767H32768H32"),
    "poulpy": (
        "n15_d35_k180_p18_c2s",
        "n16_d35_k636_p20_c2s",
        "n16_d35_k733_p20_s2c",
        "n16_d35_k733_p20_s2c+real",
        "n16_d35_k685_p19_s2c_ffr_ci",
    ),
    # It has no sets: the degree.
    "openfhe": ("65536",),
}


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


def lines(command: list[str], **more: str) -> list[Any]:
    """What a peer says, a line of JSON an operation."""
    return [json.loads(line) for line in printed(pinned(command), where=HERE, **more).splitlines()]


def lattigo(runs: int, bootstraps: int) -> list[Any]:
    """Lattigo's lines."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    built = HERE / "lattigo" / "build" / "lattigo_peer"
    more = {"GOFLAGS": "-mod=readonly", "GOMAXPROCS": "1"}
    printed([go, "build", "-o", str(built), "."], where=HERE / "lattigo", **more)
    found = lines([str(built), "-runs", str(runs)], **more) if runs else []
    # What is not in use is collected at a quarter of what is, and not at as much again.
    more["GOGC"] = "25"
    for name in BOOTSTRAP_SETS["lattigo"] if bootstraps else ():
        command = [str(built), "-bootstrap", "-runs", str(bootstraps), "-set", name]
        found += lines(command, **more)
    return found


def poulpy(runs: int, bootstraps: int) -> list[Any]:
    """poulpy-ckks' lines."""
    folder = HERE / "poulpy"
    more = {"RUSTFLAGS": "-C target-cpu=native"}
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
    printed(["cargo", "+nightly", "build", "--release", "--locked"], where=folder, **more)
    built = str(target / "release" / "poulpy_peer")
    found = lines([built, str(runs)]) if runs else []
    for name in BOOTSTRAP_SETS["poulpy"] if bootstraps else ():
        found += lines([built, "bootstrap", str(bootstraps), name])
    return found


def openfhe(runs: int, bootstraps: int) -> list[Any]:
    """OpenFHE's lines: of bootstraps, whose time its interpreter does not add to."""
    del runs
    if not bootstraps:
        return []
    folder = HERE / "openfhe"
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        versions = (Path.home() / ".pyenv" / "versions").glob("3.10.*/bin/python3.10")
        base = next(map(str, sorted(versions, reverse=True)), "python3.10")
        printed([base, "-m", "venv", str(folder / "venv")], where=folder)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    printed([*pip, "-r", "requirements.txt"], where=folder)
    found = []
    for degree in BOOTSTRAP_SETS["openfhe"]:
        command = [str(python), str(folder / "bootstrap.py"), str(bootstraps), degree]
        found += lines(command, OMP_NUM_THREADS="1")
    return found


def ours(has_operations: bool, has_bootstraps: bool) -> Iterator[Any]:
    """What ``hushtable bench ckks`` prints of each comparison."""
    shapes = [
        {"operation": operation, "degree": degree, "limbs": limbs}
        for operation, degree, limbs in (COMPARED if has_operations else ())
    ]
    for degree, slots in BOOTSTRAPS if has_bootstraps else ():
        shapes.append({"operation": "bootstrap", "degree": degree, "slots": slots})
    for shape in shapes:
        options = [text for name, value in shape.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "hushtable", "bench", "ckks", *options]
        text = printed(pinned([*command, "--threads", "1", "--json"]), where=HERE)
        yield {**shape, "found": json.loads(text)}


def compare(own: list[Any], peers: dict[str, list[Any]]) -> list[Any]:
    """One entry a comparison: the least time, and how many times as long each peer takes.

    Of a peer's bootstraps, the set that takes the least time at the degree is compared.
    """
    rows = []
    for one in own:
        row = {key: value for key, value in one.items() if key != "found"}
        row["ms"] = one["found"]["value"]
        if one["operation"] == "bootstrap":
            detail = one["found"]["detail"]
            bits = {"mean_bits": detail["random_mean_bits"]}
            row |= {name: detail[name] for name in ("levels_left", "key_bytes")} | bits
        for name, found in peers.items():
            same = [
                entry
                for entry in found
                if (entry["operation"], entry["degree"]) == (one["operation"], one["degree"])
            ]
            if not same:
                continue
            least = min(same, key=lambda entry: entry["best_ms"])
            row[f"{name}_ms"] = least["best_ms"]
            row[f"{name}_ratio"] = least["best_ms"] / row["ms"]
            if one["operation"] == "bootstrap":
                for fact in ("set", "levels_left", "key_bytes", "mean_bits"):
                    row[f"{name}_{fact}"] = least[fact]
        rows.append(row)
    return rows


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="counted runs of each operation")
    parser.add_argument("--bootstraps", type=int, default=0, help="counted runs of each bootstrap")
    parser.add_argument("--only", choices=list(BOOTSTRAP_SETS), help="one peer, and not us")
    parser.add_argument(
        "--out",
        type=Path,
        help="default: bench/results/peers-DATE.json, or peers-bootstrap-DATE.json",
    )
    options = parser.parse_args()
    if min(options.runs, options.bootstraps) < 0:
        parser.error("--runs and --bootstraps must be at least 0")
    if options.runs == options.bootstraps == 0:
        parser.error("--runs 0 without --bootstraps measures nothing: give either at least 1")
    peers: dict[str, list[Any]] = {}
    missing: dict[str, str] = {}
    for name, measure in {"lattigo": lattigo, "poulpy": poulpy, "openfhe": openfhe}.items():
        if options.only in (None, name):
            try:
                peers[name] = measure(options.runs, options.bootstraps)
            except Missing as error:
                missing[name] = str(error)
                print(f"left out: {error}", file=sys.stderr)
    if options.only:
        print(json.dumps(peers, indent=2))
        return 1 if missing else 0
    try:
        own = list(ours(options.runs > 0, options.bootstraps > 0))
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    # Without the other operations it is no successor of a file that has them.
    name = "peers" if options.runs else "peers-bootstrap"
    out = options.out or RESULTS / f"{name}-{today}.json"
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
