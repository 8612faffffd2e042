"""A tap that is closed says nothing, whatever its connections are at."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from pathlib import Path

import pytest
from examples.movielens.servers import Wire
from examples.movielens.tap import Tap

import hushtable


def test_a_tap_closes_quietly_under_a_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = hushtable.make_certificates(tmp_path / "certificates")
    reached = threading.Event()
    # A server that takes connections and says nothing: the tap waits for its handshake.
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with server.accept()[0] as connection:
                connection.recv(1)
                reached.set()
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        trust = ssl.create_default_context(cafile=str(certificates.ca))
        with caplog.at_level(logging.DEBUG, logger="asyncio"):
            with Tap(url, certificates, Wire(1, None, 0)) as tap:
                plain = socket.create_connection(("127.0.0.1", int(tap.url.rpartition(":")[2])))
                inside = trust.wrap_socket(plain, server_hostname="127.0.0.1")
                assert reached.wait(60)
            inside.close()
        thread.join(60)
        assert not thread.is_alive()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
