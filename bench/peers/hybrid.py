"""Times hybrid inference beside SPU with Cheetah, in one run on one machine.

    .venv/bin/python bench/peers/hybrid.py [--network resnet32|resnet18 ...] [--runs 2] [--out FILE]

Either is two processes that speak over loopback, and has the whole machine. SPU 0.9.5 is installed
from PyPI into bench/peers/spu/venv; nothing of hushtable depends on it. It has no offline phase:
what it takes is held against both phases of ours. Of its runs the last counts, which has no set-up.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
SPU = HERE / "spu"
_BYTES = re.compile(r"total send bytes (\d+), recv bytes (\d+)")


class Missing(Exception):
    """A peer that cannot be installed or run here; the text says why."""


def installed() -> Path:
    """SPU's own Python, made on first use."""
    python = SPU / "venv" / "bin" / "python"
    if not python.exists():
        # Its wheels are for Python 3.10 and 3.11.
        commands = [
            [sys.executable, "-m", "venv", str(SPU / "venv")],
            [str(python), "-m", "pip", "install", "--quiet", "-r", str(SPU / "requirements.txt")],
        ]
        for command in commands:
            try:
                subprocess.run(command, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise Missing(f"{' '.join(command)}: {error}") from error
    return python


def free_ports() -> list[str]:
    """Two that nothing listens on."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in (one, two)]


def spu(network: str, size: int, runs: int) -> list[Any]:
    """Each run's seconds, bytes of both ways, and how far the answer is from the float one."""
    python = installed()
    ports = free_ports()

    def party(rank: int) -> subprocess.Popen[str]:
        command = [str(python), str(SPU / "party.py"), str(rank), network, str(size), *ports]
        out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        return subprocess.Popen(
            [*command, str(runs)], stdout=out, stderr=subprocess.STDOUT, text=True
        )

    server, client = party(0), party(1)
    try:
        said, _ = server.communicate(timeout=3600)
        client.wait(timeout=60)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"SPU did not end: {error}") from error
    finally:
        for each in (server, client):
            if each.poll() is None:
                each.kill()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"run"')]
    if len(lines) != runs:
        raise Missing(f"SPU made {len(lines)} of {runs} runs: {said[-2000:]}")
    for line, (sent, received) in zip(lines, _BYTES.findall(said)[-runs:], strict=False):
        line["bytes"] = int(sent) + int(received)
    return lines


def ours(network: str, size: int, garbler: str, runs: int) -> Any:
    """What ``hushtable bench hybrid --json`` prints."""
    command = [sys.executable, "-m", "hushtable", "bench", "hybrid", "--network", network]
    command += ["--size", str(size), "--garbler", garbler, "--runs", str(runs), "--json"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--network", action="append", choices=["resnet32", "resnet18"], help="default: both"
    )
    parser.add_argument("--size", type=int, default=32, choices=[32, 64])
    parser.add_argument("--runs", type=int, default=2, help="of each")
    parser.add_argument("--out", type=Path, help="default: bench/results/peers-hybrid-DATE.json")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    compared: list[Any] = []
    missing = ""
    for network in options.network or ["resnet32", "resnet18"]:
        line: dict[str, Any] = {"network": network, "size": options.size}
        for garbler in ("server", "client"):
            line[garbler] = ours(network, options.size, garbler, options.runs)
        try:
            line["spu"] = spu(network, options.size, options.runs)
            theirs = line["spu"][-1]["seconds"]
            for garbler in ("server", "client"):
                line[f"ratio_{garbler}"] = theirs / line[garbler]["value"]
        except Missing as error:
            missing = str(error)
            print(f"left out: {error}", file=sys.stderr)
        compared.append(line)
    out = options.out or RESULTS / f"peers-hybrid-{today}.json"
    document = {
        "date": today,
        "platform": platform.platform(),
        "load": os.getloadavg()[0],
        "missing": missing,
        "compared": compared,
    }
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
