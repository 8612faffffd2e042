"""The model as a bundle, and its two servers as processes of their own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hushtable
from hushtable import Certificates, ServerProcess

from .checkpoint import state_dict, write_safetensors
from .training import Trained

#: Ids of a categorical column in an impression.
MAX_IDS = 1


def build(trained: Trained, folder: Path) -> Path:
    """Writes a checkpoint and, by the command, the model bundle made of it; returns the bundle.

    Raises:
        hushtable.Error: the command failed.
    """
    checkpoint, bundle = folder / "dlrm.safetensors", folder / "dlrm"
    write_safetensors(checkpoint, state_dict(trained))
    command = [sys.executable, "-m", "hushtable", "model", "build", str(checkpoint)]
    command += ["-o", str(bundle), "--tables", "emb_l.*", "--max-ids", str(MAX_IDS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise hushtable.Error(f"`hushtable model build` failed: {done.stderr or done.stdout}")
    return bundle


@dataclass(frozen=True)
class Pair:
    """The left and the right server, running, and what a client needs to trust them."""

    left: ServerProcess
    right: ServerProcess
    certificates: Certificates

    def connect(self, bundle: Path) -> hushtable.ModelClient:
        """A client that accepts this model and no other."""
        return hushtable.connect(
            self.left.url, self.right.url, tls=self.certificates.ca, model=bundle
        )


@contextlib.contextmanager
def start(bundle: Path, folder: Path) -> Iterator[Pair]:
    """Both servers over the same bundle, with TLS certificates made in ``folder``."""
    certificates = hushtable.make_certificates(folder / "certificates")
    with (
        ServerProcess(bundle, "left", tls=certificates.server) as left,
        ServerProcess(bundle, "right", tls=certificates.server) as right,
    ):
        yield Pair(left, right, certificates)
