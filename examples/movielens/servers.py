"""Real servers over one bundle, two or a single one: what both parts of the demo start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

import hushtable
from hushtable import Certificates, ServerProcess

from .model import Floats


class Mismatch(hushtable.Error):
    """A private lookup that did not give what is in the table."""


@dataclass(frozen=True)
class Wire:
    """Where, in what a server gets, the keys or queries of a request are.

    Attributes:
        queries_field: number of the protobuf field that holds them.
        sender_field: of the field that says under which uploaded keys they are; None without.
        header_bytes: the first bytes of each say what it is for (format, parameters, shape); they
            are the same for everyone. The rest is what could tell something.
    """

    queries_field: int
    sender_field: int | None
    header_bytes: int


class Served(Protocol):
    """What a table is asked from."""

    @property
    def certificates(self) -> Certificates:
        """What clients trust."""
        ...

    @property
    def wire(self) -> Wire:
        """How requests look."""
        ...

    @property
    def watched_url(self) -> str:
        """The server whose operator listens."""
        ...

    def connect(self, max_ids: int, watched_url: str | None = None) -> hushtable.Client:
        """A client, of another URL in place of the watched server's where one is given."""
        ...


@dataclass(frozen=True)
class Pair:
    """The left and the right server, running, and what a client needs to trust them."""

    left: ServerProcess
    right: ServerProcess
    certificates: Certificates
    wire: ClassVar[Wire] = Wire(queries_field=2, sender_field=None, header_bytes=8)

    @property
    def watched_url(self) -> str:
        """Left's."""
        return self.left.url

    def connect(self, max_ids: int, watched_url: str | None = None) -> hushtable.Client:
        """A client of both."""
        return hushtable.connect(
            left=watched_url or self.left.url,
            right=self.right.url,
            tls=self.certificates.ca,
            options=hushtable.ClientOptions(max_ids=max_ids),
        )


@dataclass(frozen=True)
class Single:
    """A single server, running, and what a client needs to trust it."""

    server: ServerProcess
    certificates: Certificates
    wire: ClassVar[Wire] = Wire(queries_field=3, sender_field=2, header_bytes=4)

    @property
    def watched_url(self) -> str:
        """There is no other."""
        return self.server.url

    def connect(self, max_ids: int, watched_url: str | None = None) -> hushtable.Client:
        """A client; made anew it has keys of its own."""
        return hushtable.connect(
            server=watched_url or self.server.url,
            scheme="onion",
            tls=self.certificates.ca,
            options=hushtable.ClientOptions(max_ids=max_ids),
        )


@contextlib.contextmanager
def start_pair(bundle: Path, folder: Path) -> Iterator[Pair]:
    """Both servers as processes of their own, with TLS certificates made in ``folder``."""
    certificates = hushtable.make_certificates(folder)
    with (
        ServerProcess(bundle, "left", tls=certificates.server) as left,
        ServerProcess(bundle, "right", tls=certificates.server) as right,
    ):
        yield Pair(left, right, certificates)


@contextlib.contextmanager
def start_single(bundle: Path, folder: Path, max_ids: int) -> Iterator[Single]:
    """One server as a process of its own, of a table that is prepared already."""
    certificates = hushtable.make_certificates(folder)
    with ServerProcess(
        bundle, scheme="onion", tls=certificates.server, queries_per_request_max=max_ids
    ) as server:
        yield Single(server, certificates)


def assert_same_bits(private: Floats, clear: Floats) -> None:
    """Raises Mismatch unless the two arrays are the same to the last bit, NaN included."""
    if private.shape != clear.shape or not np.array_equal(
        private.view(np.uint32), clear.view(np.uint32)
    ):
        raise Mismatch(
            f"rows fetched in private {private.shape} differ from the table's {clear.shape}:"
            " run `hushtable table verify` on the bundle, and please report it"
        )
