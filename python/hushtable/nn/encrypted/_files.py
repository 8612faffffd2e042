"""The folder that a trained model is kept in, and the model in numpy as that folder has it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._native import relu_coefficients
from ...errors import ConfigError, IdOutOfRange, ModelError
from ...model import _read_dense
from ._description import Description

__all__ = ["Preprocess", "SavedModel", "write_folder"]

Floats = npt.NDArray[np.float32]

_DESCRIPTION, _WEIGHTS, _INPUTS = "model.toml", "model.safetensors", "features.json"


@dataclass(frozen=True, slots=True)
class Preprocess:
    """What a client does to raw dense values before it encrypts them, and what training saw.

    Attributes:
        mean: of each dense column, in the training part.
        deviation: standard deviation of each, likewise; never 0.
        bound: standardised values are clipped to ``[-bound, bound]``; None to clip nothing. A
            client does it in the clear, and then no input is far from those of training.
        missing: for each categorical column, the index that stands in for a missing one.
        bottom_ranges: the largest magnitude that each bottom activation read, in training and
            validation.
        top_ranges: likewise of the top ones.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    bound: float | None = None
    missing: tuple[int, ...] = ()
    bottom_ranges: tuple[float, ...] = ()
    top_ranges: tuple[float, ...] = ()

    def standardise(self, dense: npt.ArrayLike) -> Floats:
        """Raw values [samples, dense] with mean 0 and deviation 1, clipped, float32.

        Raises:
            ConfigError: another number of columns.
        """
        values = np.asarray(dense, np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.mean):
            raise ConfigError(f"dense is {values.shape}, expected [samples, {len(self.mean)}]")
        found = (values - self.mean) / self.deviation
        if self.bound is not None:
            found = np.clip(found, -self.bound, self.bound)
        return found.astype(np.float32)

    def fill(self, indices: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Indices [samples, features] with :attr:`missing` in place of those below 0.

        Raises:
            ConfigError: another number of columns.
        """
        ids = np.asarray(indices, np.int64)
        if ids.ndim != 2 or ids.shape[1] != len(self.missing):
            raise ConfigError(f"indices are {ids.shape}, expected [samples, {len(self.missing)}]")
        return np.where(ids < 0, self.missing, ids)


def write_folder(
    folder: Path,
    description: Description,
    tensors: dict[str, Floats],
    inputs: Preprocess | None,
) -> None:
    """Writes ``model.toml``, ``model.safetensors`` and, with ``inputs``, ``features.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).write_text(description.to_toml(), encoding="utf-8")
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + 4 * tensor.size
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / _WEIGHTS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, "<f4").tobytes())
    if inputs is not None:
        lines = json.dumps(asdict(inputs), indent=2)
        (folder / _INPUTS).write_text(lines + "\n", encoding="utf-8")


class SavedModel:
    """A trained model out of its folder, in numpy: what an encrypted answer is compared with.

    Attributes:
        description: what it is made of.
        tensors: float32, by the names of DLRM checkpoints.
        inputs: constants of the inputs; None where the folder has none.
    """

    def __init__(
        self, description: Description, tensors: dict[str, Floats], inputs: Preprocess | None
    ) -> None:
        self.description = description
        self.tensors = tensors
        self.inputs = inputs
        shapes = _shapes(description)
        for name, shape in shapes.items():
            if name not in tensors:
                raise ModelError(f"no tensor {name!r}: the description needs it")
            if tensors[name].shape != shape:
                raise ModelError(f"{name} is {tensors[name].shape}, the description has {shape}")
        if unread := sorted(set(tensors) - shapes.keys() - _trained(description)):
            raise ModelError(
                f"the description has no place for the tensors {', '.join(unread)}: without them "
                "the model would compute something else"
            )

    @classmethod
    def open(cls, folder: Path) -> SavedModel:
        """Reads a folder that :func:`save` wrote.

        Raises:
            ModelError: a file that is missing or damaged, or weights that do not fit.
        """
        description = Description.read(folder / _DESCRIPTION)
        tensors = _read_dense(folder / _WEIGHTS)
        path = folder / _INPUTS
        if not path.is_file():
            return cls(description, tensors, None)
        try:
            inputs = _preprocess(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} is damaged: {error}") from error
        if not len(inputs.mean) == len(inputs.deviation) == description.dense:
            raise ModelError(f"{path} has {len(inputs.mean)} columns, not {description.dense}")
        if inputs.missing and len(inputs.missing) != len(description.features):
            count = len(inputs.missing)
            raise ModelError(f"{path} has {count} features, not {len(description.features)}")
        return cls(description, tensors, inputs)

    def logits(self, dense: npt.ArrayLike, indices: npt.ArrayLike) -> Floats:
        """One logit a sample, float32 [samples].

        Args:
            dense: float [samples, dense], standardised.
            indices: integers [samples, features], each below its feature's rows.

        Raises:
            ConfigError: shapes that are not these.
            IdOutOfRange: an index that is no row.
        """
        values, ids = np.asarray(dense, np.float32), np.asarray(indices, np.int64)
        description = self.description
        tables = len(description.features)
        if values.ndim != 2 or values.shape[1] != description.dense:
            raise ConfigError(f"dense is {values.shape}, not [samples, {description.dense}]")
        if ids.shape != (len(values), tables):
            raise ConfigError(f"indices are {ids.shape}, expected {(len(values), tables)}")
        bottom = self._layers(
            "bot", values, description.bottom_activations, len(description.bottom)
        )
        vectors = [bottom, *(self._look_up(at, ids[:, at]) for at in range(tables))]
        if description.interaction == "concat":
            joined = np.concatenate(vectors, axis=1)
        else:
            stacked = np.stack(vectors, axis=1)
            products = stacked @ stacked.transpose(0, 2, 1)
            rows, columns = np.tril_indices(len(vectors), -1)
            joined = np.concatenate([bottom, products[:, rows, columns]], axis=1)
        top = self._layers("top", joined, description.top_activations, len(description.top))
        return top[:, 0]

    def _look_up(self, at: int, ids: npt.NDArray[np.int64]) -> Floats:
        description = self.description
        feature = description.features[at]
        wrong = (ids < 0) | (ids >= feature.rows)
        if wrong.any():
            bad = int(ids[wrong][0])
            raise IdOutOfRange(
                f"index {bad} of {feature.name!r}: its table has {feature.rows} rows",
                id=bad,
                rows=feature.rows,
                feature=feature.name,
            )
        weight = self.tensors[f"emb_l.{at}.weight"]
        if feature.rows <= description.threshold:
            return weight[ids]
        base = description.base
        found = np.zeros((len(ids), description.dim), np.float32)
        for digit in range(description.digits(feature)):
            found += weight[digit * base + ids // base**digit % base]
        return found

    def _layers(self, part: str, values: Floats, activations: int, layers: int) -> Floats:
        for at in range(layers):
            weight = self.tensors[f"{part}_l.{2 * at}.weight"]
            values = values @ weight.T + self.tensors[f"{part}_l.{2 * at}.bias"]
            if at < activations:
                values = self._activate(part, at, values)
        return values

    def _activate(self, part: str, at: int, values: Floats) -> Floats:
        degree = self.description.relu_degree
        if degree is not None:
            held = float(self.tensors[f"{part}_a.{at}.range"][0])
            # Outside the range it grows to what is no number.
            with np.errstate(over="ignore", invalid="ignore"):
                found = np.polynomial.chebyshev.chebval(values / held, relu_coefficients(degree))
                return np.asarray(held * found, np.float32)
        match self.description.activation:
            case "square":
                return values * values
            case "relu":
                return np.maximum(values, 0)
            case "silu":
                return np.asarray(values / (1 + np.exp(-values)), np.float32)
            case "polynomial":
                found = np.zeros_like(values)
                for coefficient in self.tensors[f"{part}_a.{at}.coefficients"][::-1]:
                    found = found * values + coefficient
                return found


def _preprocess(fields: dict[str, Any]) -> Preprocess:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "bound":
            found[name] = None if value is None else float(value)
        else:
            kind = int if name == "missing" else float
            found[name] = tuple(kind(one) for one in value)
    return Preprocess(**found)


def _trained(description: Description) -> set[str]:
    """What each activation may bring along."""
    parts = (("bot", description.bottom_activations), ("top", description.top_activations))
    kinds = ["range"] + ["coefficients"] * (description.activation == "polynomial")
    return {
        f"{part}_a.{at}.{kind}" for part, count in parts for at in range(count) for kind in kinds
    }


def _shapes(description: Description) -> dict[str, tuple[int, ...]]:
    """Each tensor that the description needs; of coefficients their number is the checkpoint's."""
    shapes: dict[str, tuple[int, ...]] = {}
    for at, feature in enumerate(description.features):
        shapes[f"emb_l.{at}.weight"] = (description.kept(feature), description.dim)
    for part, layers in (("bot", description.bottom_shapes), ("top", description.top_shapes)):
        for at, (outputs, inputs) in enumerate(layers):
            shapes[f"{part}_l.{2 * at}.weight"] = (outputs, inputs)
            shapes[f"{part}_l.{2 * at}.bias"] = (outputs,)
    if description.relu_degree is not None:
        shapes |= dict.fromkeys(_trained(description), (1,))
    return shapes
