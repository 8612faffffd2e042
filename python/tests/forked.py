"""A client in a process that forks: `python forked.py NAME CONNECT.json WEIGHT.npy`.

A test's process may hold threads of others (JAX starts some), which a fork leaves behind.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from waiting import COMMAND_HUNG_S

import hushtable


def run(name: str, weight: np.ndarray, folder: Path, *servers: str, **options: Any) -> None:
    """Runs the case of this name against the servers."""
    np.save(folder / "weight.npy", weight)
    (folder / "connect.json").write_text(json.dumps([servers, options], default=str))
    files = [folder / "connect.json", folder / "weight.npy"]
    # A warning ends it, but for the interpreter's own that threads and forks do not go together.
    flags = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *flags, __file__, name, *files],
        capture_output=True,
        text=True,
        timeout=COMMAND_HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{name}: both go on\n"


def once(client: hushtable.Client, weight: np.ndarray) -> None:
    assert np.array_equal(client.lookup([1, 2]), weight[[1, 2]])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            same = np.array_equal(client.lookup([3, 4, 5]), weight[[3, 4, 5]])
            code = 0 if same else 2
            os.write(write, str(client.info.rows).encode())
        finally:
            os._exit(code)
    for _ in range(20):
        assert np.array_equal(client.lookup([6, 7]), weight[[6, 7]])
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert os.read(read, 10) == str(len(weight)).encode()
    # The child's end must not have closed the parent's connections.
    assert np.array_equal(client.lookup([8]), weight[[8]])


_pool_client: hushtable.Client


def _look_up_in_a_worker(ids: list[int]) -> np.ndarray:
    return _pool_client.lookup(ids)


def pool(client: hushtable.Client, weight: np.ndarray) -> None:
    global _pool_client
    _pool_client = client
    work = [[i, i + 1] for i in range(30)]
    with multiprocessing.get_context("fork").Pool(3) as workers:
        for ids, rows in zip(work, workers.map(_look_up_in_a_worker, work), strict=True):
            assert np.array_equal(rows, weight[ids])
    assert np.array_equal(client.lookup([8]), weight[[8]])


def main() -> None:
    name, connect, weight = sys.argv[1:]
    servers, given = json.loads(Path(connect).read_text())
    with hushtable.connect(*servers, **given) as client:
        {"once": once, "pool": pool}[name](client, np.load(weight))
    print(f"{name}: both go on")


if __name__ == "__main__":
    main()
