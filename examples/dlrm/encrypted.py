"""Trains HE-LRM's model on Criteo's real log, for a server that reads no features.

    python -m examples.dlrm.encrypted train.txt --out model [--threshold 500] [--activation square]

With ``--activation relu`` it is trained with ReLU's one polynomial, of degree 63 unless told.

The log is read in order and streamed: six of seven days to learn from, half of the last to stop by,
half to judge. It needs torch (pip install 'hushtable[torch]'). The folder that it writes is what
``hushtable model build`` and ``hushtable infer compile`` take; see docs/encrypted-models.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushtable.data.criteo import DENSE, Batch, Criteo, Vocabulary
from hushtable.errors import Error
from hushtable.nn.encrypted import (
    ACTIVATIONS,
    DLRM,
    Activation,
    Preprocess,
    Recipe,
    Report,
    Samples,
    save,
    train,
)

from .criteo import describe

#: Deviations from the mean that a dense input is clipped to, by the client.
BOUND = 3.0
#: The range that an activation's inputs are held in, and what the first weights are multiplied by.
HELD: dict[Activation, tuple[float, float]] = {
    "relu": (5.0, 1.0),
    "silu": (6.0, 1.0),
    "square": (1.0, 0.5),
    "polynomial": (4.0, 1.0),
}


#: The lowest degree of which no seed lost 0.001 of ReLU's AUC (docs/encrypted-models.md).
RELU_DEGREE = 63


def measure(batches: Iterator[Batch]) -> Preprocess:
    """Mean and deviation of each dense column, in one pass.

    Raises:
        ValueError: no impressions.
    """
    count, total, squares = 0, np.zeros(len(DENSE)), np.zeros(len(DENSE))
    for batch in batches:
        values = batch.dense.astype(np.float64)
        count += len(values)
        total += values.sum(0)
        squares += (values * values).sum(0)
    if not count:
        raise ValueError("no impressions to learn from: the log is shorter than its days")
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean * mean, 0))
    # A column of one value says nothing, and is not divided by its deviation.
    deviation[deviation == 0] = 1
    return Preprocess(tuple(map(float, mean)), tuple(map(float, deviation)), BOUND)


@dataclass(frozen=True)
class Parts:
    """A log's parts, as a learner takes them.

    Attributes:
        rows: of each categorical column, categories of the training part.
        inputs: what a client does to dense values.
        learning: an epoch's batches of the training part, streamed.
        validation: what training stops by.
        test: what models are judged on.
    """

    rows: tuple[int, ...]
    inputs: Preprocess
    learning: Callable[[int], Iterator[Samples]]
    validation: Samples
    test: Samples

    @classmethod
    def read(cls, log: Criteo, size: int) -> Parts:
        """Reads what is held out, and makes ready to stream the rest, ``size`` impressions a batch.

        Raises:
            MalformedData: a log that is none.
            ValueError: a log that is shorter than its days.
        """
        total = log.count()
        vocabulary = Vocabulary.of(log, part="train")
        inputs = measure(log.batches(vocabulary, size, part="train", total=total))

        def samples(batch: Batch) -> Samples:
            return Samples(inputs.standardise(batch.dense), batch.indices, batch.labels)

        def learning(_epoch: int) -> Iterator[Samples]:
            return map(samples, log.batches(vocabulary, size, part="train", total=total))

        held: list[Samples] = []
        for part in ("validation", "test"):
            batches = list(log.batches(vocabulary, size, part=part, total=total))
            if not batches:
                raise ValueError(f"the {part} part has no impressions: the log is too short")
            whole = [np.concatenate([getattr(one, name) for one in batches]) for name in _FIELDS]
            held.append(samples(Batch(*whole)))
        return cls(vocabulary.rows, inputs, learning, *held)


def fit(
    log: Criteo,
    activation: Activation,
    threshold: int,
    recipe: Recipe,
    out: Path,
    relu_degree: int | None = None,
) -> Report:
    """Trains a model on a log, writes it to ``out``, and says how good it is.

    Raises:
        MalformedData: a log that is none.
        ValueError: a log that is shorter than its days.
    """
    import torch

    parts = Parts.read(log, recipe.batch)
    torch.manual_seed(recipe.seed)
    width, gain = HELD[activation]
    description = describe(parts.rows, activation, threshold, relu_degree)
    model = DLRM(description, range=width, gain=gain)
    report = train(model, parts.learning, parts.validation, parts.test, recipe, say=print)
    save(model, out, inputs=parts.inputs)
    return report


_FIELDS = ("dense", "indices", "labels")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.dlrm.encrypted", description=__doc__)
    parser.add_argument("log", type=Path, help="train.txt of the Kaggle challenge, or CSV")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the model")
    parser.add_argument("--threshold", type=int, default=500, help="rows of whole tables (500)")
    parser.add_argument("--activation", choices=ACTIVATIONS, default="square")
    parser.add_argument(
        "--relu-degree",
        choices=("31", "63", "127", "none"),
        default=str(RELU_DEGREE),
        help=f"of relu's one polynomial ({RELU_DEGREE}); none for ReLU itself",
    )
    parser.add_argument("--epochs", type=int, default=1, help="passes over the log, at most (1)")
    parser.add_argument("--batch", type=int, default=256, help="impressions a step (256)")
    chosen = parser.parse_args()
    recipe = Recipe(epochs=chosen.epochs, batch=chosen.batch, rate=1e-3, penalty=10.0, patience=1)
    is_polynomial = chosen.activation == "relu" and chosen.relu_degree != "none"
    degree = int(chosen.relu_degree) if is_polynomial else None
    try:
        log = Criteo(chosen.log)
        report = fit(log, chosen.activation, chosen.threshold, recipe, chosen.out, degree)
    except (Error, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if report.test is not None:
        print(f"test AUC {report.test.auc:.4f}, log loss {report.test.log_loss:.4f}: {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
