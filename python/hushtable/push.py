"""Bringing the next version of a bundle to an operator's own servers."""

from __future__ import annotations

from pathlib import Path

from . import _native
from .client import Tls, TlsConfig
from .errors import ConfigError

__all__ = ["push_bundle"]


def push_bundle(
    bundle: str | Path,
    url: str,
    *,
    token_file: str | Path,
    tls: Tls | None = None,
    connect_seconds: float = 5.0,
) -> bool:
    """Brings a bundle to a server, which checks every byte and serves it beside its last version.

    Args:
        bundle: the bundle's folder.
        url: the server, started with ``push_folder`` and ``push_token_file``.
        token_file: the file of the token that the server was given too.
        tls: the PEM file of the authority of the server's certificate, True for the authorities
            that this machine trusts, or a :class:`~hushtable.TlsConfig`, whose ``server_name`` is
            the name that the certificate is for where it is not the URL's host.
        connect_seconds: how long a connection may take.

    Returns:
        Whether it is a version that the server did not have as its newest.

    Raises:
        ConfigError: a token that cannot be read, a server that takes no pushes.
        OperatorOnly: a token that is not the server's.
        PushRefused: a bundle that the server does not take: a damaged one, one of another name, one
            that does not fit. What the server held goes on being served.
        ServerBusy: another push is under way.
        ServerError: the server could not write the bundle.
        ServerUnavailable: a server out of reach.
    """
    try:
        token = Path(token_file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token from {token_file}: {error}") from error
    files = TlsConfig.of(tls)
    return _native.push_bundle(
        Path(bundle),
        url,
        token,
        ca=None if files is None else files.authorities,
        domain=None if files is None else files.server_name,
        certificate=None if files is None else files.identity,
        connect_seconds=connect_seconds,
    )
