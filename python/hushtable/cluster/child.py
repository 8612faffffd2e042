"""A server as a child process: its start, what it says, how it is, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any

__all__ = ["Child", "Queue", "child_environment", "whole_command"]

_SAMPLE = re.compile(r"^(hushtable_[a-z_]+)(\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
#: What has a child end with the thread that starts it, where it has no flag of its own for that.
_BOUND = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "try: os.execvp(sys.argv[2], sys.argv[2:])\n"
    "except OSError as error: sys.exit(f'{sys.argv[2]}: {error}')\n"
)


def whole_command(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The command, or Python's own where ``hushtable`` is not on the path."""
    if list(command) != ["hushtable"]:
        return list(command)
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    if any(os.access(os.path.join(folder, "hushtable"), os.X_OK) for folder in folders):  # noqa: PTH118
        return list(command)
    return [sys.executable, "-m", "hushtable"]


def child_environment() -> dict[str, str]:
    """This process's, less what looks like settings of a server: those come from cluster.toml."""
    kept = ("HUSHTABLE_ISA", "HUSHTABLE_NVRTC")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HUSHTABLE_") or name in kept or name.startswith("HUSHTABLE_TEST_")
    }


class Queue:
    """Mean seconds that keys waited between two looks at a server's metrics."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float, float]] = deque()

    def look(self, now_s: float, seconds: float, count: float) -> None:
        """Notes the sum and the count of waits so far; a server that was started anew begins."""
        if self._looks and count < self._looks[-1][2]:
            self._looks.clear()
        self._looks.append((now_s, seconds, count))
        while len(self._looks) > 2 and self._looks[1][0] <= now_s - _QUEUE_OVER_S:
            self._looks.popleft()

    def mean_s(self) -> float | None:
        """The mean over the last half minute; None before the second look."""
        if len(self._looks) < 2:
            return None
        (_, first_s, first), (_, last_s, last) = self._looks[0], self._looks[-1]
        return (last_s - first_s) / (last - first) if last > first else 0.0


_QUEUE_OVER_S = 30.0


class Child:
    """A process of the command ``hushtable``, and what it printed.

    ``PR_SET_PDEATHSIG`` follows the *thread* that starts a child: what makes one of these
    must be a thread that lives as long as its process.

    Args:
        command: what to run; a server with ``--json --log-json``.
        bound: whether it ends with the thread from its first moment on; a server's own
            ``--exit-with-parent`` comes when it has read its arguments, half a second later.
    """

    def __init__(self, command: Sequence[str], *, bound: bool = False) -> None:
        if bound:
            command = [sys.executable, "-c", _BOUND, str(os.getpid()), *command]
        self.started_at = time.monotonic()
        self.ready: dict[str, Any] | None = None
        self.last_line = ""
        self.error: str | None = None
        #: The model's version that it says it loaded last, and how many it says it dropped.
        self.loaded: str | None = None
        self.dropped = 0
        self.is_answering_at = self.started_at
        self._said: deque[str] = deque(maxlen=8)
        self.process = subprocess.Popen(
            command,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        is_output = stream is self.process.stdout
        # To the end: a server whose pipe is full would stand still.
        with stream:
            for line in stream:
                record = _parse(line)
                if is_output:
                    self.last_line = line.strip() or self.last_line
                if record is None:
                    self._said.append(line.strip())
                elif record.get("event") == "ready":
                    self.ready = record
                elif isinstance(record.get("error"), dict):
                    self.error = str(record["error"].get("message"))
                else:
                    self._log(record)
                # The actor's own log is what Ray shows of it.
                print(line, end="", file=sys.stderr)

    def _log(self, record: Mapping[str, Any]) -> None:
        fields = record.get("fields")
        if not isinstance(fields, dict):
            return
        if "model" in fields and isinstance(fields.get("version"), str):
            self.loaded = fields["version"]
        if isinstance(fields.get("dropped"), int):
            self.dropped += fields["dropped"]
        if record.get("level") in ("ERROR", "WARN"):
            detail = fields.get("error") or fields.get("reason") or ""
            self._said.append(f"{fields.get('message')} {detail}".strip())

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def code(self) -> int | None:
        """What it ended with."""
        return self.process.poll()

    @property
    def last_warning(self) -> str:
        """What it complained of last; empty for nothing."""
        return self._said[-1] if self._said else ""

    def last_words(self) -> str:
        """Why it ended, as far as it said so."""
        for reader in self._readers:
            reader.join(timeout=1)
        return self.error or " / ".join(self._said) or self.last_line or "it said nothing"

    def asked(self, path: str, timeout_s: float = 2.0) -> tuple[int, str]:
        """Status and text of its second port; (0, reason) where nothing answers."""
        if self.ready is None or not self.ready.get("metrics_url"):
            return 0, "it is not ready"
        try:
            url = urllib.parse.urljoin(self.ready["metrics_url"], path)
            with urllib.request.urlopen(url, timeout=timeout_s) as got:
                status, text = got.status, got.read(8 << 20).decode(errors="replace")
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read(4096).decode(errors="replace")
        except (OSError, ValueError) as error:
            return 0, str(error)
        self.is_answering_at = time.monotonic()
        return status, text

    def terminate(self) -> None:
        """Asks it to answer what is under way and end."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it now."""
        self.process.kill()
        self.process.wait()


def samples(text: str) -> dict[tuple[str, str], float]:
    """Metrics by their names and labels, histograms' buckets left out."""
    found = {}
    for name, labels, value in _SAMPLE.findall(text):
        if not name.endswith("_bucket"):
            found[name, labels] = float(value)
    return found


def _parse(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
