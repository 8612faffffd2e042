"""Serving a model on encrypted features: in this process, or as a child process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _native
from .._settings import Served, checked, nested
from ..server import ChildServer, ServerTls, run_until_stopped, tls_settings
from ._hybrid import NetworkInfo, scheme_of
from ._types import ModelInfo


@dataclass(frozen=True, slots=True)
class Serving:
    """A server of encrypted or hybrid inference that is ready.

    Attributes:
        url: where predictions are answered.
        metrics_url: where ``/metrics``, ``/livez`` and ``/readyz`` are; None where there is none.
        model: what it computes; a :class:`NetworkInfo` by hybrid inference.
    """

    url: str
    metrics_url: str | None
    model: ModelInfo | NetworkInfo

    @property
    def name(self) -> str:
        """Which server this is, for people."""
        return "inference server"


def serve(
    model: str | os.PathLike[str],
    *,
    plan: str | None = None,
    addr: str = "127.0.0.1:4000",
    metrics_addr: str | None = "127.0.0.1:4001",
    tls: ServerTls | None = None,
    on_ready: Callable[[Serving], None] | None = None,
    **options: Any,
) -> None:
    """Serves a compiled model until SIGTERM or Ctrl-C, then answers what is under way and returns.

    The plan says how: on encrypted features (``ckks``), where at the start the server computes an
    encrypted query of its own and compares it with the model in the clear, or by ``hybrid``
    inference.

    Args:
        model: the folder of a model with a plan (:func:`hushtable.infer.compile`).
        plan: which of its plans; the only one by default.
        addr: ``ip:port`` to listen on, port 0 for any. One that other machines reach is refused
            without ``tls``, unless ``insecure=True``.
        metrics_addr: ``ip:port`` of metrics and probes (plain HTTP); None for none.
        tls: certificate and key.
        on_ready: called once predictions are answered.
        options: the other settings of ``hushtable infer serve --help``, with underscores:
            ``threads``, ``keys_folder``, ``keys_memory_bytes_max``, ``queue_queries_max``, ...;
            by hybrid inference ``store``, ``store_bytes_max``, ``client_garbles``, ...

    Raises:
        ConfigError: an option that cannot work, an address without TLS.
        ModelError: a model without a plan, or with one of another version.
        Error: a port that is taken.
    """
    settings = json.dumps(_settings(model, plan, addr, metrics_addr, tls, options))
    server: _native.InferServer | _native.HybridServer
    info: ModelInfo | NetworkInfo
    if scheme_of(model, plan) == "hybrid":
        server = _native.HybridServer(settings)
        info = NetworkInfo.of_facts(server.info)
    else:
        server = _native.InferServer(settings)
        info = ModelInfo.of_facts(server.info)
    protocol = "https" if tls else "http"
    serving = Serving(
        url=f"{protocol}://{server.addr}",
        metrics_url=server.metrics_addr and f"http://{server.metrics_addr}",
        model=info,
    )

    def tell() -> None:
        if on_ready is not None:
            on_ready(serving)

    run_until_stopped(server, tell, None)


def _settings(
    model: str | os.PathLike[str],
    plan: str | None,
    addr: str,
    metrics_addr: str | None,
    tls: ServerTls | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """All settings by name, as a config file has them."""
    given: dict[str, Any] = {
        "model": model,
        "addr": addr,
        "metrics_addr": metrics_addr,
        **{name: value for name, value in options.items() if value is not None},
    }
    if plan is not None:
        given["plan"] = plan
    if tls is not None:
        given |= tls_settings(tls)
    served: Served = "hybrid" if scheme_of(model, plan) == "hybrid" else "infer"
    return nested(checked(served, given))


class ServerProcess(ChildServer[Serving]):
    """A real server as a child process: ``python -m hushtable infer serve`` on a free port.

        with ServerProcess("models/clicks", tls=certificates.server) as server:
            client = hushtable.infer.connect(server.url, tls=certificates.ca)

    The block starts once the server is ready; at its end the server gets SIGTERM, answers what is
    under way, and is waited for.

    Args:
        model: the folder of a model with a plan.
        plan: which of its plans; the only one by default.
        tls: certificate and key; without, plain HTTP on this machine only.
        cpus: the processors it may run on; all by default.
        env: variables to set for it.
        start_seconds: how long it may take to be ready.
        options: as for :func:`serve`.

    Raises:
        Error: the server did not become ready: the typed error that it ended with, or a
            :class:`hushtable.ServerUnavailable` with what it said.
    """

    _command = ("infer", "serve")

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        plan: str | None = None,
        tls: ServerTls | None = None,
        cpus: Iterable[int] | None = None,
        env: Mapping[str, str] | None = None,
        start_seconds: float = 60.0,
        **options: Any,
    ) -> None:
        addr = options.pop("addr", "127.0.0.1:0")
        metrics_addr = options.pop("metrics_addr", "127.0.0.1:0")
        settings = _settings(model, plan, addr, metrics_addr, tls, options)
        self._prepare(settings, "inference server", cpus, env, start_seconds)

    def _read_ready(self, record: Mapping[str, Any]) -> Serving:
        found = record["model"]
        is_hybrid = "activations" in found
        model = NetworkInfo.of_record(found) if is_hybrid else ModelInfo.of_record(found)
        return Serving(record["url"], record["metrics_url"], model)
