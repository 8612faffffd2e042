"""What a lookup through the gateway costs beside one by the client directly, on one machine.

    .venv/bin/python bench/gateway.py [--seconds 0.5] [--out FILE]

Two servers of one table, a gateway and this load share the machine. In turns, by each way and with
as many askers as listed, every asker makes single lookups one after the other. The result has each
way's lookups a second and their ratio of the same run, the median of its rounds and the quartiles;
and the processor time that a lookup takes of this process directly, and of the gateway's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from run import machine

import hushtable

ROWS, DIM = 4096, 32
ASKERS, ROUNDS = (1, 16), 25
Ask = Callable[[int], Awaitable[None]]


async def count(asks: list[Ask], seconds: float) -> tuple[int, float]:
    """Lookups of all askers, and the seconds that they took."""
    end = time.monotonic() + seconds

    async def one(ask: Ask, number: int) -> int:
        made = 0
        while time.monotonic() < end:
            await ask((number + made) % ROWS)
            made += 1
        return made

    began = time.monotonic()
    counts = await asyncio.gather(*(one(ask, number) for number, ask in enumerate(asks)))
    return sum(counts), time.monotonic() - began


def processor_seconds(pid: int) -> float:
    """What a process has used of processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def over_http(port: int, weight: np.ndarray) -> Ask:
    """One connection that is kept; its first reply is checked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(number: int) -> None:
        body = b'{"ids": %d}' % number
        writer.write(
            b"POST /v1/lookup HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        replied = await reader.readexactly(length)
        if number == 0:
            rows = np.array(json.loads(replied)["rows"], np.float32)
            assert np.array_equal(rows, weight[:1]), "another row"

    await ask(0)
    return ask


async def measure(
    urls: tuple[str, str], port: int, pid: int, weight: np.ndarray, seconds: float
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    async with await hushtable.connect_async(*urls) as client:

        async def directly(number: int) -> None:
            await client.lookup(number)

        for askers in ASKERS:
            ways = {
                "client": ([directly] * askers, os.getpid()),
                "gateway": ([await over_http(port, weight) for _ in range(askers)], pid),
            }
            rates: dict[str, list[float]] = {way: [] for way in ways}
            used, made = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
            for _ in range(ROUNDS):
                for way, (asks, of) in ways.items():
                    before = processor_seconds(of)
                    lookups, took = await count(asks, seconds)
                    used[way] += processor_seconds(of) - before
                    made[way] += lookups
                    rates[way].append(lookups / took)
            ratios = [a / b for a, b in zip(rates["gateway"], rates["client"], strict=True)]
            low, ratio, high = statistics.quantiles(ratios, n=4)
            found[str(askers)] = {
                **{f"{way}_per_s": statistics.median(rates[way]) for way in ways},
                **{f"{way}_processor_us": used[way] / made[way] * 1e6 for way in ways},
                "ratio": ratio,
                "ratio_quartiles": [low, high],
            }
    return found


def main() -> None:
    """Runs it and prints, or writes, the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    weight = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        bundle = Path(folder) / "films"
        hushtable.Table.from_weight(weight, name="films").save(bundle)
        with (
            hushtable.ServerProcess(bundle, "left", threads=1, window_us=0) as left,
            hushtable.ServerProcess(bundle, "right", threads=1, window_us=0) as right,
        ):
            command = [sys.executable, "-m", "hushtable", "gateway", "--addr", "127.0.0.1:0"]
            command += ["--left", left.url, "--right", right.url, "--json"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
                assert gateway.stdout is not None
                try:
                    port = int(json.loads(gateway.stdout.readline())["url"].rpartition(":")[2])
                    urls = (left.url, right.url)
                    found = asyncio.run(measure(urls, port, gateway.pid, weight, given.seconds))
                finally:
                    gateway.send_signal(signal.SIGTERM)
    result = {
        "bench": "gateway",
        "params": {"rows": ROWS, "dim": DIM, "seconds": given.seconds, "rounds": ROUNDS},
        "askers": found,
        "load_average": os.getloadavg()[0],
    }
    record = {"machine": machine(), "results": [result]}
    text = json.dumps(record, indent=1)
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
