"""Whom a client reaches: what is needed to connect to them, now and again elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from .. import _native
from .._closing import AsyncClosing, Closing
from ..errors import ConfigError
from .options import ClientOptions, TlsConfig

#: The URL of a server, or those of several servers of one operator that hold the same.
Servers = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Urls:
    """Of two sides' servers, or of a single one's: then there is no second."""

    first: list[str]
    second: list[str] | None

    @classmethod
    def check(cls, left: Servers | None, right: Servers | None, server: Servers | None) -> Self:
        if server is not None and left is None and right is None:
            return cls(urls_of("server", server), None)
        if server is None and left is not None and right is not None:
            return cls(urls_of("left", left), urls_of("right", right))
        raise ConfigError(
            "which servers? give left= and right=, or server= alone for a single server"
        )

    def __str__(self) -> str:
        sides = [self.first] if self.second is None else [self.first, self.second]
        return ", ".join(" or ".join(side) for side in sides)


def urls_of(name: str, servers: Servers) -> list[str]:
    """The URLs of the argument ``name``.

    Raises:
        ConfigError: it is neither a URL nor a list of one or more.
    """
    urls = [servers] if isinstance(servers, str) else list(servers)
    if not urls or not all(isinstance(url, str) for url in urls):
        raise ConfigError(f"{name} must be a URL, or a list of one or more: {servers!r}")
    return urls


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of clients.

    Attributes:
        scheme: by which they ask.
        client: what users call, around the native client.
        async_client: the same for asyncio.
    """

    scheme: str
    client: Callable[[_native.Client, Reach], Any]
    async_client: Callable[[_native.Client, Reach], Any]


@dataclass(frozen=True, slots=True)
class Reach:
    """Servers, and how they are asked: a client is made of it, and a copy in another process.

    The native module reads it, and of its options what the kind of client takes.

    Attributes:
        kind: of the client, by its name.
        urls: of the servers.
        tls: how they are checked; None for no TLS.
        version: the only one to take.
        model: the name of a model at two servers; None for the only one, and without a model.
        options: all else.
    """

    kind: str
    urls: Urls
    tls: TlsConfig | None
    version: str | None
    options: ClientOptions
    model: str | None = None

    @property
    def operators(self) -> list[tuple[list[str], Path | Literal[True] | None, str | None]]:
        """Of each operator the servers' URLs, their authority, and the name in their certificates.

        Raises:
            ConfigError: authorities for left and right, and a single server is neither.
        """
        urls, tls = self.urls, self.tls
        if urls.second is None:
            alone = (None, None) if tls is None else (tls.authorities, tls.server_name)
            return [(urls.first, *alone)]
        if tls is None:
            return [(urls.first, None, None), (urls.second, None, None)]
        left, right = tls.authorities_by_side
        return [(urls.first, left, tls.left_name), (urls.second, right, tls.right_name)]

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """The files of this client's certificate and its key, where it has them."""
        return None if self.tls is None else self.tls.identity


class BaseClient:
    """What all clients are: the native one, and whom it reached."""

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        self._native = native
        self._reach = reach
        self._is_closed = False

    def close(self) -> None:
        """Closes the connections. Calls that are under way finish; new ones are refused."""
        self._is_closed = True
        self._native.close()


class Movable(Closing):
    """A client that threads share, and that connects anew where it is copied or pickled to."""

    _reach: Reach
    _is_closed: bool

    def __reduce__(self) -> tuple[Callable[[Reach], Any], tuple[Reach]]:
        if self._is_closed:
            raise ConfigError(
                f"this {type(self).__name__} cannot be copied or pickled: it is closed"
            )
        from .connecting import connect_again

        # Whom it tells of uploads is of this process, and may hold what cannot be copied.
        return connect_again, (
            replace(self._reach, options=replace(self._reach.options, progress=None)),
        )


class Unmovable(AsyncClosing):
    """A client of asyncio, which stays where it is."""

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            f"an {type(self).__name__} cannot be copied or pickled, since connecting is awaited: "
            "call hushtable.connect_async() where it is to be"
        )


async def awaited(
    native: _native.Client, call: str, *given: Any, timeout: float | None = None
) -> Any:
    """What a native call returns within ``timeout`` seconds; cancelled, the call is given up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        if future.done():  # cancelled meanwhile
            return
        if error is not None or result is None:
            future.set_exception(error or RuntimeError("a lookup ended without a result"))
        else:
            future.set_result(result)

    def done(result: Any, error: BaseException | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, error)

    started: _native.Call = native.ask(call, *given, done=done, timeout=timeout)
    try:
        return await future
    except asyncio.CancelledError:
        started.cancel()
        raise
