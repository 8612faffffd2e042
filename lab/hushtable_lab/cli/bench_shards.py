"""``hushtable bench shards``: what more shards answer, and what the front itself costs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.errors import ConfigError, Error
from hushtable.model import Model
from hushtable.server import Certificates, ServerProcess, _affinity, make_certificates
from hushtable.shards import plan_shards
from hushtable.table import Table

from .. import native
from ..measure.records import bench_record
from ._server_cpu import spending

#: Keys of a pass, as a shard's processors answer best.
_BATCH = 256
#: All clients are this machine's, so one peer's.
_ONE_PEER: dict[str, Any] = {
    "connections_per_peer_max": 4096,
    "requests_per_s_per_peer_max": 10_000_000,
}


@command(
    "hushtable bench shards --shards 2",
    "hushtable bench shards --shards 4 --rows 262144 --json",
    "hushtable bench shards --shards 2 --stubs 64 --stub-ms 40 --json",
)
def shards(
    shards: Annotated[int, typer.Option(help="Shards to hold against one.")] = 2,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1 << 20,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row, a multiple of 4.")] = 256,
    clients: Annotated[int, typer.Option(help="Clients that ask all the time.")] = 8,
    keys: Annotated[int, typer.Option(help="Keys of each request.")] = 64,
    stubs: Annotated[
        int, typer.Option(help="Stand-ins for shards that the front alone is measured with.")
    ] = 64,
    stub_ms: Annotated[float, typer.Option(help="After how long each of them answers.")] = 40.0,
    seconds: Annotated[float, typer.Option(help="How long each load is measured.")] = 6.0,
    warmup: Annotated[float, typer.Option(help="How long it runs before.")] = 2.0,
    rounds: Annotated[int, typer.Option(help="Turns of both; the medians count.")] = 3,
    json: Json = False,
) -> None:
    """Load one side's front before N shards, each on a core, and before one shard on one core.

    The value is the ratio of the rates. Both run through fronts, over TLS with the certificates of
    their roles, in turns; the fronts and the clients have what the shards leave of the same cores.
    A sample is put together with an ordinary server of the other side beforehand. The detail has
    what a front costs by itself: of a pass over --stubs shards that answer zeros after --stub-ms,
    the time that is none of theirs, and the front's processor time.
    """
    if row_bytes < 4 or row_bytes % 4:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be a multiple of 4, 4 or more")
    for name, count in (("shards", shards), ("rounds", rounds), ("clients", clients)):
        if count < 1:
            raise ConfigError(f"{name} is {count}, but must be 1 or more")
    if max(shards, stubs) * 512 > rows:
        raise ConfigError(f"{rows:,} rows make no {max(shards, stubs)} shards of 512 or more")
    native.require()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-shards-") as name:
        folder = Path(name)
        model = _model(folder, rows, row_bytes)
        made = make_certificates(folder / "certificates", side="left")
        rates: dict[int, list[dict[str, float]]] = {1: [], shards: []}
        for turn in range(rounds):
            for count in (1, shards):
                note(f"round {turn + 1} of {rounds}: {count} shard(s)")
                planned = _planned(folder, model, count)
                with _side(planned, made, count, cores) as front:
                    _check(front, planned, made)
                    rates[count].append(_load(front, made, clients, keys, warmup, seconds))
                if shards == 1:
                    break
        own: dict[str, float] = {}
        if stubs > 0:
            note(f"a front of {stubs} shards that answer after {stub_ms:g} ms")
            planned = _planned(folder, model, stubs)
            own = _own(folder, planned, made, stubs, stub_ms, clients, keys, warmup, seconds)
    per_s = {
        count: statistics.median(it["per_s"] for it in found) for count, found in rates.items()
    }
    record = bench_record(
        "shards",
        {
            "shards": shards,
            "rows": rows,
            "row_bytes": row_bytes,
            "clients": clients,
            "keys_per_request": keys,
            "batch": _BATCH,
        },
        per_s[shards] / per_s[1],
        "x",
        float(shards),
        per_s[shards] / per_s[1] / shards,
        1,
        _native.platforms().chosen,
        cores=len(cores),
        one_per_s=per_s[1],
        shards_per_s=per_s[shards],
        one_p50_ms=statistics.median(it["p50_ms"] for it in rates[1]),
        shards_p50_ms=statistics.median(it["p50_ms"] for it in rates[shards]),
        ratios=[b["per_s"] / a["per_s"] for a, b in zip(rates[1], rates[shards], strict=False)],
        **own,
    )
    print_bench(record, json)


def _model(folder: Path, rows: int, row_bytes: int) -> Path:
    note(f"building {rows:,} x {row_bytes} B")
    tables = folder / "tables"
    tables.mkdir()
    weight = np.random.default_rng(1).standard_normal((rows, row_bytes // 4), np.float32)
    Table.from_weight(weight, name="bench").save(tables / "bench")
    del weight
    Model.build(tables, folder / "model", name="bench", max_ids=1)
    shutil.rmtree(tables)
    return folder / "model"


def _planned(folder: Path, model: Path, count: int) -> Path:
    """The model with a map of so many shards: its files are shared."""
    planned = folder / f"model-{count}"
    if not planned.exists():
        shutil.copytree(model, planned, copy_function=os.link)
        plan_shards(planned, shards=count, replicas=1)
    return planned


@contextlib.contextmanager
def _side(model: Path, made: Certificates, count: int, cores: list[int]) -> Iterator[ServerProcess]:
    """A front, once it is ready, and its shards, each on a core of its own."""
    with contextlib.ExitStack() as running:
        urls = []
        for shard in range(count):
            core = cores[shard % len(cores)]
            server = ServerProcess(
                model,
                "left",
                device="cpu",
                tls=made.shard,
                cpus={core},
                threads=1,
                shard=shard,
                **_ONE_PEER,
            )
            urls.append(running.enter_context(server).url)
        yield running.enter_context(_front(model, made, urls))


def _front(model: Path, made: Certificates, urls: list[str]) -> ServerProcess:
    text = f'ca = "{made.ca}"\ncert = "{made.front_certificate}"\nkey = "{made.front_key}"\n'
    text += "".join(f'[[shard]]\nreplicas = ["{url}"]\n' for url in urls)
    file = model.with_suffix(".toml")
    file.write_text(text)
    return ServerProcess(
        model, "left", device="cpu", tls=made.server, shards_file=str(file), **_ONE_PEER
    )


def _check(front: ServerProcess, model: Path, made: Certificates) -> None:
    """Puts a sample together with what an ordinary server of the other side answers."""
    with ServerProcess(model, "right", device="cpu", tls=made.server) as right:
        native.load_server(
            front.url,
            partner=right.url,
            ca=made.ca,
            clients=1,
            keys_per_request=1,
            warmup=0.0,
            seconds=0.1,
        )


def _load(
    front: ServerProcess,
    made: Certificates,
    clients: int,
    keys: int,
    warmup: float,
    seconds: float,
) -> dict[str, float]:
    load = native.load_server(
        front.url,
        partner=None,
        ca=made.ca,
        clients=clients,
        keys_per_request=keys,
        warmup=warmup,
        seconds=seconds,
    )
    if load["errors"]:
        raise Error(f"{load['errors']} of {load['requests']} requests failed: see the front's log")
    return {"per_s": load["queries_per_s"], "p50_ms": load["p50_ms"], "p99_ms": load["p99_ms"]}


_STUBS = """
import json, sys
from pathlib import Path
from hushtable_lab import native
model, certificate, key, seconds = sys.argv[1:]
native.stub_shards(
    Path(model), "left", tls=(Path(certificate), Path(key)), seconds=float(seconds),
    on_bound=lambda addrs: print(json.dumps(addrs), flush=True),
)
"""


def _own(
    folder: Path,
    model: Path,
    made: Certificates,
    stubs: int,
    stub_ms: float,
    clients: int,
    keys: int,
    warmup: float,
    seconds: float,
) -> dict[str, float]:
    """What a front costs by itself: its part of a pass, and its processor time."""
    seconds_each = str(stub_ms / 1e3)
    command = [sys.executable, "-c", _STUBS, str(model)]
    command += [str(made.shard_certificate), str(made.shard_key), seconds_each]
    cores = sorted(os.sched_getaffinity(0))
    with _affinity({cores[-1]}):  # a child inherits it
        serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        addrs = re.findall(r'"([^"]+)"', line)
        if len(addrs) != stubs:
            raise Error("the stand-ins for shards did not start: see the error above")
        with _front(model, made, [f"https://{addr}" for addr in addrs]) as front:
            before = _sums(front)
            with spending(front.process.pid, warmup, seconds) as spent:
                load = _load(front, made, clients, keys, warmup, seconds)
            after = _sums(front)
    finally:
        serving.kill()
        serving.wait()
    passes = after["passes"] - before["passes"]
    own_ms = 1e3 * (after["own"] - before["own"]) / passes
    # Over the whole load, of which the measured part has its share of passes.
    passes_per_s = load["per_s"] / max((after["keys"] - before["keys"]) / passes, 1.0)
    return {
        "stubs": float(stubs),
        "stub_ms": stub_ms,
        "front_own_ms": own_ms,
        "front_own_of_pass": own_ms / stub_ms,
        "front_cpu_ms": 1e3 * spent["run_s"] / passes_per_s,
        "front_cpu_of_pass": 1e3 * spent["run_s"] / passes_per_s / stub_ms,
        "stub_passes": passes,
        "stub_keys_per_pass": (after["keys"] - before["keys"]) / passes,
    }


def _sums(front: ServerProcess) -> dict[str, float]:
    with urllib.request.urlopen(str(front.metrics_url), timeout=30) as page:
        text = page.read().decode()

    def value(name: str) -> float:
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)", text, re.M)
        return sum(map(float, found))

    return {
        "own": value("hushtable_front_own_seconds_sum"),
        "passes": value("hushtable_front_own_seconds_count"),
        "keys": value("hushtable_answered_keys_total"),
    }
