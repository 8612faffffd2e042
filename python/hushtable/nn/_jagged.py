"""Bags of ids by feature, as models hold them: torchrec's jagged tensors, or a dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._bags import FloatArray, IntArray
from .._ids import flatten_ids
from ..errors import ConfigError
from ._module import array_of, as_tensor, is_tensor, weight_array, whole_array

__all__ = ["Bags", "read_bags", "tensors_of"]


@dataclass(frozen=True)
class Bags:
    """One feature's ids of each sample.

    Attributes:
        ids: uint64 [ids], sample after sample.
        bounds: int64 [samples + 1], where each sample's begin, and the end of the last.
        weights: float32 [ids], or None.
    """

    ids: npt.NDArray[np.uint64]
    bounds: IntArray
    weights: FloatArray | None


def read_bags(features: Any, names: Sequence[str], is_weighted: bool) -> dict[str, Bags]:
    """The bags of the features ``names``, all of the same number of samples.

    Args:
        features: a ``KeyedJaggedTensor`` or what has its methods, or a mapping of each feature to
            a ``JaggedTensor`` or to ``(values, offsets)`` or ``(values, offsets, weights)``.
        names: whose bags; others are left alone, as torchrec does.
        is_weighted: whether weights are read; then they must be there.

    Raises:
        ConfigError: a feature that is not there, weights that are not, samples that do not agree.
        ValueError: offsets or lengths that do not fit the values.
    """
    if isinstance(features, Mapping):
        bags = {name: _of_mapping(name, features, is_weighted) for name in names}
    else:
        bags = _of_keyed(features, names, is_weighted)
    counts = {name: len(one.bounds) - 1 for name, one in bags.items()}
    if len(set(counts.values())) > 1:
        (name, count), *others = counts.items()
        other = next(one for one in others if one[1] != count)
        raise ConfigError(
            f"feature {name!r} has {count} samples and feature {other[0]!r} has {other[1]}: "
            "every feature needs a bag for each sample, though it may be empty"
        )
    return bags


def tensors_of(
    features: Any, names: Sequence[str], is_weighted: bool
) -> tuple[list[Any], list[Any], list[Any]] | None:
    """Values, offsets and weights (none, or of each) of features that are tensors; else None.

    What is a dict is not read here, so that a compiler can follow; a ``KeyedJaggedTensor`` is.

    Raises:
        ConfigError, ValueError: as :func:`read_bags`.
    """
    if isinstance(features, Mapping):
        parts = [_parts(name, features, is_weighted) for name in names]
        if not all(is_tensor(values) for values, _, _ in parts):
            return None
        values = [one.reshape(-1) for one, _, _ in parts]
        offsets = [as_tensor(one, like) for like, one, _ in parts]
        weights = [as_tensor(one, like).reshape(-1) for like, _, one in parts if is_weighted]
        return values, offsets, weights
    if not hasattr(features, "lengths") or not is_tensor(features.values()):
        return None
    bags = read_bags(features, names, is_weighted)
    keys, flat = list(features.keys()), features.values()
    samples = len(next(iter(bags.values())).bounds) - 1
    ends = np.concatenate([[0], np.cumsum(array_of(features.lengths()).reshape(-1))])
    first = [int(ends[keys.index(name) * samples]) for name in names]
    own = [slice(at, at + one.ids.size) for at, one in zip(first, bags.values(), strict=True)]
    offsets = [as_tensor(one.bounds, flat) for one in bags.values()]
    scales = as_tensor(features.weights_or_none(), flat) if is_weighted else None
    return [flat[at] for at in own], offsets, [scales[at] for at in own if scales is not None]


def _of_mapping(name: str, features: Mapping[str, Any], is_weighted: bool) -> Bags:
    values, offsets, weights = _parts(name, features, is_weighted)
    flat, _ = flatten_ids(values)
    bounds = whole_array(offsets, f"feature {name!r}: offsets")
    if bounds.ndim != 1 or bounds.size == 0 or bounds[0] != 0 or np.any(np.diff(bounds) < 0):
        raise ValueError(
            f"feature {name!r}: offsets must be one row of numbers that begins with 0 and never "
            "falls, where each sample's values begin and at last where they end"
        )
    if bounds[-1] != flat.size:
        raise ValueError(
            f"feature {name!r}: the last offset is {bounds[-1]}, but must be the number of values, "
            f"{flat.size} (as in torchrec: one offset more than samples)"
        )
    return Bags(flat, bounds, _weights(name, weights, flat.size) if is_weighted else None)


def _parts(name: str, features: Mapping[str, Any], is_weighted: bool) -> tuple[Any, Any, Any]:
    """Values, offsets and weights of one feature."""
    if name not in features:
        raise ConfigError(_missing(name, features))
    given = features[name]
    if isinstance(given, tuple | list):
        if len(given) not in (2, 3):
            raise ConfigError(
                f"feature {name!r} has {len(given)} parts, not (values, offsets) or "
                "(values, offsets, weights)"
            )
        values, offsets, weights = (*given, None)[:3]
    elif hasattr(given, "values") and hasattr(given, "offsets"):
        values, offsets = given.values(), given.offsets()
        weights = given.weights_or_none() if is_weighted else None
    else:
        raise ConfigError(
            f"feature {name!r} is a {type(given).__name__}, not (values, offsets) or a JaggedTensor"
        )
    if is_weighted and weights is None:
        raise ConfigError(_weightless(name))
    return values, offsets, weights


def _of_keyed(features: Any, names: Sequence[str], is_weighted: bool) -> dict[str, Bags]:
    if not (hasattr(features, "keys") and hasattr(features, "lengths")):
        raise ConfigError(
            f"a {type(features).__name__} holds no bags: give a KeyedJaggedTensor, or a dict of "
            "each feature's (values, offsets)"
        )
    keys = list(features.keys())
    flat, _ = flatten_ids(features.values())
    lengths = whole_array(features.lengths(), "lengths").reshape(-1)
    varies = getattr(features, "variable_stride_per_key", None)
    if (varies is not None and varies()) or not keys or lengths.size % len(keys):
        raise ConfigError(
            "the features of a KeyedJaggedTensor must have the same number of samples each: "
            f"{len(keys)} features, {lengths.size} lengths"
        )
    if lengths.sum() != flat.size:
        raise ValueError(f"lengths add up to {lengths.sum()}, but there are {flat.size} values")
    ends = np.concatenate([[0], np.cumsum(lengths)])
    samples = lengths.size // len(keys)
    weights = None
    if is_weighted:
        weights = _weights(keys[0], features.weights_or_none(), flat.size)
    bags = {}
    for name in names:
        if name not in keys:
            raise ConfigError(_missing(name, keys))
        first = keys.index(name) * samples
        bounds = ends[first : first + samples + 1]
        own = slice(bounds[0], bounds[-1])
        bags[name] = Bags(flat[own], bounds - bounds[0], None if weights is None else weights[own])
    return bags


def _weights(name: str, weights: Any | None, count: int) -> FloatArray:
    if weights is None:
        raise ConfigError(_weightless(name))
    array = weight_array(weights).reshape(-1)
    if array.size != count:
        raise ValueError(f"feature {name!r} has {array.size} weights for {count} values")
    return array


def _missing(name: str, known: Any) -> str:
    listed = ", ".join(map(repr, list(known)[:8])) or "none"
    return f"feature {name!r} is missing from the input, which has {listed}: give it empty bags"


def _weightless(name: str) -> str:
    return f"feature {name!r} has no weights, and the collection is weighted"
