"""Measures each engine on the same work, for docs/choose.md: on this machine, and over a link.

    python bench/choose.py [--only click-shares] [--write-only]

Servers are processes of this machine with TLS; the link is emulated (bench/link.py). It keeps
what it found in bench/results and writes the page's table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from examples import operators  # noqa: E402
from examples.cifar import networks as cifar  # noqa: E402
from link import Link  # noqa: E402

from hushtable import (  # noqa: E402
    Certificates,
    ClientOptions,
    Model,
    ServerProcess,
    Table,
    connect,
    infer,
    make_certificates,
)
from hushtable.data import CRITEO_ROWS  # noqa: E402
from hushtable.nn.encrypted import compression  # noqa: E402
from hushtable.server import ChildServer  # noqa: E402

PAGE = ROOT / "docs" / "choose.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- measured: begin (bench/choose.py) -->", "<!-- measured: end -->")
ROUND_TRIP_MS = 30.0
MBIT = 100.0
#: The table of the lookups: a million rows of 64 float32.
TABLE = (1 << 20, 64)
#: HE-LRM's Criteo model, its tables of a tenth of Criteo's rows.
DENSE, BOTTOM, TOP, DIM = 13, (512, 256, 64, 16), (512, 256, 1), 16
DIVISOR = 10

Floats = npt.NDArray[np.float32]
Ask = Callable[[], object]
#: How something reaches a server: the URL to use in place of the server's own.
Reach = Callable[[str], str]


@dataclass(frozen=True)
class Asked:
    """Servers that run, a client of theirs, and what it asks again and again.

    Attributes:
        servers: their processes.
        ask: one call.
        before: what is made for a call before its input is known; None for nothing.
    """

    servers: Sequence[ChildServer[Any]]
    ask: Callable[[], object]
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Way:
    """One engine on one piece of work.

    Attributes:
        title: for the page.
        under_way: calls at once where throughput is measured.
        start: starts servers and a client in a folder, where the next start finds what was made.
            The client reaches servers by the second argument, and they each other by the third.
        calls: to measure, of one alone.
    """

    title: str
    under_way: int
    start: Callable[[Path, Reach, Reach], contextlib.AbstractContextManager[Asked]]
    calls: int = 30


@dataclass(frozen=True)
class Measured:
    """What a way takes.

    Attributes:
        way: its name in ``WAYS``.
        loopback_ms, link_ms: medians of one call alone, without what is made before.
        up_bytes, down_bytes: of that call, as the link saw them, with TLS.
        between_bytes: of that call, between servers, both ways.
        before_ms, before_link_ms, before_bytes: of what is made before a call; 0 for nothing.
        once_bytes: both ways before the first call or with it: handshakes, terms, and keys.
        server_core_ms: processor time of all servers a call, with ``under_way`` calls at once.
        calls_per_s: so many at once, where servers and client share two cores.
        under_way: calls at once.
        server_bytes: resident memory of all servers, table files that are mapped included.
    """

    way: str
    loopback_ms: float
    link_ms: float
    up_bytes: float
    down_bytes: float
    before_ms: float
    before_link_ms: float
    before_bytes: float
    between_bytes: float
    once_bytes: float
    server_core_ms: float
    calls_per_s: float
    under_way: int
    server_bytes: int


def rows_of_criteo() -> list[int]:
    """Rows of the click model's tables."""
    return [max(3, rows // DIVISOR) for rows in CRITEO_ROWS]


def description(activation: str) -> str:
    """The click model as compilers read it."""
    lines = [
        f"dense = {DENSE}",
        f"bottom = {list(BOTTOM)}",
        f"top = {list(TOP)}",
        f"dim = {DIM}",
        'interaction = "concat"',
        f'activation = "{activation}"',
    ]
    for column, rows in enumerate(rows_of_criteo()):
        lines += ["", "[[features]]", f'name = "emb_l.{column}"', f"rows = {rows}"]
    return "\n".join(lines) + "\n"


def layers(random: np.random.Generator) -> dict[str, Floats]:
    """Made-up weights of the click model's layers, small enough for squares."""
    made: dict[str, Floats] = {}
    for part, first, outputs in (
        ("bot_l", DENSE, BOTTOM),
        ("top_l", DIM * (1 + len(CRITEO_ROWS)), TOP),
    ):
        inputs = first
        for place, width in enumerate(outputs):
            weight = random.normal(scale=0.5 * inputs**-0.5, size=(width, inputs))
            made[f"{part}.{2 * place}.weight"] = weight.astype(np.float32)
            made[f"{part}.{2 * place}.bias"] = np.zeros(width, np.float32)
            inputs = width
    return made


def click_bundle(folder: Path, rows: Sequence[int], name: str) -> Path:
    """A model bundle whose tables have so many rows, made once."""
    if (folder / name).exists():
        return folder / name
    random = np.random.default_rng(1)
    tables = {
        f"emb_l.{column}.weight": random.uniform(-0.5, 0.5, (count, DIM)).astype(np.float32)
        for column, count in enumerate(rows)
    }
    np.savez(folder / f"{name}.npz", **tables, **layers(random))
    Model.build(folder / f"{name}.npz", folder / name, name=name, tables=["emb_l.*"])
    return folder / name


def logit(weights: dict[str, Floats], dense: Floats, rows: Floats) -> float:
    """The click model's layers, on the device."""

    def through(part: str, values: Floats, count: int) -> Floats:
        for place in range(count):
            layer = weights[f"{part}.{2 * place}.weight"] @ values
            values = layer + weights[f"{part}.{2 * place}.bias"]
            if place + 1 < count:
                values = np.maximum(values, 0)
        return values

    bottom = through("bot_l", dense, len(BOTTOM))
    return float(through("top_l", np.concatenate([bottom, rows.ravel()]), len(TOP))[0])


def certificates(folder: Path) -> Certificates:
    """Of servers of one operator."""
    return make_certificates(folder / "certificates")


def row_table(folder: Path) -> Path:
    """The lookups' table, made once."""
    if not (folder / "items").exists():
        values = np.random.default_rng(0).normal(size=TABLE).astype(np.float32)
        Table.from_weight(values, name="items").save(folder / "items")
    return folder / "items"


@contextlib.contextmanager
def row_pair(folder: Path, reach: Reach, _: Reach) -> Iterator[Asked]:
    """A row, from two servers."""
    table, files = row_table(folder), certificates(folder)
    with (
        ServerProcess(table, "left", device="cpu", tls=files.server) as left,
        ServerProcess(table, "right", device="cpu", tls=files.server) as right,
        connect(reach(left.url), reach(right.url), tls=files.ca) as client,
    ):
        yield Asked((left, right), lambda: client.lookup([77], max_ids=1))


@contextlib.contextmanager
def row_onion(folder: Path, reach: Reach, _: Reach) -> Iterator[Asked]:
    """A row, from one server."""
    table, files = row_table(folder), certificates(folder)
    with (
        ServerProcess(table, scheme="onion", tls=files.server, start_seconds=300) as server,
        connect(server=reach(server.url), tls=files.ca) as client,
    ):
        yield Asked((server,), lambda: client.lookup([77], max_ids=1))


@contextlib.contextmanager
def click_pair(folder: Path, reach: Reach, _: Reach) -> Iterator[Asked]:
    """A click: its rows from two servers, its layers on the device."""
    counts, files = rows_of_criteo(), certificates(folder)
    bundle = click_bundle(folder, counts, "clicks")
    weights = Model.open(bundle).dense()
    asked = {f"emb_l.{column}": [count // 2] for column, count in enumerate(counts)}
    dense = np.full(DENSE, 0.3, np.float32)
    with (
        ServerProcess(bundle, "left", device="cpu", tls=files.server) as left,
        ServerProcess(bundle, "right", device="cpu", tls=files.server) as right,
        connect(reach(left.url), reach(right.url), tls=files.ca, model=bundle) as client,
    ):

        def ask() -> float:
            found = client.lookup(asked)
            return logit(weights, dense, np.concatenate([found[name].ravel() for name in asked]))

        yield Asked((left, right), ask)


@contextlib.contextmanager
def click_shares(folder: Path, reach: Reach, between: Reach) -> Iterator[Asked]:
    """A click, on the shares of two servers."""
    counts = rows_of_criteo()
    random = np.random.default_rng(2)
    dense = random.uniform(0, 1, (256, DENSE)).astype(np.float32)
    ids = np.stack([random.integers(count, size=256) for count in counts], axis=1)
    is_new = not (folder / "clicks").exists()
    bundle = click_bundle(folder, counts, "clicks")
    if is_new:
        spec = folder / "clicks.toml"
        spec.write_text(description("relu"))
        infer.compile_shares(bundle, dense, ids, spec=spec, runs=3)
    with (
        operators.start(bundle, folder / "certificates", between) as both,
        connect(
            reach(both.left.url),
            reach(both.right.url),
            scheme="shares",
            tls=both.tls,
            options=ClientOptions(inferences=64, timeout=60),
        ) as client,
    ):
        yield Asked((both.left, both.right), lambda: client.predict(ids[:1], dense[:1]))


@contextlib.contextmanager
def click_ckks(folder: Path, reach: Reach, _: Reach) -> Iterator[Asked]:
    """A click, on encrypted features; the tables are those of digits."""
    files = certificates(folder)
    if not (folder / "digits").exists():
        kept = compression(rows_of_criteo(), threshold=500, base=4).kept
        bundle = click_bundle(folder, kept, "digits")
        spec = folder / "digits.toml"
        spec.write_text(description("square"))
        infer.compile(bundle, spec=spec)
    dense = np.full((1, DENSE), 0.3, np.float32)
    ids = np.array([[count // 2 for count in rows_of_criteo()]])
    with (
        infer.ServerProcess(folder / "digits", tls=files.server, start_seconds=300) as server,
        connect(server=reach(server.url), tls=files.ca) as client,
    ):
        client.upload()
        yield Asked((server,), lambda: client.predict(dense, ids))


@contextlib.contextmanager
def image_hybrid(folder: Path, reach: Reach, _: Reach) -> Iterator[Asked]:
    """An image, by a ResNet whose weights the client does not learn."""
    files = certificates(folder)
    trained = cifar.load("cifar-resnet", print)
    images = trained.inputs(np.random.default_rng(3).integers(0, 256, (8, 3, 32, 32), np.uint8))
    if not (folder / "images").exists():
        trained.network.build(folder / "images", name="images")
        infer.compile(folder / "images", scheme="hybrid", samples=images)
    with (
        infer.ServerProcess(
            folder / "images", tls=files.server, store=str(folder / "kept")
        ) as server,
        connect(server=reach(server.url), scheme="hybrid", tls=files.ca) as client,
    ):
        yield Asked((server,), lambda: client.predict(images[0]), client.precompute)


WAYS = {
    "row-pair": Way("two servers", 64, row_pair),
    "row-onion": Way("one server", 16, row_onion),
    "click-pair": Way("rows from two servers, layers on the device", 64, click_pair),
    "click-shares": Way("on the shares of two servers", 64, click_shares),
    "click-ckks": Way("encrypted", 2, click_ckks, 10),
    "image-hybrid": Way("hybrid", 1, image_hybrid, 5),
}


def ticks(servers: Sequence[ChildServer[Any]]) -> float:
    """Seconds of processors that servers have used."""
    total = 0
    for server in servers:
        text = Path(f"/proc/{server.process.pid}/stat").read_text()
        total += sum(map(int, text.rsplit(")", 1)[1].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def resident(servers: Sequence[ChildServer[Any]]) -> int:
    """Bytes of memory that servers hold."""
    total = 0
    for server in servers:
        text = Path(f"/proc/{server.process.pid}/status").read_text()
        total += int(next(line for line in text.splitlines() if line[:6] == "VmRSS:").split()[1])
    return total << 10


def alone(asked: Asked, calls: int) -> tuple[float, float]:
    """Median milliseconds of one call, and of what is made before it."""
    took: list[float] = []
    before: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        if asked.before is not None:
            asked.before()
        between = time.perf_counter()
        asked.ask()
        took.append(time.perf_counter() - between)
        before.append(between - started)
    return 1e3 * statistics.median(took), 1e3 * statistics.median(before)


def loaded(asked: Asked, under_way: int, seconds: float) -> tuple[float, float]:
    """Milliseconds of the servers' processors a call, and calls a second, so many at once."""
    end = time.perf_counter() + seconds

    def go(_: int) -> int:
        count = 0
        while time.perf_counter() < end:
            if asked.before is not None:
                asked.before()
            asked.ask()
            count += 1
        return count

    used, started = ticks(asked.servers), time.perf_counter()
    with ThreadPoolExecutor(under_way) as pool:
        calls = sum(pool.map(go, range(under_way)))
    took = time.perf_counter() - started
    return 1e3 * (ticks(asked.servers) - used) / calls, calls / took


def measure(name: str, way: Way, seconds: float) -> Measured:
    """A way on loopback, alone and loaded, and over the link."""
    with tempfile.TemporaryDirectory(prefix="hushtable-choose-") as made:
        folder = Path(made)
        with way.start(folder, str, str) as asked:
            alone(asked, 2)
            here, before = alone(asked, way.calls)
            core, per_s = loaded(asked, way.under_way, seconds)
            held = resident(asked.servers)
        with (
            Link(ROUND_TRIP_MS, MBIT) as link,
            Link(ROUND_TRIP_MS, MBIT) as between,
            way.start(folder, link.to, between.to) as asked,
        ):
            alone(asked, 1)
            first = sum(link.bytes)
            if asked.before is not None:
                asked.before()
            ahead, peers = sum(link.bytes) - first, sum(between.bytes)
            up, down = link.bytes
            asked.ask()
            up, down = link.bytes[0] - up, link.bytes[1] - down
            peers = sum(between.bytes) - peers
            there, before_there = alone(asked, way.calls)
    is_ahead = ahead > 0
    return Measured(
        way=name,
        loopback_ms=here,
        link_ms=there,
        up_bytes=up,
        down_bytes=down,
        before_ms=before if is_ahead else 0,
        before_link_ms=before_there if is_ahead else 0,
        before_bytes=ahead,
        between_bytes=peers,
        once_bytes=first - ahead - up - down,
        server_core_ms=core,
        calls_per_s=per_s,
        under_way=way.under_way,
        server_bytes=held,
    )


def size(count: float) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def span(ms: float) -> str:
    """Milliseconds for people."""
    return f"{ms / 1e3:.3g} s" if ms >= 1e3 else f"{ms:.2g} ms" if ms < 10 else f"{ms:.0f} ms"


def rendered(page: str, found: dict[str, Any]) -> str:
    """The page with the table of what was found."""
    begin, end = MARKS
    before, _, rest = page.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"{PAGE.name} has no {begin} ... {end}")
    titles = {
        "row": f"A row of 2^{TABLE[0].bit_length() - 1}, {4 * TABLE[1]} B each",
        "click": f"A click, {sum(rows_of_criteo()):,} rows in {len(CRITEO_ROWS)} tables",
        "image": "An image, ResNet-8 of 32 x 32",
    }
    lines = [
        f"{found['cpu']} with {found['cores']} cores, {found['isa']}; {found['date']}. Client and "
        "servers share the machine.",
        "",
        f"| | here | {ROUND_TRIP_MS:.0f} ms, {MBIT:.0f} Mbit/s | up, down | before, here | "
        "before, there | once | servers' core | servers' memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    last = ""
    for one in found["results"]:
        work = one["way"].partition("-")[0]
        if work != last:
            lines.append(f"| **{titles[work]}** | | | | | | | | |")
            last = work
        has = one["before_bytes"] > 0
        lines.append(
            f"| {WAYS[one['way']].title} | {span(one['loopback_ms'])} | {span(one['link_ms'])} | "
            f"{size(one['up_bytes'])}, {size(one['down_bytes'])} | "
            + (f"{span(one['before_ms'])} | " if has else "| ")
            + (f"{span(one['before_link_ms'])}, {size(one['before_bytes'])} | " if has else "| ")
            + f"{size(one['once_bytes'])} | {span(one['server_core_ms'])} | "
            f"{size(one['server_bytes'])} |"
        )
    return "\n".join([before + begin, *lines, end]) + after


def newest() -> dict[str, Any]:
    """What was found last."""
    kept = sorted(RESULTS.glob("choose-[0-9]*.json"))
    if not kept:
        raise SystemExit("no choose-*.json in bench/results: measure first")
    found: dict[str, Any] = json.loads(kept[-1].read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Measures, keeps, and writes the page's table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=WAYS, help="one way, printed and not kept")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load, for each way")
    parser.add_argument(
        "--write-only", action="store_true", help="write the page from what is kept"
    )
    args = parser.parse_args()
    if args.only:
        print(json.dumps(asdict(measure(args.only, WAYS[args.only], args.seconds)), indent=2))
        return 0
    if not args.write_only:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        doctor = json.loads(
            subprocess.run(
                [sys.executable, "-m", "hushtable", "doctor", "--json"],
                capture_output=True,
                check=True,
            ).stdout
        )
        found = {
            "date": today,
            "cpu": doctor["cpu"]["model"],
            "cores": doctor["cores"]["usable"],
            "isa": doctor["isa"]["used"],
            "round_trip_ms": ROUND_TRIP_MS,
            "mbit": MBIT,
            "results": [],
        }
        for name, way in WAYS.items():
            print(name, file=sys.stderr)
            found["results"].append(asdict(measure(name, way, args.seconds)))
        path = RESULTS / f"choose-{today}.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), newest()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
