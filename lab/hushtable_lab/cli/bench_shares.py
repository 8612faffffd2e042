"""``hushtable bench shares``: predictions on the shares of two real servers."""

from __future__ import annotations

import contextlib
import json as json_
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.client import ClientOptions, TlsConfig, connect
from hushtable.errors import ConfigError, Error
from hushtable.infer import ServerProcess, SharesClient
from hushtable.server import make_certificates

from .. import native
from ..measure.records import bench_record

_MODELS = ("criteo", "top")
#: What is asked before the clock starts.
_WARM = 20
#: Predictions that servers deal for before the clock starts, at least.
_DEALT = 120
#: How long that may take.
_DEAL_SECONDS_MAX = 600.0


@command(
    "hushtable bench shares --model criteo --batch 1 --json",
    "hushtable bench shares --model criteo --batch 64 --seconds 10",
    "hushtable bench shares --model top --batch 1 --json",
    "hushtable bench shares --model criteo --batch 1 --encrypted --json",
)
def shares(
    model: Annotated[
        str,
        typer.Option(
            help="criteo, 13-512-256-64-16 and 432-512-256-1 with 26 tables; or top, its "
            "432-512-256-1 alone."
        ),
    ] = "criteo",
    batch: Annotated[int, typer.Option(help="Inferences under way at once.")] = 1,
    divisor: Annotated[
        int, typer.Option(help="Rows of a table: one of so many of Criteo's rows.")
    ] = 10,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 5.0,
    dealer: Annotated[
        str,
        typer.Option(
            help="Who deals: client, or servers, beforehand: then measured until what they dealt "
            "is used up."
        ),
    ] = "client",
    encrypted: Annotated[
        bool,
        typer.Option(
            "--encrypted",
            help="Also measure a prediction of the same shape on encrypted features, in this run.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Predict on shares by two servers, each on a core, over TLS: seconds an inference.

    With --batch 1 the median of inferences one after the other, from features to logit; with more,
    the time divided by the inferences in it, with so many under way. Every logit is compared with
    the model in floating point first. Weights are synthetic. The floor is one pass over the tables
    of both servers at the rate that two cores read this machine's memory; there is none for a
    batch, or without tables.
    """
    if model not in _MODELS:
        raise ConfigError(f"--model is {model!r}, but must be {' or '.join(_MODELS)}")
    if not 1 <= batch <= 1024:
        raise ConfigError(f"--batch is {batch}, but must be 1 to 1024")
    if divisor < 1:
        raise ConfigError(f"--divisor is {divisor}, but must be 1 or more")
    if dealer not in ("client", "servers"):
        raise ConfigError(f"--dealer is {dealer!r}, but must be client or servers")
    if encrypted and model != "criteo":
        raise ConfigError("--encrypted is for --model criteo")
    note("making a model up")
    made = native.SharesBench(model, divisor)
    rows, table_bytes = made.tables()
    work = dict(zip(("client_us", "server_us", "activations"), made.work_us(200), strict=True))
    dealt = max(_DEALT, 5 * batch)
    with _client(made, batch, dealer) as (client, left):
        if dealer == "servers":
            _dealt(left, dealt)
        note("checking, then measuring")
        calls_max = (dealt - max(batch, _WARM)) // batch if dealer == "servers" else None
        measured = _measured(client, made, batch, seconds, calls_max)
        info = client.info
    bytes_ = {
        "up_bytes": info.up_bytes,
        "down_bytes": info.down_bytes,
        "peer_bytes": info.peer_bytes,
        "rounds": info.rounds,
    }
    against = _encrypted(measured["seconds"]) if encrypted else {}
    floor = None
    if batch == 1 and table_bytes:
        floor = 2 * table_bytes / (1e9 * _native.read_gb_per_s(256 << 20, 2))
    value = measured.pop("seconds")
    record = bench_record(
        "shares",
        {"model": model, "batch": batch, "divisor": divisor, "rows": rows, "dealer": dealer},
        value,
        "s",
        floor,
        None if floor is None else floor / value,
        1,
        _native.platforms().chosen,
        bound="memory",
        table_bytes=table_bytes,
        **bytes_,
        **work,
        **measured,
        **against,
    )
    print_bench(record, json)


@contextlib.contextmanager
def _client(
    made: native.SharesBench, batch: int, dealer: str
) -> Iterator[tuple[SharesClient, ServerProcess]]:
    """A client of two servers, each on a core of its own where there are two; and left."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-shares-") as name:
        folder = Path(name)
        made.write(folder / "model", "bench")
        left, right = (
            make_certificates(folder / "certificates" / side, side=side)
            for side in ("left", "right")
        )
        options: dict[str, Any] = {"threads": 1, "dealer": dealer}

        def kept(side: str) -> dict[str, Any]:
            """Where a server that deals keeps what it dealt."""
            if dealer != "servers":
                return {}
            ledger = str(folder / "ledgers")
            return {"precomputes": str(folder / side), "precomputes_ledger": ledger}

        with (
            ServerProcess(
                folder / "model",
                side="right",
                tls=right.peer,
                peer_ca=left.ca,
                cpus={cores[-1]},
                **kept("right"),
                **options,
            ) as second,
            ServerProcess(
                folder / "model",
                side="left",
                tls=left.server,
                peer=second.url,
                peer_ca=right.ca,
                peer_cert=left.peer_certificate,
                peer_key=left.peer_key,
                cpus={cores[0]},
                **kept("left"),
                **options,
            ) as first,
            connect(
                first.url,
                second.url,
                scheme="shares",
                tls=TlsConfig(left_ca=left.ca, right_ca=right.ca),
                options=ClientOptions(inferences=batch),
            ) as client,
        ):
            yield client, first


def _dealt(server: ServerProcess, count: int) -> None:
    """Waits until so many predictions are dealt for."""
    note(f"waiting until {count} predictions are dealt for")
    deadline = time.monotonic() + _DEAL_SECONDS_MAX
    while time.monotonic() < deadline:
        with urllib.request.urlopen(str(server.metrics_url), timeout=30) as page:
            text = page.read().decode()
        ready = re.findall(r"^hushtable_precomputes_ready (\S+)", text, re.M)
        if ready and float(ready[0]) >= count:
            return
        time.sleep(0.2)
    raise Error(f"the servers dealt for fewer than {count} predictions in {_DEAL_SECONDS_MAX:g} s")


def _measured(
    client: SharesClient,
    made: native.SharesBench,
    batch: int,
    seconds: float,
    calls_max: int | None,
) -> dict[str, float]:
    users = max(batch, _WARM)
    # Far from the seed of the weights: features of the same one are no sample of any.
    dense, indices, expected = made.users(users, 1 << 32)
    found = client.predict(indices, dense)
    error = float(np.abs(found.logits - expected).max())
    latencies: list[float] = []
    parts: list[tuple[float, float, float]] = []
    started = time.perf_counter()
    while len(latencies) < 3 or time.perf_counter() - started < seconds:
        if calls_max is not None and len(latencies) >= calls_max:
            break
        first = (len(latencies) * batch) % (users - batch + 1)
        own = slice(first, first + batch)
        before = time.perf_counter()
        stats = client.predict(indices[own], dense[own]).stats
        latencies.append(time.perf_counter() - before)
        parts.append((stats.client_seconds, stats.queue_seconds, stats.answer_seconds))
        key_bytes = stats.key_bytes / batch
    in_all = time.perf_counter() - started
    client_s, queue_s, answer_s = (
        sum(part) / len(parts) / batch for part in zip(*parts, strict=True)
    )
    each = statistics.median(latencies)
    ordered = sorted(latencies)
    return {
        "seconds": each if batch == 1 else in_all / (len(latencies) * batch),
        "inferences_per_s": len(latencies) * batch / in_all,
        "p50_ms": 1e3 * each,
        "p99_ms": 1e3 * ordered[int(0.99 * (len(ordered) - 1))],
        "least_ms": 1e3 * ordered[0],
        "deal_ms": 1e3 * client_s,
        "queue_ms": 1e3 * queue_s,
        "answer_ms": 1e3 * answer_s,
        "key_bytes": key_bytes,
        "largest_error": error,
        "calls": float(len(latencies)),
    }


def _encrypted(seconds: float) -> dict[str, float]:
    """A prediction on encrypted features, by the plan with low thresholds, its fastest run."""
    note("the same shape on encrypted features")
    measured = json_.loads(native.infer_seconds(model="criteo", users=1, runs=2, threads=1))
    encrypted = (measured["client_ms"] + measured["server_ms"]) / 1e3
    return {"encrypted_s": encrypted, "encrypted_over_shares": encrypted / seconds}
