"""What a server process spends while it is loaded: processor time and switches of threads."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: The part of the measured time that is looked at, without its start and its end.
_FROM, _TO = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class _Sample:
    """What a process had spent at a time, and what this process had."""

    at: float
    run_s: float
    user_ticks: int
    system_ticks: int
    switches: int
    clients_s: float


@contextmanager
def spending(pid: int, warmup: float, seconds: float) -> Iterator[dict[str, float]]:
    """What the process spends a second, filled in at the end.

    ``run_s``, ``user_s`` and ``system_s`` are of its processor time, ``switches`` are its threads',
    ``clients_s`` is this process's time. The load begins with the block: ``warmup`` and then
    ``seconds`` of it.
    """
    samples: list[_Sample] = []

    def look() -> None:
        start = time.monotonic()
        for part in (_FROM, _TO):
            time.sleep(max(0.0, start + warmup + part * seconds - time.monotonic()))
            samples.append(_sample(pid))

    looking = threading.Thread(target=look, daemon=True)
    found: dict[str, float] = {}
    looking.start()
    yield found
    looking.join()
    first, last = samples
    took = last.at - first.at
    run = (last.run_s - first.run_s) / took
    user = last.user_ticks - first.user_ticks
    system = last.system_ticks - first.system_ticks
    # The kernel counts the two in ticks of 10 ms: their ratio is theirs, their sum is the clock's.
    user_part = user / max(user + system, 1)
    found.update(
        run_s=run,
        user_s=run * user_part,
        system_s=run * (1 - user_part),
        switches=(last.switches - first.switches) / took,
        clients_s=(last.clients_s - first.clients_s) / took,
    )


def a_request(spent: Mapping[str, float], requests_per_s: float) -> dict[str, float]:
    """The same for one request, in microseconds: fields of a record's detail."""
    per_s = max(requests_per_s, 1e-9)
    return {
        "server_cpu_us": spent["run_s"] / per_s * 1e6,
        "server_user_us": spent["user_s"] / per_s * 1e6,
        "server_system_us": spent["system_s"] / per_s * 1e6,
        "server_switches": spent["switches"] / per_s,
        "server_busy": spent["run_s"],
        "clients_cpu_us": spent["clients_s"] / per_s * 1e6,
        "clients_busy": spent["clients_s"],
    }


def _sample(pid: int) -> _Sample:
    run_ns, switches = 0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        run_ns += int(task.joinpath("schedstat").read_text().split()[0])
        for line in task.joinpath("status").read_text().splitlines():
            name, _, count = line.partition(":")
            if name.endswith("voluntary_ctxt_switches"):
                switches += int(count)
    # After the command's name, which may hold spaces: utime and stime are the 12th and 13th.
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = resource.getrusage(resource.RUSAGE_SELF)
    return _Sample(
        at=time.monotonic(),
        run_s=run_ns / 1e9,
        user_ticks=int(fields[11]),
        system_ticks=int(fields[12]),
        switches=switches,
        clients_s=own.ru_utime + own.ru_stime,
    )


def usable_cpus() -> tuple[set[int], set[int]]:
    """A core for the server, and one for the clients."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, {usable[-1]}
