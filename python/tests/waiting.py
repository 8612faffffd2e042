"""What tests wait for: states, each within a limit that is there for what hangs alone.

No limit here says how fast anything is: on a machine under load all of it may take ten times as
long as on one that is idle.
"""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")

#: What takes longer hangs: of a wait, and of a whole command.
HUNG_S, COMMAND_HUNG_S = 60.0, 600.0
#: The longest that a server waits for company. No test outlasts it: each brings what ends the wait.
LONG_WINDOW_US = 60_000_000


def until(condition: Callable[[], Found], what: Any, seconds: float = HUNG_S) -> Found:
    """The first true value of ``condition``.

    ``what`` is what is waited for, or a function that says how things are instead.
    """
    by = time.monotonic() + seconds
    while True:
        # Looked at first: the last look is after the time is up, however long this one stood still.
        is_over = time.monotonic() > by
        if found := condition():
            return found
        assert not is_over, f"after {seconds:g} s: {what() if callable(what) else what}"
        time.sleep(0.02)


def metric(metrics_url: str | None, name: str) -> float:
    """The sum of a server's samples of this name."""
    with urllib.request.urlopen(str(metrics_url), timeout=HUNG_S) as reply:
        lines = reply.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith((f"{name} ", f"{name}{{"))
    )


def until_waiting(server: Any, keys: int) -> None:
    """Until so many keys wait in the server for company."""
    until(
        lambda: metric(server.metrics_url, "hushtable_queue_keys") == keys,
        f"{keys} keys that wait at {server.url}",
    )


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port of 127.0.0.1 where nobody answers, unless a server of the test listens there.

    It is bound for as long as it is held, so that no other process is given it, and not listened
    at: who connects is refused. A server that is told this port may listen there all the same, as
    both have ``SO_REUSEADDR`` (or ``SO_REUSEPORT``), end, and listen there again.
    """
    with socket.socket() as held:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            held.setsockopt(socket.SOL_SOCKET, option, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def is_alive(pid: int) -> bool:
    """Whether the process runs: a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
