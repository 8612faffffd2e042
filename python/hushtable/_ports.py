"""Ports that servers have by default, and what is said where a port is not to be had."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ._printable import named
from .errors import Error

__all__ = ["AUTO", "RIGHT", "chosen", "said_of_ports"]

#: What an address is where nobody gives one: that of the side. So both start on one machine.
AUTO = "auto"
#: Of left, and of a server without a side; and of right.
LEFT = {"addr": "127.0.0.1:4000", "metrics_addr": "127.0.0.1:4001"}
RIGHT = {"addr": "127.0.0.1:5000", "metrics_addr": "127.0.0.1:5001"}

#: As the native module says it: the address, and what the system said.
_REFUSED = re.compile(r"could not listen on (\S+:(\d+)): (.*)", re.DOTALL)
_IN_USE = "Address already in use"


def chosen(name: str, given: str | None, side: Any) -> str | None:
    """An address as it was given, or that of the side."""
    return (RIGHT if side == "right" else LEFT)[name] if given == AUTO else given


@contextlib.contextmanager
def said_of_ports(settings: Mapping[str, Any]) -> Iterator[None]:
    """Within, an error of a port says which setting asked for it, who has it, and what to do.

    Args:
        settings: of the server: ``addr``, ``port``, ``metrics_addr``.
    """
    try:
        yield
    except Error as error:
        found = _REFUSED.fullmatch(str(error))
        if found is None:
            raise
        where, port, reason = found[1], int(found[2]), found[3]
        own = settings.get("port") or _port(settings.get("addr"))
        metrics = _port(settings.get("metrics_addr"))
        if own == metrics == port:
            told = "--addr and --metrics-addr have the same port: give one of them another"
            raise type(error)(f"could not listen on {where} twice: {told}") from error
        option = "--metrics-addr" if metrics == port else "--addr"
        if own == port and "port" in settings:
            option = "--port"
        raise type(error)(
            f"could not listen on {where} ({option}): {_why(reason, port)}"
        ) from error


def _why(reason: str, port: int) -> str:
    if not reason.startswith(_IN_USE):
        return reason
    holder = _holder(port)
    whose = "another process" if holder is None else f"process {holder[0]} ({holder[1]})"
    return f"it is in use by {whose}; end that, or give another port, 0 for any"


def _port(address: Any) -> int | None:
    text = str(address or "").rpartition(":")[2]
    return int(text) if text.isdecimal() else None


def _holder(port: int) -> tuple[int, str] | None:
    """The process that listens at a port, and its command line; None where none is seen."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or one that has ended
            if any(_link(file) in sockets for file in (folder / "fd").iterdir()):
                words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return int(folder.name), named(b" ".join(words).decode(errors="replace"))
    return None


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:  # closed since
        return ""


def _listening(port: int) -> Iterator[str]:
    """Inodes of sockets that listen at a port, of any address."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:  # no Linux
            return
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
