"""Serving a model on encrypted features: in this process, or as a child process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .. import _native
from .._ports import AUTO, chosen, said_of_ports
from .._settings import checked, nested
from .._settings import settings as all_settings
from ..errors import ConfigError
from ..server import ChildServer, ServerTls, run_until_stopped, tls_settings
from ._description import plan_of
from ._kinds import KINDS, Info, kind_of


@dataclass(frozen=True, slots=True)
class Serving:
    """A server of encrypted or hybrid inference, or of predictions on shares, that is ready.

    Attributes:
        url: where predictions are answered.
        metrics_url: the page of metrics, beside which ``/livez`` and ``/readyz`` are; None where
            there is none.
        model: what it computes; a :class:`NetworkInfo` by hybrid inference, a :class:`SharesInfo`
            on shares.
    """

    url: str
    metrics_url: str | None
    model: Info

    @property
    def name(self) -> str:
        """Which server this is, for people."""
        side = getattr(self.model, "side", None)
        return "inference server" if side is None else f"{side} inference server"


def serve(
    model: str | os.PathLike[str],
    *,
    plan: str | None = None,
    addr: str = AUTO,
    metrics_addr: str | None = AUTO,
    tls: ServerTls | None = None,
    on_ready: Callable[[Serving], None] | None = None,
    **options: Any,
) -> None:
    """Serves a compiled model until SIGTERM or Ctrl-C, then answers what is under way and returns.

    The plan says how: on encrypted features (``ckks``), where at the start the server computes an
    encrypted query of its own and compares it with the model in the clear; by ``hybrid``
    inference; or on ``shares``, as one of two servers: ``side="left"`` with ``peer=`` right's
    address, ``side="right"`` without.

    Args:
        model: the folder of a model with a plan (:func:`hushtable.infer.compile`,
            :func:`hushtable.infer.compile_shares`).
        plan: which of its plans; the only one by default, with ``side`` the only one on shares.
        addr: ``ip:port`` to listen on, port 0 for any. One that other machines reach is refused
            without ``tls``, unless ``insecure=True``. ``"auto"`` is ``127.0.0.1:4000``, and
            right's ``127.0.0.1:5000``.
        metrics_addr: ``ip:port`` of metrics and probes (plain HTTP); None for none. ``"auto"`` is
            ``127.0.0.1:4001``, and right's ``127.0.0.1:5001``.
        tls: certificate and key.
        on_ready: called once predictions are answered.
        options: the other settings of ``hushtable infer serve --help-all``, with underscores:
            ``threads``, ``keys_folder``, ``keys_memory_bytes_max``, ``queue_queries_max``, ...;
            by hybrid inference ``store``, ``store_bytes_max``, ``client_garbles``, ...; on shares
            ``side``, ``peer``, ``peer_ca``, ``peer_cert``, ``peer_key``, ``inferences_max``, ...

    Raises:
        ConfigError: an option that cannot work, an address without TLS.
        ModelError: a model without a plan, or with one of another version.
        Error: a port that is taken.
    """
    plan, scheme = _chosen(model, plan, options)
    settings = _settings(model, plan, scheme, addr, metrics_addr, tls, options)
    with said_of_ports(settings):
        server = _native.Server(scheme, json.dumps(settings))
    protocol = "https" if tls else "http"
    serving = Serving(
        url=f"{protocol}://{server.addr}",
        metrics_url=server.metrics_addr and f"http://{server.metrics_addr}/metrics",
        model=KINDS[scheme].info.of_facts(server.facts),
    )

    def tell() -> None:
        if on_ready is not None:
            on_ready(serving)

    run_until_stopped(server, tell, None)


def _chosen(
    model: str | os.PathLike[str], plan: str | None, options: Mapping[str, Any]
) -> tuple[str | None, str]:
    """Which plan is served, where that is to be said, and what it is for."""
    if plan is None and options.get("side") is not None:
        # Sides are of plans for two servers alone: no plan beside one is meant.
        plan = plan_of(model, None, next(filter(_has_sides, KINDS)))
    return plan, kind_of(model, plan)


def _has_sides(scheme: str) -> bool:
    return any(setting.name == "side" for setting in all_settings(scheme))


def _settings(
    model: str | os.PathLike[str],
    plan: str | None,
    scheme: str,
    addr: str,
    metrics_addr: str | None,
    tls: ServerTls | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """All settings by name, as a config file has them."""
    given: dict[str, Any] = {
        "model": model,
        "addr": chosen("addr", addr, options.get("side")),
        "metrics_addr": chosen("metrics_addr", metrics_addr, options.get("side")),
        **{name: value for name, value in options.items() if value is not None},
    }
    if plan is not None:
        given["plan"] = plan
    if tls is not None:
        given |= tls_settings(tls)
    side = given.get("side")
    if _has_sides(scheme) and side not in ("left", "right"):
        how = KINDS[scheme].how
        raise ConfigError(f"which of two servers {how}? give side left or right, not {side!r}")
    return nested(checked(scheme, given))


class ServerProcess(ChildServer[Serving]):
    """A real server as a child process: ``python -m hushtable infer serve`` on a free port.

        with ServerProcess("models/clicks", tls=certificates.server) as server:
            client = hushtable.connect(server=server.url, tls=certificates.ca)

        with (
            ServerProcess("models/clicks", side="right") as right,
            ServerProcess("models/clicks", side="left", peer=right.url) as left,
        ):
            client = hushtable.connect(left.url, right.url, scheme="shares")

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
        plan, scheme = _chosen(model, plan, options)
        settings = _settings(model, plan, scheme, addr, metrics_addr, tls, options)
        self._prepare(settings, "inference server", cpus, env, start_seconds)

    def _read_ready(self, record: Mapping[str, Any]) -> Serving:
        found = record["model"]
        infos = (row.info for row in KINDS.values())
        info = next(info for info in infos if found.keys() == {one.name for one in fields(info)})
        return Serving(record["url"], record["metrics_url"], info.of_record(found))
