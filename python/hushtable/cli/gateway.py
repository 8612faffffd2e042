"""``hushtable gateway``: lookups over HTTP and JSON, for services beside it."""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..client import MAX_LAYOUT_BYTES, AsyncClient, AsyncModelClient, ClientOptions, connect_async
from ..errors import ConfigError
from ..gateway import GatewayOptions, Listening, run_gateway
from ..gateway.listening import ADDR
from ._servers import LEFT, RIGHT, Servers, with_servers
from .output import Json, command, print_json

_LEVELS = ("error", "warning", "info", "debug")


def _option(text: str, variable: str) -> Any:
    return typer.Option(help=text, envvar=f"HUSHTABLE_GATEWAY_{variable}", show_default=False)


@command(
    "hushtable gateway --left https://a:4000 --right https://b:4000 --ca ca.pem --max-ids 8",
    "curl -s 127.0.0.1:8600/v1/lookup -H 'content-type: application/json' -d '{\"ids\": [3, 14]}'",
    "hushtable gateway --model clicks --unix /run/hushtable.sock",
    "hushtable gateway --addr 0.0.0.0:8600 --token-file token --tls-cert gateway.pem "
    "--tls-key gateway.key",
)
@with_servers()
def gateway(
    servers: Servers,
    context: typer.Context,
    model: Annotated[
        str | None,
        _option("Two servers: ask the model of this name, or of this bundle's folder.", "MODEL"),
    ] = None,
    version: Annotated[
        str | None, _option("The only version of the table or model to take, in hex.", "VERSION")
    ] = None,
    addr: Annotated[str, _option(f"Address to listen at. Default: {ADDR}.", "ADDR")] = ADDR,
    unix: Annotated[
        Path | None, _option("Listen at this socket instead, for this user alone.", "UNIX")
    ] = None,
    token_file: Annotated[
        Path | None,
        _option(
            "File of the token that requests carry. Needed at another address than loopback.",
            "TOKEN_FILE",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, _option("PEM file: the gateway's own certificate.", "TLS_CERT")
    ] = None,
    tls_key: Annotated[Path | None, _option("PEM file: its key.", "TLS_KEY")] = None,
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http",
            help="Listen at another address than loopback without TLS: token and ids travel in "
            "the clear.",
            envvar="HUSHTABLE_GATEWAY_PLAIN_HTTP",
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        _option("A name of this gateway beside localhost; may be repeated.", "ALLOW_HOST"),
    ] = None,
    max_ids: Annotated[
        int | None,
        typer.Option(
            help="Keys of a lookup, whatever the number of its ids. By default the next power of "
            "two, which tells the servers the logarithm of that number.",
            envvar="HUSHTABLE_MAX_IDS",
            show_default=False,
        ),
    ] = None,
    ids_max: Annotated[int, _option("Most ids of a request. Default: 4,096.", "IDS_MAX")] = 4096,
    body_bytes_max: Annotated[
        int, _option("Most bytes of a request's body. Default: 1 MiB.", "BODY_BYTES_MAX")
    ] = 1 << 20,
    requests_max: Annotated[
        int, _option("Most requests for rows under way. Default: 256.", "REQUESTS_MAX")
    ] = 256,
    drain_seconds: Annotated[
        float,
        _option("How long what is under way may take after SIGTERM. Default: 30.", "DRAIN_SECONDS"),
    ] = 30.0,
    log: Annotated[
        str,
        _option("Level of the log: error, warning, info, debug. Default: warning.", "LOG"),
    ] = "warning",
    json: Json = False,
) -> None:
    """Answer lookups over HTTP and JSON, for programs beside it that have no client of ours.

    It runs on the client's side and sees ids; the servers see of it what they see of any client.
    /docs lists what can be asked: /v1/lookup, and /v1/embeddings as clients of OpenAI's API ask.
    Default: two servers on this machine, at ports 4000 and 5000.
    """
    if log not in _LEVELS:
        raise ConfigError(f"--log is {log!r}, but must be {', '.join(_LEVELS)}")
    if model is not None and servers.server:
        raise ConfigError("--model is for two servers: leave it out with --server")
    if model is not None and max_ids is not None:
        # The environment's is for whatever is asked.
        source = context.get_parameter_source("max_ids")
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError("a model says how many keys each feature takes: leave --max-ids out")
        max_ids = None
    options = GatewayOptions(
        addr=addr,
        unix=unix,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        plain_http=plain_http,
        allow_hosts=tuple(allow_host or ()),
        max_ids=max_ids,
        ids_max=ids_max,
        body_bytes_max=body_bytes_max,
        requests_max=requests_max,
        drain_seconds=drain_seconds,
    )
    where = servers.where
    if not servers.server:
        where |= {"left": servers.left or [LEFT], "right": servers.right or [RIGHT]}
    # Bags of a single table are not asked for, so that their layout need not be fetched.
    own: dict[str, Any] = (
        {} if servers.server else {"max_layout_bytes": MAX_LAYOUT_BYTES if model else 0}
    )
    client = ClientOptions(**servers.limits, **own)
    logging.basicConfig(
        stream=sys.stderr,
        level=log.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )

    async def connect() -> AsyncClient | AsyncModelClient:
        found = await connect_async(**where, model=model, version=version, options=client)
        if isinstance(found, AsyncClient | AsyncModelClient):
            return found
        found.close()
        raise ConfigError(f"{found} predicts: a gateway looks rows up")

    def on_ready(listening: Listening) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(listening)})
            return
        asked = ", ".join(map(repr, listening.tables))
        print(f"ready: {asked} at {listening.url}  what to ask: {listening.url}/docs", flush=True)

    run_gateway(connect, options, on_ready=on_ready)
    if json:
        print_json({"event": "stopped"})
