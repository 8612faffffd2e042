"""Options of client commands: which servers are asked, and how they are checked."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..client import TlsConfig
from ..errors import ConfigError

__all__ = ["LEFT", "RIGHT", "Ca", "Certificate", "CertificateKey", "Servers", "with_servers"]

#: The servers that are asked by default. A single one is where left is.
LEFT, RIGHT = "http://127.0.0.1:4000", "http://127.0.0.1:5000"
#: What ``--ca`` is for the authorities that this machine trusts; a file so named needs its folder.
SYSTEM = Path("system")


def _option(text: str, variable: str | None = None, *flags: str) -> Any:
    if variable is None:
        return typer.Option(help=text, show_default=False)
    return typer.Option(
        *flags,
        help=text,
        envvar=f"HUSHTABLE_{variable}",
        show_default=False,
        rich_help_panel="Servers",
    )


_CA = "PEM file: the authority of who serves; system for those that this machine trusts."
Ca = Annotated[Path | None, _option(_CA)]
Certificate = Annotated[Path | None, _option("PEM file: this client's certificate.")]
CertificateKey = Annotated[Path | None, _option("PEM file: the certificate's key.")]

_SIDES: dict[str, Any] = {
    "left": Annotated[
        list[str] | None,
        _option(
            "URL of the left server; may be repeated, for other servers of the same operator, "
            "asked where those before drain or are out of reach.",
            "LEFT",
        ),
    ],
    "right": Annotated[
        list[str] | None, _option("URL of the right server; may be repeated.", "RIGHT")
    ],
}
_SIDES_CA: dict[str, Any] = {
    "left_ca": Annotated[
        Path | None,
        _option(
            "PEM file: the authority of left's operator, in place of --ca. What it signs is taken "
            "from the left server alone.",
            "LEFT_CA",
        ),
    ],
    "right_ca": Annotated[
        Path | None, _option("PEM file: the authority of right's operator.", "RIGHT_CA")
    ],
}
_SERVER: dict[str, Any] = {
    "server": Annotated[
        list[str] | None, _option("URL of a single server; may be repeated.", "SERVER")
    ]
}
_TLS: dict[str, Any] = {
    "ca": Annotated[Path | None, _option(_CA, "CA")],
    "certificate": Annotated[
        Path | None, _option("PEM file: this client's certificate.", "CERTIFICATE")
    ],
    "key": Annotated[Path | None, _option("PEM file: the certificate's key.", "CERTIFICATE_KEY")],
}
_LIMITS: dict[str, Any] = {
    "timeout": Annotated[
        float | None,
        _option("Seconds that a call may take. Default: 30; of a prediction 60.", "TIMEOUT"),
    ],
    "insecure": Annotated[
        bool, _option("Allow http:// to other machines.", "INSECURE", "--insecure")
    ],
}


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers, as options say them.

    Attributes:
        left: URLs of the left side.
        right: URLs of the right side.
        server: URLs of a single server.
        tls: how they are checked.
        timeout: seconds of a call.
        insecure: whether ``http://`` to other machines is allowed.
    """

    left: list[str]
    right: list[str]
    server: list[str]
    tls: TlsConfig | None
    timeout: float | None
    insecure: bool

    @property
    def where(self) -> dict[str, Any]:
        """For :func:`hushtable.connect`: which servers, and how they are checked."""
        return {
            "left": self.left or None,
            "right": self.right or None,
            "server": self.server or None,
            "tls": self.tls,
        }

    @property
    def limits(self) -> dict[str, Any]:
        """For :class:`hushtable.ClientOptions`."""
        return {"timeout": self.timeout, "insecure": self.insecure}


def with_servers(*, sides: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options that say which servers are asked.

    The command gets them as ``servers``, a :class:`Servers`.

    Args:
        sides: whether there may be two servers.
    """
    annotated = (_SIDES if sides else {}) | _SERVER | _TLS | (_SIDES_CA if sides else {}) | _LIMITS

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != "servers"
        ]
        made = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if name == "insecure" else None,
                annotation=annotation,
            )
            for name, annotation in annotated.items()
        ]

        @functools.wraps(command)
        def called(**options: Any) -> None:
            given = {name: options.pop(name) for name in annotated}
            command(servers=_servers(**given), **options)

        signature = inspect.Signature([*own, *made])
        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return called

    return decorate


def _servers(
    *,
    server: list[str] | None,
    timeout: float | None,
    insecure: bool,
    left: list[str] | None = None,
    right: list[str] | None = None,
    left_ca: Path | None = None,
    right_ca: Path | None = None,
    **tls: Path | None,
) -> Servers:
    if server and (left or right):
        raise ConfigError(
            "which servers? give --left and --right, or --server alone for a single server"
        )
    if server and (left_ca or right_ca):
        raise ConfigError("--left-ca and --right-ca are for --left and --right")
    checked = client_tls(**tls, sides=(left_ca, right_ca))
    return Servers(left or [], right or [], server or [], checked, timeout, insecure)


def client_tls(
    ca: Path | None,
    certificate: Path | None = None,
    key: Path | None = None,
    *,
    sides: tuple[Path | None, Path | None] = (None, None),
) -> TlsConfig | None:
    """How a client checks servers, of its options; none without an authority.

    ``sides`` are left's authority and right's, in place of one for both.

    Raises:
        ConfigError: a certificate without an authority, or without its key; an authority for one
            side alone, or beside one for both.
    """
    if (certificate is None) != (key is None):
        raise ConfigError("a client certificate needs both: --certificate and --key")
    if any(sides):
        if ca is not None or not all(sides):
            raise ConfigError("give --ca for both sides, or --left-ca and --right-ca")
        return TlsConfig(None, certificate, key, left_ca=sides[0], right_ca=sides[1])
    if certificate and ca is None:
        raise ConfigError("a client certificate is for https: give --ca too")
    if ca is None:
        return None
    return TlsConfig(None if ca == SYSTEM else ca, certificate, key)
