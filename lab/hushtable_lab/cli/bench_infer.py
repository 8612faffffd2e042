"""``hushtable bench infer``: a prediction on encrypted features, from query to logit."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import typer

from hushtable import _native
from hushtable._machine import cores
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.errors import ConfigError

from .. import native
from ..measure.floors import ckks_floor
from ..measure.memory import peak_bytes
from ..measure.records import bench_record


@command(
    "hushtable bench infer --model uci --threads 1 --json",
    "hushtable bench infer --model criteo --runs 1",
    "hushtable bench infer --model criteo-relu --runs 1 --json",
    "hushtable bench infer --model uci --users 64 --threads 0",
)
def infer(
    model: Annotated[
        str,
        typer.Option(
            help="uci, criteo (low thresholds) or criteo-large, with squares; uci-silu, uci-relu, "
            "uci-relu-composite, criteo-silu, criteo-relu or criteo-relu-composite."
        ),
    ] = "uci",
    threads: Annotated[
        int, typer.Option(help="Threads that compute a query, 0 for one a core.")
    ] = 1,
    users: Annotated[
        int, typer.Option(help="Users of a query, a power of two: they share its ciphertexts.")
    ] = 1,
    runs: Annotated[int, typer.Option(help="Queries to answer; the fastest counts.")] = 5,
    masks: Annotated[
        str,
        typer.Option(
            help="What the server does with the random half of keys: held, or drawn at each use, "
            "which takes half the memory and more time."
        ),
    ] = "held",
    json: Json = False,
) -> None:
    """Compute a model of a published shape on encrypted features: seconds from query to logit.

    That is encrypting the features, computing on them, and opening the answer, of all its users.
    Keys and the model are prepared before. The floor counts the server's operations alone. Each
    logit is compared with the model in the clear; the error is that of the worst, and one that is
    no number or above 1/64 ends the run. Weights are synthetic. Memory is the most that this
    process held: client and server. Keys go from one to the other as they are made, so that they
    are in memory once.
    """
    models = native.infer_models()
    if model not in models:
        raise ConfigError(f"--model is {model!r}, but must be {', '.join(models)}")
    if not 0 <= threads <= 4096:
        raise ConfigError(f"--threads is {threads}, but must be 0 to 4096")
    if not 1 <= runs <= 1000:
        raise ConfigError(f"--runs is {runs}, but must be 1 to 1000")
    if masks not in ("held", "drawn"):
        raise ConfigError(f"--masks is {masks!r}, but must be held or drawn")
    if not 1 <= users <= 1024 or users & (users - 1):
        raise ConfigError(f"--users is {users}, but must be a power of two up to 1024")
    note("planning, making keys, preparing the model")
    threads = threads or cores()
    found = native.infer_seconds(model=model, users=users, runs=runs, threads=threads, masks=masks)
    params: dict[str, Any] = {"model": model, "runs": runs}
    # Records from before there was a choice are of one user and of held masks, and say nothing.
    params |= ({} if users == 1 else {"users": users}) | (
        {} if masks == "held" else {"masks": masks}
    )
    print_bench(_record(params, threads, json_.loads(found)), json)


def _record(params: dict[str, Any], threads: int, measured: dict[str, Any]) -> dict[str, Any]:
    seconds = (measured["client_ms"] + measured["server_ms"]) / 1e3
    floor = ckks_floor(measured["read_bytes"], measured["vectors"], threads)
    return bench_record(
        "infer",
        params,
        seconds,
        "s",
        floor.seconds,
        floor.seconds / seconds,
        threads,
        _native.ring_kernel(),
        bound=floor.bound,
        **measured,
        memory_bytes=peak_bytes(),
    )
