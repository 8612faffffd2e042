"""Lookups over gRPC, with messages made from the protos."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from . import layout as layouts
from . import onion as onions
from . import pair

PROTOS = Path(__file__).resolve().parents[3] / "proto"
_CHUNK_BYTES = 1 << 20


def _compile() -> descriptor_pool.DescriptorPool:
    """The protos, compiled: not to modules, which would be called hushtable.v1 as ours is."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "protos"
        names = ["hushtable/v1/lookup.proto", "hushtable/v1/onion.proto"]
        options = [f"-I{PROTOS}", f"--descriptor_set_out={out}", "--include_imports"]
        assert protoc.main(["protoc", *options, *names]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _compile()


class Peer:
    """A server, asked by a service's methods."""

    def __init__(self, url: str, service: str, ca: Path | None = None) -> None:
        scheme, address = url.split("://")
        if scheme == "https":
            assert ca is not None
            self._channel = grpc.secure_channel(
                address, grpc.ssl_channel_credentials(ca.read_bytes())
            )
        else:
            self._channel = grpc.insecure_channel(address)
        self._service = _POOL.FindServiceByName(f"hushtable.v1.{service}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._channel.close()

    def call(
        self, name: str, requests: Iterator[dict[str, Any]] | None = None, **fields: Any
    ) -> Any:
        """The reply, or the replies of a stream, to a request of these fields."""
        method = self._service.methods_by_name[name]
        kind = message_factory.GetMessageClass(method.input_type)
        reply = message_factory.GetMessageClass(method.output_type)
        streams = ("unary", "stream")
        shape = f"{streams[method.client_streaming]}_{streams[method.server_streaming]}"
        ask = getattr(self._channel, shape)(
            f"/{self._service.full_name}/{name}",
            request_serializer=kind.SerializeToString,
            response_deserializer=reply.FromString,
        )
        if requests is None:
            return ask(kind(**fields), timeout=60)
        return ask((kind(**request) for request in requests), timeout=60)


class PairClient:
    """Rows from two servers."""

    def __init__(self, left: Peer, right: Peer) -> None:
        self.peers = (left, right)
        self.infos = [peer.call("TableInfo") for peer in self.peers]
        a, b = self.infos
        for field in ("version", "rows", "dim", "dtype", "row_bytes", "layout_version"):
            assert getattr(a, field) == getattr(b, field)
        assert (a.side, b.side) == (1, 2)
        assert len(a.version) == 32

    def groups(self) -> list[int]:
        """The groups that both servers take."""
        return [g for g in pair.GROUPS if all(g == 0 or g in info.groups for info in self.infos)]

    def lookup(self, ids: Sequence[int], max_ids: int, prg: int, group: int) -> list[bytes]:
        """The rows of some ids."""
        info = self.infos[0]
        assert len(ids) <= max_ids <= min(i.keys_per_request_max for i in self.infos)
        assert all(prg in i.prgs for i in self.infos)
        padded = [*ids, *[0] * (max_ids - len(ids))]
        pairs = [pair.make_pair(prg, group, info.rows, id) for id in padded]
        replies = [
            peer.call("Answer", table_version=info.version, keys=keys)
            for peer, keys in zip(self.peers, zip(*pairs, strict=True), strict=True)
        ]
        for reply in replies:
            assert reply.table_version == info.version
            assert len(reply.answers) == max_ids * info.row_bytes
        left, right = (reply.answers for reply in replies)
        return [
            pair.add(group, left[at : at + info.row_bytes], right[at : at + info.row_bytes])
            for at in range(0, len(ids) * info.row_bytes, info.row_bytes)
        ]

    def fetch_layout(self) -> layouts.Layout:
        """The layout that both announce."""
        info = self.infos[0]
        chunks = [chunk.bytes for chunk in self.peers[0].call("Layout")]
        assert sum(map(len, chunks)) == info.layout_bytes
        layout = layouts.Layout(b"".join(chunks))
        assert layout.version == info.layout_version
        table = (layout.table_version, layout.rows, layout.row_bytes)
        assert table == (info.version, info.rows, info.row_bytes)
        return layout

    def lookup_bag(
        self, layout: layouts.Layout, bag: Sequence[int], prg: int
    ) -> tuple[dict[int, bytes], tuple[int, int]]:
        """The rows of a bag that were not dropped, by id, and the bytes of both requests."""
        plan = layouts.plan(layout, bag)
        requests = layouts.request(layout, plan.offsets, prg)
        replies = [
            peer.call("AnswerBags", layout_version=layout.version, keys=keys)
            for peer, keys in zip(self.peers, requests, strict=True)
        ]
        assert all(reply.layout_version == layout.version for reply in replies)
        rows = layouts.rows(layout, plan, *(reply.answers for reply in replies))
        return rows, (len(requests[0]), len(requests[1]))


class OnionClient:
    """Rows from one server."""

    def __init__(self, peer: Peer, accepted: Sequence[str] = ("n4096_128",)) -> None:
        self.peer, self.info = peer, peer.call("Info")
        info = self.info
        assert info.parameters in accepted
        (set_id,) = (id for id, make in onions.SETS.items() if make().name == info.parameters)
        geometry = onions.Geometry(set_id, info.row_bytes, info.rows)
        assert info.geometry == geometry.to_bytes()
        sizes = (geometry.key_bytes, geometry.query_bytes, geometry.response_bytes)
        assert sizes == (info.key_bytes, info.query_bytes, info.response_bytes)
        self.client = onions.Client(geometry, info.version)

    def upload(self) -> Any:
        """Uploads the keys."""
        keys = self.client.keys
        chunks = (
            {"bytes": keys[at : at + _CHUNK_BYTES]} for at in range(0, len(keys), _CHUNK_BYTES)
        )
        reply = self.peer.call("PutKeys", chunks)
        assert reply.key_id == self.client.key_id
        return reply

    def lookup(self, ids: Sequence[int], max_ids: int) -> list[bytes]:
        """The rows of some ids."""
        assert len(ids) <= max_ids <= self.info.queries_per_request_max
        padded = [*ids, *[0] * (max_ids - len(ids))]
        reply = self.peer.call(
            "Answer",
            table_version=self.info.version,
            key_id=self.client.key_id,
            queries=[self.client.query(id) for id in padded],
        )
        step = self.info.response_bytes
        assert reply.table_version == self.info.version
        assert len(reply.responses) == max_ids * step
        parts = (reply.responses[at : at + step] for at in range(0, len(ids) * step, step))
        return [self.client.row(id, part) for id, part in zip(ids, parts, strict=True)]
