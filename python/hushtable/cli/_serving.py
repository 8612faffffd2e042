"""Options that every server's command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError
from ..server import ServerTls

__all__ = [
    "DrainMsMax",
    "IoThreads",
    "Log",
    "LogJson",
    "MetricsAddr",
    "TlsCert",
    "TlsClientCa",
    "TlsKey",
    "option",
    "server_tls",
]


def option(text: str, name: str, **more: Any) -> Any:
    """An option that ``HUSHTABLE_NAME`` sets too, and whose default is the server's."""
    return typer.Option(
        help=text, envvar=f"HUSHTABLE_{name.upper()}", show_default=False, metavar="", **more
    )


MetricsAddr = Annotated[
    str | None,
    option("IP and port of metrics and probes, or none. Default: 127.0.0.1:4001.", "metrics_addr"),
]
TlsCert = Annotated[
    Path | None, option("PEM file: this server's certificate and chain.", "tls_cert")
]
TlsKey = Annotated[Path | None, option("PEM file: the certificate's private key.", "tls_key")]
TlsClientCa = Annotated[
    Path | None,
    option("PEM file: ask clients for certificates of this authority.", "tls_client_ca"),
]
IoThreads = Annotated[int | None, option("Threads for connections. Default: 1.", "io_threads")]
DrainMsMax = Annotated[
    int | None,
    option("Longest wait for requests after SIGTERM, in ms. Default: 10000.", "drain_ms_max"),
]
Log = Annotated[str, typer.Option(help="Level or filter of the log.", envvar="HUSHTABLE_LOG")]
LogJson = Annotated[
    bool, typer.Option("--log-json", help="Log JSON lines.", envvar="HUSHTABLE_LOG_JSON")
]


def server_tls(files: dict[str, Any]) -> ServerTls | None:
    """TLS of the files cert, key and client_ca; none of none.

    Raises:
        ConfigError: one file without the other, or a name that is none of these.
    """
    if not files:
        return None
    for part in ("cert", "key"):
        if files.get(part) is None:
            raise ConfigError(f"TLS needs a certificate and its key: give --tls-{part} too")
    unknown = files.keys() - {"cert", "key", "client_ca"}
    if unknown:
        raise ConfigError(f"tls has no setting {sorted(unknown)[0]!r}: cert, key, client_ca")
    return ServerTls(files["cert"], files["key"], files.get("client_ca"))
