"""Bringing the next version of a bundle to an operator's own servers."""

from __future__ import annotations

from pathlib import Path

from . import _native
from .errors import ConfigError

__all__ = ["push_bundle"]


def push_bundle(
    bundle: str | Path,
    url: str,
    *,
    token_file: str | Path,
    ca: str | Path | None = None,
    domain: str | None = None,
    certificate: tuple[str | Path, str | Path] | None = None,
    connect_seconds: float = 5.0,
) -> bool:
    """Brings a bundle to a server, which checks every byte and serves it beside its last version.

    Args:
        bundle: the bundle's folder.
        url: the server, started with ``push_folder`` and ``push_token_file``.
        token_file: the file of the token that the server was given too.
        ca: the PEM file of the authority of the server's certificate.
        domain: the name to check the certificate for, where it is not the URL's host.
        certificate: the files of a certificate and its key, for a server that asks for one.
        connect_seconds: how long a connection may take.

    Returns:
        Whether it is a version that the server did not have as its newest.

    Raises:
        ConfigError: a wrong token, or a bundle that the server does not take.
        Unavailable: a server out of reach.
    """
    try:
        token = Path(token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token from {token_file}: {error}") from error
    pair = None if certificate is None else (Path(certificate[0]), Path(certificate[1]))
    return _native.push_bundle(
        Path(bundle),
        url,
        token,
        ca=None if ca is None else Path(ca),
        domain=domain,
        certificate=pair,
        connect_seconds=connect_seconds,
    )
