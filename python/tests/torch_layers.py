"""Embedding layers of torch, plain and changed, and tables in the clear for them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from test_nn_models import FEATURES, SHAPES

import hushtable
from hushtable.nn import ClearModel

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")

ROWS, DIM = 50, 6
IDS = torch.tensor([[1, 2, 3], [4, 4, 0]])


class Counting:
    """A table in the clear that counts lookups."""

    def __init__(self, weight: np.ndarray) -> None:
        self.table = hushtable.Table.from_weight(weight)
        self.info = self.table.info
        self.lookups = 0

    def lookup(self, ids: Any, max_ids: int | None = None) -> np.ndarray:
        self.lookups += 1
        return self.table.rows(ids)


def model_in_the_clear() -> ClearModel:
    random = np.random.default_rng(5)
    tables = {
        name: hushtable.Table.from_weight(random.normal(size=shape).astype(np.float32), name=name)
        for name, shape in SHAPES.items()
    }
    return ClearModel(FEATURES, tables)


class Scaled(torch.nn.Embedding):
    """As language models have it."""

    def forward(self, input: Any) -> Any:
        return super().forward(input) * self.embedding_dim**0.5


class Offset(torch.nn.Embedding):
    """As OPT and BART have it."""

    def forward(self, input: Any) -> Any:
        return super().forward((input + 2) % ROWS)


class Weighed(torch.nn.Embedding):
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return found * 2 if name == "weight" else found


class Called(torch.nn.Embedding):
    def __call__(self, input: Any) -> Any:
        return super().__call__(input) + 1


class Longer(torch.nn.Embedding):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("positions", torch.arange(3))


class Initialised(torch.nn.Embedding):
    """A class of its own that looks up as its base does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.note = "filled anew"

    def reset_parameters(self) -> None:
        torch.nn.init.uniform_(self.weight)


class Twice(torch.nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight * 2


def plain(rows_of: np.ndarray, kind: Any = torch.nn.Embedding, **options: Any) -> Any:
    return kind(ROWS, DIM, _weight=torch.tensor(rows_of), **options).requires_grad_(False)


def changed(rows_of: np.ndarray, how: str) -> Any:
    """An embedding that was changed in one way."""
    layer = plain(rows_of)
    if how == "forward hook":
        layer.register_forward_hook(lambda layer, given, rows: rows * 2)
    elif how == "pre-hook":
        layer.register_forward_pre_hook(lambda layer, given: ((given[0] + 1) % ROWS,))
    elif how == "backward hook":
        layer.register_full_backward_hook(lambda layer, given, found: None)
    elif how == "forward":
        layer.forward = lambda ids: torch.nn.functional.embedding(ids, layer.weight) * 2
    elif how == "parametrization":
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    elif how == "resized":
        layer.weight = torch.nn.Parameter(torch.cat([layer.weight, layer.weight]))
    elif how == "scripted":
        layer = torch.jit.script(layer)
    elif how == "quantised":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of what it will remove
            layer = torch.ao.nn.quantized.Embedding(ROWS, DIM)
    else:
        layer = layer.to(getattr(torch, how))
    return layer


def net_of(layer: Any) -> Any:
    net = torch.nn.Sequential()
    net.add_module("films", layer)
    return net
