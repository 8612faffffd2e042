"""The heart patients: how they are dealt, and whether the kept models are as good as is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.heart import __main__, judging, patients

from hushtable import infer
from hushtable.data import DownloadFailed, Heart, fetch, load_heart
from hushtable.nn.encrypted import SavedModel, score


def made_up(count: int = 103) -> Heart:
    random = np.random.default_rng(2)
    rows = [feature.rows for feature in patients.describe("square").features]
    indices = random.integers(0, rows, (count, len(rows)))
    indices[7, 6] = indices[9, 7] = -1
    dense = random.normal(100, 20, (count, 5)).astype(np.float32)
    return Heart(dense, indices, random.random(count) < 0.4)


@pytest.fixture(scope="module")
def heart() -> Heart:
    try:
        return load_heart(fetch("heart"))
    except DownloadFailed as error:
        pytest.skip(f"the patients are not here, and no registry has brought them: {error}")


def test_a_query_takes_28_slots() -> None:
    description = patients.describe("square")
    assert [feature.rows for feature in description.features] == [2, 4, 2, 3, 2, 3, 4, 3]
    assert description.dense + description.compression.slots == 28
    assert description.top_shapes == ((16, 36), (1, 16))


def test_every_patient_is_held_out_once_and_never_learned_from_then() -> None:
    heart = made_up()
    held = []
    for fold in range(patients.FOLDS):
        parts = patients.split(heart.ill, fold, seed=5)
        every = np.concatenate([parts.learning, parts.validation, parts.test])
        assert sorted(every) == list(range(len(heart)))
        held.append(parts.test)
        # Both kinds are everywhere, in their proportion.
        for part in (parts.learning, parts.validation, parts.test):
            assert heart.ill[part].mean() == pytest.approx(heart.ill.mean(), abs=0.1)
    assert sorted(np.concatenate(held)) == list(range(len(heart)))


def test_constants_come_from_those_who_are_learned_from() -> None:
    heart = made_up()
    learning = np.arange(60)
    inputs = patients.measure(heart, learning)
    standard = inputs.standardise(heart.dense[learning])
    assert np.abs(standard).max() <= patients.BOUND
    np.testing.assert_allclose(standard.mean(0), 0, atol=0.1)
    column = heart.indices[learning, 6]
    assert inputs.missing[6] == np.bincount(column[column >= 0]).argmax()
    filled = inputs.fill(heart.indices)
    assert (filled >= 0).all()
    assert (filled != heart.indices).sum() == 2
    others = heart.dense.copy()
    others[60:] = 1e6
    again = patients.measure(Heart(others, heart.indices, heart.ill), learning)
    assert again == inputs


def test_the_kept_models_are_those_of_the_table(heart: Heart) -> None:
    stated = judging.stated()
    kept = list(judging.folds(heart))
    found = [score(fold.logits(), fold.ill).accuracy for fold in kept]
    assert found == pytest.approx(stated["square"]["accuracy_by_fold"][: len(kept)], abs=1e-6)
    assert sum(len(fold.ill) for fold in kept) == len(heart) == 303


def test_squares_are_within_a_point_of_the_clear_model() -> None:
    stated = judging.stated()
    clear = stated["ReLU, in the clear"]["accuracy"]
    for name in ("square", "polynomial of degree 2", "SiLU", "ReLU"):
        assert stated[name]["accuracy"] > clear - 0.01
    assert clear > 0.82


def test_kept_models_read_what_they_were_trained_to_read(heart: Heart) -> None:
    """Activations of held-out patients stay near the ranges that training saw."""
    for fold in judging.folds(heart):
        inputs = fold.model.inputs
        assert inputs is not None
        weight, bias = (fold.model.tensors[f"bot_l.0.{kind}"] for kind in ("weight", "bias"))
        largest = float(np.abs(fold.dense @ weight.T + bias).max())
        assert largest < 1.5 * inputs.bottom_ranges[0]
        assert np.abs(fold.logits()).max() < 20


class Off:
    """A client whose logits are those of the clear model, but for one patient's."""

    rows, names = (2, 4, 2, 3, 2, 3, 4, 3), tuple("abcdefgh")
    info = infer.ModelInfo("fold0", "0" * 64, "1" * 64, 5, rows, names, 1, 7, 8, 9)

    def __init__(self, model: SavedModel, wrong: int, by: float) -> None:
        self.model, self.wrong, self.by = model, wrong, by
        self.asked = self.uploads = 0

    def upload(self) -> int:
        self.uploads += 1
        return 7

    def predict(self, dense: np.ndarray, indices: np.ndarray) -> infer.Predictions:
        assert dense.shape == (1, 5) and indices.shape == (1, 8)
        logits = self.model.logits(dense, indices).astype(np.float64)
        logits += self.by * (self.asked == self.wrong) * -np.sign(logits)
        self.asked += 1
        return infer.Predictions(logits)


def kept_fold() -> judging.Fold:
    """The first kept model, and patients that are made up."""
    model = SavedModel.open(judging.MODELS / "fold0")
    heart = made_up(12)
    inputs = model.inputs
    assert inputs is not None
    dense, indices = inputs.standardise(heart.dense), inputs.fill(heart.indices)
    return judging.Fold(judging.MODELS / "fold0", model, dense, indices, heart.ill)


def test_a_diagnosis_that_differs_is_counted() -> None:
    fold = kept_fold()
    client: Any = Off(fold.model, wrong=3, by=50.0)
    found = __main__.judge(fold, client, None)
    assert (found.patients, found.differing, client.uploads) == (12, 1, 1)
    assert found.error_max == pytest.approx(50.0)
    assert abs(found.clear_right - found.encrypted_right) == 1
    exact: Any = Off(fold.model, wrong=-1, by=0.0)
    found = __main__.judge(fold, exact, 5)
    assert (found.patients, found.differing) == (5, 0)
    # One patient at a time and twelve at once: a matrix product may round otherwise.
    assert found.error_max < 1e-5
    assert len(found.ms) == 5


def test_encrypted_diagnoses_are_the_clear_ones_through_a_real_server(tmp_path: Path) -> None:
    said: list[str] = []
    (found,) = __main__.run([kept_fold()], tmp_path, said.append, most=3)
    assert (found.patients, found.differing) == (3, 0)
    assert found.error_max < __main__.ERROR_MAX
    assert found.key_bytes > found.query_bytes > found.answer_bytes > 0
    assert len(said) == 1 and said[0].startswith("fold0: 3 patients")


def test_models_that_are_missing_are_named(tmp_path: Path) -> None:
    from hushtable.errors import ModelError

    with pytest.raises(ModelError, match="fold0"):
        next(judging.folds(made_up(), tmp_path))


def test_training_keeps_models_that_reach_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
    from dataclasses import replace

    from examples.heart import train

    heart = made_up(150)
    told = heart.indices[:, 1] >= 2
    heart = Heart(heart.dense, heart.indices, told)
    monkeypatch.setattr(train, "RECIPE", replace(train.RECIPE, epochs=6))
    monkeypatch.setattr(train, "SETTINGS", [one for one in train.SETTINGS if one.name == "square"])
    found: dict[str, Any] = train.study(heart, 1, tmp_path, say=lambda _line: None)
    line = found["settings"][0]
    for fold, accuracy in enumerate(line["accuracy_by_fold"]):
        model = SavedModel.open(tmp_path / f"fold{fold}")
        test = patients.split(told, fold, seed=0).test
        inputs = model.inputs
        assert inputs is not None
        logits = model.logits(
            inputs.standardise(heart.dense[test]), inputs.fill(heart.indices[test])
        )
        assert score(logits, told[test]).accuracy == pytest.approx(accuracy, abs=1e-6)
