"""Where a gateway listens, for whom, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..client import AsyncClient, AsyncModelClient
from ..errors import ConfigError
from .application import LOOPBACK_HOSTS, Gateway

__all__ = ["ADDR", "GatewayOptions", "Listening", "run_gateway"]

#: Where it listens by default.
ADDR = "127.0.0.1:8600"
#: A token's length, as of a server's token for pushes.
_TOKEN_CHARS = range(16, 1025)
#: How long a request's head may take to come, from the connection or the last response on.
_HEAD_SECONDS = 10.0
_MISSING = "the gateway takes uvicorn: pip install 'hushtable[gateway]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """How a gateway listens, and what it takes.

    Attributes:
        addr: address and port; a free one where the port is 0.
        unix: a socket's path instead, for this user alone.
        token_file: a file with the token that requests carry: 16 to 1,024 printable characters
            without spaces. On another address than loopback there must be one.
        tls_cert: PEM file of a certificate, for ``https``.
        tls_key: PEM file of its key.
        plain_http: allow another address than loopback without TLS, where something else encrypts
            the way: token and ids travel in the clear.
        allow_hosts: names of this gateway beside those of loopback, as ``host`` says them.
        max_ids: what each lookup is padded to where the request does not say; the next power of two
            of its ids by default, whose logarithm the servers then learn.
        ids_max: most ids of one request.
        body_bytes_max: most bytes of a request's body.
        requests_max: most requests for rows under way.
        drain_seconds: how long what is under way may take once the gateway ends.

    Raises:
        ConfigError: what cannot work, or would show ids to others.
    """

    addr: str = ADDR
    unix: str | os.PathLike[str] | None = None
    token_file: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    plain_http: bool = False
    allow_hosts: tuple[str, ...] = field(default=())
    max_ids: int | None = None
    ids_max: int = 4096
    body_bytes_max: int = 1 << 20
    requests_max: int = 256
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs a certificate and its key: give --tls-cert and --tls-key")
        for name in ("max_ids", "ids_max", "body_bytes_max", "requests_max"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.drain_seconds <= 86_400:
            raise ConfigError(f"drain_seconds must be 0 to 86,400, not {self.drain_seconds}")
        host, _ = _split(self.addr)
        if self.unix is not None or _is_loopback(host):
            return
        if self.token_file is None:
            raise ConfigError(
                f"{self.addr} is reachable from other machines, and whoever reaches it could ask "
                "in this client's name: give --token-file, or listen on 127.0.0.1"
            )
        if self.tls_cert is None and not self.plain_http:
            raise ConfigError(
                f"{self.addr} is reachable from other machines and there is no TLS: token and ids "
                "would travel in the clear. Give --tls-cert and --tls-key, or --plain-http where "
                "something else encrypts the way"
            )

    @property
    def token(self) -> str | None:
        """The token of the file; none without one.

        Raises:
            ConfigError: a file that cannot be read, or has no token.
        """
        if self.token_file is None:
            return None
        try:
            token = Path(self.token_file).read_text(encoding="utf-8-sig").strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token from {self.token_file}: {error}") from error
        is_printable = token.isascii() and token.isprintable() and " " not in token
        if len(token) not in _TOKEN_CHARS or not is_printable:
            raise ConfigError(
                f"{self.token_file} has no token: one line of 16 to 1,024 printable characters "
                "without spaces, say of `openssl rand -hex 32`"
            )
        return token

    @property
    def hosts(self) -> list[str] | None:
        """The names that a browser may have for it; none for any: its token keeps others out."""
        if self.unix is not None or (self.token_file is not None and not self.allow_hosts):
            return None
        own = self.addr.rpartition(":")[0]
        return [*dict.fromkeys((*LOOPBACK_HOSTS, own, *self.allow_hosts))]


@dataclass(frozen=True, slots=True)
class Listening:
    """A gateway that is ready.

    Attributes:
        url: where requests go; of a socket of Unix ``unix:PATH``.
        tables: what can be asked.
    """

    url: str
    tables: tuple[str, ...]


def run_gateway(
    connect: Callable[[], Awaitable[AsyncClient | AsyncModelClient]],
    options: GatewayOptions,
    *,
    on_ready: Callable[[Listening], None] = lambda _: None,
) -> None:
    """Runs a gateway until SIGTERM or SIGINT, and then until what is under way is answered.

    To be called on the main thread.

    Args:
        connect: makes the client that asks, as ``lambda: hushtable.connect_async(...)``.
        options: where it listens, and for whom.
        on_ready: told once it takes requests.

    Raises:
        ConfigError: options that cannot work; an address that cannot be listened at; without
            uvicorn, which ``hushtable[gateway]`` brings.
        Error: the servers cannot be asked: what ``connect`` raises.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    # Both are read before anything is asked of anybody.
    token, tls = options.token, _tls(options)

    async def run() -> None:
        async with await connect() as client:
            gateway = Gateway(
                client,
                token=token,
                hosts=options.hosts,
                max_ids=options.max_ids,
                ids_max=options.ids_max,
                body_bytes_max=options.body_bytes_max,
                requests_max=options.requests_max,
            )
            with _bound(options) as (bound, url):
                config = uvicorn.Config(
                    gateway,
                    # The other parser, where it is installed, takes heads of any length.
                    http=_protocol(),
                    # Lines of ours alone, which hold no id: an access log has paths of others.
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    proxy_headers=False,
                    server_header=False,
                    date_header=False,
                    ws="none",
                    timeout_graceful_shutdown=max(1, round(options.drain_seconds)),
                    # Every request is short, so that what takes long is what waits for its rows.
                    h11_max_incomplete_event_size=1 << 16,
                    backlog=1024,
                )
                config.load()
                config.ssl = tls
                server = uvicorn.Server(config)
                ready = Listening(url, tuple(gateway.names))
                await _serve(server, bound, gateway, lambda: on_ready(ready))

    with _quiet_signals():
        asyncio.run(run())


def _protocol() -> Any:
    """HTTP by h11, where a request's head comes in time: uvicorn waits for one for ever."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class InTime(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def handle_events(self) -> None:
            super().handle_events()
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._end_wait()

        def _wait(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._end_wait()
            elif self._late is None:
                self._late = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

        def _end_wait(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return InTime


async def _serve(
    server: Any, bound: socket.socket, gateway: Gateway, on_ready: Callable[[], None]
) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if server.started:
        on_ready()
    await serving


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """The server's own way to end, which raises the signal again afterwards, ends nothing more."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _tls(options: GatewayOptions) -> ssl.SSLContext | None:
    if options.tls_cert is None or options.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{options.tls_cert} with {options.tls_key}: {error}") from error
    return context


@contextlib.contextmanager
def _bound(options: GatewayOptions) -> Iterator[tuple[socket.socket, str]]:
    """The socket, bound, and where requests go."""
    if options.unix is not None:
        with _unix(Path(options.unix)) as bound:
            yield bound, f"unix:{options.unix}"
        return
    host, port = _split(options.addr)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if _is_loopback(host) and not _is_loopback(str(found[4][0])):
            raise ConfigError(
                f"{host} is {found[4][0]} here, which other machines reach: listen on 127.0.0.1"
            )
        # With the protocol said: else replies would wait for acknowledgements, 40 ms each.
        bound = socket.socket(*found[:3])
        with bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(found[4])
            name = f"[{host}]" if ":" in host else host
            scheme = "http" if options.tls_cert is None else "https"
            yield bound, f"{scheme}://{name}:{bound.getsockname()[1]}"
    # A name with a label of more than 63 letters is a UnicodeError.
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen at {options.addr}: {error}") from error


@contextlib.contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    """A socket of Unix that this user alone may connect to; gone at the end."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with bound:
        try:
            if path.is_socket() and not _answers(path):
                path.unlink()  # the socket of a gateway that was killed
            before = os.umask(0o177)
            try:
                bound.bind(os.fspath(path))
            finally:
                os.umask(before)
        except OSError as error:
            raise ConfigError(f"cannot listen at {path}: {error}") from error
        own = _made(path)
        try:
            yield bound
        finally:
            # While this one ended, another may have come to listen there.
            with contextlib.suppress(FileNotFoundError):
                if _made(path) == own:
                    path.unlink()


def _made(path: Path) -> tuple[int, int, int]:
    """Which file it is. A number alone may be that of one removed before."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        try:
            asked.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
    return True


def _split(addr: str) -> tuple[str, int]:
    host, colon, port = addr.rpartition(":")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise ConfigError(f"addr is {addr!r}, but must be an address and a port, as {ADDR}")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may come to mean any machine's address
