"""Whole inferences by a layout: through real servers, in the clear, in layers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
from conftest import DIM, ROWS, Deployment
from test_cli import run, run_json
from test_server import FREE, first_line, start
from waiting import until

import hushtable
from hushtable import _native
from hushtable.nn import PrivateEmbedding, PrivateEmbeddingBag

IDS_MAX = 80
LAYOUT = {
    "hot": {"rows": 64, "bins": 8, "queries": 2, "hashes": 1, "companions": 1},
    "full": {"rows": ROWS, "bins": 24, "queries": 1, "hashes": 1, "companions": 0},
    "ids_max": IDS_MAX,
    "drop": "most-frequent",
    "seed": "5e" * 32,
}
KEYS = 8 * 2 + 24
MODES: list[Any] = ["sum", "mean", "max"]


def lay_out(table: hushtable.Table, path: Path, **changes: Any) -> hushtable.Table:
    """Saves the table with a layout: its first rows are hot, neighbours are companions."""
    trace = np.repeat(np.arange(64, dtype=np.uint32), 2)
    offsets = np.arange(0, 129, 16, dtype=np.uint64)
    profile = _native.Profile(trace, offsets, len(table))
    layout = profile.design(table._native, json.dumps({**LAYOUT, **changes}))
    table._native.with_layout(layout).save(path)
    return hushtable.Table.open(path)


@pytest.fixture(scope="module")
def table(weight: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> hushtable.Table:
    path = tmp_path_factory.mktemp("layouts") / "films"
    return lay_out(hushtable.Table.from_weight(weight, name="films"), path)


@pytest.fixture(scope="module")
def laid_out(table: hushtable.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layouts") / "films"
    table.save(path)
    return path


@pytest.fixture(scope="module")
def urls(laid_out: Path) -> Iterator[tuple[str, str]]:
    with (
        hushtable.ServerProcess(laid_out, "left", threads=1) as left,
        hushtable.ServerProcess(laid_out, "right", threads=1) as right,
    ):
        yield left.url, right.url


@pytest.fixture(scope="module")
def bag_client(urls: tuple[str, str]) -> Iterator[hushtable.Client]:
    with hushtable.connect(*urls) as client:
        yield client


def test_a_bag_at_swapped_servers_is_refused(laid_out: Path) -> None:
    with ExitStack() as first:
        left, right = (
            first.enter_context(hushtable.ServerProcess(laid_out, side, threads=1))
            for side in ("left", "right")
        )
        addrs = [server.url.removeprefix("http://") for server in (left, right)]
        client = hushtable.connect(left.url, right.url, options=hushtable.ClientOptions(max_ids=2))
        client.lookup_bag([1])
    # The same addresses, with the sides the other way round.
    with (
        hushtable.ServerProcess(laid_out, "right", threads=1, addr=addrs[0]),
        hushtable.ServerProcess(laid_out, "left", threads=1, addr=addrs[1]),
        client,
    ):
        with pytest.raises(hushtable.SwappedServers):
            client.lookup_bag([1])
        with pytest.raises(hushtable.SwappedServers):
            client.lookup([1])


def some_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, ROWS, count)


def test_rows_are_the_clear_ones_where_kept(
    bag_client: hushtable.Client, table: hushtable.Table, weight: np.ndarray
) -> None:
    for seed, shape in enumerate([(), (0,), (1,), (5, 3), (IDS_MAX,)]):
        ids = some_ids(int(np.prod(shape)), seed).reshape(shape)
        bag = bag_client.lookup_bag(ids)
        assert (bag.rows.shape, bag.kept.shape) == ((*shape, DIM), shape)
        assert (bag.rows.dtype, bag.kept.dtype) == (np.float32, np.bool_)
        expected = np.where(bag.kept[..., None], weight[ids], np.float32(0))
        assert np.array_equal(bag.rows, expected)
        assert bag.dropped == np.unique(ids[~bag.kept]).size
        assert (bag.stats.ids, bag.stats.keys) == (ids.size, KEYS)
        assert bag_client.last_stats is bag.stats
        # In the clear, the same ids are dropped.
        clear = table.lookup_bag(ids)
        assert np.array_equal(clear.kept, bag.kept)
        assert np.array_equal(clear.rows, bag.rows)
        assert clear.dropped == bag.dropped
    assert 0 < bag.dropped < IDS_MAX, "the last and longest bag fits in part"


def test_the_layout_says_what_an_inference_costs(
    bag_client: hushtable.Client, table: hushtable.Table
) -> None:
    layout = bag_client.layout
    assert layout is not None
    assert layout == table.layout
    assert [(part.name, part.bins, part.queries) for part in layout.parts] == [
        ("hot", 8, 2),
        ("full", 24, 1),
    ]
    assert (layout.keys, layout.ids_max, layout.drop) == (KEYS, IDS_MAX, "most-frequent")
    stats = bag_client.lookup_bag([1]).stats
    # The payload, and around it versions, times and frames.
    assert 0 < layout.bytes_up - stats.bytes_up < 120
    assert 0 < layout.bytes_down - stats.bytes_down < 140
    assert layout.comm_bytes == layout.bytes_up + layout.bytes_down
    assert layout.map_bytes == 64 * 2 * 4


#: Of HTTP/2 (RFC 9113, 6): what a request and its answer are made of; the rest is the connection's.
DATA, HEADERS, CONTINUATION, END_STREAM = 0, 1, 9, 1
#: Those of the rest that come when a runtime finds the time, and the bytes of each.
CONTROL = {4: {0}, 6: {8}, 8: {4}}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Tap:
    """Passes connections on to a server and counts the bytes of each request, each way."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        #: By connection, stream and way, those of its frames.
        self.bytes: Counter[tuple[int, int, str]] = Counter()
        self.ended: list[tuple[int, int, str]] = []
        #: Kinds and lengths of frames of no request.
        self.control: set[tuple[int, int]] = set()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for open_socket in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                # Closing alone does not wake who waits at it, and it would go on to listen.
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _accept(self) -> None:
        for number in itertools.count():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for way, source, sink in (("up", client, server), ("down", server, client)):
                threading.Thread(
                    target=self._pass, args=(number, way, source, sink), daemon=True
                ).start()

    def _pass(self, number: int, way: str, source: socket.socket, sink: socket.socket) -> None:
        held = b""
        starts = way == "up"
        try:
            while block := source.recv(1 << 16):
                held += block
                if starts and len(held) >= len(PREFACE):
                    assert held.startswith(PREFACE)
                    held, starts = held[len(PREFACE) :], False
                while not starts and len(held) >= 9:
                    length = int.from_bytes(held[:3])
                    if len(held) < 9 + length:
                        break
                    kind, flags, stream = held[3], held[4], int.from_bytes(held[5:9])
                    held = held[9 + length :]
                    if kind not in (DATA, HEADERS, CONTINUATION):
                        self.control.add((kind, length))
                        continue
                    self.bytes[number, stream, way] += 9 + length
                    if kind != CONTINUATION and flags & END_STREAM:
                        self.ended.append((number, stream, way))
                # Counted first: who has an answer finds it counted.
                sink.sendall(block)
        except OSError:
            return


def bytes_of(work: Callable[[], Any], *taps: Tap) -> tuple[int, ...]:
    """Bytes (up, down) at each tap of the one request that ``work`` makes there."""
    before = [len(tap.ended) for tap in taps]
    work()
    found: list[int] = []
    for tap, count in zip(taps, before, strict=True):
        until(lambda tap=tap, count=count: len(tap.ended) >= count + 2, "a request's answer")
        (number, stream, _), other = tap.ended[count:]
        assert other[:2] == (number, stream)
        found += [tap.bytes[number, stream, way] for way in ("up", "down")]
    return tuple(found)


def test_every_bag_is_the_same_bytes_on_the_wire(urls: tuple[str, str]) -> None:
    with Tap(urls[0]) as left, Tap(urls[1]) as right:
        with hushtable.connect(left.url, right.url) as client:
            layout = client.layout
            assert layout is not None
            # Header compression remembers the first request.
            bytes_of(lambda: client.lookup_bag([1]), left, right)
            for tap in (left, right):
                tap.control.clear()
            sizes = []
            bags = [[], [7], [7] * IDS_MAX, range(IDS_MAX), some_ids(IDS_MAX), [], some_ids(3)]
            drops = set()

            def look_up(ids: Any) -> None:
                drops.add(client.lookup_bag(list(ids)).dropped > 0)

            for ids in bags:
                sizes.append(bytes_of(lambda ids=ids: look_up(ids), left, right))
            for tap in (left, right):
                assert all(length in CONTROL[kind] for kind, length in tap.control), tap.control
        assert drops == {False, True}
        assert len(set(sizes)) == 1, sizes
        up_left, down_left, up_right, down_right = sizes[0]
        assert down_left == down_right
        # What the layout promises, and HTTP/2's frames and headers.
        assert 0 < up_left + up_right - layout.bytes_up < 300
        assert 0 < down_left + down_right - layout.bytes_down < 300


def test_bags_that_cannot_be_are_refused_before_they_are_sent(
    bag_client: hushtable.Client, table: hushtable.Table
) -> None:
    for source in (bag_client, table):
        with pytest.raises(hushtable.TooManyIds, match=f"at most {IDS_MAX}") as too_many:
            source.lookup_bag([0] * (IDS_MAX + 1))
        assert (too_many.value.ids, too_many.value.max_ids) == (IDS_MAX + 1, IDS_MAX)
        with pytest.raises(hushtable.IdOutOfRange) as caught:
            source.lookup_bag([1, ROWS])
        assert (caught.value.id, caught.value.rows) == (ROWS, ROWS)
        with pytest.raises(hushtable.IdOutOfRange):
            source.lookup_bag([-1])
        with pytest.raises(hushtable.BadIds):
            source.lookup_bag([0.5])
        for bags in ({1: [2]}, {(1, 2)}, "12", 3, (one for one in [[1]]), np.array(1)):
            with pytest.raises(hushtable.BadIds, match="bags must be a list"):
                source.lookup_bags(bags)


def test_a_table_without_a_layout(deployment: Deployment) -> None:
    with deployment.connect() as client:
        assert client.layout is None
        with pytest.raises(hushtable.NoLayout, match="has no layout"):
            client.lookup_bag([1])
        with pytest.raises(hushtable.NoLayout, match="has no layout"):
            PrivateEmbeddingBag(client, use_layout=True)
    table = hushtable.Table.open(deployment.bundle)
    assert table.layout is None
    with pytest.raises(hushtable.NoLayout):
        table.lookup_bag([1])


def test_servers_of_different_layouts_still_answer_lookups(
    urls: tuple[str, str], table: hushtable.Table, weight: np.ndarray, tmp_path: Path
) -> None:
    other = lay_out(table, tmp_path / "other", seed="0f" * 32)
    with (
        hushtable.ServerProcess(tmp_path / "other", "right", threads=1) as right,
        hushtable.connect(urls[0], right.url) as client,
    ):
        assert np.array_equal(client.lookup([3]), weight[[3]])
        for use in (lambda: client.lookup_bag([3]), lambda: client.layout):
            with pytest.raises(hushtable.VersionMismatch) as caught:
                use()
            assert table.layout is not None and other.layout is not None
            found = (caught.value.left, caught.value.right)
            assert found == (table.layout.version, other.layout.version)


def test_a_layout_larger_than_the_client_fetches(urls: tuple[str, str]) -> None:
    with hushtable.connect(*urls, options=hushtable.ClientOptions(max_layout_bytes=0)) as client:
        assert client.lookup([3]).shape == (1, DIM)
        with pytest.raises(hushtable.LayoutError, match="over the 0"):
            client.lookup_bag([3])
    with pytest.raises(hushtable.ConfigError, match="max_layout_bytes"):
        hushtable.connect(*urls, options=hushtable.ClientOptions(max_layout_bytes=-1))


def test_layouts_of_other_tables_and_edited_ones_are_refused(
    laid_out: Path, other_bundle: Path, table: hushtable.Table, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(other_bundle, foreign)
    for name in ("layout.json", "layout.map"):
        shutil.copy(laid_out / name, foreign)
    with pytest.raises(hushtable.LayoutMismatch) as caught:
        hushtable.Table.open(foreign)
    versions = (hushtable.Table.open(other_bundle).info.version, table.info.version)
    assert (caught.value.expected, caught.value.found) == versions
    with pytest.raises(hushtable.LayoutMismatch, match="hushtable tune"):
        hushtable.ServerProcess(foreign, "left").start()
    done = run("serve", foreign, "--side", "left", *FREE)
    assert done.returncode == 2
    assert "make a layout for it" in done.stderr

    edited = tmp_path / "edited"
    shutil.copytree(laid_out, edited)
    text = (edited / "layout.json").read_text()
    (edited / "layout.json").write_text(text.replace('"ids_max": 80', '"ids_max": 81'))
    with pytest.raises(hushtable.LayoutError, match="changed after it was written"):
        hushtable.Table.open(edited)
    done = run("table", "info", edited)
    assert (done.returncode, "changed after" in done.stderr) == (2, True)


def test_async_bags_run_side_by_side(urls: tuple[str, str], weight: np.ndarray) -> None:
    async def fetch() -> None:
        client = await hushtable.connect_async(*urls)
        async with client:
            assert client.layout is not None
            bags = await asyncio.gather(*(client.lookup_bag([[i, i + 1]]) for i in range(20)))
            for i, bag in enumerate(bags):
                assert bag.kept.all()
                assert np.array_equal(bag.rows, weight[[[i, i + 1]]])
            with pytest.raises(hushtable.TooManyIds):
                await client.lookup_bag([0] * (IDS_MAX + 1))

    asyncio.run(fetch())


def test_many_bags_go_in_one_request_to_each_server(
    bag_client: hushtable.Client, table: hushtable.Table, urls: tuple[str, str]
) -> None:
    shapes = [(0,), (1,), (5, 3), (), (IDS_MAX,), (2, 40)]
    bags = [some_ids(int(np.prod(shape)), 7).reshape(shape) for shape in shapes] * 4
    found = bag_client.lookup_bags(bags)
    stats = found[0].stats
    assert all(bag.stats is stats for bag in found)
    assert bag_client.last_stats is stats
    assert (stats.ids, stats.keys) == (sum(ids.size for ids in bags), len(bags) * KEYS)
    for ids, bag, clear in zip(bags, found, table.lookup_bags(bags), strict=True):
        alone = bag_client.lookup_bag(ids)
        assert bag.rows.shape == (*ids.shape, DIM)
        for other in (alone, clear):
            assert np.array_equal(bag.rows, other.rows)
            assert np.array_equal(bag.kept, other.kept)
            assert bag.dropped == other.dropped
    layout = bag_client.layout
    assert layout is not None
    # A layout's bytes count what is around the keys; a request has that once, not for each bag.
    assert 0 < len(bags) * layout.bytes_up - stats.bytes_up < len(bags) * 120
    assert bag_client.lookup_bags([]) == table.lookup_bags([]) == []

    async def fetch() -> list[hushtable.Bag]:
        async with await hushtable.connect_async(*urls) as client:
            assert await client.lookup_bags([]) == []
            return await client.lookup_bags(bags)

    for bag, other in zip(found, asyncio.run(fetch()), strict=True):
        assert np.array_equal(bag.rows, other.rows)


def test_a_request_shows_how_many_bags_it_has_and_no_more(urls: tuple[str, str]) -> None:
    with Tap(urls[0]) as left, Tap(urls[1]) as right:
        with hushtable.connect(left.url, right.url) as client:
            # Header compression remembers the first request.
            bytes_of(lambda: client.lookup_bags([[1], [2]]), left, right)
            sizes = []
            for bags in ([[], [], []], [range(IDS_MAX)] * 3, [[7] * IDS_MAX, [], [3]]):
                asked = [list(ids) for ids in bags]
                sizes.append(bytes_of(lambda asked=asked: client.lookup_bags(asked), left, right))
        assert len(set(sizes)) == 1, sizes


def test_one_bag_that_cannot_be_keeps_all_from_being_sent(
    bag_client: hushtable.Client, table: hushtable.Table
) -> None:
    for source in (bag_client, table):
        with pytest.raises(hushtable.TooManyIds, match=f"at most {IDS_MAX}"):
            source.lookup_bags([[1], [0] * (IDS_MAX + 1)])
        with pytest.raises(hushtable.IdOutOfRange):
            source.lookup_bags([[1], [ROWS]])
        with pytest.raises(hushtable.BadIds):
            source.lookup_bags([[1], [0.5]])


class Counted:
    """A table in the clear that remembers how it was asked."""

    def __init__(self, table: hushtable.Table) -> None:
        self._table = table
        self.asked: list[list[int]] = []
        self.info, self.lookup, self.layout = table.info, table.lookup, table.layout

    def lookup_bags(self, bags: Any) -> list[hushtable.Bag]:
        self.asked.append([len(ids) for ids in bags])
        return self._table.lookup_bags(bags)


def test_each_bag_of_a_layer_is_an_inference_and_all_are_one_call(table: hushtable.Table) -> None:
    source = Counted(table)
    whole = IDS_MAX // 2
    ids = some_ids(4 * whole, 11)
    ids[:3] = 9
    bag = PrivateEmbeddingBag(source, mode="sum", padding_idx=9, use_layout=True)
    by_offsets = np.asarray(bag(ids, [0, 10, 10, 85]))
    is_padding = ids == 9
    pads = [int(part.sum()) for part in (is_padding[:10], is_padding[10:85], is_padding[85:])]
    assert source.asked.pop() == [10 - pads[0], 0, 75 - pads[1], 75 - pads[2]]
    assert not by_offsets[1].any()
    np.asarray(bag(np.zeros((0, 3), np.int64)))
    assert source.asked.pop() == []

    last = PrivateEmbeddingBag(source, include_last_offset=True, use_layout=True)
    np.asarray(last(ids[:12], [0, 5, 7]))
    assert source.asked.pop() == [5, 2]
    assert np.asarray(last.last_kept).shape == (12,)

    rows = PrivateEmbedding(source, use_layout=True)
    for shape, asked in [((4, whole), [whole] * 4), ((2, 2, 3), [6, 6]), ((5,), [5]), ((), [1])]:
        np.asarray(rows(ids[: int(np.prod(shape))].reshape(shape)))
        assert source.asked.pop() == asked
    # Four bags of half the layout's ids: one inference could not have held them.
    with pytest.raises(hushtable.TooManyIds):
        rows(ids)


@pytest.mark.parametrize("mode", MODES)
def test_a_bag_layer_leaves_dropped_rows_out(
    bag_client: hushtable.Client, weight: np.ndarray, mode: Any
) -> None:
    ids = some_ids(4 * 60, 3).reshape(4, -1)
    ids[:, 0] = 9
    layer = PrivateEmbeddingBag(bag_client, mode=mode, padding_idx=9, use_layout=True)
    assert layer.last_kept is None
    bags = np.asarray(layer(ids))
    kept = np.asarray(layer.last_kept)
    assert kept.shape == ids.shape
    assert kept[:, 0].all(), "padding is not dropped"
    assert not kept.all()
    left = [row[k].tolist() for row, k in zip(ids, kept, strict=True)]
    expected = np.zeros((4, DIM), dtype=np.float32)
    for i, bag in enumerate(left):
        expected[i] = _reduce(weight, [id_ for id_ in bag if id_ != 9], mode)
    np.testing.assert_allclose(bags, expected, rtol=1e-5)


def _reduce(weight: np.ndarray, bag: list[int], mode: str) -> Any:
    if not bag:
        return np.zeros(DIM, dtype=np.float32)
    return getattr(weight[bag], mode)(axis=0)


def test_an_embedding_layer_has_zeros_for_dropped_rows(
    bag_client: hushtable.Client, weight: np.ndarray
) -> None:
    ids = some_ids(IDS_MAX, 4)
    layer = PrivateEmbedding(bag_client, use_layout=True)
    rows = np.asarray(layer(ids))
    kept = np.asarray(layer.last_kept)
    assert np.array_equal(rows, np.where(kept[:, None], weight[ids], np.float32(0)))
    assert not kept.all()
    assert layer.extra_repr() == f"{ROWS}, {DIM}, use_layout=True"
    plain = PrivateEmbedding(bag_client)
    assert np.array_equal(np.asarray(plain(ids)), weight[ids])
    assert np.asarray(plain.last_kept).all()


def test_layers_in_the_clear_drop_the_same(
    bag_client: hushtable.Client, table: hushtable.Table
) -> None:
    ids = some_ids(IDS_MAX, 5).reshape(2, -1)
    outputs = [
        np.asarray(PrivateEmbeddingBag(source, use_layout=True)(ids))
        for source in (bag_client, table)
    ]
    assert np.array_equal(*outputs)


def test_layer_arguments_that_cannot_be(table: hushtable.Table) -> None:
    with pytest.raises(hushtable.ConfigError, match="leave max_ids out"):
        PrivateEmbedding(table, max_ids=4, use_layout=True)
    rows_only: Any = type("Rows", (), {"info": table.info, "lookup": table.lookup})()
    with pytest.raises(hushtable.ConfigError, match="has no layout"):
        PrivateEmbedding(rows_only, use_layout=True)


def test_the_command_asks_for_a_bag(urls: tuple[str, str], weight: np.ndarray) -> None:
    servers = ["--left", urls[0], "--right", urls[1]]
    found = run_json("lookup", 3, 2999, "--bag", *servers)
    assert found["kept"] == [True, True]
    np.testing.assert_allclose(found["rows"], weight[[3, 2999]], rtol=1e-6)
    assert found["stats"]["keys"] == KEYS

    ids = range(100, 100 + IDS_MAX)
    done = run("lookup", *ids, "--bag", *servers)
    dropped = [line for line in done.stdout.splitlines() if line.endswith("\tdropped")]
    assert 0 < len(dropped) < IDS_MAX
    assert f"dropped for want of room: {dropped[0].split()[0]}" in done.stderr
    done = run("lookup", 3, "--bag", "--max-ids", 4, *servers)
    assert (done.returncode, "leave --max-ids out" in done.stderr) == (2, True)


def test_the_server_says_what_its_layout_costs(laid_out: Path) -> None:
    layout = hushtable.Table.open(laid_out).layout
    assert layout is not None
    with start(str(laid_out), "--side", "left", *FREE) as server:
        first_line(server)
        line = first_line(server)
        server.terminate()
    assert line.startswith(f"layout version {layout.version[:16]}")
    assert f"{KEYS} keys, {layout.bytes_up:,} B up, {layout.bytes_down:,} B down" in line
    facts = run_json("table", "info", laid_out)["layout"]
    assert facts["version"] == layout.version
    assert [part["name"] for part in facts["parts"]] == ["hot", "full"]
    assert layout.version in run("table", "info", laid_out).stdout


def test_bench_serve_bags(laid_out: Path) -> None:
    options = ["--seconds", 1, "--warmup", 0.1, "--clients", 4]
    record = run_json("bench", "serve", "--bags", "--bundle", laid_out, *options)
    assert (record["bench"], record["unit"]) == ("serve-bags", "inferences/s")
    assert record["value"] > 0
    assert record["detail"]["keys"] == KEYS
    parts = '{"full": {"bins": 4, "queries": 2}}'
    small = ["--rows", 200, "--row-bytes", 16, "--no-tls", "--layout", parts]
    record = run_json("bench", "serve", "--bags", *small, *options)
    assert (record["params"]["rows"], record["detail"]["keys"]) == (200, 8)
    for bad in (["--layout", "{"], ["--bundle", "/nowhere"]):
        assert run("bench", "serve", "--bags", *bad).returncode == 2
    assert run("bench", "serve", "--no-tls").returncode == 2
