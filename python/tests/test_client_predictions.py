"""A prediction's own time, of each kind: at servers that stand still, and again once they go on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_hybrid
import test_infer
import test_infer_shares_serve as test_shares
from waiting import HUNG_S

import hushtable
from hushtable import infer
from hushtable.errors import ServerTimeout


@contextlib.contextmanager
def stopped(server: infer.ServerProcess) -> Iterator[None]:
    """The server stands still."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def late(client: Any, server: infer.ServerProcess, *given: Any) -> None:
    """A prediction ends in time at a server that stands still, and is made once it goes on."""
    with stopped(server):
        started = time.monotonic()
        with pytest.raises(ServerTimeout, match="did not answer within|not over within"):
            client.predict(*given, timeout=0.5)
        assert time.monotonic() - started < HUNG_S / 2
    client.predict(*given, timeout=HUNG_S)


async def late_too(reached: Any, server: infer.ServerProcess, *given: Any) -> None:
    """The same of a client for asyncio."""
    async with await reached as client:
        with stopped(server), pytest.raises(ServerTimeout, match="not answer within|not over"):
            await client.predict(*given, timeout=0.5)
        await client.predict(*given, timeout=HUNG_S)


def test_on_encrypted_features(tmp_path: Path) -> None:
    test_infer.build(tmp_path)
    infer.compile(tmp_path / "clicks", spec=tmp_path / "model.toml")
    dense, sparse = test_infer.users(1)
    with infer.ServerProcess(tmp_path / "clicks", threads=1) as server:
        # The upload of the keys is within the time, though it has a longer one of its own.
        with hushtable.connect(server=server.url, scheme="ckks") as client:
            late(client, server, dense, sparse)
        reached = hushtable.connect_async(server=server.url, scheme="ckks")
        asyncio.run(late_too(reached, server, dense, sparse))


def test_by_hybrid_inference(tmp_path: Path) -> None:
    test_hybrid.network(1).build(tmp_path / "shapes", name="shapes")
    infer.compile(tmp_path / "shapes", scheme="hybrid", samples=test_hybrid.images(8, 2))
    image = test_hybrid.images(1)[0]
    with infer.ServerProcess(tmp_path / "shapes") as server:
        with hushtable.connect(server=server.url, scheme="hybrid") as client:
            late(client, server, image)
            with stopped(server), pytest.raises(ServerTimeout):
                client.precompute(timeout=0.5)
            assert client.precompute(timeout=HUNG_S).precomputes == 1
            # One end for several images: it is there before the second.
            both = test_hybrid.images(2)
            with stopped(server), pytest.raises(ServerTimeout):
                client.predict(both, timeout=0.5)
            assert client.predict(both, timeout=HUNG_S).outputs.shape[0] == 2
        reached = hushtable.connect_async(server=server.url, scheme="hybrid")
        asyncio.run(late_too(reached, server, image))


def test_on_shares(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    test_shares.build(tmp_path)
    (tmp_path / "relu.toml").write_text(test_shares.RELU)
    dense, sparse = test_shares.users(60)
    options: dict[str, Any] = {"fraction_bits": 14, "value_bits": 16, "runs": 1}
    spec = tmp_path / "relu.toml"
    infer.compile_shares(tmp_path / "clicks", dense, sparse, spec=spec, name="apart", **options)
    sides = test_shares.Sides(tmp_path, tmp_path_factory.mktemp("certificates"), "apart")
    with sides.right() as right, sides.left(right.url) as left:
        urls = (left.url, right.url)
        with hushtable.connect(*urls, scheme="shares", tls=sides.tls) as client:
            late(client, right, sparse[:2], dense[:2])
        reached = hushtable.connect_async(*urls, scheme="shares", tls=sides.tls)
        asyncio.run(late_too(reached, left, sparse[:1], dense[:1]))
