"""Models for encrypted inference: their sizes, their descriptions, and the model in numpy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushtable.data import CRITEO_KAGGLE_ROWS
from hushtable.errors import ConfigError, IdOutOfRange, ModelError
from hushtable.nn import encrypted
from hushtable.nn.encrypted import (
    ACTIVATIONS,
    Description,
    Feature,
    Preprocess,
    SavedModel,
    area_under_curve,
    compression,
    digit_count,
    score,
)
from hushtable.nn.encrypted._files import write_folder

SMALL = Description(
    dense=3,
    bottom=(8, 4),
    top=(6, 1),
    dim=4,
    features=(Feature("city", 5), Feature("item", 1000), Feature("day", 7)),
    threshold=10,
)

#: Appendix C of the paper: threshold, slots, ratio, ciphertexts of 32,768 slots.
TABLE = [
    (500, 1_083, 31_175, 1),
    (5_000, 9_014, 3_746, 1),
    (50_000, 47_746, 707, 2),
    (500_000, 569_532, 59.3, 18),
    (5_000_000, 2_772_096, 12.2, 85),
]


@pytest.mark.parametrize(("threshold", "slots", "ratio", "ciphertexts"), TABLE)
def test_compression_is_the_papers(
    threshold: int, slots: int, ratio: float, ciphertexts: int
) -> None:
    found = compression(CRITEO_KAGGLE_ROWS, threshold)
    assert found.rows == 33_762_577
    assert found.slots == slots
    assert found.ciphertexts(32_768) == ciphertexts
    assert round(found.ratio, 1 if ratio < 100 else None) == ratio
    assert found.table_bytes == slots * 16 * 4
    assert found.ciphertexts(8_192) == math.ceil(slots / 8_192)


def test_the_largest_model_has_44_million_parameters() -> None:
    assert compression(CRITEO_KAGGLE_ROWS, 5_000_000).parameters == 44_353_536


@pytest.mark.parametrize(
    ("rows", "base", "digits"), [(1, 4, 1), (4, 4, 1), (5, 4, 2), (16, 4, 2), (17, 4, 3), (8, 2, 3)]
)
def test_digits_write_every_row_and_no_more(rows: int, base: int, digits: int) -> None:
    assert digit_count(rows, base) == digits
    assert base**digits >= rows
    assert digits == 1 or base ** (digits - 1) < rows


@pytest.mark.parametrize(
    ("rows", "threshold", "base", "dim"),
    [((), 5, 4, 4), ((0,), 5, 4, 4), ((9,), 0, 4, 4), ((9,), 5, 1, 4), ((9,), 5, 4, 0)],
)
def test_sizes_that_are_none_are_refused(
    rows: tuple[int, ...], threshold: int, base: int, dim: int
) -> None:
    with pytest.raises(ConfigError):
        compression(rows, threshold, base, dim=dim)


def test_a_ciphertext_has_slots() -> None:
    with pytest.raises(ConfigError, match="0 slots"):
        compression((9,), 5).ciphertexts(0)


def test_the_order_of_scores_decides_the_area() -> None:
    labels = [False, True, False, True]
    assert area_under_curve([0, 3, 1, 2], labels) == 1
    assert area_under_curve([3, 0, 2, 1], labels) == 0
    assert area_under_curve([1, 1, 1, 1], labels) == 0.5
    assert area_under_curve([0, 1, 1, 2], labels) == pytest.approx(3.5 / 4)
    assert area_under_curve([1, 2], [True, True]) == 0.5


def test_scores_are_those_of_their_definitions() -> None:
    logits, labels = np.array([2.0, -1.0, 0.5]), np.array([True, False, False])
    found = score(logits, labels)
    chances = 1 / (1 + np.exp(-logits))
    expected = -np.log(np.where(labels, chances, 1 - chances)).mean()
    assert found.log_loss == pytest.approx(expected)
    assert found.accuracy == pytest.approx(2 / 3)
    assert math.isfinite(score([1e4, -1e4], [False, True]).log_loss)
    with pytest.raises(ValueError, match="one of each"):
        score([], [])
    # What is no number is wrong, whatever its label: no score passes over it.
    nan = float("nan")
    for at in range(3):
        broken = np.where(np.arange(3) == at, nan, [2.0, -1.0, -0.5])
        worse = score(broken, labels)
        assert worse.accuracy == pytest.approx(2 / 3)
        assert worse.log_loss == math.inf
        assert worse.auc == area_under_curve(broken, labels) == (0 if at == 0 else 0.5)


def test_a_description_survives_its_file(tmp_path: Path) -> None:
    made = replace(
        SMALL,
        interaction="dot",
        activation="silu",
        bottom_activates_last=True,
        base=3,
        features=(Feature('a "quoted" naïve\nname', 9_999_999), Feature("b", 1)),
    )
    path = tmp_path / "model.toml"
    path.write_text(made.to_toml(), encoding="utf-8")
    assert Description.read(path) == made
    trained = replace(made, activation="relu", relu_degree=63)
    path.write_text(trained.to_toml(), encoding="utf-8")
    assert Description.read(path) == trained
    # Files from before there was a degree are ReLU itself, and written as they were.
    itself = replace(made, activation="relu")
    assert "relu_degree" not in itself.to_toml()
    path.write_text(itself.to_toml(), encoding="utf-8")
    assert Description.read(path).relu_degree is None


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("dim = 4", "dim = 5", "bottom ends with"),
        ("top = [6, 1]", "top = [6, 2]", "ends with 1, the logit"),
        ("rows = 5", "rows = 0", "has 0 rows"),
        ("rows = 5", 'rows = "5"', "has rows = '5'"),
        ('name = "item"', 'name = "city"', "two features of one name"),
        ('"square"', '"tanh"', "choose one of square"),
        ('"concat"', '"sum"', "choose concat or dot"),
        ("base = 4", "base = 1", "base 1"),
        ("base = 4", "base = 4\nrelu_degree = 63", "the activation is square"),
        ('"square"', '"relu"\nrelu_degree = 30', "choose 31, 63, 127"),
        ('"square"', '"relu"\nrelu_degree = "composite"', "no whole number"),
        ("base = 4", "base = 4.0", "no whole number"),
        ("dense = 3", "", "dense"),
        ("dense = 3", "dense = -3", "every size is at least 1"),
        ("dense = 3", "dense = true", "no whole number"),
        ("dense = 3", "dense = 3\ncolour = 1", "'colour' is not known"),
        ("top = [6, 1]", "top = 1", "no list of whole numbers"),
        ("dense = 3", "dense = ", "is not TOML"),
    ],
)
def test_a_description_of_no_model_is_refused(
    tmp_path: Path, old: str, new: str, text: str
) -> None:
    path = tmp_path / "model.toml"
    assert old in SMALL.to_toml()
    path.write_text(SMALL.to_toml().replace(old, new, 1))
    with pytest.raises(ModelError, match=text):
        Description.read(path)


def test_a_description_that_is_not_there_or_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        Description.read(tmp_path / "model.toml")
    (tmp_path / "model.toml").write_text("#" * (1 << 21))
    with pytest.raises(ModelError, match="describes no model"):
        Description.read(tmp_path / "model.toml")


def weights(description: Description, *, degree: int = 2) -> dict[str, np.ndarray]:
    """Weights of a description, drawn."""
    random = np.random.default_rng(4)
    shapes: dict[str, tuple[int, ...]] = {}
    for at, feature in enumerate(description.features):
        shapes[f"emb_l.{at}.weight"] = (description.kept(feature), description.dim)
    for part, layers, activations in (
        ("bot", description.bottom_shapes, description.bottom_activations),
        ("top", description.top_shapes, description.top_activations),
    ):
        for at, shape in enumerate(layers):
            shapes[f"{part}_l.{2 * at}.weight"] = shape
            shapes[f"{part}_l.{2 * at}.bias"] = shape[:1]
            if description.activation == "polynomial" and at < activations:
                shapes[f"{part}_a.{at}.coefficients"] = (degree + 1,)
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def inputs(description: Description, samples: int = 20) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(9)
    rows = [feature.rows for feature in description.features]
    dense = random.normal(size=(samples, description.dense)).astype(np.float32)
    return dense, random.integers(0, rows, (samples, len(rows)))


def by_hand(model: SavedModel, dense: np.ndarray, ids: np.ndarray) -> float:
    """One sample, in loops over single numbers, as a page of the paper would have it."""
    description, tensors = model.description, model.tensors

    def activate(x: float, name: str) -> float:
        return {
            "square": lambda: x * x,
            "relu": lambda: max(x, 0.0),
            "silu": lambda: x / (1 + math.exp(-x)),
            "polynomial": lambda: sum(
                float(c) * x**power for power, c in enumerate(tensors[f"{name}.coefficients"])
            ),
        }[description.activation]()

    def layers(part: str, x: list[float], count: int, activated: int) -> list[float]:
        for at in range(count):
            weight, bias = tensors[f"{part}_l.{2 * at}.weight"], tensors[f"{part}_l.{2 * at}.bias"]
            x = [
                float(bias[i]) + sum(float(weight[i, j]) * x[j] for j in range(len(x)))
                for i in range(len(bias))
            ]
            if at < activated:
                x = [activate(one, f"{part}_a.{at}") for one in x]
        return x

    bottom = layers(
        "bot", list(map(float, dense)), len(description.bottom), description.bottom_activations
    )
    vectors = [bottom]
    for at, feature in enumerate(description.features):
        table, index = tensors[f"emb_l.{at}.weight"], int(ids[at])
        if feature.rows <= description.threshold:
            vectors.append([float(value) for value in table[index]])
            continue
        total, digit = [0.0] * description.dim, 0
        while digit * description.base < len(table):
            row = table[digit * description.base + index % description.base]
            total = [a + float(b) for a, b in zip(total, row, strict=True)]
            index, digit = index // description.base, digit + 1
        assert index == 0
        vectors.append(total)
    if description.interaction == "concat":
        joined = [value for vector in vectors for value in vector]
    else:
        joined = bottom + [
            sum(a * b for a, b in zip(vectors[i], vectors[j], strict=True))
            for i in range(len(vectors))
            for j in range(i)
        ]
    return layers("top", joined, len(description.top), len(description.top) - 1)[0]


@pytest.mark.parametrize("activates_last", [False, True])
@pytest.mark.parametrize("interaction", ["concat", "dot"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_saved_model_is_the_one_by_hand(
    tmp_path: Path, activation: Any, interaction: Any, activates_last: bool
) -> None:
    description = replace(
        SMALL,
        activation=activation,
        interaction=interaction,
        bottom_activates_last=activates_last,
    )
    write_folder(tmp_path, description, weights(description, degree=3), None)
    model = SavedModel.open(tmp_path)
    dense, ids = inputs(description)
    expected = [by_hand(model, row, row_ids) for row, row_ids in zip(dense, ids, strict=True)]
    np.testing.assert_allclose(model.logits(dense, ids), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("degree", [31, 63, 127])
def test_relus_polynomial_is_the_nearest_on_the_range_of_its_layer(
    tmp_path: Path, degree: int
) -> None:
    description = replace(SMALL, activation="relu", relu_degree=degree)
    tensors = weights(description)
    with pytest.raises(ModelError, match=r"no tensor '(bot|top)_a.0.range'"):
        SavedModel(description, tensors, None)
    held = {"bot_a.0.range": 8.0, "top_a.0.range": 20.0}
    tensors |= {name: np.array([one], np.float32) for name, one in held.items()}
    write_folder(tmp_path, description, tensors, None)
    model = SavedModel.open(tmp_path)
    itself = SavedModel(replace(description, relu_degree=None), tensors, None)
    dense, ids = inputs(description, 400)
    distance = np.abs(model.logits(dense, ids) - itself.logits(dense, ids)).max()
    # The published errors of the two ranges, through two layers of such weights.
    error = {31: 0.037, 63: 0.018, 127: 0.0089}[degree] / 8
    most = 20 * error * np.abs(tensors["top_l.2.weight"]).sum()
    spread = np.abs(tensors["top_l.0.weight"][:, :4] @ tensors["bot_l.2.weight"]).sum(1)
    most += 8 * error * float(spread @ np.abs(tensors["top_l.2.weight"][0])) * 1.5
    assert most / 100 < distance < most


def test_constants_of_the_inputs_are_kept(tmp_path: Path) -> None:
    kept = Preprocess((1.0, 2.0, 3.0), (0.5, 1.0, 2.0), 2.5, (4, 7, 0), (3.25,), (7.5,))
    write_folder(tmp_path, SMALL, weights(SMALL), kept)
    found = SavedModel.open(tmp_path).inputs
    assert found == kept
    assert found is not None
    # The last is 20 deviations off: clipped.
    assert found.standardise([[2, 2, -37]]).tolist() == [[2, 0, -2.5]]
    assert found.fill([[-1, 3, 1], [2, -1, -1]]).tolist() == [[4, 3, 1], [2, 7, 0]]
    for call in (found.standardise, found.fill):
        with pytest.raises(ConfigError, match=r"expected \[samples, 3\]"):
            call([[1, 2]])


def test_a_folder_that_is_damaged_is_refused(tmp_path: Path) -> None:
    tensors = weights(SMALL)
    write_folder(tmp_path, SMALL, {**tensors, "wide.weight": tensors["top_l.2.bias"]}, None)
    with pytest.raises(ModelError, match=r"no place for the tensors wide.weight"):
        SavedModel.open(tmp_path)
    write_folder(tmp_path, SMALL, {**tensors, "emb_l.1.weight": tensors["emb_l.0.weight"]}, None)
    with pytest.raises(ModelError, match=r"emb_l.1.weight is \(5, 4\)"):
        SavedModel.open(tmp_path)
    del tensors["top_l.2.bias"]
    write_folder(tmp_path, SMALL, tensors, None)
    with pytest.raises(ModelError, match="no tensor 'top_l.2.bias'"):
        SavedModel.open(tmp_path)
    write_folder(tmp_path, SMALL, weights(SMALL), Preprocess((1.0,), (1.0,)))
    with pytest.raises(ModelError, match="1 columns, not 3"):
        SavedModel.open(tmp_path)
    write_folder(tmp_path, SMALL, weights(SMALL), Preprocess((1.0,) * 3, (1.0,) * 3, missing=(1,)))
    with pytest.raises(ModelError, match="1 features, not 3"):
        SavedModel.open(tmp_path)
    (tmp_path / "features.json").write_text("[]")
    with pytest.raises(ModelError, match="features.json is damaged"):
        SavedModel.open(tmp_path)
    weights_path = tmp_path / "model.safetensors"
    weights_path.write_bytes(weights_path.read_bytes()[:40])
    with pytest.raises(ModelError, match="model.safetensors is damaged"):
        SavedModel.open(tmp_path)


def test_inputs_that_are_none_of_the_models_are_refused() -> None:
    model = SavedModel(SMALL, weights(SMALL), None)
    dense, ids = inputs(SMALL)
    with pytest.raises(IdOutOfRange, match="index 1000 of 'item'") as caught:
        model.logits(dense, np.where(np.arange(3) == 1, 1000, ids))
    assert (caught.value.id, caught.value.rows, caught.value.feature) == (1000, 1000, "item")
    with pytest.raises(ConfigError, match="dense is"):
        model.logits(dense[:, :2], ids)
    with pytest.raises(ConfigError, match="indices are"):
        model.logits(dense, ids[:5])


def test_what_needs_torch_says_so_where_it_is_missing() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"pip install 'hushtable\[torch\]'"):
            _ = encrypted.DLRM
    else:
        assert encrypted.DLRM.__module__.startswith("hushtable.nn.encrypted")
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = encrypted.nothing_here
