"""A wiretap that sits where a curious server's operator would: behind the server's own TLS.

A tap ends the client's TLS with the server's certificate, notes what the client sent, and passes
every byte on to the real server. What it shows is therefore not what the client says it sent, but
what arrived. It reads just enough HTTP/2 (RFC 9113, sections 4.1 and 6.1), gRPC framing and
protobuf to find the keys of `hushtable.v1.AnswerRequest`, or the queries of `OnionAnswerRequest`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from hushtable import Certificates

from .servers import Wire

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER_BYTES = 9
_DATA, _END_STREAM, _PADDED = 0, 0x1, 0x8
_READ_BYTES = 1 << 16


class Tap:
    """Passes connections on to the server at ``url`` and keeps what each request asks by.

    Attributes:
        url: where a client connects to be overheard.
        requests: of each request for rows, its keys or queries, in the order of arrival.
        senders: of each of them, what it says of its sender; nothing with two servers.
    """

    def __init__(self, url: str, certificates: Certificates, wire: Wire) -> None:
        self._wire = wire
        self._host, _, port = url.removeprefix("https://").rpartition(":")
        self._port = int(port)
        self._inside = ssl.create_default_context(cafile=str(certificates.ca))
        self._outside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._outside.load_cert_chain(certificates.certificate, certificates.key)
        for context in (self._inside, self._outside):
            context.set_alpn_protocols(["h2"])
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""
        self.requests: list[list[bytes]] = []
        self.senders: list[bytes] = []

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._outside), self._loop
        )
        self._server = started.result(timeout=10)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio's would print a traceback for each that _close cancels.
        connection = self._loop.create_task(self._carry(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled only by _close, which waits for what follows: that is no failure.
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(_close, writer)
            there, back = await asyncio.open_connection(self._host, self._port, ssl=self._inside)
            closing.push_async_callback(_close, back)
            heard = _Requests()

            async def pass_on(
                source: asyncio.StreamReader, sink: asyncio.StreamWriter, note: bool
            ) -> None:
                while block := await source.read(_READ_BYTES):
                    if note:  # before the server can answer, so that nothing is missed afterwards
                        for message in heard.feed(block):
                            self._note(message)
                    sink.write(block)
                    await sink.drain()

            ways = {
                asyncio.create_task(pass_on(reader, back, note=True)),
                asyncio.create_task(pass_on(there, writer, note=False)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    def _note(self, message: bytes) -> None:
        queries = _fields(message, self._wire.queries_field)
        if queries:
            self.requests.append(queries)
            if self._wire.sender_field is not None:
                self.senders += _fields(message, self._wire.sender_field)


async def _close(stream: asyncio.StreamWriter) -> None:
    stream.close()
    # The other end may never say that it closes, too.
    with contextlib.suppress(OSError, asyncio.CancelledError, TimeoutError):
        await asyncio.wait_for(stream.wait_closed(), timeout=1)
    stream.transport.abort()


class _Requests:
    """Bytes of one HTTP/2 connection, client to server, to the requests' messages."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._preface_read = False
        self._bodies: defaultdict[int, bytearray] = defaultdict(bytearray)

    def feed(self, block: bytes) -> Iterator[bytes]:
        self._waiting += block
        if not self._preface_read:
            if len(self._waiting) < len(_PREFACE):
                return
            del self._waiting[: len(_PREFACE)]
            self._preface_read = True
        while len(self._waiting) >= _FRAME_HEADER_BYTES:
            size = int.from_bytes(self._waiting[:3])
            kind, flags = self._waiting[3], self._waiting[4]
            stream = int.from_bytes(self._waiting[5:9]) & 0x7FFF_FFFF
            end = _FRAME_HEADER_BYTES + size
            if len(self._waiting) < end:
                return
            payload = bytes(self._waiting[_FRAME_HEADER_BYTES:end])
            del self._waiting[:end]
            if kind != _DATA:
                continue
            if flags & _PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            self._bodies[stream] += payload
            if flags & _END_STREAM:
                # gRPC messages: whether it is compressed (1 byte), its length (4), itself.
                body = bytes(self._bodies.pop(stream))
                while body:
                    size = int.from_bytes(body[1:5])
                    yield body[5 : 5 + size]
                    body = body[5 + size :]


def _fields(message: bytes, number: int) -> list[bytes]:
    """The fields of one number in a protobuf message whose fields are all of bytes."""
    found: list[bytes] = []
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        size, at = _varint(message, at)
        if tag >> 3 == number:
            found.append(message[at : at + size])
        at += size
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
