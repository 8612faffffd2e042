"""The trained model as a checkpoint: a safetensors file with the names that torch code has."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from . import model
from .criteo import Floats
from .training import Trained


def state_dict(trained: Trained) -> dict[str, Floats]:
    """Each tensor by its name: ``emb_l.N.weight``, ``bot_l.N.weight``, ``top_l.N.bias``, ..."""
    tensors = {f"emb_l.{number}.weight": table for number, table in enumerate(trained.tables)}
    for name, layers in (("bot_l", trained.dense.bottom), ("top_l", trained.dense.top)):
        for number, layer in enumerate(layers):
            # Between two linear layers torch has one for the ReLU.
            tensors[f"{name}.{2 * number}.weight"] = np.asarray(layer.weight)
            tensors[f"{name}.{2 * number}.bias"] = np.asarray(layer.bias)
    return tensors


def write_safetensors(path: Path, tensors: dict[str, Floats]) -> None:
    """A safetensors file: the length of a JSON header, the header, the bytes."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            np.ascontiguousarray(tensor, "<f4").tofile(file)


def read_dense(tensors: dict[str, Floats]) -> model.Dense:
    """What the device carries, out of a bundle's dense part.

    Raises:
        KeyError: a tensor that is not there.
    """

    def layers(name: str, count: int) -> tuple[model.Layer, ...]:
        return tuple(
            model.Layer(
                *(jnp.asarray(tensors[f"{name}.{2 * at}.{part}"]) for part in model.Layer._fields)
            )
            for at in range(count)
        )

    return model.Dense(layers("bot_l", len(model.BOTTOM) - 1), layers("top_l", len(model.TOP) - 1))
