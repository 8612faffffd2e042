"""Five models, each judged on the patients that it was not trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushtable.data import Heart
from hushtable.nn.encrypted import SavedModel

from .patients import FOLDS, split

MODELS = Path(__file__).parent / "models"
#: The seed whose models are kept.
SEED = 0


@dataclass(frozen=True)
class Fold:
    """A model and the patients that were held out from it.

    Attributes:
        folder: of the model.
        model: in the clear.
        dense: float32 [patients, 5], standardised.
        indices: int64 [patients, 8], none missing.
        ill: bool [patients].
    """

    folder: Path
    model: SavedModel
    dense: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int64]
    ill: npt.NDArray[np.bool_]

    def logits(self) -> npt.NDArray[np.float32]:
        """Of the held-out patients, in the clear: float32 [patients]."""
        return self.model.logits(self.dense, self.indices)


def folds(heart: Heart, models: Path = MODELS) -> Iterator[Fold]:
    """The kept models with their held-out patients; each patient is held out once.

    Raises:
        ModelError: a model that is missing or damaged.
    """
    for number in range(FOLDS):
        folder = models / f"fold{number}"
        model = SavedModel.open(folder)
        test = split(heart.ill, number, seed=SEED).test
        inputs = model.inputs
        if inputs is None:
            raise FileNotFoundError(f"{folder / 'features.json'}: train the models again")
        yield Fold(
            folder,
            model,
            inputs.standardise(heart.dense[test]),
            inputs.fill(heart.indices[test]),
            heart.ill[test],
        )


def stated(models: Path = MODELS) -> dict[str, dict[str, Any]]:
    """What training found, by the names of settings."""
    document = json.loads((models / "results.json").read_text(encoding="utf-8"))
    return {setting["name"]: setting for setting in document["settings"]}
