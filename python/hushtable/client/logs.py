"""The log of clients: connections, retries, refusals, new versions. Never an id, a key or a row.

The logger is ``hushtable.client``. It writes nothing until the program says where to. A lookup that
goes well is no event, so that it costs nothing.

The program's handlers run on a thread of their own: what is met is told where connections are
served, and a handler that waits would hold up all calls of a client, past their time.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import traceback

from .. import _native

__all__ = ["again", "changed", "connected", "drain", "refused"]

_VERSION_CHARS = 16
#: How long a program that ends waits for its handlers.
_END_S = 1.0
_log = logging.getLogger("hushtable.client")
_log.addHandler(logging.NullHandler())


class _Later:
    """What is still to be logged, in order, and the thread that does it."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[int, str, tuple[object, ...]] | threading.Event]
        self._waiting = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def log(self, level: int, text: str, *args: object) -> None:
        if not _log.isEnabledFor(level):
            return
        self._waiting.put((level, text, args))
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="hushtable-log", daemon=True)
                thread.start()
                self._thread = thread

    def drain(self, seconds: float) -> None:
        if self._thread not in (None, threading.current_thread()):
            done = threading.Event()
            self._waiting.put(done)
            done.wait(seconds)

    def _run(self) -> None:
        while True:
            one = self._waiting.get()
            if isinstance(one, threading.Event):
                one.set()
                continue
            level, text, args = one
            try:
                _log.log(level, text, *args)
            # A handler of the program's own: the next message may go well.
            except Exception:
                if logging.raiseExceptions:
                    traceback.print_exc()


_later = _Later()


def _forked() -> None:
    # The thread stayed with the parent.
    global _later
    _later = _Later()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(lambda: drain(_END_S))
_native.watch_clients()


def drain(seconds: float = 10.0) -> None:
    """Waits until what was met so far is logged."""
    _later.drain(seconds)


def connected(urls: object, kind: str, name: str, version: str) -> None:
    """A client has connected, or has connected anew elsewhere."""
    short = version[:_VERSION_CHARS]
    _later.log(logging.INFO, "connected to %s by %s: %r, version %s", urls, kind, name, short)


def changed(urls: object, name: str, old: str, new: str) -> None:
    """The servers hold another version than before."""
    old, new = old[:_VERSION_CHARS], new[:_VERSION_CHARS]
    _later.log(logging.INFO, "%s: %r has changed from version %s to %s", urls, name, old, new)


def refused(url: str, reason: str) -> None:
    """A server refused a request; the native module says so as it happens."""
    _later.log(logging.WARNING, "%s refused a request: %s", url, reason)


def again(url: str, reason: str, attempt: int) -> None:
    """A request is made again, or another in its place; the native module says so."""
    _later.log(logging.WARNING, "%s is asked after %s: attempt %d", url, reason, attempt)
