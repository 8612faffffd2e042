"""The layers' calls as operators of torch, which compilers keep in their graphs as they are.

``hushtable::lookup`` and ``hushtable::lookup_features`` fetch rows, ``hushtable::predict`` has a
whole model computed; they are opaque, and their output's shape follows from the input's shape.
``hushtable::reduce`` makes bags of rows; it has a gradient for the weights of the rows. Imported
where torch is there.

They are defined by torch's dispatcher itself: an operator of ``torch.library.custom_op`` imports
all of torch's compiler at its first call, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .._bags import Mode, bag_bounds, reduce_bags
from ._handles import layer_of
from ._module import array_of, offset_array

__all__ = ["lookup", "lookup_features", "predict", "reduce"]

_LIBRARY = torch.library.Library("hushtable", "DEF")


def _operator(schema: str) -> Callable[[Callable[..., Any]], Any]:
    """An operator that a kernel computes on every device, and that changes nothing."""

    def define(kernel: Callable[..., Any]) -> Any:
        name = kernel.__name__
        _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        return getattr(torch.ops.hushtable, name)

    return define


def _shapes_of(name: str) -> Callable[[Callable[..., Any]], None]:
    """Registers what tells compilers the shapes of an operator's results."""

    def register(shapes: Callable[..., Any]) -> None:
        torch.library.register_fake(f"hushtable::{name}", shapes, lib=_LIBRARY)

    return register


@_operator("(Tensor ids, Tensor? offsets, Tensor? weights, str layer) -> (Tensor, Tensor)")
def lookup(
    ids: Tensor, offsets: Tensor | None, weights: Tensor | None, layer: str
) -> tuple[Tensor, Tensor]:
    """The rows of ``ids`` [*] by the layer of a handle, float32 [*, dim], and which were kept [*].

    Offsets and weights are only held against the ids, before anything is sent.
    """
    asked = cast(Any, layer_of(layer))
    rows, kept = asked.look_up(ids, offsets, weights)
    return rows, kept


@_shapes_of("lookup")
def _(
    ids: Tensor, offsets: Tensor | None, weights: Tensor | None, layer: str
) -> tuple[Tensor, Tensor]:
    dim = cast(Any, layer_of(layer)).embedding_dim
    rows = ids.new_empty((*ids.shape, dim), dtype=torch.float32)
    return rows, ids.new_empty(ids.shape, dtype=torch.bool)


@_operator("(Tensor[] values, Tensor[] offsets, Tensor[] weights, str layer) -> Tensor[]")
def lookup_features(
    values: list[Tensor], offsets: list[Tensor], weights: list[Tensor], layer: str
) -> list[Tensor]:
    """Of each of a collection's features the rows of its ``values``, float32 [values, dim].

    Weights (none, or one of each feature) are only held against the values.
    """
    rows: list[Tensor] = cast(Any, layer_of(layer)).look_up(values, offsets, weights)
    return rows


@_shapes_of("lookup_features")
def _(
    values: list[Tensor], offsets: list[Tensor], weights: list[Tensor], layer: str
) -> list[Tensor]:
    dims = cast(Any, layer_of(layer)).dims
    return [
        ids.new_empty((ids.shape[0], dim), dtype=torch.float32)
        for ids, dim in zip(values, dims, strict=True)
    ]


@_operator("(Tensor[] values, Tensor[] offsets, Tensor? dense, str layer) -> Tensor")
def predict(
    values: list[Tensor], offsets: list[Tensor], dense: Tensor | None, layer: str
) -> Tensor:
    """A logit for each user, float32 [users], by the model of a handle.

    Of each feature its ids, with offsets where they are jagged, and else with an empty tensor.
    """
    logits: Tensor = cast(Any, layer_of(layer)).predict_tensors(values, offsets, dense)
    return logits


@_shapes_of("predict")
def _(values: list[Tensor], offsets: list[Tensor], dense: Tensor | None, layer: str) -> Tensor:
    jagged = offsets[0].shape[0] > 0
    users = offsets[0].shape[0] - 1 if jagged else values[0].shape[0]
    return values[0].new_empty((users,), dtype=torch.float32)


@_operator(
    "(Tensor rows, Tensor? kept, Tensor? offsets, Tensor? weights, str mode, bool last, bool fused)"
    " -> Tensor"
)
def reduce(
    rows: Tensor,
    kept: Tensor | None,
    offsets: Tensor | None,
    weights: Tensor | None,
    mode: str,
    last: bool,
    fused: bool,
) -> Tensor:
    """Bags of rows [*, dim], float32 [bags, dim]; see :func:`hushtable._bags.reduce_bags`."""
    shape = tuple(rows.shape[:-1])
    bounds = bag_bounds(shape, offset_array(offsets), last)
    flat = array_of(rows).reshape(-1, rows.shape[-1])
    bags = reduce_bags(
        flat,
        bounds,
        cast(Mode, mode),
        kept=None if kept is None else array_of(kept).reshape(-1),
        weights=None if weights is None else array_of(weights).astype(np.float32).reshape(-1),
        fused=fused,
    )
    return torch.from_numpy(bags).to(rows.device)


@_shapes_of("reduce")
def _(
    rows: Tensor,
    kept: Tensor | None,
    offsets: Tensor | None,
    weights: Tensor | None,
    mode: str,
    last: bool,
    fused: bool,
) -> Tensor:
    bags = rows.shape[0] if offsets is None else offsets.shape[0] - int(last)
    return rows.new_empty((bags, rows.shape[-1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    rows, kept, offsets, weights, _, last, _ = inputs
    ctx.save_for_backward(rows, kept, offsets, weights)
    ctx.last = last


def _weights_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Of a sum, each weight's gradient is its row times its bag's gradient; rows have none."""
    rows, kept, offsets, weights = ctx.saved_tensors
    if weights is None:
        return (None,) * 7
    if offsets is None:
        of_weights = (rows * gradient.unsqueeze(1)).sum(-1)
    else:
        places = torch.arange(rows.shape[0], device=rows.device)
        starts = offsets.to(places.dtype)
        bags = torch.searchsorted(starts, places, right=True) - 1
        # What stands behind the last offset is in no bag.
        outside = bags >= gradient.shape[0]
        # One bag more, for call with no bag at all.
        padded = torch.cat([gradient, gradient.new_zeros((1, gradient.shape[1]))])
        of_weights = (rows * padded[bags.clamp(max=gradient.shape[0])]).sum(-1)
        of_weights = of_weights.masked_fill(outside, 0.0)
    if kept is not None:
        of_weights = of_weights.masked_fill(~kept, 0.0)
    return None, None, None, of_weights.to(weights.dtype), None, None, None


torch.library.register_autograd(
    "hushtable::reduce", _weights_gradient, setup_context=_keep, lib=_LIBRARY
)
