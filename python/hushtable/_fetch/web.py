"""Files of a model at an HTTP server, of which no more is read than was asked for."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ConfigError, FetchError
from . import source
from .source import FileFacts, cut_short, no_file, no_ranges, without_secrets, words

__all__ = ["Web"]

_T = TypeVar("_T")

#: Seconds that a server may be silent.
_SILENCE_S = 60.0
#: What a server may answer otherwise a moment later: too many requests, and failures of its own.
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")


class Web:
    """A model at an HTTP or HTTPS server, whose certificate an authority of this machine signed.

    Args:
        url: the model's folder; it may have a user and a password.
        follow_redirects: go to other hosts, too, where the server sends there.
    """

    threads = 4

    def __init__(self, url: str, *, follow_redirects: bool) -> None:
        self.shown = without_secrets(url)
        parts = urllib.parse.urlsplit(url)
        try:
            origin = _origin(parts)
        except ValueError as error:
            raise ConfigError(f"{self.shown} is no URL: {error}") from error
        # A password may hold an @.
        user, _, host = parts.netloc.rpartition("@")
        self._folder = parts._replace(netloc=host, path=parts.path.rstrip("/"), fragment="")
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "hushtable"}
        if user:
            plain = urllib.parse.unquote(user).encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(plain).decode()}"
        redirects = _Redirects(self.shown, None if follow_redirects else origin)
        self._opener = urllib.request.build_opener(redirects)

    def facts(self, path: str) -> FileFacts | None:
        def ask() -> http.client.HTTPMessage:
            with self._open(path, "HEAD", {}) as answer:
                headers: http.client.HTTPMessage = answer.headers
                return headers

        headers = self._tried(path, ask)
        if headers is None:
            return None
        length = headers.get("Content-Length", "")
        if not length.isdecimal() or headers.get("Accept-Ranges") == "none":
            raise no_ranges(self.shown, path)
        known = [(name, headers[name]) for name in ("ETag", "Last-Modified") if name in headers]
        return FileFacts(int(length), "; ".join(f"{name} {value}" for name, value in known))

    def read(self, path: str, first: int, count: int) -> bytes:
        if count == 0:
            return b""

        def ask() -> bytes:
            wanted = {"Range": f"bytes={first}-{first + count - 1}"}
            with self._open(path, "GET", wanted) as answer:
                found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
                is_range = found is not None and int(found[1]) == first
                # A server without ranges sends the file from its beginning.
                if not (is_range if answer.status == 206 else first == 0):
                    raise no_ranges(self.shown, path)
                # One more than was asked for is enough to know that there is more.
                data: bytes = answer.read(count + 1)
                return data

        data = self._tried(path, ask)
        if data is None:
            raise no_file(self.shown, path)
        if len(data) > count:
            raise no_ranges(self.shown, path)
        if len(data) < count:
            raise cut_short(self.shown, path, first, count, len(data))
        return data

    def _open(self, path: str, method: str, headers: dict[str, str]) -> Any:
        parts = self._folder
        url = parts._replace(path=f"{parts.path}/{urllib.parse.quote(path)}").geturl()
        request = urllib.request.Request(url, headers=headers, method=method)
        for name, value in self._headers.items():
            # Whoever it sends elsewhere to is not told the password.
            request.add_unredirected_header(name, value)
        return self._opener.open(request, timeout=_SILENCE_S)

    def _tried(self, path: str, ask: Callable[[], _T]) -> _T | None:
        """What is answered; None where there is no such file."""
        for wait in (*source.WAITS_S, None):
            try:
                return ask()
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in (404, 410):
                    return None
                cause: Exception = error
                is_final = error.code not in _PASSING
            except urllib.error.URLError as error:
                cause = error.reason if isinstance(error.reason, Exception) else error
                is_final = isinstance(cause, ssl.SSLCertVerificationError)
            except (OSError, http.client.HTTPException) as error:
                cause, is_final = error, False
            if wait is None or is_final:
                text = f"cannot read {path} from {self.shown}: {words(cause)}"
                raise FetchError(text) from cause
            time.sleep(wait)
        raise AssertionError("the last wait is none")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Goes where a server sends: within itself, or anywhere where ``origin`` is None."""

    def __init__(self, of: str, origin: tuple[str, str, int] | None) -> None:
        self._of, self._origin = of, origin

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            origin = _origin(urllib.parse.urlsplit(newurl))
        except ValueError:
            origin = None
        if origin is None or self._origin not in (None, origin):
            where = without_secrets(newurl) if origin is None else "{}://{}:{}".format(*origin)
            raise FetchError(
                f"{self._of} sends elsewhere, to {where}: fetch from there, or allow it "
                "(follow_redirects=True, --follow-redirects)"
            )
        # The original would become a GET.
        return urllib.request.Request(newurl, headers=req.headers, method=req.get_method())


def _origin(parts: urllib.parse.SplitResult) -> tuple[str, str, int]:
    """Scheme, host and port.

    Raises:
        ValueError: what is no URL of HTTP.
    """
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"its scheme is {parts.scheme!r}")
    # A password may hold what ends a host.
    host = urllib.parse.urlsplit(f"//{parts.netloc.rpartition('@')[2]}")
    if not host.hostname:
        raise ValueError("it names no host")
    return parts.scheme, host.hostname, host.port or {"http": 80, "https": 443}[parts.scheme]
