"""The next-word model as an application: a table, what inferences read of it, and its quality."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from examples.published import expect_files
from examples.weights import read_weights, write_weights

import hushtable
from hushtable import data
from hushtable.tune.trace import Trace

from . import synthetic, text
from .corpus import UNKNOWN_ID, WINDOW, Corpus, Ints, deal, number, windows
from .model import Classes, Device, Recipe, Weights, start
from .training import Judge, train

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Split = Literal["validation", "test"]

#: For the made-up text of :meth:`App.small`.
SMALL = Recipe(
    dim=8,
    hidden=32,
    projected=16,
    output_count=250,
    cuts=(100, 180),
    epochs=8,
    batch=16,
    rate=2e-2,
    hidden_dropout=0.0,
    input_dropout=0.0,
)

#: Changes where the same recipe and text no longer give the same model.
_MODEL_VERSION = 1


def _silent(_line: str) -> None:
    pass


@dataclass(frozen=True)
class App:
    """A trained model, and what to judge it on.

    Attributes:
        corpus: the text, as row numbers.
        recipe: how the model was trained.
        weight: float32 [rows, dim], the private table. Row 0 is the unknown word's; the others
            are in order of how often training has the word.
        device: the rest of the model.
        dtype: how the table is stored.
        train: the windows of the training documents, each a bag of :data:`.corpus.WINDOW` ids.
        validation: those of the validation documents.
        test: those of the test documents.
    """

    name: ClassVar[str] = "next-word"
    metric: ClassVar[str] = "perplexity"
    higher_is_better: ClassVar[bool] = False

    corpus: Corpus
    recipe: Recipe
    weight: Floats
    device: Device
    dtype: str
    train: Trace
    validation: Trace
    test: Trace
    _judges: dict[Split, Judge]
    _stored: hushtable.Table

    @classmethod
    def load(
        cls, *, progress: Callable[[str], None] = _silent, recipe: Recipe | None = None
    ) -> App:
        """The model of the Brown corpus: trained the first time, then out of the cache.

        Args:
            progress: called with a line for a person at each step.
            recipe: how to train; the published recipe if not given.

        Raises:
            hushtable.data.DataError: the corpus could not be fetched or read.
        """
        documents = text.load_brown(data.fetch("brown", say=progress))
        return cls.of(deal(documents), recipe or Recipe(), progress=progress)

    @classmethod
    def load_wikitext(
        cls,
        folder: Path,
        *,
        progress: Callable[[str], None] = _silent,
        recipe: Recipe | None = None,
    ) -> App:
        """The model of WikiText-2, from the three ``.tokens`` files in ``folder``.

        Raises:
            hushtable.data.DataError: a file is missing or has another format.
        """
        expect_files(folder, text.WIKITEXT_FILES, text.WIKITEXT)
        corpus = number(*(text.load_wikitext(folder / name) for name in text.WIKITEXT_FILES))
        return cls.of(corpus, recipe or Recipe(), progress=progress)

    @classmethod
    def small(cls) -> App:
        """A model of made-up text, trained in seconds: for tests."""
        corpus = deal(synthetic.documents())
        return cls.from_weights(corpus, SMALL, train(corpus, SMALL, say=_silent))

    @classmethod
    def of(cls, corpus: Corpus, recipe: Recipe, *, progress: Callable[[str], None]) -> App:
        """The model of any corpus, from the cache where it is there.

        Raises:
            hushtable.data.DataError: too little text for one step of training, or for one window
                to judge on.
        """
        _refuse_too_little(corpus, recipe)
        path = data.cache_folder() / "models" / f"next-word-{_fingerprint(corpus, recipe)}.npz"
        weights = read_weights(path, start(corpus, recipe))
        if weights is None:
            progress(
                f"training on {sum(map(len, corpus.training)):,} tokens,"
                f" {len(corpus.words):,} rows of {recipe.dim}"
            )
            weights = train(corpus, recipe, say=progress)
            write_weights(path, weights)
            progress(f"  kept in {path}")
        else:
            progress(f"trained model, from the cache: {path}")
        return cls.from_weights(corpus, recipe, weights)

    @classmethod
    def from_weights(
        cls, corpus: Corpus, recipe: Recipe, weights: Weights, *, dtype: str = "int8"
    ) -> App:
        """The application around a trained model, its table stored as ``dtype``."""
        classes = Classes.of(corpus, recipe)
        held_out = {"validation": corpus.validation, "test": corpus.test}
        judges: dict[Split, Judge] = {
            split: Judge.of(windows(held_out[split]), classes) for split in ("validation", "test")
        }
        weight = np.asarray(weights.table)
        return cls(
            corpus=corpus,
            recipe=recipe,
            weight=weight,
            device=weights.device,
            dtype=dtype,
            train=_trace(windows(corpus.training)[:, :-1]),
            validation=_trace(judges["validation"].ids),
            test=_trace(judges["test"].ids),
            _judges=judges,
            _stored=hushtable.Table.from_weight(weight, name=cls.name, dtype=dtype),
        )

    def stored_as(self, dtype: str) -> App:
        """The same model with its table stored as ``dtype``."""
        table = hushtable.Table.from_weight(self.weight, name=self.name, dtype=dtype)
        return replace(self, dtype=dtype, _stored=table)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as stored."""
        return self._stored.info.row_bytes

    def quality(self, split: Split, kept: Bools | None = None, rows: Floats | None = None) -> float:
        """The perplexity over the next words of a split's windows; less is better.

        Args:
            split: ``validation`` or ``test``.
            kept: bool [ids of the split], False where a lookup was dropped: the model then reads
                the unknown word's row, which every device has. None where all were kept.
            rows: float32 [ids of the split, dim], as fetched; None for the table's own, rounded
                as they are stored.

        Raises:
            ValueError: ``kept`` or ``rows`` of another shape.
        """
        judge = self._judges[split]
        if rows is None:
            rows = self._stored.rows(judge.ids.ravel())
        dim = self.weight.shape[1]
        if rows.shape != (judge.ids.size, dim):
            raise ValueError(
                f"rows of shape {rows.shape}, expected [ids, dim] = ({judge.ids.size}, {dim})"
            )
        if kept is not None:
            if kept.shape != (judge.ids.size,):
                raise ValueError(f"kept of shape {kept.shape}, expected ({judge.ids.size},)")
            rows = np.where(kept[:, None], rows, self._stored.rows([UNKNOWN_ID]))
        return judge.perplexity(self.device, rows.reshape(*judge.ids.shape, dim))


def _trace(ids: Ints) -> Trace:
    return Trace(
        ids=ids.ravel().astype(np.int64), offsets=np.arange(len(ids) + 1, dtype=np.int64) * WINDOW
    )


def _refuse_too_little(corpus: Corpus, recipe: Recipe) -> None:
    wanted = {"training": recipe.batch, "validation": 1, "test": 1}
    for group, least in wanted.items():
        # Training may begin up to a window later.
        skip = WINDOW - 1 if group == "training" else 0
        found = len(windows(getattr(corpus, group), skip=skip))
        if found < least:
            raise data.DataError(
                f"the {group} documents have {found} windows of {WINDOW + 1} tokens, but {least}"
                " are needed: give longer ones"
            )


def _fingerprint(corpus: Corpus, recipe: Recipe) -> str:
    """Of all that a trained model depends on."""
    digest = hashlib.sha256(json.dumps([_MODEL_VERSION, asdict(recipe)]).encode())
    digest.update("\n".join(corpus.words).encode())
    for group in (corpus.training, corpus.validation):
        for document in group:
            digest.update(document.tobytes())
    return digest.hexdigest()[:16]
