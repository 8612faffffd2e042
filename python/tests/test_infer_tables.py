"""Which of many equal tables is whose, on every path, against NumPy that reads the files itself."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_infer_shares_serve import Sides

import hushtable
from hushtable import Model, ModelError, infer

ROWS, DIM, DENSE = 5, 2, 3
LAYERS = {"bot_l.0": (DIM, DENSE), "top_l.0": (4, 0), "top_l.2": (1, 4)}


def described(count: int, activation: str, *, mapped: bool = True) -> str:
    """A description of equal tables, which its features read in any order but theirs."""
    text = (
        f"dense = {DENSE}\nbottom = [{DIM}]\ntop = [4, 1]\ndim = {DIM}\n"
        f'activation = "{activation}"\nbottom_activates_last = false\n'
    )
    for at in range(count):
        text += f'[[features]]\nname = "f{at}"\nrows = {ROWS}\n'
        if mapped:
            text += f'table = "emb_l.{at * 7 % count}"\n'
    return text


def build(folder: Path, count: int, dtype: str | None = None) -> Model:
    random = np.random.default_rng(count)
    found = {f"emb_l.{at}.weight": random.normal(size=(ROWS, DIM)) for at in range(count)}
    for name, (outputs, inputs) in LAYERS.items():
        inputs = inputs or DIM * (1 + count)
        found[f"{name}.weight"] = random.normal(scale=inputs**-0.5, size=(outputs, inputs))
        found[f"{name}.bias"] = random.normal(scale=0.1, size=outputs)
    np.savez(folder / "checkpoint.npz", **{name: own.astype("f4") for name, own in found.items()})
    return Model.build(folder / "checkpoint.npz", folder / "clicks", name="clicks", dtype=dtype)


def logits(folder: Path, spec: str, dense: np.ndarray, sparse: np.ndarray) -> np.ndarray:
    """The model of a checkpoint and a description, read here and by nothing of ours."""
    found = {name: own.astype("f8") for name, own in np.load(folder / "checkpoint.npz").items()}
    features = tomllib.loads(spec)["features"]

    def affine(name: str, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ found[f"{name}.weight"].T + found[f"{name}.bias"])

    vectors = [affine("bot_l.0", dense)]
    for at, feature in enumerate(features):
        vectors.append(found[f"{feature['table']}.weight"][sparse[:, at]])
    hidden = affine("top_l.0", np.concatenate(vectors, axis=1))
    is_square = 'activation = "square"' in spec
    return affine("top_l.2", hidden**2 if is_square else np.maximum(hidden, 0))[:, 0]


def users(users: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    dense = random.uniform(-1, 1, (users, DENSE)).astype("f4")
    return dense, random.integers(0, ROWS, (users, count))


@pytest.mark.parametrize("count", [12, 26])
def test_encrypted_features_read_their_own_tables(tmp_path: Path, count: int) -> None:
    model = build(tmp_path, count)
    # The bundle's own order is that of the numbers, however the file sorts names.
    assert [one.name for one in model.features] == [f"emb_l.{at}" for at in range(count)]
    spec = described(count, "square")
    infer.compile(model, spec=_written(tmp_path, spec))
    dense, sparse = users(3, count)
    expected = logits(tmp_path, spec, dense, sparse)
    loaded = infer.Model.load(model.path)
    for fhe in ("clear", "simulate", "execute"):
        found = loaded.predict(dense, sparse, fhe=fhe)
        np.testing.assert_allclose(found.logits, expected, atol=2**-9, err_msg=fhe)


@pytest.mark.parametrize("count", [12, 26])
def test_shares_read_their_own_tables(tmp_path: Path, count: int) -> None:
    model = build(tmp_path, count)
    spec = described(count, "relu")
    options: dict[str, Any] = {"fraction_bits": 14, "value_bits": 16, "runs": 1}
    dense, sparse = users(60, count)
    infer.compile_shares(
        model, dense, sparse, spec=_written(tmp_path, spec), name="apart", **options
    )
    expected = logits(tmp_path, spec, dense, sparse)
    sides = Sides(tmp_path, tmp_path / "certificates", "apart")
    with (
        sides.right() as right,
        sides.left(right.url) as left,
        hushtable.connect(left.url, right.url, scheme="shares", tls=sides.tls) as client,
    ):
        found = client.predict(sparse[:3], dense[:3]).logits
    np.testing.assert_allclose(found, expected[:3], atol=2**-7)


def test_features_without_a_table_are_refused_with_both_lists(tmp_path: Path) -> None:
    model = build(tmp_path, 12)
    spec = _written(tmp_path, described(12, "square", mapped=False))
    with pytest.raises(ModelError, match="f9, f10, f11.*emb_l.9, emb_l.10, emb_l.11") as caught:
        infer.compile(model, spec=spec)
    assert 'table = "..."' in str(caught.value)
    dense, sparse = users(20, 12)
    with pytest.raises(ModelError, match='feature "f0" reads the table "f0"'):
        infer.compile_shares(model, dense, sparse, spec=spec)
    # One feature fewer: its table would have a part in no answer.
    fewer = _written(tmp_path, described(12, "square").rpartition("[[features]]")[0])
    with pytest.raises(ModelError, match="no place for the tables emb_l.5"):
        infer.compile(model, spec=fewer)


def test_tensors_without_a_place_are_refused(tmp_path: Path) -> None:
    build(tmp_path, 3)
    found = dict(np.load(tmp_path / "checkpoint.npz"))
    for name in ("wide.weight", "top_l.1.running_mean", "top_l.4.weight", "scale"):
        np.savez(tmp_path / "more.npz", **found, **{name: np.ones(4, "f4")})
        model = Model.build(tmp_path / "more.npz", tmp_path / name, name="more", tables=["emb_l.*"])
        for activation in ("square", "relu"):
            spec = _written(tmp_path, described(3, activation))
            with pytest.raises(ModelError, match=f"no place for the tensors {name}"):
                infer.compile(model, spec=spec)
        with pytest.raises(ModelError, match=f"no place for the tensors {name}"):
            infer.compile_shares(model, *users(20, 3), spec=spec)


def _written(folder: Path, spec: str) -> Path:
    (folder / "model.toml").write_text(spec)
    return folder / "model.toml"
