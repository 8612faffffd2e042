"""The whole model computed by two servers, on shares of features and rows that neither sees."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from examples import operators
from examples.movielens.model import auc

import hushtable
from hushtable import infer
from hushtable.infer import SharesClient

from . import judging, model
from .criteo import Floats, Log
from .training import Trained

#: Training impressions that say how large each layer's values become.
SAMPLES = 4_000
#: Bits of a row's value: by 8 a logit differs from the float model's by 2.7 times as much.
VALUE_BITS = 16
#: Impressions of one call.
CALL = 32


@dataclass(frozen=True)
class OnShares:
    """What came of it, beside the float model and beside lookups with the layers on the device.

    Attributes:
        clear_auc: of the float model in the clear, on the judged impressions.
        shares_auc: of logits computed on shares, on the same.
        real_auc: the same on real impressions alone; None where there are none.
        largest_difference: of a logit to the float model's.
        ms: median milliseconds of one prediction alone, from features to logit.
        lookup_ms: the same where rows are looked up and the device computes the layers.
        key_bytes: bytes of lookup keys that one prediction sends, to both servers together.
        dealt_bytes: bytes of what the client deals for it, to both servers together.
        down_bytes: bytes of both shares of the logit.
        peer_bytes: bytes that each server sends the other.
        rounds: messages that each sends the other.
    """

    clear_auc: float
    shares_auc: float
    real_auc: float | None
    largest_difference: float
    ms: float
    lookup_ms: float
    key_bytes: int
    dealt_bytes: int
    down_bytes: int
    peer_bytes: int
    rounds: int


def describe(rows: tuple[int, ...]) -> str:
    """The model's description, for tables of ``rows`` rows."""
    lines = [
        f"dense = {model.BOTTOM[0]}",
        f"bottom = {list(model.BOTTOM[1:])}",
        f"top = {list(model.TOP[1:])}",
        f"dim = {model.DIM}",
        'interaction = "dot"',
        'activation = "relu"',
        "bottom_activates_last = true",
    ]
    for column, count in enumerate(rows):
        lines += ["", "[[features]]", f'name = "emb_l.{column}"', f"rows = {count}"]
    return "\n".join(lines) + "\n"


def compile(bundle: Path, rows: tuple[int, ...], learning: Log) -> infer.SharesPlanInfo:
    """Writes the bundle's plan, calibrated on impressions that the model was trained on."""
    chosen = np.random.default_rng(1).permutation(len(learning))[:SAMPLES]
    samples = learning.take(chosen)
    spec = bundle.with_suffix(".toml")
    spec.write_text(describe(rows))
    return infer.compile_shares(
        bundle, samples.dense, samples.ids, spec=spec, value_bits=VALUE_BITS, runs=3
    )


def predict(client: SharesClient, log: Log) -> Floats:
    """The logits of impressions, float32 [impressions]."""
    parts = [
        client.predict(log.ids[first : first + CALL], log.dense[first : first + CALL]).logits
        for first in range(0, len(log), CALL)
    ]
    return np.concatenate(parts).astype(np.float32)


def judge(
    trained: Trained,
    device: model.Dense,
    test: Log,
    client: SharesClient,
    lookups: hushtable.ModelClient,
    *,
    timed: int,
) -> OnShares:
    """Predicts on shares and in the clear, and times a prediction beside one by lookups.

    Args:
        trained: the model in the clear.
        device: the dense part as the bundle has it.
        test: impressions to judge on.
        client: of the two servers that compute.
        lookups: of two servers that answer rows.
        timed: predictions to time one by one, of each kind in turn.
    """
    rows = model.gather(trained.tables, test.ids)
    clear = np.asarray(model.logits(trained.dense, jnp.asarray(test.dense), jnp.asarray(rows)))
    found = predict(client, test)
    layer = judging.collection(lookups)
    seconds: tuple[list[float], list[float]] = ([], [])
    for place in range(min(timed, len(test))):
        one = test.take(np.array([place]))
        started = time.perf_counter()
        stats = client.predict(one.ids, one.dense).stats
        between = time.perf_counter()
        model.predict(device, one, judging.look_up(layer, one))
        for own, spent in zip(
            seconds, (between - started, time.perf_counter() - between), strict=True
        ):
            own.append(spent)
    real = test.is_real
    return OnShares(
        clear_auc=auc(clear, test.clicked),
        shares_auc=auc(found, test.clicked),
        real_auc=auc(found[real], test.clicked[real]) if real.any() else None,
        largest_difference=float(np.abs(found - clear).max()),
        ms=float(np.median(seconds[0])) * 1e3,
        lookup_ms=float(np.median(seconds[1])) * 1e3,
        key_bytes=stats.key_bytes,
        dealt_bytes=stats.dealt_bytes,
        down_bytes=stats.bytes_down,
        peer_bytes=client.info.peer_bytes,
        rounds=client.info.rounds,
    )


def run(
    trained: Trained,
    device: model.Dense,
    bundle: Path,
    folder: Path,
    learning: Log,
    test: Log,
    lookups: hushtable.ModelClient,
    *,
    timed: int,
) -> OnShares:
    """Compiles, serves by two operators, and judges."""
    compile(bundle, tuple(len(table) for table in trained.tables), learning)
    version = hushtable.Model.open(bundle).version
    with (
        operators.start(bundle, folder / "operators") as sides,
        sides.connect(version) as client,
    ):
        return judge(trained, device, test, client, lookups, timed=timed)
