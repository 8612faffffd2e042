"""Traces: a server's, read by OpenTelemetry's own messages, and a client's, kept by its SDK."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, Deployment
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from waiting import COMMAND_HUNG_S

import hushtable


class Collector(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    sent: queue.Queue[tuple[str, bytes]] = queue.Queue()
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.sent.put((self.path, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # Once a process: the tests after these go on with a provider that is shut down.
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


def attributes(span: Span) -> dict[str, str | int]:
    kinds = {"string_value": "string_value", "int_value": "int_value"}
    return {
        pair.key: getattr(pair.value, kinds[str(pair.value.WhichOneof("value"))])
        for pair in span.attributes
    }


def test_a_server_sends_spans_that_opentelemetry_reads(bundle: Path, collector: str) -> None:
    traced = {"otlp_endpoint": collector, "otlp_service": "films", "otlp_sample": 1.0}
    with (
        hushtable.ServerProcess(bundle, "left", threads=1, **traced) as left,
        hushtable.ServerProcess(bundle, "right", threads=1) as right,
        hushtable.connect(left.url, right.url) as client,
    ):
        client.lookup([5, 6], max_ids=4)
        version = client.info.version
    messages = []
    while not Collector.sent.empty():
        messages.append(Collector.sent.get())
    assert {path for path, _ in messages} == {"/v1/traces"}
    spans: list[Span] = []
    for _, body in messages:
        request = ExportTraceServiceRequest.FromString(body)
        # Every byte that is sent is one that OpenTelemetry knows.
        assert request.SerializeToString(deterministic=True) == body
        for of_one in request.resource_spans:
            who = {pair.key: pair.value.string_value for pair in of_one.resource.attributes}
            assert who["service.name"] == "films"
            assert who["hushtable.side"] == "left"
            assert who["service.version"] == hushtable.__version__
            for scoped in of_one.scope_spans:
                assert scoped.scope.name == "hushtable"
                spans.extend(scoped.spans)
    found = {span.name: span for span in spans}
    answer, waited, scan = found["Answer"], found["queue"], found["pass"]
    assert answer.kind == Span.SPAN_KIND_SERVER
    assert waited.kind == scan.kind == Span.SPAN_KIND_INTERNAL
    assert len(answer.trace_id) == 16 and len(answer.span_id) == 8
    assert (waited.trace_id, waited.parent_span_id) == (answer.trace_id, answer.span_id)
    assert [(link.trace_id, link.span_id) for link in answer.links] == [
        (scan.trace_id, scan.span_id)
    ]
    said = attributes(answer)
    assert said["rpc.service"] == "hushtable.v1.PrivateLookup"
    assert said["rpc.response.status_code"] == "OK"
    assert said["hushtable.queries"] == 4
    assert said["hushtable.version"] == version[:16]
    assert attributes(scan)["hushtable.asked"] == "keys"
    assert str(attributes(scan)["hushtable.engine"]).startswith("cpu, ")


def finished(spans: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    return spans.get_finished_spans()


def test_a_lookup_is_a_span_that_says_what_the_servers_saw(
    deployment: Deployment, client: hushtable.Client, spans: InMemorySpanExporter
) -> None:
    with trace.get_tracer("program").start_as_current_span("request"):
        client.lookup([7, 7, 2999], max_ids=8)
    lookup, around = finished(spans)
    assert (lookup.name, lookup.kind) == ("hushtable.lookup", trace.SpanKind.CLIENT)
    assert lookup.parent is not None and around.context is not None
    assert lookup.parent.span_id == around.context.span_id
    said = dict(lookup.attributes or {})
    stats = client.last_stats
    assert stats is not None
    assert said.pop("hushtable.bytes_up") == stats.bytes_up
    assert said.pop("hushtable.bytes_down") == stats.bytes_down
    assert said.pop("hushtable.queue_us") == round(stats.queue_seconds * 1e6)
    assert said.pop("hushtable.answer_us") == round(stats.answer_seconds * 1e6)
    assert said == {
        "hushtable.table": "films",
        "hushtable.max_ids": 8,
        "hushtable.keys": 8,
        "hushtable.retries": 0,
        "hushtable.version": client.info.version[:16],
    }

    # As many ids as fit: what is said is the same.
    spans.clear()
    client.lookup(np.arange(8), max_ids=8)
    (full,) = finished(spans)
    volatile = {"hushtable.queue_us", "hushtable.answer_us"}
    before, after = (dict(span.attributes or {}) for span in (lookup, full))
    assert {k: v for k, v in before.items() if k not in volatile} == {
        k: v for k, v in after.items() if k not in volatile
    }


def test_a_call_that_fails_says_its_class_and_no_id(
    client: hushtable.Client, spans: InMemorySpanExporter
) -> None:
    canary = 987_654_321
    with pytest.raises(hushtable.errors.IdOutOfRange, match=str(canary)):
        client.lookup([1, canary], max_ids=4)
    (span,) = finished(spans)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "IdOutOfRange"
    assert str(canary) not in span.to_json()
    assert not span.events


def test_lookups_of_asyncio_have_spans_too(
    deployment: Deployment, spans: InMemorySpanExporter
) -> None:
    async def look_up() -> None:
        async with await hushtable.connect_async(
            deployment.left.url, deployment.right.url, tls=deployment.certificates.ca
        ) as client:
            await asyncio.gather(client.lookup([1], 2), client.lookup([2, 3], 2))

    asyncio.run(look_up())
    assert [span.name for span in finished(spans)] == ["hushtable.lookup"] * 2


def test_without_a_provider_nothing_of_opentelemetry_is_imported(deployment: Deployment) -> None:
    program = f"""
import sys
import hushtable
url = {deployment.left.url!r}, {deployment.right.url!r}
with hushtable.connect(*url, tls={str(deployment.certificates.ca)!r}) as client:
    client.lookup([{ROWS - 1}])
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    import opentelemetry.trace  # the programming interface alone: no provider is set up
    client.lookup([{ROWS - 1}])
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=COMMAND_HUNG_S)
