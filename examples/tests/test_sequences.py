"""The model over pooled histories: what it computes, what is compiled, what servers answer."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from examples.clicks.pages import ABSENT, Pages
from examples.histories import people
from examples.histories.journeys import BAG_LENGTH
from examples.sequences import model, shares
from examples.sequences.app import App, flatten, some

import hushtable


@pytest.fixture(scope="module")
def app() -> App:
    return App.small()


def in_numpy(app: App, pages: Pages) -> np.ndarray:
    """The logits, one prediction at a time, as the description of a model on shares reads."""
    tensors = shares.state_dict(app)

    def affine(name: str, x: np.ndarray) -> np.ndarray:
        return tensors[f"{name}.weight"].astype("f8") @ x + tensors[f"{name}.bias"]

    def perceptron(part: str, x: np.ndarray) -> np.ndarray:
        return affine(f"{part}.2", np.maximum(affine(f"{part}.0", x), 0))

    found = []
    asked = flatten(pages)
    for place in range(len(asked)):
        bottom = perceptron("bot_l", asked.dense[place].astype("f8"))
        vectors = [bottom]
        for name, ids in asked.ids.items():
            rows = tensors[f"{name}.weight"].astype("f8")
            one = ids[place]
            vectors.append(rows[one] if ids.ndim == 1 else rows[one[one != ABSENT]].sum(axis=0))
        dots = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
        found.append(perceptron("top_l", np.concatenate([bottom, dots]))[0])
    return np.array(found)


def test_features_are_those_of_the_people() -> None:
    assert sum(model.FEATURES.values()) == people.FEATURE_VALUES
    assert (0, *np.cumsum(list(model.FEATURES.values()))[:-1]) == model.FIRST


def test_a_page_becomes_a_prediction_a_candidate(app: App) -> None:
    pages = some(app.test, 5)
    asked = flatten(pages)
    shown = pages.candidates != ABSENT
    assert len(asked) == shown.sum() and asked.clicked.sum() == pages.clicked.sum()
    assert (asked.ids["candidate"] == pages.candidates[shown]).all()
    for name, rows in model.FEATURES.items():
        assert asked.ids[name].min() >= 0 and asked.ids[name].max() < rows
    lengths = (asked.ids["history"] != ABSENT).sum(axis=1)
    np.testing.assert_allclose(asked.dense[:, 0] * BAG_LENGTH, lengths, rtol=1e-6)
    assert len(set(lengths)) > 1


def test_the_model_learns_from_histories(app: App) -> None:
    assert app.auc() > 0.6 and app.auc() > app.without_auc + 0.05
    pages = some(app.test, 8)
    np.testing.assert_allclose(app.logits(pages), in_numpy(app, pages), atol=1e-4)


def test_what_is_described_is_the_model(app: App) -> None:
    described = tomllib.loads(shares.describe(app))
    rows = {one["name"]: one["rows"] for one in described["features"]}
    assert rows == {name: len(table) for name, table in shares.tables(app).items()}
    assert [one.get("bag", 1) for one in described["features"]] == [1, BAG_LENGTH, 1, 1, 1]
    assert described["top"][-1] == 1 and described["bottom"][-1] == described["dim"]


def test_two_servers_compute_it_on_shares(app: App, tmp_path: Path) -> None:
    found = shares.judge(app, tmp_path, pages=8, timed=3)
    assert (found.pages, found.predictions) == (8, (some(app.test, 8).candidates != ABSENT).sum())
    assert (found.test_auc, found.without_auc) == (app.auc(), app.without_auc)
    assert abs(found.shares_auc - found.clear_auc) < 0.02
    # Rounded, and not by much: it is another number, of the same model.
    assert 0 < found.largest_difference < 0.05
    # Of each prediction a key for each id that a history has room for, to both servers.
    assert found.key_bytes > 2 * BAG_LENGTH * 16
    assert found.rounds > 6 and found.peer_bytes > 0 and found.ms > 0
    # No sample of the calibration, and no user's history, is in the bundle.
    plan = next((tmp_path / "sequences" / "plans").iterdir()).read_text()
    assert "ranges" in plan and len(plan) < 4000
    assert hushtable.verify_model(tmp_path / "sequences").ok
