"""Two real servers over one bundle: what both parts of the demo start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hushtable
from hushtable import Certificates, ServerProcess

from .model import Floats


class Mismatch(hushtable.Error):
    """A private lookup that did not give what is in the table."""


@dataclass(frozen=True)
class Pair:
    """The left and the right server, running, and what a client needs to trust them."""

    left: ServerProcess
    right: ServerProcess
    certificates: Certificates

    def connect(self, max_ids: int) -> hushtable.Client:
        """A client of both."""
        return hushtable.connect(
            left=self.left.url, right=self.right.url, tls=self.certificates.ca, max_ids=max_ids
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


def assert_same_bits(private: Floats, clear: Floats) -> None:
    """Raises Mismatch unless the two arrays are the same to the last bit, NaN included."""
    if private.shape != clear.shape or not np.array_equal(
        private.view(np.uint32), clear.view(np.uint32)
    ):
        raise Mismatch(
            f"rows fetched in private {private.shape} differ from the table's {clear.shape}:"
            " run `hushtable table verify` on the bundle, and please report it"
        )
