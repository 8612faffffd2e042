"""Trains a model for each activation, five-fold, and keeps what was found.

    python -m examples.heart.train [--seeds 3] [--folder examples/heart/models]

It needs torch: pip install 'hushtable[torch]'. The folder gets ``results.json``, with each
activation's accuracy, and the five models of seed 0 whose activation is the square, which are what
the demo (``python -m examples.heart``) serves.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hushtable.data import Heart, fetch, load_heart
from hushtable.nn.encrypted import (
    DLRM,
    Activation,
    Preprocess,
    Recipe,
    Report,
    Samples,
    save,
    train,
)

from .patients import FOLDS, describe, measure, split

HERE = Path(__file__).parent / "models"
#: A server cannot check what it cannot read: inputs of activations are held in this range.
RANGE = 2.0
#: ReLU's one polynomial, trained in: its range is wider, since nothing may leave it.
RELU_DEGREES, RELU_RANGE = (31, 63, 127), 4.0
RECIPE = Recipe(epochs=120, rate=3e-3, weight_decay=3.0, patience=25)
#: The setting whose models of seed 0 are kept.
SERVED = "square"


@dataclass(frozen=True)
class Setting:
    """One line of the table.

    Attributes:
        name: for people.
        activation: between layers.
        range: that its inputs are held in; None for a model that is not made to be encrypted.
        gain: of the first weights.
        relu_degree: of the one polynomial that stands for ReLU.
    """

    name: str
    activation: Activation
    range: float | None
    gain: float = 1.0
    relu_degree: int | None = None


CLEAR = Setting("ReLU, in the clear", "relu", None)
SETTINGS = (
    CLEAR,
    Setting("ReLU", "relu", RANGE),
    *(
        Setting(f"ReLU by degree {degree}", "relu", RELU_RANGE, relu_degree=degree)
        for degree in RELU_DEGREES
    ),
    Setting("SiLU", "silu", RANGE),
    Setting("square", "square", RANGE, gain=0.5),
    Setting("polynomial of degree 2", "polynomial", RANGE),
)


@dataclass(frozen=True)
class Fitted:
    """A trained model, what was found of it, and the constants of its inputs."""

    model: DLRM
    report: Report
    inputs: Preprocess


def fit(heart: Heart, setting: Setting, fold: int, seed: int) -> Fitted:
    """Trains a model and judges it on the patients that were held out."""
    parts = split(heart.ill, fold, seed=seed)
    inputs = measure(heart, parts.learning)
    every = Samples(inputs.standardise(heart.dense), inputs.fill(heart.indices), heart.ill)
    learning, validation, test = map(every.take, (parts.learning, parts.validation, parts.test))
    torch.manual_seed(1_000 * seed + fold)
    description = replace(describe(setting.activation), relu_degree=setting.relu_degree)
    model = DLRM(description, range=setting.range, gain=setting.gain)
    report = train(model, learning, validation, test, replace(RECIPE, seed=seed))
    inputs = replace(inputs, bottom_ranges=report.bottom_ranges, top_ranges=report.top_ranges)
    return Fitted(model, report, inputs)


def study(
    heart: Heart, seeds: int, folder: Path, *, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Every setting over every fold and seed: what ``results.json`` holds."""
    lines = []
    for setting in SETTINGS:
        models = [fit(heart, setting, fold, seed) for seed in range(seeds) for fold in range(FOLDS)]
        if setting.name == SERVED:
            for fold in range(FOLDS):
                kept = models[fold]
                save(kept.model, folder / f"fold{fold}", inputs=kept.inputs)
        tests = [one.report.test for one in models if one.report.test is not None]
        accuracies = [one.accuracy for one in tests]
        by_seed = np.reshape(accuracies, (seeds, FOLDS)).mean(1)
        lines.append(
            {
                "name": setting.name,
                "activation": setting.activation,
                "range": setting.range,
                "accuracy": float(np.mean(accuracies)),
                "accuracy_sd": float(np.std(accuracies)),
                "accuracy_by_seed": [round(float(one), 6) for one in by_seed],
                "accuracy_by_fold": [round(one, 6) for one in accuracies],
                "auc": float(np.mean([one.auc for one in tests])),
                "log_loss": float(np.mean([one.log_loss for one in tests])),
            }
        )
        line = lines[-1]
        say(f"{setting.name}: {line['accuracy']:.2%} ± {line['accuracy_sd']:.2%}")
    return {
        "patients": len(heart),
        "folds": FOLDS,
        "seeds": seeds,
        "recipe": asdict(RECIPE),
        "torch": torch.__version__,
        "settings": lines,
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.heart.train", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="of each setting (3)")
    parser.add_argument("--folder", type=Path, default=HERE, help="gets models and results.json")
    chosen = parser.parse_args()
    if chosen.seeds < 1:
        parser.error("--seeds must be at least 1")
    torch.set_num_threads(1)
    heart = load_heart(fetch("heart", say=lambda line: print(line, file=sys.stderr)))
    found = study(heart, chosen.seeds, chosen.folder)
    text = json.dumps(found, indent=2)
    (chosen.folder / "results.json").write_text(text + "\n", encoding="utf-8")
    print(f"wrote {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
