"""``hushtable serve``: one of the two servers, or a single one."""

from __future__ import annotations

import contextlib
import dataclasses
import json as json_format
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from .._types import OnionInfo
from ..errors import ConfigError
from ..server import Serving
from ..server import serve as run_server
from ._serving import (
    DrainMsMax,
    IoThreads,
    Log,
    LogJson,
    MetricsAddr,
    TlsCert,
    TlsClientCa,
    TlsKey,
    option,
    server_tls,
)
from .output import Json, describe_layout, examples, print_json, progress_bar


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog=examples(
            "hushtable serve bundles/items --side left",
            "hushtable certificates certs && hushtable serve bundles/items --side right "
            "--addr 0.0.0.0:4000 --tls-cert certs/server.pem --tls-key certs/server.key",
            "HUSHTABLE_SIDE=left HUSHTABLE_THREADS=8 hushtable serve bundles/items",
            "hushtable serve --config left.toml --json",
            "hushtable serve bundles/items --side left --device cuda:1",
            "hushtable serve bundles/items --scheme onion --keys-dir keys",
        )
    )(serve)


#: Where the help lists what only a single server has.
_ONION = {"rich_help_panel": "With --scheme onion"}


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
    scheme: Annotated[
        str | None,
        option("two, or onion: a single server, asked alone. Default: two.", "scheme"),
    ] = None,
    side: Annotated[str | None, option("left or right; none with --scheme onion.", "side")] = None,
    addr: Annotated[
        str | None,
        option("IP and port to listen on, port 0 for any. Default: 127.0.0.1:4000.", "addr"),
    ] = None,
    metrics_addr: MetricsAddr = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure/--no-insecure",
            help="Serve other machines without TLS: only where something else encrypts the way.",
            envvar="HUSHTABLE_INSECURE",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        option(
            "cpu, cuda, cuda:NUMBER, or auto: a GPU where there is one. Default: auto.", "device"
        ),
    ] = None,
    threads: Annotated[
        int | None, option("Threads that answer; 0 for one a core. Default: 0.", "threads")
    ] = None,
    io_threads: IoThreads = None,
    window_us: Annotated[
        int | None,
        option("Longest wait for others to share a pass, in us. Default: one pass.", "window_us"),
    ] = None,
    batch_keys_max: Annotated[
        int | None,
        option("Most keys in a pass. Default: what the engine does best.", "batch_keys_max"),
    ] = None,
    keys_per_request_max: Annotated[
        int | None,
        option("Most keys in a request. Default: 1024 or less.", "keys_per_request_max"),
    ] = None,
    queue_keys_max: Annotated[
        int | None, option("Most keys that wait; beyond, BUSY. Default: 16384.", "queue_keys_max")
    ] = None,
    batch_bags_max: Annotated[
        int | None,
        option("Most inferences in a pass. Default: what the engine does best.", "batch_bags_max"),
    ] = None,
    queue_bags_max: Annotated[
        int | None,
        option("Most inferences that wait; beyond, BUSY. Default: 1024.", "queue_bags_max"),
    ] = None,
    inflight_bytes_max: Annotated[
        int | None,
        option(
            "Most bytes of requests and answers in memory. Default: 256 MiB.", "inflight_bytes_max"
        ),
    ] = None,
    connections_max: Annotated[
        int | None, option("Most connections. Default: 4096.", "connections_max")
    ] = None,
    streams_per_connection_max: Annotated[
        int | None,
        option("Most open requests a connection. Default: 128.", "streams_per_connection_max"),
    ] = None,
    handshake_ms_max: Annotated[
        int | None, option("Longest handshake, in ms. Default: 10000.", "handshake_ms_max")
    ] = None,
    request_ms_max: Annotated[
        int | None, option("Longest request, in ms. Default: 60000.", "request_ms_max")
    ] = None,
    drain_ms_max: DrainMsMax = None,
    prgs: Annotated[
        str | None,
        option("Generators that keys may use. Default: aes128,chacha20,chacha12.", "prgs"),
    ] = None,
    parameters: Annotated[
        str | None,
        option(
            "Parameter set: n4096_128 or ive_paper. Default: n4096_128.", "parameters", **_ONION
        ),
    ] = None,
    prepared: Annotated[
        Path | None,
        option(
            "The prepared file, made at the start where it is missing or stale; none to prepare in "
            "memory. Default: beside the bundle, BUNDLE.onion-PARAMETERS.prepared.",
            "prepared",
            **_ONION,
        ),
    ] = None,
    mapped: Annotated[
        bool | None,
        typer.Option(
            "--mapped/--loaded",
            help="Answer from the prepared file itself, so that the system may drop what is not "
            "read, instead of a copy in memory, which is faster. Default: loaded.",
            envvar="HUSHTABLE_MAPPED",
            show_default=False,
            **_ONION,
        ),
    ] = None,
    keys_dir: Annotated[
        Path | None,
        option(
            "Folder where clients' keys outlive a restart. Default: memory only.",
            "keys_dir",
            **_ONION,
        ),
    ] = None,
    keys_budget_mib: Annotated[
        int | None,
        option("Most MiB of clients' keys in memory. Default: 1024.", "keys_budget_mib", **_ONION),
    ] = None,
    keys_dir_budget_mib: Annotated[
        int | None,
        option(
            "Most MiB of clients' keys in --keys-dir. Default: 16384.",
            "keys_dir_budget_mib",
            **_ONION,
        ),
    ] = None,
    batch_queries_max: Annotated[
        int | None,
        option(
            "Most queries in a pass. Default: what the engine does best.",
            "batch_queries_max",
            **_ONION,
        ),
    ] = None,
    queries_per_request_max: Annotated[
        int | None,
        option(
            "Most queries in a request. Default: 64 or less.", "queries_per_request_max", **_ONION
        ),
    ] = None,
    queue_queries_max: Annotated[
        int | None,
        option(
            "Most queries that wait; beyond, BUSY. Default: 1024.", "queue_queries_max", **_ONION
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option("TOML or JSON file with these settings; flags and variables win.", "config"),
    ] = None,
    log: Log = "warn",
    log_json: LogJson = False,
    json: Json = False,
) -> None:
    """Serve a bundle as the left, the right or a single server, until SIGTERM or Ctrl-C.

    Once ready, one line on standard output says side, table, version and URL; another, where the
    table has a layout, what one inference by it costs, and of a single server, what a lookup costs.
    A single server prepares the table first where no prepared file fits it. Every option may also
    come from the environment, as HUSHTABLE_ and its name: HUSHTABLE_QUEUE_KEYS_MAX=4096.
    """
    given = {
        "table": bundle and str(bundle),
        "scheme": scheme,
        "side": side,
        "addr": addr,
        "metrics_addr": metrics_addr,
        "insecure": insecure,
        "device": device,
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
        "parameters": parameters,
        "prepared": prepared and str(prepared),
        "mapped": mapped,
        "keys_dir": keys_dir and str(keys_dir),
        "keys_budget_mib": keys_budget_mib,
        "keys_dir_budget_mib": keys_dir_budget_mib,
        "batch_queries_max": batch_queries_max,
        "queries_per_request_max": queries_per_request_max,
        "queue_queries_max": queue_queries_max,
    }
    settings = _read_config(config) if config else {}
    settings |= {name: value for name, value in given.items() if value is not None}
    tls = {"cert": tls_cert, "key": tls_key, "client_ca": tls_client_ca}
    tls = {**(settings.pop("tls", None) or {}), **{k: v for k, v in tls.items() if v is not None}}
    bundle_path, chosen_side = settings.pop("table", None), settings.pop("side", None)
    if bundle_path is None:
        raise ConfigError("which table? give the bundle's folder: hushtable serve BUNDLE")
    chosen_scheme = settings.pop("scheme", "two")
    if chosen_side is None and chosen_scheme == "two":
        raise ConfigError(
            "which server is this? give --side left or --side right, or --scheme onion for a "
            "single server"
        )
    if settings.get("metrics_addr", "") in ("none", None):
        settings["metrics_addr"] = None
    _native.log_to_stderr(log, log_json)

    def on_ready(serving: Serving) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        metrics = f"  metrics {serving.metrics_url}/metrics" if serving.metrics_url else ""
        print(
            f"ready: {serving.name} of {serving.table!r} "
            f"version {serving.version[:16]} at {serving.url}{metrics}",
            flush=True,
        )
        if serving.layout is not None:
            print(f"layout {describe_layout(serving.layout)}", flush=True)
        if serving.onion is not None:
            print(_describe_onion(serving.onion), flush=True)
        if serving.engine is not None and not serving.engine.startswith("cpu"):
            print(f"answers come from {serving.engine}", flush=True)

    # What was prepared last; None once the server is ready.
    prepared_bytes: tuple[int, int] | None = None
    with contextlib.ExitStack() as drawn:
        bar = drawn.enter_context(progress_bar("preparing", shown=not json, of_bytes=True))

        def on_prepared(done: int, all_: int) -> None:
            nonlocal prepared_bytes
            prepared_bytes = (done, all_)
            if bar is not None:
                bar(done, all_)

        def announce(serving: Serving) -> None:
            nonlocal prepared_bytes
            prepared_bytes = None
            drawn.close()  # the bar, before anything else is said
            on_ready(serving)

        run_server(
            bundle_path,
            chosen_side,
            scheme=chosen_scheme,
            tls=server_tls(tls),
            on_ready=announce,
            on_prepared=on_prepared,
            **settings,
        )
    if prepared_bytes is not None and not json:
        done, all_ = prepared_bytes
        print(
            f"stopped with {done / all_:.0%} of the table prepared: the next start goes on there",
            file=sys.stderr,
        )
    if json:
        print_json({"event": "stopped", "side": chosen_side})


def _describe_onion(onion: OnionInfo) -> str:
    return (
        f"{onion.parameters}: {onion.key_bytes:,} B of keys once, then {onion.query_bytes:,} B up "
        f"and {onion.response_bytes:,} B down a row"
    )


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
