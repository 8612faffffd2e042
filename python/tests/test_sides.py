"""Two operators with an authority each: what one signs is taken from its own server alone."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from command_line import forks

import hushtable


@dataclass(frozen=True)
class Operators:
    """A server of each side, and what its operator has made."""

    left: hushtable.ServerProcess
    right: hushtable.ServerProcess
    of_left: hushtable.Certificates
    of_right: hushtable.Certificates

    @property
    def tls(self) -> hushtable.TlsConfig:
        return hushtable.TlsConfig(left_ca=self.of_left.ca, right_ca=self.of_right.ca)


@pytest.fixture(scope="module")
def operators(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    folders = [tmp_path_factory.mktemp(side) for side in ("left", "right")]
    made = [hushtable.make_certificates(folder) for folder in folders]
    with (
        hushtable.ServerProcess(bundle, "left", tls=made[0].server, threads=1) as left,
        hushtable.ServerProcess(bundle, "right", tls=made[1].server, threads=1) as right,
    ):
        yield Operators(left, right, *made)


def test_each_side_is_checked_by_its_own_authority(
    operators: Operators, weight: np.ndarray
) -> None:
    left, right = operators.left.url, operators.right.url
    with hushtable.connect(left, right, tls=operators.tls) as client:
        assert np.array_equal(client.lookup([3]), weight[[3]])
        copy = pickle.loads(pickle.dumps(client))
        assert np.array_equal(copy.lookup([4]), weight[[4]])
        copy.close()
    exchanged = hushtable.TlsConfig(left_ca=operators.of_right.ca, right_ca=operators.of_left.ca)
    with pytest.raises(hushtable.TlsError, match="UnknownIssuer"):
        hushtable.connect(left, right, tls=exchanged)


def test_one_operator_cannot_stand_in_for_the_other(
    operators: Operators, bundle: Path, tmp_path: Path
) -> None:
    """Left's operator signs a certificate for right's name, and answers as right."""
    left = operators.left.url
    both = tmp_path / "both.pem"
    both.write_text(operators.of_left.ca.read_text() + operators.of_right.ca.read_text())
    forged = operators.of_left.server
    with hushtable.ServerProcess(bundle, "right", tls=forged, threads=1) as stranger:
        # By one file with both authorities nothing is wrong with it.
        with hushtable.connect(left, stranger.url, tls=both) as client:
            client.lookup([3])
        with pytest.raises(hushtable.TlsError, match=f"{stranger.url}.*UnknownIssuer"):
            hushtable.connect(left, stranger.url, tls=operators.tls)


def test_the_command_takes_an_authority_for_each_side(operators: Operators) -> None:
    def lookup(*options: str | Path) -> subprocess.CompletedProcess[str]:
        urls = ("--left", operators.left.url, "--right", operators.right.url)
        return forks.run("lookup", "3", *urls, *options)

    sides = ("--left-ca", operators.of_left.ca, "--right-ca", operators.of_right.ca)
    assert lookup(*sides).returncode == 0
    for options in (sides[:2], (*sides, "--ca", operators.of_left.ca)):
        refused = lookup(*options)
        assert refused.returncode == 2
        assert "give --ca for both sides, or --left-ca and --right-ca" in refused.stderr


def test_authorities_that_do_not_go_together() -> None:
    with pytest.raises(hushtable.ConfigError, match="needs both"):
        hushtable.TlsConfig(left_ca="left.pem")
    with pytest.raises(hushtable.ConfigError, match="leave it out"):
        hushtable.TlsConfig("both.pem", left_ca="left.pem", right_ca="right.pem")
    sides = hushtable.TlsConfig(left_ca="left.pem", right_ca="right.pem")
    with pytest.raises(hushtable.ConfigError, match="for two servers"):
        hushtable.connect(server="https://127.0.0.1:1", tls=sides)
