"""Whom to connect to, and how."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import _native
from ..errors import ConfigError
from .table import AsyncClient, Client, Native, Urls

#: What a layout may take by default: one with the ids of 2^28 rows.
MAX_LAYOUT_BYTES = 1 << 30
#: The parameter sets that a single server may serve by, unless the caller says otherwise.
PARAMETER_SETS = ("n4096_128",)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How to check the servers, and how to show them who asks.

    Attributes:
        ca: PEM file with the certificate of the authority that the servers' certificates come
            from.
        certificate: PEM file with this client's own certificate, for servers that ask for one.
        key: PEM file with its private key.
        left_name: the name that left's certificate is for, where that is not its URL's host.
        right_name: the same for right.
        server_name: the same for a single server.
    """

    ca: str | os.PathLike[str]
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    left_name: str | None = None
    right_name: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate needs both: certificate= and key=")


def connect(
    left: str | None = None,
    right: str | None = None,
    *,
    server: str | None = None,
    tls: TlsConfig | str | os.PathLike[str] | None = None,
    max_ids: int | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    prg: str = "aes128",
    parameter_sets: Sequence[str] = PARAMETER_SETS,
    insecure: bool = False,
    max_layout_bytes: int = MAX_LAYOUT_BYTES,
) -> Client:
    """Connects to a left and a right server, or to a single server, and asks what they hold.

    With two servers, privacy rests on them not putting their heads together: have them run by
    parties that do not. Anyone who sees both servers' traffic in the clear sees the ids, hence TLS.

    With one (``server=``), it rests on encryption that the server computes with. The client makes a
    secret, which it keeps, and keys, which the first lookup uploads (:attr:`Client.onion` says how
    many bytes); the server can tell which lookups were made under one set of keys.

    Args:
        left: URL of the left server, ``https://host:port``; ``http://`` only on this machine.
        right: URL of the right server.
        server: URL of a single server (``hushtable serve --scheme onion``), instead of the two.
        tls: the authority's PEM file, or a :class:`TlsConfig`; needed for ``https://``.
        max_ids: default for :meth:`Client.lookup`.
        timeout: seconds that one lookup may take, retries at a busy server included.
        connect_timeout: seconds that one connection may take.
        prg: the generator that two servers' keys use; they accept aes128, chacha20 and chacha12 by
            default.
        parameter_sets: the parameter sets that a single server may serve by. The client takes the
            parameters themselves from its own build and refuses a server that names another set.
            ``ive_paper`` has less than 128 bits of security by the 2024 guidelines.
        insecure: allow ``http://`` to other machines, where something else encrypts the way.
        max_layout_bytes: the largest layout to fetch. Where the table has one, it is fetched now,
            for :meth:`Client.lookup_bag`; 0 for a client that makes plain lookups only. Layouts are
            for two servers.

    Raises:
        ConfigError: a URL, file or option that cannot work.
        SwappedServers: left says it is right, or both say they are the same side.
        VersionMismatch: the servers hold different tables.
        ParametersRefused: a single server of a set that ``parameter_sets`` does not name.
        ProtocolError: a server of the other kind: one of two asked alone, or the reverse; or one
            that announces what cannot be.
        TlsError, ServerUnavailable, ServerTimeout: a server that cannot be reached.
    """
    urls = Urls.check(left, right, server)
    native = _connect(
        urls, tls, timeout, connect_timeout, prg, parameter_sets, insecure, max_layout_bytes
    )
    return Client(native, urls=urls, max_ids=max_ids)


async def connect_async(
    left: str | None = None,
    right: str | None = None,
    *,
    server: str | None = None,
    tls: TlsConfig | str | os.PathLike[str] | None = None,
    max_ids: int | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    prg: str = "aes128",
    parameter_sets: Sequence[str] = PARAMETER_SETS,
    insecure: bool = False,
    max_layout_bytes: int = MAX_LAYOUT_BYTES,
) -> AsyncClient:
    """:func:`connect` for asyncio; arguments and errors are the same."""
    urls = Urls.check(left, right, server)
    native = await asyncio.to_thread(
        _connect,
        urls,
        tls,
        timeout,
        connect_timeout,
        prg,
        parameter_sets,
        insecure,
        max_layout_bytes,
    )
    return AsyncClient(native, urls=urls, max_ids=max_ids)


def _connect(
    urls: Urls,
    tls: TlsConfig | str | os.PathLike[str] | None,
    timeout: float,
    connect_timeout: float,
    prg: str,
    parameter_sets: Sequence[str],
    insecure: bool,
    max_layout_bytes: int,
) -> Native:
    if max_layout_bytes < 0:
        raise ConfigError(f"max_layout_bytes must be at least 0, not {max_layout_bytes}")
    if isinstance(parameter_sets, str) or not parameter_sets:
        raise ConfigError(
            f"parameter_sets must list one or more names, as ('n4096_128',): {parameter_sets!r}"
        )
    if tls is not None and not isinstance(tls, TlsConfig):
        tls = TlsConfig(ca=tls)
    certificate = None
    if tls is not None and tls.certificate is not None and tls.key is not None:
        certificate = (Path(tls.certificate), Path(tls.key))
    ca = None if tls is None else Path(tls.ca)
    if urls.second is None:
        return _native.OnionClient(
            urls.first,
            ca=ca,
            certificate=certificate,
            name=None if tls is None else tls.server_name,
            parameter_sets=list(parameter_sets),
            insecure=insecure,
            connect_seconds=connect_timeout,
            seconds=timeout,
        )
    return _native.PairClient(
        urls.first,
        urls.second,
        ca=ca,
        certificate=certificate,
        names=(None, None) if tls is None else (tls.left_name, tls.right_name),
        prg=prg,
        insecure=insecure,
        connect_seconds=connect_timeout,
        seconds=timeout,
        layout_bytes_max=max_layout_bytes,
    )
