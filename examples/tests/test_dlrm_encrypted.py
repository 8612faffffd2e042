"""Training for encrypted inference on a log of Criteo's form; where torch is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")

from examples.dlrm import encrypted

from hushtable.data.criteo import Criteo, Vocabulary
from hushtable.nn.encrypted import Recipe, SavedModel, score

ROOT = Path(__file__).parents[2]
LOG = ROOT / "python" / "tests" / "fixtures" / "criteo-like.txt"


def test_constants_are_those_of_the_training_part() -> None:
    log = Criteo(LOG)
    vocabulary = Vocabulary.of(log)
    inputs = encrypted.measure(log.batches(vocabulary, 7, part="train"))
    (whole,) = log.batches(vocabulary, 1000, part="train")
    np.testing.assert_allclose(inputs.mean, whole.dense.mean(0), rtol=1e-5)
    np.testing.assert_allclose(inputs.deviation, whole.dense.std(0), rtol=1e-4)
    with pytest.raises(ValueError, match="no impressions"):
        encrypted.measure(iter(()))


@pytest.mark.parametrize(("activation", "degree"), [("square", None), ("relu", 63)])
def test_a_log_becomes_a_model_that_a_server_takes(
    tmp_path: Path, activation: Any, degree: int | None
) -> None:
    log = Criteo(LOG)
    recipe = Recipe(epochs=2, batch=16, rate=1e-3, penalty=10.0, patience=2)
    report = encrypted.fit(log, activation, 20, recipe, tmp_path, degree)
    model = SavedModel.open(tmp_path)
    assert model.description.relu_degree == degree
    vocabulary = Vocabulary.of(log, part="train")
    assert [feature.rows for feature in model.description.features] == list(vocabulary.rows)
    assert any(model.description.digits(one) > 1 for one in model.description.features)
    (test,) = log.batches(vocabulary, 100, part="test")
    assert model.inputs is not None
    logits = model.logits(model.inputs.standardise(test.dense), test.indices)
    assert report.test is not None
    assert score(logits, test.labels).log_loss == pytest.approx(report.test.log_loss, rel=1e-4)


def test_the_study_reads_the_real_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("study", ROOT / "bench" / "encrypted_models.py")
    assert spec is not None and spec.loader is not None
    study = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    monkeypatch.setitem(sys.modules, spec.name, study)
    spec.loader.exec_module(study)
    monkeypatch.setattr(study, "DEGREES", (31,))
    (tmp_path / "train.txt").write_text(LOG.read_text())
    out = tmp_path / "found.json"
    argv = ["study", "--data", str(tmp_path), "--out", str(out), "--degrees", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", argv)
    assert study.main() == 0
    found = json.loads(out.read_text())["degrees"]
    assert found["impressions"] == Criteo(LOG).count()
    assert [one["degree"] for one in found["settings"]] == [None, 31]
    assert all(len(one["auc_by_seed"]) == 2 for one in found["settings"])
    monkeypatch.setattr(sys, "argv", ["study", "--data", str(tmp_path / "none"), "--out", str(out)])
    assert study.main() == 1
    assert "error: " in capsys.readouterr().err


def test_a_log_that_is_too_short_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "train.txt"
    short.write_text("\n".join(LOG.read_text().splitlines()[:5]) + "\n")
    monkeypatch.setattr(sys, "argv", ["encrypted", str(short), "--out", str(tmp_path / "model")])
    assert encrypted.main() == 1
    assert "error: the validation part has no impressions" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["encrypted", str(tmp_path / "none"), "--out", "x"])
    assert encrypted.main() == 1
