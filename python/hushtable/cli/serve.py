"""``hushtable serve``: one of the two servers."""

from __future__ import annotations

import dataclasses
import json as json_format
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from ..errors import ConfigError
from ..server import ServerTls, Serving
from ..server import serve as run_server
from .output import Json, describe_layout, examples, print_json


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog=examples(
            "hushtable serve bundles/items --side left",
            "hushtable certificates certs && hushtable serve bundles/items --side right "
            "--addr 0.0.0.0:4000 --tls-cert certs/server.pem --tls-key certs/server.key",
            "HUSHTABLE_SIDE=left HUSHTABLE_THREADS=8 hushtable serve bundles/items",
            "hushtable serve --config left.toml --json",
        )
    )(serve)


def _option(text: str, name: str, **more: Any) -> Any:
    return typer.Option(
        help=text, envvar=f"HUSHTABLE_{name.upper()}", show_default=False, metavar="", **more
    )


def serve(
    bundle: Annotated[
        Path | None,
        typer.Argument(
            help="The table's folder.",
            envvar="HUSHTABLE_TABLE",
            show_default=False,
            metavar="BUNDLE",
        ),
    ] = None,
    side: Annotated[str | None, _option("left or right.", "side")] = None,
    addr: Annotated[
        str | None,
        _option("IP and port to listen on, port 0 for any. Default: 127.0.0.1:4000.", "addr"),
    ] = None,
    metrics_addr: Annotated[
        str | None,
        _option(
            "IP and port of metrics and probes, or none. Default: 127.0.0.1:4001.", "metrics_addr"
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, _option("PEM file: this server's certificate and chain.", "tls_cert")
    ] = None,
    tls_key: Annotated[
        Path | None, _option("PEM file: the certificate's private key.", "tls_key")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        _option("PEM file: ask clients for certificates of this authority.", "tls_client_ca"),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure/--no-insecure",
            help="Serve other machines without TLS: only where something else encrypts the way.",
            envvar="HUSHTABLE_INSECURE",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None, _option("Threads that answer; 0 for one a core. Default: 0.", "threads")
    ] = None,
    io_threads: Annotated[
        int | None, _option("Threads for connections. Default: 1.", "io_threads")
    ] = None,
    window_us: Annotated[
        int | None,
        _option("Longest wait for others to share a pass, in us. Default: one pass.", "window_us"),
    ] = None,
    batch_keys_max: Annotated[
        int | None,
        _option("Most keys in a pass. Default: what the engine does best.", "batch_keys_max"),
    ] = None,
    keys_per_request_max: Annotated[
        int | None,
        _option("Most keys in a request. Default: 1024 or less.", "keys_per_request_max"),
    ] = None,
    queue_keys_max: Annotated[
        int | None, _option("Most keys that wait; beyond, BUSY. Default: 16384.", "queue_keys_max")
    ] = None,
    batch_bags_max: Annotated[
        int | None,
        _option("Most inferences in a pass. Default: what the engine does best.", "batch_bags_max"),
    ] = None,
    queue_bags_max: Annotated[
        int | None,
        _option("Most inferences that wait; beyond, BUSY. Default: 1024.", "queue_bags_max"),
    ] = None,
    inflight_bytes_max: Annotated[
        int | None,
        _option(
            "Most bytes of requests and answers in memory. Default: 256 MiB.", "inflight_bytes_max"
        ),
    ] = None,
    connections_max: Annotated[
        int | None, _option("Most connections. Default: 4096.", "connections_max")
    ] = None,
    streams_per_connection_max: Annotated[
        int | None,
        _option("Most open requests a connection. Default: 128.", "streams_per_connection_max"),
    ] = None,
    handshake_ms_max: Annotated[
        int | None, _option("Longest handshake, in ms. Default: 10000.", "handshake_ms_max")
    ] = None,
    request_ms_max: Annotated[
        int | None, _option("Longest request, in ms. Default: 60000.", "request_ms_max")
    ] = None,
    drain_ms_max: Annotated[
        int | None,
        _option("Longest wait for requests after SIGTERM, in ms. Default: 10000.", "drain_ms_max"),
    ] = None,
    prgs: Annotated[
        str | None,
        _option("Generators that keys may use. Default: aes128,chacha20,chacha12.", "prgs"),
    ] = None,
    config: Annotated[
        Path | None,
        _option("TOML or JSON file with these settings; flags and variables win.", "config"),
    ] = None,
    log: Annotated[
        str, typer.Option(help="Level or filter of the log.", envvar="HUSHTABLE_LOG")
    ] = "warn",
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Log JSON lines.", envvar="HUSHTABLE_LOG_JSON")
    ] = False,
    json: Json = False,
) -> None:
    """Serve a bundle as the left or the right server, until SIGTERM or Ctrl-C.

    Once ready, one line on standard output says side, table, version and URL; another, where the
    table has a layout, what one inference by it costs. Every option may also come from the
    environment, as HUSHTABLE_ and its name: HUSHTABLE_QUEUE_KEYS_MAX=4096.
    """
    given = {
        "table": bundle and str(bundle),
        "side": side,
        "addr": addr,
        "metrics_addr": metrics_addr,
        "insecure": insecure,
        "threads": threads,
        "io_threads": io_threads,
        "window_us": window_us,
        "batch_keys_max": batch_keys_max,
        "keys_per_request_max": keys_per_request_max,
        "queue_keys_max": queue_keys_max,
        "batch_bags_max": batch_bags_max,
        "queue_bags_max": queue_bags_max,
        "inflight_bytes_max": inflight_bytes_max,
        "connections_max": connections_max,
        "streams_per_connection_max": streams_per_connection_max,
        "handshake_ms_max": handshake_ms_max,
        "request_ms_max": request_ms_max,
        "drain_ms_max": drain_ms_max,
        "prgs": prgs and [name.strip() for name in prgs.split(",")],
    }
    settings = _read_config(config) if config else {}
    settings |= {name: value for name, value in given.items() if value is not None}
    tls = {"cert": tls_cert, "key": tls_key, "client_ca": tls_client_ca}
    tls = {**(settings.pop("tls", None) or {}), **{k: v for k, v in tls.items() if v is not None}}
    bundle_path, chosen_side = settings.pop("table", None), settings.pop("side", None)
    if bundle_path is None:
        raise ConfigError("which table? give the bundle's folder: hushtable serve BUNDLE")
    if chosen_side is None:
        raise ConfigError("which server is this? give --side left or --side right")
    if settings.get("metrics_addr", "") in ("none", None):
        settings["metrics_addr"] = None
    _native.log_to_stderr(log, log_json)

    def on_ready(serving: Serving) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        metrics = f"  metrics {serving.metrics_url}/metrics" if serving.metrics_url else ""
        print(
            f"ready: {serving.side} server of {serving.table!r} "
            f"version {serving.version[:16]} at {serving.url}{metrics}",
            flush=True,
        )
        if serving.layout is not None:
            print(f"layout {describe_layout(serving.layout)}", flush=True)

    run_server(bundle_path, chosen_side, tls=_tls(tls), on_ready=on_ready, **settings)
    if json:
        print_json({"event": "stopped", "side": chosen_side})


def _tls(files: dict[str, Any]) -> ServerTls | None:
    if not files:
        return None
    for part in ("cert", "key"):
        if files.get(part) is None:
            raise ConfigError(f"TLS needs a certificate and its key: give --tls-{part} too")
    unknown = files.keys() - {"cert", "key", "client_ca"}
    if unknown:
        raise ConfigError(f"tls has no setting {sorted(unknown)[0]!r}: cert, key, client_ca")
    return ServerTls(files["cert"], files["key"], files.get("client_ca"))


def _read_config(path: Path) -> dict[str, Any]:
    text = path.read_text()
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        settings = json_format.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} must hold settings by name, as {{...}}")
    return settings
