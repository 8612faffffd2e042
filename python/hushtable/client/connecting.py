"""The one door: whom to connect to, and by which scheme."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

from .. import _native
from ..errors import ConfigError, ProtocolError
from . import logs
from .model import MODEL, AsyncModelClient, ModelClient
from .options import ClientOptions, Tls, TlsConfig
from .reach import Kind, Reach, Servers, Urls
from .table import ONION, PAIR, AsyncClient, Client

if TYPE_CHECKING:
    from ..infer import (
        AsyncCkksClient,
        AsyncHybridClient,
        AsyncSharesClient,
        CkksClient,
        HybridClient,
        SharesClient,
    )

    #: What :func:`connect` makes where a type checker cannot see of what scheme.
    AnyClient: TypeAlias = Client | ModelClient | CkksClient | HybridClient | SharesClient
    AnyAsyncClient: TypeAlias = (
        AsyncClient | AsyncModelClient | AsyncCkksClient | AsyncHybridClient | AsyncSharesClient
    )

#: A model by its name or the path of its bundle or manifest; True for the only one there is.
Named = str | os.PathLike[str] | Literal[True]
#: How servers are asked.
Scheme = Literal["pair", "onion", "ckks", "hybrid", "shares"]
#: The schemes, and how many servers each asks.
SCHEMES: dict[Scheme, int] = {
    scheme: 1 if facts.is_alone else 2
    for facts in _native.schemes()
    for scheme in get_args(Scheme)
    if scheme == facts.name
}


class _Common(TypedDict, total=False):
    version: str | None
    tls: Tls | None
    options: ClientOptions | None


@overload
def connect(
    left: Servers,
    right: Servers,
    *,
    scheme: Literal["pair"] | None = ...,
    model: None = ...,
    **common: Unpack[_Common],
) -> Client: ...
@overload
def connect(
    left: Servers,
    right: Servers,
    *,
    scheme: Literal["pair"] | None = ...,
    model: Named,
    **common: Unpack[_Common],
) -> ModelClient: ...
@overload
def connect(
    left: Servers, right: Servers, *, scheme: Literal["shares"], **common: Unpack[_Common]
) -> SharesClient: ...
@overload
def connect(*, server: Servers, scheme: Literal["onion"], **common: Unpack[_Common]) -> Client: ...
@overload
def connect(
    *, server: Servers, scheme: Literal["ckks"], **common: Unpack[_Common]
) -> CkksClient: ...
@overload
def connect(
    *, server: Servers, scheme: Literal["hybrid"], **common: Unpack[_Common]
) -> HybridClient: ...
@overload
def connect(
    left: Servers | None = ...,
    right: Servers | None = ...,
    *,
    server: Servers | None = ...,
    scheme: Scheme | None = ...,
    model: Named | None = ...,
    **common: Unpack[_Common],
) -> AnyClient: ...


def connect(
    left: Servers | None = None,
    right: Servers | None = None,
    *,
    server: Servers | None = None,
    scheme: Scheme | None = None,
    model: Named | None = None,
    version: str | None = None,
    tls: Tls | None = None,
    options: ClientOptions | None = None,
) -> Any:
    """Connects to a left and a right server, or to a single server, and asks what they hold.

    With two servers, privacy rests on them not putting their heads together: have them run by
    parties that do not. Anyone who sees both servers' traffic in the clear sees the ids, hence TLS.

    With one (``server=``), it rests on encryption that the server computes with. The client makes a
    secret, which it keeps, and keys, which the first call uploads; the server can tell which calls
    were made under one set of keys.

    How the servers are asked, and what comes back:

    - ``pair``, two servers, rows of a table or of a model: :class:`Client`, :class:`ModelClient`
    - ``onion``, one server, rows of a table: :class:`Client`
    - ``ckks``, one server, a model on encrypted features: :class:`hushtable.infer.CkksClient`
    - ``hybrid``, one server, a network on hidden inputs: :class:`hushtable.infer.HybridClient`
    - ``shares``, two servers, a model on secret shares: :class:`hushtable.infer.SharesClient`

    Args:
        left: URL of the left server, ``https://host:port``; ``http://`` only on this machine. Or a
            list of URLs: servers of one operator that hold the same. The first that can be asked
            is, and the next where it drains or is out of reach; each is checked to be a left one
            before it gets a key, and what goes on to another is made with new keys.
        right: URL of the right server, or a list as of left: of another operator.
        server: URL of a single server instead of the two, or a list. The keys are uploaded to each
            that is asked.
        scheme: how the servers are asked. By default ``pair`` of two; a single server is asked
            which it speaks (type checkers want it written).
        model: pair: the name of a model that two servers hold, which makes a :class:`ModelClient`;
            or the path of its bundle or manifest, which pins its version too; or True, for the only
            model that they hold.
        version: the only version of the table, or of the model, to take, in hex. A client that
            meets another, now or after a restart of a server, raises VersionMismatch and sends
            nothing. Without, a client follows its servers.
        tls: the authority's PEM file, True for the authorities that this machine trusts, or a
            :class:`TlsConfig`; needed for ``https://``.
        options: all else: timeouts, padding, where precomputes are kept.

    Raises:
        ConfigError: a URL, file or option that cannot work.
        SwappedServers: left says it is right, or both say they are the same side. A call raises it
            too, where it goes on to such a server.
        VersionMismatch: the servers hold different tables, models or plans, or another version than
            ``version``.
        UnknownModel: the servers hold no such model; or several tables, and no model was named.
        ParametersRefused: a single server of a set that ``parameter_sets`` does not name.
        PrecomputeError: a folder of precomputes that cannot be used.
        ProtocolError: a server of another scheme: one of two asked alone, or the reverse; or one
            that announces what cannot be.
        TlsError, ServerUnavailable, ServerTimeout: a server that cannot be reached.
    """
    urls = Urls.check(left, right, server)
    return connect_again(_reach(urls, scheme, model, version, tls, options))


@overload
async def connect_async(
    left: Servers,
    right: Servers,
    *,
    scheme: Literal["pair"] | None = ...,
    model: None = ...,
    **common: Unpack[_Common],
) -> AsyncClient: ...
@overload
async def connect_async(
    left: Servers,
    right: Servers,
    *,
    scheme: Literal["pair"] | None = ...,
    model: Named,
    **common: Unpack[_Common],
) -> AsyncModelClient: ...
@overload
async def connect_async(
    left: Servers, right: Servers, *, scheme: Literal["shares"], **common: Unpack[_Common]
) -> AsyncSharesClient: ...
@overload
async def connect_async(
    *, server: Servers, scheme: Literal["onion"], **common: Unpack[_Common]
) -> AsyncClient: ...
@overload
async def connect_async(
    *, server: Servers, scheme: Literal["ckks"], **common: Unpack[_Common]
) -> AsyncCkksClient: ...
@overload
async def connect_async(
    *, server: Servers, scheme: Literal["hybrid"], **common: Unpack[_Common]
) -> AsyncHybridClient: ...
@overload
async def connect_async(
    left: Servers | None = ...,
    right: Servers | None = ...,
    *,
    server: Servers | None = ...,
    scheme: Scheme | None = ...,
    model: Named | None = ...,
    **common: Unpack[_Common],
) -> AnyAsyncClient: ...


async def connect_async(
    left: Servers | None = None,
    right: Servers | None = None,
    *,
    server: Servers | None = None,
    scheme: Scheme | None = None,
    model: Named | None = None,
    version: str | None = None,
    tls: Tls | None = None,
    options: ClientOptions | None = None,
) -> Any:
    """:func:`connect` for asyncio; arguments and errors are the same."""
    urls = Urls.check(left, right, server)

    def connected() -> tuple[_native.Client, Reach]:
        reach = _reach(urls, scheme, model, version, tls, options)
        return _native.Client(reach.kind, reach), reach

    native, reach = await asyncio.to_thread(connected)
    return _logged(_kind(reach.kind).async_client(native, reach), reach)


def connect_again(reach: Reach) -> Any:
    """A client of the servers of ``reach``: now, or where one is copied or pickled to."""
    return _logged(_kind(reach.kind).client(_native.Client(reach.kind, reach), reach), reach)


def _logged(client: Any, reach: Reach) -> Any:
    """The client, of which the log says that it has connected."""
    logs.connected(reach.urls, reach.kind, client.info.name, client.info.version)
    return client


def _kind(name: str) -> Kind:
    if name in (kinds := {"pair": PAIR, "model": MODEL, "onion": ONION}):
        return kinds[name]
    # Lookups need nothing of it, and it takes a while to import.
    from ..infer import _kinds

    return _kinds.KINDS[name].kind


def _reach(
    urls: Urls,
    scheme: Scheme | None,
    model: Named | None,
    version: str | None,
    tls: Tls | None,
    options: ClientOptions | None,
) -> Reach:
    options, checked = ClientOptions() if options is None else options, TlsConfig.of(tls)
    if not isinstance(options, ClientOptions):
        raise ConfigError(f"options must be a ClientOptions, not {options!r}")
    if scheme is not None and scheme not in SCHEMES:
        raise ConfigError(f"scheme is {scheme!r}, but must be {', '.join(SCHEMES)}")
    if model is not None and scheme not in (None, "pair"):
        raise ConfigError(f"model= is for lookups by pair: leave it out with scheme={scheme!r}")
    if model is not None and urls.second is None:
        raise ConfigError("models' tables are served by two servers: give left= and right=")
    if scheme is None:
        scheme = "pair" if urls.second else offered_by(urls.first, checked, options)
    elif (SCHEMES[scheme] == 1) != (urls.second is None):
        wanted = "server= alone" if SCHEMES[scheme] == 1 else "left= and right="
        raise ConfigError(f"which servers? {scheme} takes {wanted}")
    options.check(scheme)
    if model is None:
        return Reach(scheme, urls, checked, version, options)
    if options.max_ids is not None:
        raise ConfigError("a model says how many ids each feature is padded to: leave max_ids out")
    # By its name: the bundle need not be where a copy is made.
    name, version = _pin(model, version)
    return Reach("model", urls, checked, version, options, name)


def offered_by(server: Servers, tls: TlsConfig | None, options: ClientOptions) -> Scheme:
    """The scheme that a single server speaks.

    Raises:
        ProtocolError: it speaks none of a single server's.
        ServerUnavailable, ServerTimeout, TlsError: as :func:`connect`.
    """
    reach = Reach("", Urls.check(None, None, server), tls, None, options)
    found = _native.offered_scheme(reach)
    for scheme in SCHEMES:
        if scheme == found:
            return scheme
    raise ProtocolError(
        f"{reach.urls} speaks no scheme of a single server (onion, ckks, hybrid): give left= and "
        "right= for one of two servers; a training server is hushtable.fl.TrainingClient's"
    )


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
