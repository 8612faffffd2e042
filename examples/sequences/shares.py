"""The model as a bundle with a plan, two operators' servers of it, and what they answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from examples import operators
from examples.clicks.pages import Floats
from examples.clicks.scoring import Layer
from examples.dlrm.checkpoint import write_safetensors
from examples.histories.journeys import BAG_LENGTH
from examples.movielens.model import auc

from hushtable import Model, infer
from hushtable.nn import PrivateModel

from . import model
from .app import App, Asked, flatten, some

#: Inferences of training users that say how large each layer's values become.
SAMPLE_PAGES = 200
#: Bits of a row's value, and after the point of activations.
VALUE_BITS, FRACTION_BITS = 16, 12
#: Predictions of one call.
CALL = 40


@dataclass(frozen=True)
class Judgement:
    """What came of it.

    Attributes:
        test_auc: of the float model in the clear, on all test inferences.
        without_auc: of a model that is learned without any history, on the same.
        pages: test inferences that were also predicted on shares.
        predictions: their candidates, one prediction each.
        clear_auc: of the float model in the clear, on those.
        shares_auc: of logits computed on shares, on the same.
        largest_difference: of a logit to the float model's.
        ms: median milliseconds of one prediction alone.
        key_bytes: bytes of lookup keys that one sends, to both servers together.
        dealt_bytes: bytes of what the client deals for it, to both servers together.
        down_bytes: bytes of both shares of the logit.
        peer_bytes: bytes that each server sends the other.
        rounds: messages that each sends the other.
    """

    test_auc: float
    without_auc: float
    pages: int
    predictions: int
    clear_auc: float
    shares_auc: float
    largest_difference: float
    ms: float
    key_bytes: int
    dealt_bytes: int
    down_bytes: int
    peer_bytes: int
    rounds: int


def tables(app: App) -> dict[str, Floats]:
    """The rows of each sparse feature, in the model's order."""
    features = np.split(np.asarray(app.device.features), model.FIRST[1:])
    return {
        "candidate": np.asarray(app.device.candidates),
        "history": app.history,
        **dict(zip(model.FEATURES, features, strict=True)),
    }


def state_dict(app: App) -> dict[str, Floats]:
    """The model as a checkpoint: tables by feature, layers by the names that DLRM code has."""
    tensors = {f"{name}.weight": rows for name, rows in tables(app).items()}
    for part, layers in (("bot_l", app.device.bottom), ("top_l", app.device.top)):
        for number, layer in enumerate(layers):
            # [out, in], and between two linear layers torch has one for the ReLU.
            tensors[f"{part}.{2 * number}.weight"] = np.asarray(layer.weight).T
            tensors[f"{part}.{2 * number}.bias"] = np.asarray(layer.bias)
    return tensors


def describe(app: App) -> str:
    """The model's description."""
    every = tables(app)
    dim = app.history.shape[1]
    lines = [
        "dense = 1",
        f"bottom = {_outputs(app.device.bottom)}",
        f"top = {_outputs(app.device.top)}",
        f"dim = {dim}",
        'interaction = "dot"',
        'activation = "relu"',
    ]
    for name, rows in every.items():
        lines += ["", "[[features]]", f'name = "{name}"', f"rows = {len(rows)}"]
        if name == "history":
            lines.append(f"bag = {BAG_LENGTH}")
    return "\n".join(lines) + "\n"


def _outputs(layers: tuple[Layer, ...]) -> list[int]:
    return [len(layer.bias) for layer in layers]


def build(app: App, folder: Path) -> Path:
    """Writes the bundle and its plan, calibrated on inferences of training users."""
    checkpoint, bundle = folder / "sequences.safetensors", folder / "sequences"
    write_safetensors(checkpoint, state_dict(app))
    patterns = [f"{name}.weight" for name in tables(app)]
    Model.build(checkpoint, bundle, tables=patterns, max_ids=BAG_LENGTH)
    spec = folder / "sequences.toml"
    spec.write_text(describe(app))
    samples = flatten(some(app.train, SAMPLE_PAGES))
    infer.compile_shares(
        bundle,
        samples.dense,
        _listed(samples),
        spec=spec,
        fraction_bits=FRACTION_BITS,
        value_bits=VALUE_BITS,
        runs=3,
    )
    return bundle


def _listed(asked: Asked) -> list[list[int | list[int]]]:
    """Ids user by user, as plans take them: of a history, those that are there."""
    columns: list[list[int | list[int]]] = []
    for column in asked.ids.values():
        if column.ndim == 1:
            columns.append(column.tolist())
        else:
            columns.append([bag[bag >= 0].tolist() for bag in column])
    return [list(entries) for entries in zip(*columns, strict=True)]


def predict(layer: PrivateModel, asked: Asked) -> Floats:
    """The logits, float32 [predictions]."""
    parts = []
    for first, end in pairwise([*range(0, len(asked), CALL), len(asked)]):
        own = asked.take(np.arange(first, end))
        parts.append(np.asarray(layer(own.ids, own.dense)))
    return np.concatenate(parts)


def judge(app: App, folder: Path, *, pages: int, timed: int) -> Judgement:
    """Serves by two operators, predicts on shares, and compares with the model in the clear.

    Args:
        app: the trained model.
        folder: for bundle and certificates.
        pages: test inferences to predict on shares, drawn at random.
        timed: predictions to time one by one.
    """
    bundle = build(app, folder)
    chosen = some(app.test, pages)
    asked, clear = flatten(chosen), app.logits(chosen)
    with (
        operators.start(bundle, folder / "operators") as sides,
        sides.connect(Model.open(bundle).version) as client,
    ):
        layer = PrivateModel(client)
        found = predict(layer, asked)
        seconds = []
        for place in range(min(timed, len(asked))):
            one = asked.take(np.array([place]))
            started = time.perf_counter()
            layer(one.ids, one.dense)
            seconds.append(time.perf_counter() - started)
        stats, info = layer.last_stats, client.info
    assert stats is not None
    return Judgement(
        test_auc=app.auc(),
        without_auc=app.without_auc,
        pages=len(chosen),
        predictions=len(asked),
        clear_auc=auc(clear, asked.clicked),
        shares_auc=auc(found, asked.clicked),
        largest_difference=float(np.abs(found - clear).max()),
        ms=float(np.median(seconds)) * 1e3,
        key_bytes=stats.key_bytes,
        dealt_bytes=stats.dealt_bytes,
        down_bytes=stats.bytes_down,
        peer_bytes=info.peer_bytes,
        rounds=info.rounds,
    )
