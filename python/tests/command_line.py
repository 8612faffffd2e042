"""The command as a process of its own that need not read its modules first.

A process reads them once, and each command is a fork of it: with its own arguments, environment,
standard streams, exit code and end, as ``python -m hushtable`` has them, half a second sooner.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waiting import COMMAND_HUNG_S

_FDS = 2
#: What commands read once they print a table, help or an error, or tune.
_ASKED_FOR = ("hushtable.tune", "html", "numpy.ma", "rich._emoji_codes", "typer.rich_utils")


class Forks:
    """The process that is forked, started at the first command."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def run(
        self, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``python -m hushtable ARGUMENTS``, from here unless ``cwd`` says otherwise.

        ``env`` is the whole environment, where it is not this process's. What is read while modules
        are imported is another's: :func:`plain` is for tests of that.
        """
        words = list(map(str, arguments))
        command = [sys.executable, "-m", "hushtable", *words]
        if not self._lock.acquire(blocking=False):  # another thread's takes its time
            return plain(command, cwd=cwd, env=env)
        try:
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                record = {
                    "arguments": words,
                    "env": dict(os.environ if env is None else env),
                    "cwd": str(Path.cwd() if cwd is None else cwd),
                }
                code = self._ask(record, [out.fileno(), err.fileno()])
                texts = []
                for file in (out, err):
                    file.seek(0)
                    # As a pipe's: lines end as they do everywhere.
                    texts.append(file.read().decode().replace("\r\n", "\n"))
                return subprocess.CompletedProcess(command, code, *texts)
        finally:
            self._lock.release()

    def _ask(self, record: dict[str, Any], files: list[int]) -> int:
        link = self._link()
        data = json.dumps(record).encode()
        socket.send_fds(link, [len(data).to_bytes(4)], files)
        link.sendall(data)
        if not select.select([link], [], [], COMMAND_HUNG_S)[0]:
            self.close(signal.SIGKILL)
            raise subprocess.TimeoutExpired(record["arguments"], COMMAND_HUNG_S)
        return int.from_bytes(_read(link, 4), signed=True)

    def _link(self) -> socket.socket:
        if self._socket is None:
            self._socket, other = socket.socketpair()
            with other:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(other.fileno())],
                    pass_fds=[other.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self._socket

    def close(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and a command that hangs."""
        if self._process is not None and self._socket is not None:
            os.killpg(self._process.pid, number)
            self._process.wait()
            self._socket.close()
            self._process = self._socket = None


def plain(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as whoever types it has it, with options of ``subprocess.run``."""
    options = {"capture_output": True, "text": True, "timeout": COMMAND_HUNG_S, **options}
    return subprocess.run(command, **options)


def _read(link: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        block = link.recv(count - len(found))
        if not block:
            raise EOFError
        found += block
    return found


def serve(link: socket.socket) -> None:
    """Forks for each command, and says how it ended."""
    import hushtable.cli

    # Read before the first fork, those too that a command reads once it is asked for.
    for module in pkgutil.iter_modules(hushtable.cli.__path__, "hushtable.cli."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
    for name in _ASKED_FOR:
        importlib.import_module(name)
    # Each fork would look through all of it for garbage, and copy its pages to do so.
    gc.collect()
    gc.freeze()
    while True:
        head, files, _, _ = socket.recv_fds(link, 4, _FDS)
        if not head:
            return
        head += _read(link, 4 - len(head))
        record = json.loads(_read(link, int.from_bytes(head)))
        child = os.fork()
        if child == 0:
            _become(link, record, files)
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def _become(link: socket.socket, record: dict[str, Any], files: list[int]) -> None:
    """The command, to its end."""
    import runpy

    link.close()
    for file, number in zip(files, (1, 2), strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(record["env"])
    os.chdir(record["cwd"])
    sys.argv = ["hushtable", *record["arguments"]]
    code: Any = 1
    try:
        runpy.run_module("hushtable", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
        if code is None:
            code = 0
        elif not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # What the interpreter does at its end, too: threads that are waited for, and functions.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


#: Of this run.
forks = Forks()


if __name__ == "__main__":
    # The folder of tests is no part of a command's path.
    sys.path.pop(0)
    serve(socket.socket(fileno=int(sys.argv[1])))
