"""How a model is trained, judged and written."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from ...errors import ConfigError
from .._module import array_of
from ._files import Preprocess, write_folder
from ._layers import DLRM
from ._scores import Scores, score

__all__ = ["Recipe", "Report", "Samples", "predict", "save", "train"]

#: Samples that are judged at once.
_JUDGED = 8192

#: Called with a line for a person to read.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and labels.

    Attributes:
        dense: float32 [samples, dense], standardised.
        indices: int64 [samples, features].
        labels: bool [samples].
    """

    dense: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int64]
    labels: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Any) -> Samples:
        """Those with these numbers, or of this mask."""
        return Samples(self.dense[chosen], self.indices[chosen], self.labels[chosen])


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained. Equal recipes on equal data make equal models on one machine.

    Attributes:
        epochs: passes over the training part, at most.
        batch: samples a step.
        rate: Adam's step.
        weight_decay: of linear layers and small tables.
        penalty: weight of what activations read beyond their range.
        patience: epochs without a better validation loss before training ends.
        gradient: norm that a step's gradient is clipped to.
        seed: of the order of samples. The initial weights are the caller's:
            ``torch.manual_seed`` before the model is made.
    """

    epochs: int = 200
    batch: int = 32
    rate: float = 3e-3
    weight_decay: float = 1e-2
    penalty: float = 1.0
    patience: int = 20
    gradient: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """What training found.

    Attributes:
        epochs: passes that were made.
        best_epoch: the one whose weights the model has, from 1.
        validation: scores of these weights on the validation part.
        test: on the test part, which decided nothing; None without one.
        losses: mean training loss of each epoch, without penalties.
        bottom_ranges: the largest magnitude that each bottom activation read, in all parts that
            may be known: validation and, where it is held in memory, training.
        top_ranges: likewise of the top ones.
    """

    epochs: int
    best_epoch: int
    validation: Scores
    test: Scores | None
    losses: tuple[float, ...]
    bottom_ranges: tuple[float, ...]
    top_ranges: tuple[float, ...]


def train(
    model: DLRM,
    learning: Samples | Callable[[int], Iterable[Samples]],
    validation: Samples,
    test: Samples | None = None,
    recipe: Recipe | None = None,
    *,
    say: Say = lambda _line: None,
) -> Report:
    """Trains ``model`` in place; it ends with the weights of the best validation loss.

    Args:
        model: a fresh one.
        learning: the training part; or, of data that do not fit into memory, a function of the
            epoch's number that yields its batches.
        validation: decides when to stop.
        test: judged once, at the end.
        recipe: the default one if not given.
        say: called with a line an epoch.

    Raises:
        ConfigError: no samples to learn from, or a recipe that cannot be followed.
    """
    recipe = recipe or Recipe()
    if recipe.epochs < 1 or recipe.batch < 1 or recipe.patience < 1:
        raise ConfigError(f"{recipe}: epochs, batch and patience are at least 1")
    optimisers = _optimisers(model, recipe)
    best_loss, best_state, best_epoch = float("inf"), copy.deepcopy(model.state_dict()), 0
    losses: list[float] = []
    for epoch in range(1, recipe.epochs + 1):
        model.train()
        seen, total = 0, 0.0
        for batch in _batches(learning, recipe, epoch):
            total += _step(model, batch, optimisers, recipe) * len(batch)
            seen += len(batch)
        if not seen:
            raise ConfigError("no samples to learn from")
        losses.append(total / seen)
        scores = score(predict(model, validation), validation.labels)
        say(f"epoch {epoch}: loss {losses[-1]:.4f}, validation {scores.log_loss:.4f}")
        if scores.log_loss < best_loss:
            best_loss, best_epoch = scores.log_loss, epoch
            best_state = copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= recipe.patience:
            break
    model.load_state_dict(best_state)
    for activation in model.activations:
        activation.largest = 0.0
    if isinstance(learning, Samples):
        predict(model, learning)
    judged = score(predict(model, validation), validation.labels)
    ranges = [
        tuple(activation.largest for activation in part) for part in (model.bot_a, model.top_a)
    ]
    return Report(
        epochs=len(losses),
        best_epoch=best_epoch,
        validation=judged,
        test=None if test is None else score(predict(model, test), test.labels),
        losses=tuple(losses),
        bottom_ranges=ranges[0],
        top_ranges=ranges[1],
    )


def predict(model: DLRM, samples: Samples) -> npt.NDArray[np.float32]:
    """The logits of samples, float32 [samples], as a server would compute them."""
    model.eval()
    found = []
    with torch.no_grad():
        for first in range(0, len(samples), _JUDGED):
            dense, indices, _ = _tensors(samples.take(slice(first, first + _JUDGED)))
            found.append(array_of(model(dense, indices)))
    return np.concatenate(found) if found else np.zeros(0, np.float32)


def save(model: DLRM, folder: Path, *, inputs: Preprocess | None = None) -> None:
    """Writes ``model.safetensors`` and ``model.toml``, and ``features.json`` with ``inputs``.

    The folder is what ``hushtable infer compile`` makes a plan of, and what
    :meth:`~hushtable.nn.encrypted.SavedModel.open` reads.

    Args:
        model: a trained one.
        folder: made if it is not there.
        inputs: what a client does to raw values, and the ranges that training saw.
    """
    tensors = {
        name: array_of(tensor).astype(np.float32) for name, tensor in model.state_dict().items()
    }
    write_folder(folder, model.description, tensors, inputs)


def _tensors(samples: Samples) -> tuple[Any, Any, Any]:
    dense = torch.from_numpy(np.ascontiguousarray(samples.dense, np.float32))
    indices = torch.from_numpy(np.ascontiguousarray(samples.indices, np.int64))
    return dense, indices, torch.from_numpy(np.asarray(samples.labels, np.float32))


def _batches(
    learning: Samples | Callable[[int], Iterable[Samples]], recipe: Recipe, epoch: int
) -> Iterator[Samples]:
    if not isinstance(learning, Samples):
        yield from learning(epoch)
        return
    order = np.random.default_rng((recipe.seed, epoch)).permutation(len(learning))
    for first in range(0, len(order), recipe.batch):
        yield learning.take(order[first : first + recipe.batch])


def _optimisers(model: DLRM, recipe: Recipe) -> list[Any]:
    sparse = [table.weight for table in model.emb_l if table.is_sparse]
    coefficients = [one.coefficients for one in model.activations if hasattr(one, "coefficients")]
    apart = {id(one) for one in itertools.chain(sparse, coefficients)}
    rest = [one for one in model.parameters() if id(one) not in apart]
    groups = [
        {"params": rest, "weight_decay": recipe.weight_decay},
        # Decay would pull a polynomial towards nothing, not towards a simpler one.
        {"params": coefficients, "weight_decay": 0.0},
    ]
    optimisers = [torch.optim.AdamW([one for one in groups if one["params"]], lr=recipe.rate)]
    if sparse:
        optimisers.append(torch.optim.SparseAdam(sparse, lr=recipe.rate))
    return optimisers


def _step(model: DLRM, batch: Samples, optimisers: list[Any], recipe: Recipe) -> float:
    dense, indices, labels = _tensors(batch)
    for optimiser in optimisers:
        optimiser.zero_grad()
    loss = functional.binary_cross_entropy_with_logits(model(dense, indices), labels)
    overflows = [one.overflow for one in model.activations if one.range is not None]
    (loss + recipe.penalty * sum(overflows)).backward()
    held = [one for one in model.parameters() if one.grad is not None and not one.grad.is_sparse]
    torch.nn.utils.clip_grad_norm_(held, recipe.gradient)
    for optimiser in optimisers:
        optimiser.step()
    return float(loss.detach())
