"""docs/choose.md and README's chart: what they are written from, and the link that they emulate."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_newest_result() -> None:
    choose = script("choose")
    page = choose.PAGE.read_text(encoding="utf-8")
    assert choose.rendered(page, choose.newest()) == page, "run bench/choose.py --write-only"
    found = [one["way"] for one in choose.newest()["results"]]
    assert found == list(choose.WAYS), "run bench/choose.py"


def test_the_chart_has_the_newest_results() -> None:
    figures = script("figures")
    suites = {
        suite: json.loads(
            sorted((ROOT / "bench" / "results").glob(f"{suite}-[0-9]*.json"))[-1].read_text()
        )["results"]
        for suite in figures.MARKS
    }
    drawn = figures.CHART.read_text(encoding="utf-8")
    assert drawn == figures.chart(suites), "run bench/figures.py"


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that sends back what comes, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line:
                while data := line.recv(1 << 16):
                    line.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def sent(url: str, count: int) -> float:
    """Seconds until so many bytes came back."""
    host, port = url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port))) as line:
        line.sendall(b"a")
        assert line.recv(1) == b"a"  # the way is open from here on
        started = time.monotonic()
        line.sendall(bytes(count))
        left = count
        while left:
            left -= len(line.recv(1 << 16))
        return time.monotonic() - started


def test_a_link_delays(echo: str) -> None:
    with script("link").Link(round_trip_ms=80, mbit=1000) as link:
        assert sent(link.to(echo), 10) >= 0.08
        assert link.bytes == (11, 11)


def test_a_link_has_a_rate(echo: str) -> None:
    # 100 kB at 8 Mbit/s take a tenth of a second up; what comes back follows them.
    with script("link").Link(round_trip_ms=0, mbit=8) as link:
        assert sent(link.to(echo), 100_000) >= 0.1
