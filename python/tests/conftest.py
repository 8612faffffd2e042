"""One table and its two real servers, over TLS on loopback, for the whole run."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks
from leaves import LeavesPlugin
from order import OrderPlugin
from shuffle import shuffle_of_environment
from waiting import LONG_WINDOW_US

import hushtable

ROWS, DIM = 3000, 24

# A shell starts jobs in the background with Ctrl-C ignored, and children inherit that: the tests
# that interrupt a child would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    # Registered, they are for the tests of other folders too.
    config.pluginmanager.register(LeavesPlugin(config), "hushtable-leaves")
    order = shuffle_of_environment() or OrderPlugin()
    config.pluginmanager.register(order, "hushtable-order")


def pytest_collection_finish() -> None:
    # What thousands of tests and their imports are made of stays to the end: the garbage collector
    # would look through it again and again, for a tenth of the time that tests take.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What this machine keeps of what was used goes into a folder of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STATE_DIRECTORY", raising=False)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def ended(state: None) -> Iterator[None]:
    """What commands are forked from goes with the run."""
    yield
    forks.close()


@dataclass(frozen=True)
class Deployment:
    """A table, the bundle it is in, and the two servers of it."""

    weight: np.ndarray
    bundle: Path
    certificates: hushtable.Certificates
    left: hushtable.ServerProcess
    right: hushtable.ServerProcess

    def connect(self, **given: Any) -> hushtable.Client:
        """A client; ``given`` are arguments and options alike."""
        names = [field.name for field in fields(hushtable.ClientOptions) if field.name in given]
        options = hushtable.ClientOptions(**{name: given.pop(name) for name in names})
        given = {"tls": self.certificates.ca, **given}
        return hushtable.connect(self.left.url, self.right.url, options=options, **given)

    def waiting(self, **limits: Any) -> hushtable.ServerProcess:
        """A left server whose pass waits for more keys than come; ``limits`` are its settings."""
        tls = self.certificates.server
        limits = {"threads": 1, "window_us": LONG_WINDOW_US, **limits}
        return hushtable.ServerProcess(self.bundle, "left", tls=tls, **limits)


@pytest.fixture(scope="session")
def weight() -> np.ndarray:
    return np.random.default_rng(11).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture(scope="session")
def bundle(weight: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "films"
    hushtable.Table.from_weight(weight, name="films").save(path)
    return path


@pytest.fixture(scope="session")
def other_bundle(weight: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shape with other content: another version."""
    path = tmp_path_factory.mktemp("bundles") / "films"
    hushtable.Table.from_weight(weight + 1, name="films").save(path)
    return path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> hushtable.Certificates:
    return hushtable.make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def deployment(
    weight: np.ndarray, bundle: Path, certificates: hushtable.Certificates
) -> Iterator[Deployment]:
    tls = certificates.server
    with (
        hushtable.ServerProcess(bundle, "left", tls=tls, threads=1) as left,
        hushtable.ServerProcess(bundle, "right", tls=tls, threads=1) as right,
    ):
        yield Deployment(weight, bundle, certificates, left, right)


@pytest.fixture(scope="module")
def client(deployment: Deployment) -> Iterator[hushtable.Client]:
    with deployment.connect() as client:
        yield client
