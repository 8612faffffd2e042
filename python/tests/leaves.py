"""A run fails where a test leaves something behind, and the test is named.

What is looked for once all fixtures are gone: child processes, and theirs; sockets that this
process listens at; files and folders in the repository; and, directly under the folder for
temporary files, those of ours, by their prefix. Under pytest-xdist each worker looks for its own,
in a temporary folder of its own, and the run fails with any of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: What is there, by its name, and the test that it is known to be of.
Found = dict[str, str | None]
#: Begins the names of what the product makes in the folder for temporary files.
PREFIX = "hushtable"
#: In the environment of every process that a worker starts, and of theirs.
MARK = "PYTEST_LEAVES_OF"
#: What ends may take so long to be gone; only a run that has something left waits.
GRACE_S = float(os.environ.get("PYTEST_LEAVES_GRACE_S", "30"))
#: What tools keep in the repository.
_TOOLS = {"__pycache__", "target", "site", "build", "dist"}
#: Python's own, which lives as long as the process that needs it.
_PYTHONS = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


class Leaves:
    """What was there before, and which test was the first to show what was not."""

    def __init__(self, repository: Path) -> None:
        self.mark = uuid.uuid4().hex
        self._root = tempfile.gettempdir()
        self._known: dict[str, Found] = {}
        # A short name: sockets are made in it, whose paths have 107 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="t"))
        self._ways = {
            "the process": _Kind(self._processes),
            "the socket": _Kind(_Sockets().listening),
            "the file": _Kind(_Tree(repository).found),
            "the temporary file": _Kind(self._temporary),
        }

    def enter(self) -> None:
        """From here on, for this process and all that it starts."""
        os.environ[MARK] = self.mark
        # Folders of tests, which pytest keeps for a while, are where they always are.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", self._root)
        self._before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(self.folder)
        tempfile.tempdir = None
        for kind in self._ways.values():
            kind.begin()

    def leave(self) -> None:
        del os.environ[MARK]
        os.environ.pop("TMPDIR")
        if self._before is not None:
            os.environ["TMPDIR"] = self._before
        tempfile.tempdir = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def look(self, test: str) -> None:
        """After a test: what is new is this one's."""
        for kind in self._ways.values():
            kind.look(test)

    def left(self) -> list[str]:
        """What is there still, and which tests left it."""
        by = time.monotonic() + GRACE_S
        while True:
            found = [
                f"{name} {what}, left by {test}"
                for name, kind in self._ways.items()
                for what, test in kind.left()
            ]
            if not found or time.monotonic() > by:
                return found
            time.sleep(0.05)

    def _processes(self, anew: bool) -> Found:
        """Those that this process has started, or that have what it marks them with."""
        own, known = str(os.getpid()), {} if anew else self._known
        pids = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        self._known = {
            pid: known[pid] if pid in known else self._process(pid) for pid in pids if pid != own
        }
        return {what: test for found in self._known.values() for what, test in found.items()}

    def _process(self, pid: str) -> Found:
        path = Path("/proc") / pid
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            marks = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes()
        except OSError:
            return {}
        is_marked = f"{MARK}={self.mark}".encode() in marks
        is_ours = is_marked or int(parent) == os.getpid()
        if state in "ZX" or not is_ours or any(one in command for one in _PYTHONS):
            return {}
        tests = [one for one in marks if one.startswith(b"PYTEST_CURRENT_TEST=")]
        said = " ".join(command.decode(errors="replace").split("\0"))[:200].strip()
        test = tests[0].decode().partition("=")[2] if is_marked and tests else None
        return {f"{pid} ({said})": test}

    def _temporary(self, anew: bool) -> Found:
        names = (path.name for path in self.folder.iterdir())
        return {
            str(self.folder / name): None for name in names if name.lstrip(".").startswith(PREFIX)
        }


class _Kind:
    """One kind of thing that is left."""

    def __init__(self, find: Callable[[bool], Found]) -> None:
        #: All of it; unless it is asked for anew, it may go by what it has seen before.
        self._find = find
        self._before: set[str] = set()
        self._first: dict[str, str] = {}

    def begin(self) -> None:
        self._before = set(self._find(True))

    def look(self, test: str) -> None:
        for what, known in self._find(False).items():
            if what not in self._before:
                self._first.setdefault(what, known or test)

    def left(self) -> Iterator[tuple[str, str]]:
        for what, known in self._find(True).items():
            if what not in self._before:
                yield what, self._first.get(what) or known or "the end of a fixture"


class _Tree:
    """Paths of the repository, but for those of tools."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, tuple[int, list[os.DirEntry[str]]]] = {}

    def found(self, anew: bool) -> Found:
        """Reads the folders alone that have changed: it is asked after every test."""
        found: Found = {}
        waiting = [str(self._root)]
        while waiting:
            folder = waiting.pop()
            try:
                changed = os.stat(folder).st_mtime_ns  # noqa: PTH116
                known = self._folders.get(folder)
                if known is None or known[0] != changed:
                    known = (changed, [one for one in os.scandir(folder) if not _is_a_tools(one)])
                    self._folders[folder] = known
            except OSError:  # gone since
                self._folders.pop(folder, None)
                continue
            for one in known[1]:
                found[one.path] = None
                if one.is_dir(follow_symlinks=False):
                    waiting.append(one.path)
        return found


def _is_a_tools(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") or entry.name in _TOOLS


class _Sockets:
    """Those that this process listens at."""

    def __init__(self) -> None:
        self._own: set[str] = set()
        self._listening: Found = {}

    def listening(self, anew: bool) -> Found:
        own = set()
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                own.add(os.readlink(path))  # noqa: PTH115
        own = {name for name in own if name.startswith("socket:")}
        # A socket that has been seen may listen since: the last look is anew.
        if anew or own != self._own:
            self._own, self._listening = own, dict.fromkeys(_listening(own))
        return self._listening


def _listening(own: set[str]) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                    port = int(words[1].rpartition(":")[2], 16)
                    yield f"that listens at port {port} (inode {words[9]})"
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            words = line.split()
            # __SO_ACCEPTCON
            if int(words[3], 16) & 0x10000 and f"socket:[{words[6]}]" in own:
                yield f"that listens at {words[7:]} (inode {words[6]})"


class LeavesPlugin:
    """pytest's side of it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: list[str] = []
        workers = getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
        self._leaves = None if workers else Leaves(Path(config.rootpath))
        if self._leaves is not None:
            self._leaves.enter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        found = yield
        if self._leaves is not None:
            self._leaves.look(item.nodeid)
        return found

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._found += getattr(node, "workeroutput", {}).get("leaves", [])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._leaves is not None:
            self._found += self._leaves.left()
            self._leaves.leave()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["leaves"] = self._found
        elif self._found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._found:
            terminalreporter.section("left behind", red=True, bold=True)
            for line in self._found:
                terminalreporter.line(line, red=True)
