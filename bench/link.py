"""A network link between processes of one machine: a delay and a rate, by a relay of TCP.

Kernels without ``netem`` have no other. What it does not emulate is TCP's own behaviour on such a
link (slow start, loss): connections that are open and warm are what it stands for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

#: Bytes that are sent as one: 0.3 ms at 100 Mbit/s.
_CHUNK = 4096
#: Seconds of traffic that may be on its way before a sender is held back, as by a router's buffer.
_BUFFER_S = 0.1


class _Way:
    """One direction of a line: whoever uses it waits for what was sent before."""

    def __init__(self, delay_s: float, bytes_per_s: float) -> None:
        self._delay_s = delay_s
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self.bytes = 0

    def send(self, count: int, now: float) -> tuple[float, float]:
        """When so many bytes arrive, and how long their sender is held back."""
        self.bytes += count
        self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        held = max(0.0, self._free_at - now - _BUFFER_S)
        return self._free_at + self._delay_s, held


class Link:
    """A line with a way up and a way down, each with half the round trip and a rate of its own.

        with Link(round_trip_ms=30, mbit=100) as link:
            client = connect(link.to(left.url), link.to(right.url))

    Args:
        round_trip_ms: of a byte there and one back.
        mbit: megabits a second, each way, of all that goes over this line together.
    """

    def __init__(self, round_trip_ms: float, mbit: float) -> None:
        self._up = _Way(round_trip_ms / 2e3, mbit * 1e6 / 8)
        self._down = _Way(round_trip_ms / 2e3, mbit * 1e6 / 8)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._ports: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes that went up and down so far, those of TLS included."""
        return self._up.bytes, self._down.bytes

    def to(self, url: str) -> str:
        """A URL on this machine that leads over the line to ``url``."""
        there = urlsplit(url)
        if url not in self._ports:
            made = asyncio.run_coroutine_threadsafe(
                self._listen(there.hostname or "", there.port or 443), self._loop
            )
            self._ports[url] = made.result()
        return f"{there.scheme}://127.0.0.1:{self._ports[url]}"

    async def _listen(self, host: str, port: int) -> int:
        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, to_there = await asyncio.open_connection(host, port)
            with contextlib.closing(writer), contextlib.closing(to_there):
                await asyncio.gather(
                    self._carry(reader, to_there, self._up),
                    self._carry(there, writer, self._down),
                )

        server = await asyncio.start_server(joined, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way
    ) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(at - self._loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            writer.write_eof()

        async def take() -> None:
            while data := await reader.read(_CHUNK):
                at, held = way.send(len(data), self._loop.time())
                under_way.put_nowait((at, data))
                await asyncio.sleep(held)
            under_way.put_nowait((way.send(0, self._loop.time())[0], b""))

        with contextlib.suppress(OSError):  # either end has gone
            await asyncio.gather(take(), deliver())

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        carrying = asyncio.all_tasks() - {asyncio.current_task()}
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
