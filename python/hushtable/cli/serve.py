"""``hushtable serve``: one of the two servers, or a single one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from .._types import OnionInfo
from ..errors import ConfigError
from ..server import Serving
from ..server import serve as run_server
from ._settings import Config, Log, LogJson, gathered, option, server_tls, with_settings
from .output import Json, command, describe_layout, print_json, progress_bar


@command(
    "hushtable serve bundles/items --side left",
    "hushtable certificates certs && hushtable serve bundles/items --side right "
    "--addr 0.0.0.0:4000 --tls-cert certs/server.pem --tls-key certs/server.key",
    "HUSHTABLE_SIDE=left HUSHTABLE_THREADS=8 hushtable serve bundles/items",
    "hushtable serve models/clicks models/films --side left --tables-bytes-max 8GiB",
    "hushtable serve --config left.toml --json",
    "hushtable serve bundles/items --side left --device cuda:1",
    "hushtable serve bundles/items --scheme onion --keys-folder keys",
    "hushtable serve models/clicks --side left --shard 3 --watch next",
    "hushtable serve models/clicks --side left --shards-file shards.toml",
    "hushtable serve models/clicks --side left --infer shares --peer https://right:4000 "
    "--peer-ca right.pem --tls-cert left.pem --tls-key left.key --peer-cert peer.pem "
    "--peer-key peer.key",
)
@with_settings(
    "pair", "onion", "shares", besides=("table", "model"), panels={"shares": "With --infer shares"}
)
def serve(
    bundles: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of tables and of models, all served at one address.",
            envvar="HUSHTABLE_TABLE",
            show_default=False,
            metavar="BUNDLE...",
        ),
    ] = None,
    scheme: Annotated[
        str | None,
        option(
            "pair, one of two servers that do not collude, or onion, a single server. Default: "
            "pair.",
            "scheme",
        ),
    ] = None,
    config: Config = None,
    log: Log = "warn",
    log_json: LogJson = False,
    json: Json = False,
    infer: Annotated[
        str | None,
        option(
            "Predict instead of looking rows up: shares, as one of two servers that compute a "
            "model on shares of rows that neither sees.",
            "infer",
            rich_help_panel="With --infer shares",
        ),
    ] = None,
    exit_with_parent: Annotated[
        bool,
        typer.Option(
            "--exit-with-parent",
            help="End at once, as by SIGKILL, with the thread that started this process.",
            show_default=False,
            rich_help_panel="Times",
        ),
    ] = False,
    **given: Any,
) -> None:
    """Serve a bundle as the left, the right or a single server, until SIGTERM or Ctrl-C.

    Once ready, one line on standard output says side, table, version and URL; another, where the
    table has a layout, what one inference by it costs, and of a single server, what a lookup costs.
    A single server prepares the table first where no prepared file fits it. Every option has one
    name: --queue-keys-max may also come from the environment, as HUSHTABLE_QUEUE_KEYS_MAX=4096, or
    from a file, as queue_keys_max = 4096.
    """
    if exit_with_parent:
        _native.exit_with_parent()
        if os.getppid() == 1:
            # It had ended before it could be asked for.
            raise typer.Exit(1)
    settings = gathered(
        ("pair", "onion", "shares"), config, {**given, "scheme": scheme, "infer": infer}
    )
    if bundles:
        settings["table"] = str(bundles[0])
    if bundles and len(bundles) > 1:
        settings["tables"] = [*map(str, bundles[1:]), *settings.get("tables", ())]
    predicts_by = settings.pop("infer", None)
    if predicts_by is not None:
        _serve_predictions(predicts_by, settings, log, log_json, json)
        return
    bundle_path, chosen_side = settings.pop("table", None), settings.pop("side", None)
    if bundle_path is None:
        raise ConfigError("which table? give the bundle's folder: hushtable serve BUNDLE")
    chosen_scheme = settings.pop("scheme", "pair")
    if chosen_side is None and chosen_scheme == "pair":
        raise ConfigError(
            "which server is this? give --side left or --side right, or --scheme onion for a "
            "single server"
        )
    tls = server_tls(settings)
    _native.log_to_stderr(log, log_json)

    def on_ready(serving: Serving) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        metrics = f"  metrics {serving.metrics_url}" if serving.metrics_url else ""
        held = [f"{table.name!r} version {table.version[:16]}" for table in serving.tables] + [
            f"model {model.name!r} version {model.version[:16]} ({len(model.features)} features of "
            f"{len(model.tables)} tables)"
            for model in serving.models
        ]
        print(f"ready: {serving.name} of {', '.join(held)} at {serving.url}{metrics}", flush=True)
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
            tls=tls,
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


def _serve_predictions(
    infer: str, settings: dict[str, Any], log: str, log_json: bool, as_json: bool
) -> None:
    if infer != "shares":
        raise ConfigError(
            f"--infer is {infer!r}, but must be shares; by other plans: hushtable infer serve"
        )
    if settings.pop("scheme", "pair") != "pair":
        raise ConfigError("predictions on shares are by two servers: leave --scheme out")
    model, more = settings.pop("table", None), settings.pop("tables", None)
    if model is None or more:
        raise ConfigError(
            "which model? give the folder of one: hushtable serve MODEL --infer shares"
        )
    # Imported here, as a server of rows starts sooner without.
    from ..infer._description import plan_of
    from .infer import serve_model

    settings["plan"] = plan_of(model, settings.get("plan"), "shares")
    tls = server_tls(settings)
    _native.log_to_stderr(log, log_json)
    serve_model(model, tls, as_json, settings)


def _describe_onion(onion: OnionInfo) -> str:
    return (
        f"{onion.parameters}: {onion.key_bytes:,} B of keys once, then {onion.query_bytes:,} B up "
        f"and {onion.response_bytes:,} B down a row"
    )
