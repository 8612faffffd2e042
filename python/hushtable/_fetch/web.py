"""Files of a model at an HTTP server, of which no more is read than was asked for."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from .._printable import one_line
from ..errors import ConfigError, FetchError
from . import source
from .source import FileFacts, cut_short, no_file, no_ranges, without_secrets, words

__all__ = ["Web"]

_T = TypeVar("_T")

#: Seconds that a server may be silent, and that any answer may take.
_SILENCE_S = 60.0
#: Bytes a second that an answer must have beyond that.
_RATE_MIN = 32 << 10
#: How often a request is sent on.
_REDIRECTS_MAX = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
#: What a server may answer otherwise a moment later: too many requests, and failures of its own.
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
#: What servers say that answer GET alone, and stores of URLs that are signed for it.
_NO_HEAD = frozenset((403, 405, 501))
_LENGTH = re.compile(r"\d{1,18}")
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")
_PORTS = {"http": 80, "https": 443}
#: What may stand in a path and in a query as it is; what is encoded already stays so.
_PATH, _QUERY = "/%:@!$&'()*+,;=~", "/%:@!$&'()*+,;=~?"


@dataclass(frozen=True, slots=True)
class _Origin:
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


class _Refused(Exception):
    """A status that is no answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status


class Web:
    """A model at an HTTP or HTTPS server, whose certificate an authority of this machine signed.

    No proxy is used, whatever the environment names.

    Args:
        url: the model's folder; it may have a user and a password, and a query, which goes with
            every file.
        follow_redirects: go to other hosts, too, where the server sends there.

    Raises:
        ConfigError: no URL of a server.
    """

    threads = 4

    def __init__(self, url: str, *, follow_redirects: bool) -> None:
        try:
            self._origin, path, self._query, user = _parts(url)
        except ValueError:
            # What is wrong with it may be a part of the password.
            raise ConfigError(
                f"{without_secrets(url)} is no URL of a server: write https://HOST/FOLDER, with "
                "%40 for an @ and %2F for a slash in a user, a password or a folder's name"
            ) from None
        self._path = path.rstrip("/")
        self.shown = one_line(f"{self._origin}{self._path}")
        self._follows = follow_redirects
        self._own = {}
        if user:
            plain = urllib.parse.unquote(user).encode()
            self._own["Authorization"] = f"Basic {base64.b64encode(plain).decode()}"
        self._tls = ssl.create_default_context()
        self._open_lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_stopped = False

    def facts(self, path: str) -> FileFacts | None:
        def ask() -> FileFacts:
            try:
                with self._answer(path, "HEAD", {}, 0) as answer:
                    length = answer.headers.get("Content-Length", "")
                    has_ranges = answer.headers.get("Accept-Ranges") != "none"
                    return self._facts(path, length if has_ranges else "", answer)
            except _Refused as refused:
                if refused.status not in _NO_HEAD:
                    raise
            with self._answer(path, "GET", {"Range": "bytes=0-0"}, 1) as answer:
                found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
                return self._facts(path, found[2] if found else "", answer)

        return self._tried(path, ask)

    def _facts(self, path: str, length: str, answer: http.client.HTTPResponse) -> FileFacts:
        if not _LENGTH.fullmatch(length):
            raise no_ranges(self.shown, path)
        headers = answer.headers
        known = [(name, headers[name]) for name in ("ETag", "Last-Modified") if name in headers]
        return FileFacts(int(length), "; ".join(f"{name} {value}" for name, value in known))

    def read(self, path: str, first: int, count: int) -> bytes:
        if count == 0:
            return b""

        def ask() -> bytes:
            wanted = {"Range": f"bytes={first}-{first + count - 1}"}
            with self._answer(path, "GET", wanted, count) as answer:
                found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
                is_range = found is not None and int(found[1]) == first
                # A server without ranges sends the file from its beginning.
                if not (is_range if answer.status == 206 else first == 0):
                    raise no_ranges(self.shown, path)
                # One more than was asked for is enough to know that there is more.
                data = answer.read(count + 1)
                if len(data) < count:
                    raise http.client.IncompleteRead(data, count - len(data))
                return data

        data = self._tried(path, ask, count=count, first=first)
        if data is None:
            raise no_file(self.shown, path)
        if len(data) > count:
            raise no_ranges(self.shown, path)
        return data

    def stop(self) -> None:
        with self._open_lock:
            self._is_stopped = True
            for one in self._open:
                _end(one)

    @contextlib.contextmanager
    def _answer(
        self, path: str, method: str, headers: dict[str, str], count: int
    ) -> Iterator[http.client.HTTPResponse]:
        """What is answered, by whomever the server sends to, of which ``count`` bytes are read."""
        origin, query = self._origin, self._query
        target = f"{self._path}/{urllib.parse.quote(path)}"
        for _ in range(_REDIRECTS_MAX + 1):
            with self._connected(origin, count) as connection:
                own = self._own if origin == self._origin else {}
                asked = {"Accept-Encoding": "identity", "User-Agent": "hushtable", **own, **headers}
                connection.request(method, target + query, headers=asked)
                # Whatever comes with a redirect or a refusal is not read.
                with contextlib.closing(connection.getresponse()) as answer:
                    if answer.status not in _REDIRECTS:
                        if answer.status not in (200, 206):
                            raise _Refused(answer.status, answer.reason)
                        yield answer
                        return
                    place = answer.headers.get("Location", "")
            try:
                whole = urllib.parse.urljoin(f"{origin}{target}{query}", place)
                sent, target, query, _ = _parts(whole)
            except ValueError:
                raise FetchError(
                    f"{self.shown} sends elsewhere, to what is no URL of a server"
                ) from None
            if sent != origin and not self._follows:
                raise FetchError(
                    f"{self.shown} sends elsewhere, to {sent}: fetch from there, or allow it "
                    "(follow_redirects=True, --follow-redirects)"
                )
            origin = sent
        raise FetchError(f"{self.shown} sends on more than {_REDIRECTS_MAX} times")

    @contextlib.contextmanager
    def _connected(self, origin: _Origin, count: int) -> Iterator[http.client.HTTPConnection]:
        """A connection that ends when what is asked by it takes too long."""
        connection: http.client.HTTPConnection
        if origin.scheme == "https":
            connection = http.client.HTTPSConnection(
                origin.host, origin.port, timeout=_SILENCE_S, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(origin.host, origin.port, timeout=_SILENCE_S)
        with contextlib.closing(connection):
            connection.connect()
            # An answer takes the connection's socket over.
            one: socket.socket = connection.sock
            late = threading.Timer(_SILENCE_S + count / _RATE_MIN, _end, (one,))
            late.daemon = True
            with self._open_lock:
                if self._is_stopped:
                    raise FetchError(f"{self.shown}: the fetch was stopped")
                self._open.add(one)
            late.start()
            try:
                yield connection
            finally:
                late.cancel()
                with self._open_lock:
                    self._open.discard(one)

    def _tried(
        self, path: str, ask: Callable[[], _T], *, count: int = 0, first: int = 0
    ) -> _T | None:
        """What is answered; None where there is no such file."""
        for wait in (*source.WAITS_S, None):
            try:
                return ask()
            except _Refused as refused:
                if refused.status in (404, 410):
                    return None
                cause: Exception = refused
                is_final = refused.status not in _PASSING
            except ssl.SSLCertVerificationError as error:
                cause, is_final = error, True
            except http.client.IncompleteRead as error:
                if wait is None:
                    found = len(error.partial)
                    raise cut_short(self.shown, path, first, count, found) from None
                cause, is_final = error, False
            except (OSError, http.client.HTTPException, ValueError) as error:
                # ValueError: a host or a header that is none.
                cause, is_final = error, isinstance(error, ValueError)
            if wait is None or is_final or self._is_stopped:
                what = str(cause) if isinstance(cause, _Refused) else words(cause)
                text = f"cannot read {path} from {self.shown}: {one_line(what)}"
                raise FetchError(text) from None
            time.sleep(wait)
        raise AssertionError("the last wait is none")


def _end(one: socket.socket) -> None:
    """Ends what another thread waits for at a connection, whatever it is doing there."""
    # The same connection by another number: TLS objects are for one thread.
    with (
        contextlib.suppress(OSError, ValueError),
        socket.socket(fileno=os.dup(one.fileno())) as same,
    ):
        same.shutdown(socket.SHUT_RDWR)


def _parts(url: str) -> tuple[_Origin, str, str, str]:
    """Origin, path, query with its question mark, and user with password.

    Raises:
        ValueError: what is no URL of HTTP.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in ("http", "https"):
        raise ValueError(scheme)
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in rest[len(authority) :]:
        # Else what is before it might be half of a password, and its host a stranger.
        raise ValueError("an @ that is not the host's")
    user, _, host = authority.rpartition("@")
    place = urllib.parse.urlsplit(f"//{host}{rest[len(authority) :]}")
    if not place.hostname:
        raise ValueError("no host")
    name = place.hostname
    name = name if ":" in name else name.encode("idna").decode()
    port = place.port or _PORTS[scheme]
    query = f"?{urllib.parse.quote(place.query, safe=_QUERY)}" if place.query else ""
    path = urllib.parse.quote(place.path, safe=_PATH)
    return _Origin(scheme, name, port), path, query, user
