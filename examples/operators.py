"""The two servers that compute a model on shares, each of an operator of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hushtable
from hushtable import TlsConfig, infer, make_certificates


@dataclass(frozen=True)
class Operators:
    """Left and right, running, and how a client checks that each is the one that it names.

    Attributes:
        left, right: a process each.
        tls: the authority of each operator, trusted for its own side alone.
    """

    left: infer.ServerProcess
    right: infer.ServerProcess
    tls: TlsConfig

    def connect(self, version: str) -> infer.SharesClient:
        """A client that accepts this version of the model and no other."""
        return hushtable.connect(
            self.left.url,
            self.right.url,
            scheme="shares",
            tls=self.tls,
            version=version,
            options=hushtable.ClientOptions(timeout=60),
        )


@contextlib.contextmanager
def start(bundle: Path, folder: Path, between: Callable[[str], str] = str) -> Iterator[Operators]:
    """Both servers over copies of a compiled bundle, on loopback.

    Each operator has an authority of its own: its clients and the other operator's server trust it,
    and nobody can vouch for both sides. The certificates are made in ``folder``. Left
    reaches right by what ``between`` makes of right's URL.
    """
    left, right = (make_certificates(folder / side, side=side) for side in ("left", "right"))
    with (
        infer.ServerProcess(bundle, side="right", tls=right.peer, peer_ca=left.ca) as second,
        infer.ServerProcess(
            bundle,
            side="left",
            tls=left.server,
            peer=between(second.url),
            peer_ca=right.ca,
            peer_cert=left.peer_certificate,
            peer_key=left.peer_key,
        ) as first,
    ):
        yield Operators(first, second, TlsConfig(left_ca=left.ca, right_ca=right.ca))
