"""Whom to connect to, and how."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, overload

from .. import _native
from ..errors import ConfigError
from .model import AsyncModelClient, ModelClient
from .table import AsyncClient, Client, Native, Servers, Urls

#: What a layout may take by default: one with the ids of 2^28 rows.
MAX_LAYOUT_BYTES = 1 << 30
#: The parameter sets that a single server may serve by, unless the caller says otherwise.
PARAMETER_SETS = ("n4096_128",)
#: A model by its name or the path of its bundle or manifest; True for the only one there is.
Named = str | os.PathLike[str] | Literal[True]


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How to check the servers, and how to show them who asks.

    Attributes:
        ca: PEM file with the certificate of the authority that the servers' certificates come
            from; without, any authority that this machine trusts (``SSL_CERT_FILE`` and
            ``SSL_CERT_DIR`` name others).
        certificate: PEM file with this client's own certificate, for servers that ask for one.
        key: PEM file with its private key.
        left_name: the name that left's certificate is for, where that is not its URL's host.
        right_name: the same for right.
        server_name: the same for a single server.
        left_ca: of two operators with an authority each, the PEM file of left's, in place of
            ``ca``: what it signs is taken from the left server alone.
        right_ca: the same for right. Both are given, or neither.
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    left_name: str | None = None
    right_name: str | None = None
    server_name: str | None = None
    left_ca: str | os.PathLike[str] | None = None
    right_ca: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.left_ca is None) != (self.right_ca is None):
            raise ConfigError(
                "an authority for each side needs both: left_ca= and right_ca=; or ca= for both"
            )
        if self.ca is not None and self.left_ca is not None:
            raise ConfigError("ca= is for both sides: leave it out with left_ca= and right_ca=")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate needs both: certificate= and key=")

    @property
    def authorities(self) -> Path | Literal[True]:
        """The file of a single server's authority; True for those that this machine trusts.

        Raises:
            ConfigError: authorities for left and right, and a single server is neither.
        """
        if self.left_ca is not None:
            raise ConfigError(
                "left_ca= and right_ca= are for two servers: give ca= for a single one"
            )
        return True if self.ca is None else Path(self.ca)

    @property
    def authorities_by_side(self) -> tuple[Path | Literal[True], Path | Literal[True]]:
        """The files of left's and right's authorities; True for those that this machine trusts."""
        if self.left_ca is None or self.right_ca is None:
            return self.authorities, self.authorities
        return Path(self.left_ca), Path(self.right_ca)

    @classmethod
    def of(cls, given: Tls | None) -> TlsConfig | None:
        """What ``tls=`` was given; None for no TLS.

        Raises:
            ConfigError: False, which would be taken for a file's number.
        """
        if given is None or isinstance(given, TlsConfig):
            return given
        if isinstance(given, bool):
            if given:
                return cls()
            raise ConfigError("tls must be True, a PEM file or a TlsConfig: leave it out for none")
        return cls(given)


#: How servers are checked: by the authority of a PEM file, by a :class:`TlsConfig`, or, with True,
#: by the authorities that this machine trusts.
Tls = TlsConfig | str | os.PathLike[str] | Literal[True]


@overload
def connect(
    left: Servers | None = ...,
    right: Servers | None = ...,
    *,
    server: Servers | None = ...,
    model: None = ...,
    version: str | None = ...,
    tls: Tls | None = ...,
    max_ids: int | None = ...,
    timeout: float = ...,
    connect_timeout: float = ...,
    prg: str = ...,
    parameter_sets: Sequence[str] = ...,
    insecure: bool = ...,
    max_layout_bytes: int = ...,
) -> Client: ...


@overload
def connect(
    left: Servers,
    right: Servers,
    *,
    model: Named,
    version: str | None = ...,
    tls: Tls | None = ...,
    max_ids: int | None = ...,
    timeout: float = ...,
    connect_timeout: float = ...,
    prg: str = ...,
    parameter_sets: Sequence[str] = ...,
    insecure: bool = ...,
    max_layout_bytes: int = ...,
) -> ModelClient: ...


def connect(
    left: Servers | None = None,
    right: Servers | None = None,
    *,
    server: Servers | None = None,
    tls: Tls | None = None,
    max_ids: int | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    prg: str = "aes128",
    parameter_sets: Sequence[str] = PARAMETER_SETS,
    insecure: bool = False,
    max_layout_bytes: int = MAX_LAYOUT_BYTES,
    model: Named | None = None,
    version: str | None = None,
) -> Client | ModelClient:
    """Connects to a left and a right server, or to a single server, and asks what they hold.

    With two servers, privacy rests on them not putting their heads together: have them run by
    parties that do not. Anyone who sees both servers' traffic in the clear sees the ids, hence TLS.

    With one (``server=``), it rests on encryption that the server computes with. The client makes a
    secret, which it keeps, and keys, which the first lookup uploads (:attr:`Client.onion` says how
    many bytes); the server can tell which lookups were made under one set of keys.

    Args:
        left: URL of the left server, ``https://host:port``; ``http://`` only on this machine. Or a
            list of URLs: servers of one operator that hold the same. The first that can be asked
            is, and the next where it drains or is out of reach; each is checked to be a left one
            before it gets a key, and a lookup that goes on to another is made with new keys.
        right: URL of the right server, or a list as of left: of another operator.
        server: URL of a single server (``hushtable serve --scheme onion``), instead of the two; or
            a list. The keys are uploaded to each that is asked.
        tls: the authority's PEM file, True for the authorities that this machine trusts, or a
            :class:`TlsConfig`; needed for ``https://``.
        max_ids: default for :meth:`Client.lookup`.
        timeout: seconds that one lookup may take, with all that is asked again: a busy server, one
            that drains, and the next of a list.
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
        model: the name of a model that two servers hold, which makes a :class:`ModelClient`; or the
            path of its bundle or manifest, which pins its version too; or True, for the only model
            that they hold.
        version: the only version of the table, or of the model, to take, in hex. A client that
            meets another, now or after a restart of a server, raises VersionMismatch and fetches
            nothing. Without, a client follows its servers, and ``last_stats.version`` says which
            version answered.

    Raises:
        ConfigError: a URL, file or option that cannot work.
        SwappedServers: left says it is right, or both say they are the same side. A lookup
            raises it too, where it goes on to such a server.
        VersionMismatch: the servers hold different tables or models, or another version than
            ``version``.
        UnknownModel: the servers hold no such model; or several tables, and no model was named.
        ParametersRefused: a single server of a set that ``parameter_sets`` does not name.
        ProtocolError: a server of the other kind: one of two asked alone, or the reverse; or one
            that announces what cannot be.
        TlsError, ServerUnavailable, ServerTimeout: a server that cannot be reached.
    """
    urls = Urls.check(left, right, server)
    options = _Options(
        tls, timeout, connect_timeout, prg, parameter_sets, insecure, max_layout_bytes, version
    )
    if model is None:
        return _OfTable(urls, options, max_ids)()
    return _OfModel.pinned(urls, options, model, max_ids)()


@overload
async def connect_async(
    left: Servers | None = ...,
    right: Servers | None = ...,
    *,
    server: Servers | None = ...,
    model: None = ...,
    version: str | None = ...,
    tls: Tls | None = ...,
    max_ids: int | None = ...,
    timeout: float = ...,
    connect_timeout: float = ...,
    prg: str = ...,
    parameter_sets: Sequence[str] = ...,
    insecure: bool = ...,
    max_layout_bytes: int = ...,
) -> AsyncClient: ...


@overload
async def connect_async(
    left: Servers,
    right: Servers,
    *,
    model: Named,
    version: str | None = ...,
    tls: Tls | None = ...,
    max_ids: int | None = ...,
    timeout: float = ...,
    connect_timeout: float = ...,
    prg: str = ...,
    parameter_sets: Sequence[str] = ...,
    insecure: bool = ...,
    max_layout_bytes: int = ...,
) -> AsyncModelClient: ...


async def connect_async(
    left: Servers | None = None,
    right: Servers | None = None,
    *,
    server: Servers | None = None,
    tls: Tls | None = None,
    max_ids: int | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    prg: str = "aes128",
    parameter_sets: Sequence[str] = PARAMETER_SETS,
    insecure: bool = False,
    max_layout_bytes: int = MAX_LAYOUT_BYTES,
    model: Named | None = None,
    version: str | None = None,
) -> AsyncClient | AsyncModelClient:
    """:func:`connect` for asyncio; arguments and errors are the same."""
    urls = Urls.check(left, right, server)
    options = _Options(
        tls, timeout, connect_timeout, prg, parameter_sets, insecure, max_layout_bytes, version
    )
    if model is None:
        native = await asyncio.to_thread(options.connect, urls)
        return AsyncClient(native, urls=urls, max_ids=max_ids)
    to_model = _OfModel.pinned(urls, options, model, max_ids)
    of_model = await asyncio.to_thread(options.connect_model, urls, to_model.model)
    return AsyncModelClient(of_model, urls=urls)


@dataclass(frozen=True, slots=True)
class _Options:
    """How to connect, whatever to."""

    tls: Tls | None
    timeout: float
    connect_timeout: float
    prg: str
    parameter_sets: Sequence[str]
    insecure: bool
    max_layout_bytes: int
    version: str | None

    def __post_init__(self) -> None:
        # A generator of names would be empty the second time.
        if not isinstance(self.parameter_sets, str):
            object.__setattr__(self, "parameter_sets", tuple(self.parameter_sets))
        if self.max_layout_bytes < 0:
            raise ConfigError(f"max_layout_bytes must be at least 0, not {self.max_layout_bytes}")
        sets = self.parameter_sets
        if isinstance(sets, str) or not sets:
            raise ConfigError(
                f"parameter_sets must list one or more names, as ('n4096_128',): {sets!r}"
            )

    @property
    def _tls(self) -> TlsConfig | None:
        return TlsConfig.of(self.tls)

    @property
    def _ca(self) -> Path | Literal[True] | None:
        tls = self._tls
        return None if tls is None else tls.authorities

    @property
    def _cas(self) -> tuple[Path | Literal[True] | None, Path | Literal[True] | None]:
        tls = self._tls
        return (None, None) if tls is None else tls.authorities_by_side

    @property
    def _certificate(self) -> tuple[Path, Path] | None:
        tls = self._tls
        if tls is None or tls.certificate is None or tls.key is None:
            return None
        return Path(tls.certificate), Path(tls.key)

    @property
    def _names(self) -> tuple[str | None, str | None]:
        return (None, None) if self._tls is None else (self._tls.left_name, self._tls.right_name)

    def connect(self, urls: Urls) -> Native:
        """To servers of one table."""
        if urls.second is None:
            return _native.OnionClient(
                urls.first,
                ca=self._ca,
                certificate=self._certificate,
                name=None if self._tls is None else self._tls.server_name,
                parameter_sets=list(self.parameter_sets),
                insecure=self.insecure,
                connect_seconds=self.connect_timeout,
                seconds=self.timeout,
                version=self.version,
            )
        return _native.PairClient(
            urls.first,
            urls.second,
            cas=self._cas,
            certificate=self._certificate,
            names=self._names,
            prg=self.prg,
            insecure=self.insecure,
            connect_seconds=self.connect_timeout,
            seconds=self.timeout,
            layout_bytes_max=self.max_layout_bytes,
            version=self.version,
        )

    def connect_model(self, urls: Urls, model: str | None) -> _native.ModelClient:
        """To servers of a model, by its name; None for the only one that they hold."""
        if urls.second is None:
            raise ConfigError("models are served by two servers: give left= and right=")
        return _native.ModelClient(
            urls.first,
            urls.second,
            cas=self._cas,
            certificate=self._certificate,
            names=self._names,
            prg=self.prg,
            insecure=self.insecure,
            connect_seconds=self.connect_timeout,
            seconds=self.timeout,
            layout_bytes_max=self.max_layout_bytes,
            version=self.version,
            model=model,
        )


@dataclass(frozen=True, slots=True)
class _OfTable:
    """How a client was made, and a copy of it is made in another process."""

    urls: Urls
    options: _Options
    max_ids: int | None

    def __call__(self) -> Client:
        native = self.options.connect(self.urls)
        return Client(native, urls=self.urls, max_ids=self.max_ids, again=self)


@dataclass(frozen=True, slots=True)
class _OfModel:
    """As :class:`_OfTable`, for a model by its name."""

    urls: Urls
    options: _Options
    model: str | None

    @classmethod
    def pinned(cls, urls: Urls, options: _Options, model: Named, max_ids: int | None) -> Self:
        """Of a model by its name, or by its bundle, which need not be where a copy is made."""
        if max_ids is not None:
            raise ConfigError(
                "a model says how many ids each feature is padded to: leave max_ids out"
            )
        name, version = _pin(model, options.version)
        return cls(urls, replace(options, version=version), name)

    def __call__(self) -> ModelClient:
        native = self.options.connect_model(self.urls, self.model)
        return ModelClient(native, urls=self.urls, again=self)


def _pin(model: Named, version: str | None) -> tuple[str | None, str | None]:
    """The name of the model to ask for, and its version."""
    if model is True:
        return None, version
    if isinstance(model, str) and not Path(model).exists():
        return model, version
    name, pinned = _native.model_pin(Path(model))
    if version is not None and version != pinned:
        raise ConfigError(
            f"version is {version}, but the model at {os.fspath(model)} is of version {pinned}: "
            "leave version out, or give the model by its name"
        )
    return name, pinned
