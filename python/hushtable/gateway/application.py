"""The gateway as an application of ASGI: who may ask, what is answered."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from ..client import AsyncClient, AsyncModelClient
from . import description
from .asked import Asked, encoded, read
from .counts import Counts
from .held import Held
from .refusals import Refused, body_of, refusal_of

__all__ = ["Gateway"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = tuple[bytes, bytes]

JSON, TEXT, PAGE = b"application/json", b"text/plain; version=0.0.4; charset=utf-8", b"text/html"
#: Names that a browser on this machine has for it: any other was made to point here.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_log = logging.getLogger("hushtable.gateway")
_log.addHandler(logging.NullHandler())


class Gateway:
    """The application of ASGI that asks by a client.

    Whoever runs it says who may connect: without ``token`` anybody who reaches it may ask.

    Args:
        client: who asks the servers. It stays the caller's, who closes it.
        token: what requests must carry as ``authorization: Bearer TOKEN``; none for no check.
        hosts: the values of ``host`` to take, whatever the port, so that no page of a browser comes
            here by a name that was made to point here; none for any.
        max_ids: what each lookup of a table is padded to where the request does not say.
        ids_max: most ids of one request.
        body_bytes_max: most bytes of one request's body.
        requests_max: most requests for rows under way; those beyond are refused with 503.
        body_seconds: how long a request's body may take to come.
    """

    def __init__(
        self,
        client: AsyncClient | AsyncModelClient,
        *,
        token: str | None = None,
        hosts: Sequence[str] | None = None,
        max_ids: int | None = None,
        ids_max: int = 4096,
        body_bytes_max: int = 1 << 20,
        requests_max: int = 256,
        body_seconds: float = 10.0,
    ) -> None:
        self._held = Held(client)
        # Hashed, so that the comparison's time says nothing of a length either.
        self._token = None if token is None else _hashed(token.encode())
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._max_ids, self._ids_max = max_ids, ids_max
        self._body_bytes_max, self._body_seconds = body_bytes_max, body_seconds
        self._requests_max = requests_max
        self._created = int(time.time())
        self.counts = Counts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request. Of other protocols there is none: a WebSocket is closed."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        began, route = time.monotonic(), "other"
        headers: dict[str, str] = {}
        try:
            path, method = scope["path"], scope["method"]
            root = scope.get("root_path", "")
            path = path.removeprefix(root) if root else path
            allowed = GETS if method in ("GET", "HEAD") else POSTS
            known = path in GETS or path in POSTS
            route = path if known else "other"
            self._check_host(scope)
            if path not in _OPEN:
                self._check_token(scope)
            if not known:
                raise Refused(404, "not_found", "there is nothing here: /docs lists what there is")
            if path not in allowed or method not in ("GET", "HEAD", "POST"):
                verbs = "GET, HEAD" if path in GETS else "POST"
                raise Refused(405, "method", f"{path} takes {verbs}", {"allow": verbs})
            if path in GETS:
                status, (body, kind) = 200, GETS[path](self)
            else:
                status, (body, kind) = 200, (await self._posted(path, scope, receive), JSON)
        except _Gone:
            self.counts.answered(route, 499, time.monotonic() - began)
            return
        except Exception as error:
            refused = refusal_of(error)
            if isinstance(error, Refused):
                self.counts.refused(error.code)
            elif refused.code == "internal_error":
                # Its class alone: a text, or a trace, may hold an id.
                _log.error("%s failed: %s", route, type(error).__name__)
            status, headers = refused.status, refused.headers
            body, kind = json.dumps(body_of(refused)).encode(), JSON
        seconds = time.monotonic() - began
        self.counts.answered(route, status, seconds)
        _log.info("%s %d %.1f ms", route, status, seconds * 1e3)
        await _respond(send, status, body, kind, headers, has_body=scope["method"] != "HEAD")

    @property
    def names(self) -> list[str]:
        """What can be asked: a table, or a model's features."""
        return self._held.names

    def _check_host(self, scope: Scope) -> None:
        if self._hosts is None:
            return
        found = [value for name, value in scope["headers"] if name == b"host"]
        host = found[0].decode("latin-1").lower() if len(found) == 1 else ""
        # Of an address of IPv6 the colons within the brackets are no port's.
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in self._hosts:
            message = "this gateway is not asked by that name: --allow-host gives it another one"
            raise Refused(421, "host", message)

    def _check_token(self, scope: Scope) -> None:
        if self._token is None:
            return
        found = [value for name, value in scope["headers"] if name == b"authorization"]
        given = found[0] if len(found) == 1 else b""
        word, _, token = given.partition(b" ")
        is_it = hmac.compare_digest(_hashed(token.strip()), self._token)
        if word.lower() != b"bearer" or not is_it:
            message = "this gateway wants its token: authorization: Bearer TOKEN"
            raise Refused(401, "token", message, {"www-authenticate": "Bearer"})

    async def _posted(self, path: str, scope: Scope, receive: Receive) -> bytes:
        found = [value for name, value in scope["headers"] if name == b"content-type"]
        kind = found[0].partition(b";")[0].strip().lower() if found else b""
        # A page of another site can post a form or text here without being asked, but no JSON.
        if kind != JSON:
            raise Refused(415, "content_type", "the body must be sent as application/json")
        if self.counts.under_way >= self._requests_max:
            message = f"{self._requests_max} requests are under way: come again"
            raise Refused(503, "busy", message, {"retry-after": "1"})
        self.counts.under_way += 1
        try:
            asked = read(await self._body(scope, receive))
            answer = asyncio.ensure_future(POSTS[path](self, asked))
            gone = asyncio.ensure_future(_gone(receive))
            try:
                await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    raise _Gone
                return json.dumps(answer.result()).encode()
            finally:
                # Given up, a lookup is given up at the servers too.
                for task in (answer, gone):
                    task.cancel()
        finally:
            self.counts.under_way -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        too_large = Refused(
            413, "body_too_large", f"a body has at most {self._body_bytes_max:,} bytes"
        )
        for name, value in scope["headers"]:
            if name != b"content-length":
                continue
            if not value.isdigit():
                raise Refused(400, "content_length", "content-length must be a number")
            if int(value[:19]) > self._body_bytes_max:
                raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    body += message.get("body", b"")
                    if len(body) > self._body_bytes_max:
                        raise too_large
                    more = message.get("more_body", False)
        except TimeoutError:
            late = f"the body did not come within {self._body_seconds:g} s"
            raise Refused(408, "body_timeout", late) from None
        return bytes(body)

    async def _lookup(self, asked: Asked) -> dict[str, object]:
        asked.only("table", "ids", "max_ids", "timeout", "encoding_format")
        table, encoding = asked.text("table", ""), asked.encoding()
        ids, held = asked.ids("ids", self._ids_max), self._held.of(table or None)
        max_ids, timeout = asked.whole("max_ids") or self._max_ids, asked.seconds("timeout")
        rows, stats = await held.lookup_with_stats(ids, max_ids, timeout=timeout)
        return {
            "table": held.info.name,
            "version": stats.version,
            "dim": rows.shape[1],
            "rows": encoded(rows, encoding),
        }

    async def _embeddings(self, asked: Asked) -> dict[str, object]:
        asked.only("model", "input", "encoding_format", "dimensions", "user")
        model, encoding = asked.text("model"), asked.encoding()
        held, ids = self._held.of(model), asked.ids("input", self._ids_max)
        dimensions = asked.whole("dimensions")
        if dimensions not in (None, held.info.dim):
            message = f"dimensions must be {held.info.dim}, what a row has, or left out"
            raise Refused(400, "invalid_value", message)
        rows, _ = await held.lookup_with_stats(ids, self._max_ids)
        data = [
            {"object": "embedding", "index": index, "embedding": row}
            for index, row in enumerate(encoded(rows, encoding))
        ]
        usage = {"prompt_tokens": len(data), "total_tokens": len(data)}
        return {"object": "list", "data": data, "model": model, "usage": usage}

    async def _features(self, asked: Asked) -> dict[str, object]:
        asked.only("inputs", "timeout", "encoding_format")
        model, encoding = self._held.model(), asked.encoding()
        ids, timeout = asked.ids_by_feature("inputs", self._ids_max), asked.seconds("timeout")
        bags = await model.lookup_bags(ids, timeout=timeout)
        version = next((bag.stats.version for bag in bags.values()), model.info.version)
        features = {
            name: {"rows": encoded(bag.rows, encoding), "kept": bag.kept.tolist()}
            for name, bag in bags.items()
        }
        return {"model": model.info.name, "version": version, "features": features}

    def _tables(self) -> Answer:
        return _json({"object": "list", "data": self._held.tables()})

    def _models(self) -> Answer:
        of = {"object": "model", "created": self._created, "owned_by": "hushtable"}
        return _json({"object": "list", "data": [{"id": name, **of} for name in self._held.names]})

    def _metrics(self) -> Answer:
        return self.counts.text().encode(), TEXT

    def _openapi(self) -> Answer:
        return _json(description.openapi(has_token=self._token is not None))

    def _page(self) -> Answer:
        return description.page(has_token=self._token is not None).encode(), PAGE


class _Gone(Exception):
    """Whoever asked has gone away."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    while True:
        what = (await receive())["type"]
        await send({"type": f"{what}.complete"})
        if what == "lifespan.shutdown":
            return


async def _respond(
    send: Send, status: int, body: bytes, kind: bytes, more: dict[str, str], *, has_body: bool
) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        # What was asked for is nobody else's, caches' and frames' among them.
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
        *((name.encode(), value.encode()) for name, value in more.items()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if has_body else b""})


def _hashed(token: bytes) -> bytes:
    return hashlib.blake2b(token).digest()


def _json(record: dict[str, object]) -> Answer:
    return json.dumps(record).encode(), JSON


#: What anybody may ask, token or not: whether it lives.
_OPEN = ("/healthz", "/readyz")
GETS: dict[str, Callable[[Gateway], Answer]] = {
    "/healthz": lambda _: (b"ok\n", TEXT),
    "/readyz": lambda _: (b"ready\n", TEXT),
    "/metrics": Gateway._metrics,
    "/openapi.json": Gateway._openapi,
    "/docs": Gateway._page,
    "/v1/tables": Gateway._tables,
    "/v1/models": Gateway._models,
}
POSTS: dict[str, Callable[[Gateway, Asked], Awaitable[dict[str, object]]]] = {
    "/v1/lookup": Gateway._lookup,
    "/v1/embeddings": Gateway._embeddings,
    "/v1/features": Gateway._features,
}
