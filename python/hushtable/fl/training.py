"""Serving training rounds: in this process, until it is told to stop."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from .._ports import said_of_ports
from .._settings import checked, nested
from ..errors import ConfigError
from ..server import ServerTls, run_until_stopped, tls_settings
from .controller import place

__all__ = ["TrainServing", "serve_training"]


@dataclass(frozen=True, slots=True)
class TrainServing:
    """A training server that is ready: what its one readiness line says.

    Attributes:
        table: the table's name.
        pin: what users know the controller by: give it to them by a way that they trust.
        url: where rounds are served.
        metrics_url: the page of metrics, beside which ``/livez`` and ``/readyz`` are; None where
            there is none.
    """

    table: str
    pin: str
    url: str
    metrics_url: str | None


def serve_training(
    folder: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    key_beside: bool = False,
    counter: str | os.PathLike[str] | None = None,
    addr: str = "127.0.0.1:4000",
    metrics_addr: str | None = "127.0.0.1:4001",
    tls: ServerTls | None = None,
    on_ready: Callable[[TrainServing], None] | None = None,
    on_opening: Callable[[int, int], None] | None = None,
    **options: Any,
) -> None:
    """Serves the rounds of a controller until SIGTERM or Ctrl-C; then abandons an open round.

    Args:
        folder: the controller's.
        key: the file of its key.
        key_beside: take a key that lies beside the folder, or in it; without ``key``,
            ``FOLDER.key``.
        counter: its root counter, a file or an ``etcd://`` URL; ``FOLDER.counter`` by default.
        addr: ``ip:port`` to listen on, port 0 for any. One that other machines reach is refused
            without ``tls``, unless ``insecure=True``, without enrolled users, unless
            ``allow_unenrolled=True``, and with neither ``operator_token_file`` nor a CA of clients,
            unless ``allow_open_operator=True``.
        metrics_addr: ``ip:port`` of metrics and probes (plain HTTP); None for none.
        tls: certificate and key.
        on_ready: called once rounds are served.
        on_opening: called with (work done, work) while the controller is opened.
        options: the other settings of ``hushtable train serve --help-all``, with underscores:
            ``operator_token_file``, ``allow_unenrolled``, ``allow_open_operator``,
            ``rows_cache_bytes_max``, ``audit_log``, ``request_ms``, ``upload_ms``,
            ``finish_ms``, ``io_threads``, ...

    Raises:
        ConfigError: an option that cannot work, an address without TLS, no key, or one beside the
            folder without ``key_beside``.
        ControllerError: a controller that cannot be opened.
        Error: a port that is taken.
    """
    given: dict[str, Any] = {
        "addr": addr,
        "metrics_addr": metrics_addr,
        **{name: value for name, value in options.items() if value is not None},
    }
    if tls is not None:
        given |= tls_settings(tls)
    settings = nested(checked("train", given))
    if not Path(folder).is_dir():
        raise ConfigError(
            f"{folder} is no controller's folder: hushtable train create FOLDER makes one"
        )
    paths = place(folder, key, counter, key_beside=key_beside)
    with said_of_ports(settings):
        server = _native.TrainServer(json.dumps(settings), *paths, key_beside=key_beside)
    protocol = "https" if tls else "http"
    serving = TrainServing(
        table=server.table,
        pin=server.pin,
        url=f"{protocol}://{server.addr}",
        metrics_url=server.metrics_addr and f"http://{server.metrics_addr}/metrics",
    )
    run_until_stopped(server, None if on_ready is None else lambda: on_ready(serving), on_opening)
