"""The log of clients: connections, retries, refusals, new versions. Never an id, a key or a row.

The logger is ``hushtable.client``. It writes nothing until the program says where to. A lookup that
goes well is no event, so that it costs nothing.
"""

from __future__ import annotations

import logging

from .. import _native

__all__ = ["again", "changed", "connected", "refused"]

_VERSION_CHARS = 16
_log = logging.getLogger("hushtable.client")
_log.addHandler(logging.NullHandler())
_native.watch_clients()


def connected(urls: object, kind: str, name: str, version: str) -> None:
    """A client has connected, or has connected anew elsewhere."""
    short = version[:_VERSION_CHARS]
    _log.info("connected to %s by %s: %r, version %s", urls, kind, name, short)


def changed(urls: object, name: str, old: str, new: str) -> None:
    """The servers hold another version than before."""
    old, new = old[:_VERSION_CHARS], new[:_VERSION_CHARS]
    _log.info("%s: %r has changed from version %s to %s", urls, name, old, new)


def refused(url: str, reason: str) -> None:
    """A server refused a request; the native module says so as it happens."""
    _log.warning("%s refused a request: %s", url, reason)


def again(url: str, reason: str, attempt: int) -> None:
    """A request is made again, or another in its place; the native module says so."""
    _log.warning("%s is asked after %s: attempt %d", url, reason, attempt)
