"""Where servers listen, and by whose authorities clients check them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Deployment
from waiting import COMMAND_HUNG_S

import hushtable
from hushtable.errors import ConfigError, TlsError


def run(deployment: Deployment, roots: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command on a machine that trusts the authorities of this file."""
    env = {**os.environ, "SSL_CERT_FILE": str(roots), "SSL_CERT_DIR": str(roots.parent / "none")}
    urls = (deployment.left.url, deployment.right.url)
    return subprocess.run(
        [*command, *urls], env=env, capture_output=True, text=True, timeout=COMMAND_HUNG_S
    )


LOOKUP = """
import sys, hushtable
with hushtable.connect(sys.argv[1], sys.argv[2], tls=True) as client:
    print(client.lookup([3]).shape)
"""


def test_the_systems_authorities_vouch_for_servers(deployment: Deployment) -> None:
    found = run(deployment, deployment.certificates.ca, sys.executable, "-c", LOOKUP)
    assert found.returncode == 0 and found.stdout.startswith("(1, "), found.stderr


def test_servers_of_another_authority_are_refused(deployment: Deployment, tmp_path: Path) -> None:
    other = hushtable.make_certificates(tmp_path)
    found = run(deployment, other.ca, sys.executable, "-c", LOOKUP)
    assert found.returncode != 0 and "TlsError" in found.stderr, found.stderr
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    found = run(deployment, empty, sys.executable, "-c", LOOKUP)
    assert found.returncode != 0 and "authorities" in found.stderr, found.stderr


def test_the_command_takes_the_systems_authorities(deployment: Deployment) -> None:
    program = (
        "import sys; from hushtable.cli import main; left, right = sys.argv[1:]; "
        "sys.argv = ['hushtable', 'lookup', '3', '--ca', 'system', "
        "'--left', left, '--right', right]; main()"
    )
    found = run(deployment, deployment.certificates.ca, sys.executable, "-c", program)
    assert found.returncode == 0, found.stderr


def test_tls_is_true_a_file_or_a_config(deployment: Deployment) -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        deployment.connect(tls=False)
    with pytest.raises((TlsError, ConfigError)):
        deployment.connect(tls=hushtable.TlsConfig())


def test_a_server_listens_at_a_name_and_a_port(bundle: Path) -> None:
    with hushtable.ServerProcess(
        bundle, "left", threads=1, addr="localhost:1", port=0, metrics_addr="localhost:0"
    ) as server:
        assert server.url.startswith("http://127.0.0.1:") and not server.url.endswith((":0", ":1"))
        assert server.metrics_url is not None
    for addr in ("localhost", "no-such-host.invalid:4000"):
        with pytest.raises(ConfigError, match="localhost:4000"):
            hushtable.ServerProcess(bundle, "left", addr=addr).start()
    with pytest.raises(ConfigError, match="u16"):
        hushtable.ServerProcess(bundle, "left", port=70_000).start()
