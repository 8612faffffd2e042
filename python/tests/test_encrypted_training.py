"""Training of models for encrypted inference; where torch is installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")

from test_encrypted_models import SMALL, inputs  # noqa: E402

from hushtable.errors import ConfigError, IdOutOfRange  # noqa: E402
from hushtable.nn.encrypted import (  # noqa: E402
    ACTIVATIONS,
    DLRM,
    Description,
    DigitEmbedding,
    Feature,
    Preprocess,
    RangedPolynomial,
    RangedRelu,
    Recipe,
    Samples,
    SavedModel,
    save,
    train,
)
from hushtable.nn.encrypted._training import predict  # noqa: E402

FACEBOOK = [
    *(f"emb_l.{at}.weight" for at in range(3)),
    *(
        f"{part}_l.{at}.{kind}"
        for part in ("bot", "top")
        for at in (0, 2)
        for kind in ("weight", "bias")
    ),
]


def samples(description: Description, count: int, seed: int) -> Samples:
    """Labels that a dense input and a category decide, with some noise."""
    random = np.random.default_rng(seed)
    rows = [feature.rows for feature in description.features]
    dense = random.normal(size=(count, description.dense)).astype(np.float32)
    indices = random.integers(0, rows, (count, len(rows)))
    told = 2 * dense[:, 0] + np.where(indices[:, 0] % 2, 1.5, -1.5)
    return Samples(dense, indices, told + random.normal(0, 0.5, count) > 0)


def test_digits_are_looked_up_and_summed() -> None:
    table = DigitEmbedding(1000, 3, threshold=500, base=4)
    assert table.weight.shape == (4 * 5, 3)
    ids = torch.tensor([[0, 999], [123, 4]])
    rows = table(ids)
    assert rows.shape == (2, 2, 3)
    # 123 is 1323 in base 4, lowest digit first: 3, 2, 3, 1, 0.
    places = [3, 4 + 2, 8 + 3, 12 + 1, 16 + 0]
    torch.testing.assert_close(rows[1, 0], table.weight[places].sum(0))


def test_no_two_indices_have_the_same_rows() -> None:
    table = DigitEmbedding(200, 1, threshold=10, base=4)
    with torch.no_grad():
        # Powers of two: a sum says which rows it is of.
        table.weight[:] = 2.0 ** torch.arange(len(table.weight))[:, None]
    assert len(torch.unique(table(torch.arange(200)))) == 200


@pytest.mark.parametrize("index", [-1, 50])
@pytest.mark.parametrize("threshold", [10, 100])
def test_an_index_that_is_no_row_is_refused(index: int, threshold: int) -> None:
    with pytest.raises(IdOutOfRange) as caught:
        DigitEmbedding(50, 2, threshold=threshold)(torch.tensor([3, index]))
    assert (caught.value.id, caught.value.rows) == (index, 50)


def test_only_large_whole_tables_have_sparse_gradients() -> None:
    large = DigitEmbedding(20_000, 2, threshold=50_000)
    large(torch.tensor([7, 7, 19_999])).sum().backward()
    assert large.weight.grad.is_sparse
    assert large.weight.grad.coalesce().indices().tolist() == [[7, 19_999]]
    assert not DigitEmbedding(20_000, 2, threshold=500).is_sparse


def test_a_polynomial_begins_as_relu_and_pushes_its_inputs_back() -> None:
    layer = RangedPolynomial(range=2.0, degree=4)
    x = torch.linspace(-2, 2, 50)
    assert (layer.eval()(x) - x.relu()).abs().max() < 0.15
    assert layer.coefficients.shape == (5,)
    far = torch.tensor([-9.0, 0.5, 3.0], requires_grad=True)
    held = layer.train()(far)
    # It reads the end of its range and no further, and the loss learns how far it was.
    torch.testing.assert_close(held[2], layer.eval()(torch.tensor([2.0]))[0])
    layer.overflow.backward()
    assert far.grad[0] < 0 == far.grad[1] < far.grad[2]
    # A server clips nothing.
    assert not torch.isclose(layer(torch.tensor([3.0]))[0], held[2])
    assert layer.largest == 3.0


def test_ranges_and_degrees_that_are_none_are_refused() -> None:
    for range in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="range"):
            RangedPolynomial(range=range)
    with pytest.raises(ConfigError, match="degree 0"):
        RangedPolynomial(degree=0)
    with pytest.raises(ConfigError, match="needs a range"):
        DLRM(replace(SMALL, activation="polynomial"))


@pytest.mark.parametrize("degree", [31, 63, 127])
def test_relus_polynomial_and_its_slope(degree: int) -> None:
    layer = RangedRelu(5.0, degree).double().eval()
    x = torch.linspace(-5, 5, 4001, dtype=torch.float64, requires_grad=True)
    found = layer(x)
    # Bernstein's constant, as it is on a range of this width.
    error = float((found - x.relu()).detach().abs().max())
    assert error == pytest.approx(0.2802 * 5 / (2 * (degree - 1)), rel=0.01)
    (slope,) = torch.autograd.grad(found.sum(), x)
    by_hand = (layer(x + 1e-6) - layer(x - 1e-6)) / 2e-6
    torch.testing.assert_close(slope, by_hand.detach(), rtol=1e-4, atol=1e-4)
    # Nothing of it is trained or written.
    assert list(layer.state_dict()) == ["range"] and not list(layer.parameters())
    with pytest.raises(ConfigError, match=f"relu_degree {degree} needs a range"):
        DLRM(replace(SMALL, activation="relu", relu_degree=degree))


@pytest.mark.parametrize("activates_last", [False, True])
@pytest.mark.parametrize("interaction", ["concat", "dot"])
@pytest.mark.parametrize(
    ("activation", "degree"), [*((one, None) for one in ACTIVATIONS), ("relu", 31), ("relu", 127)]
)
def test_the_folder_holds_the_model(
    tmp_path: Path, activation: Any, degree: int | None, interaction: Any, activates_last: bool
) -> None:
    description = replace(
        SMALL,
        activation=activation,
        relu_degree=degree,
        interaction=interaction,
        bottom_activates_last=activates_last,
    )
    # Weights as they are drawn leave a narrow range, which only training holds.
    held = 3.0 if degree is None else 20.0
    model = DLRM(description, range=held, degree=3)
    kept = Preprocess((0.0,) * 3, (1.0,) * 3)
    save(model, tmp_path, inputs=kept)
    saved = SavedModel.open(tmp_path)
    assert saved.description == description
    assert saved.inputs == kept
    assert saved.tensors["top_a.0.range"].tolist() == [held]
    assert set(FACEBOOK) <= set(saved.tensors)
    dense, ids = inputs(description)
    logits = predict(model, Samples(dense, ids, np.zeros(len(ids), np.bool_)))
    np.testing.assert_allclose(saved.logits(dense, ids), logits, rtol=1e-4, atol=1e-5)


def test_weights_are_readable_by_others(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    model = DLRM(SMALL)
    save(model, tmp_path)
    found = safetensors.load_file(tmp_path / "model.safetensors")
    assert sorted(found) == sorted(FACEBOOK)
    for name, tensor in model.state_dict().items():
        assert np.array_equal(found[name], tensor.numpy())


@pytest.mark.parametrize(
    ("activation", "degree"), [*((one, None) for one in ACTIVATIONS), ("relu", 63)]
)
def test_training_learns_and_repeats(activation: Any, degree: int | None) -> None:
    description = replace(SMALL, activation=activation, relu_degree=degree)
    parts = [samples(description, count, seed) for seed, count in enumerate((800, 200, 300))]
    recipe = Recipe(epochs=12, patience=4, rate=5e-3)

    def trained() -> tuple[Any, Any]:
        torch.manual_seed(3)
        model = DLRM(description, range=4.0)
        return model, train(model, parts[0], parts[1], parts[2], recipe)

    model, report = trained()
    assert report.test is not None
    assert report.test.accuracy > 0.85
    assert report.test.auc > 0.93
    assert report.losses[-1] < report.losses[0]
    assert report.test.samples == 300
    assert trained()[1] == report
    # The ranges are those of what was seen: no more than that is asked of a server.
    assert len(report.bottom_ranges) == len(report.top_ranges) == 1
    for activation_layer in model.activations:
        activation_layer.largest = 0.0
    for part in parts[:2]:
        predict(model, part)
    assert model.bot_a[0].largest == report.bottom_ranges[0]


def test_training_stops_early_and_keeps_the_best() -> None:
    parts = [samples(SMALL, count, seed) for seed, count in enumerate((60, 200))]
    torch.manual_seed(0)
    model = DLRM(SMALL)
    said: list[str] = []
    recipe = Recipe(epochs=300, patience=5, rate=2e-2, weight_decay=0.0)
    report = train(model, *parts, recipe=recipe, say=said.append)
    assert report.epochs == report.best_epoch + 5 < 300
    assert len(said) == report.epochs
    assert report.test is None
    losses = [float(line.rpartition(" ")[2]) for line in said]
    assert min(losses) == pytest.approx(report.validation.log_loss, abs=1e-4)


def test_a_range_holds_what_activations_read() -> None:
    description = replace(SMALL, activation="square")
    parts = [samples(description, count, seed) for seed, count in enumerate((800, 200))]

    def largest(range: float | None) -> float:
        torch.manual_seed(3)
        recipe = Recipe(epochs=15, rate=2e-2, weight_decay=0.0)
        report = train(DLRM(description, range=range), *parts, recipe=recipe)
        return max(*report.bottom_ranges, *report.top_ranges)

    assert 2 * largest(1.0) < largest(None)


def test_batches_may_come_from_a_stream() -> None:
    part = samples(SMALL, 400, 0)
    asked: list[int] = []

    def stream(epoch: int) -> Any:
        asked.append(epoch)
        for first in range(0, len(part), 50):
            yield part.take(slice(first, first + 50))

    torch.manual_seed(3)
    report = train(DLRM(SMALL), stream, samples(SMALL, 100, 1), recipe=Recipe(epochs=3))
    assert asked == [1, 2, 3]
    assert report.epochs == 3
    with pytest.raises(ConfigError, match="no samples"):
        train(DLRM(SMALL), lambda _epoch: iter(()), part)
    with pytest.raises(ConfigError, match="at least 1"):
        train(DLRM(SMALL), part, part, recipe=Recipe(batch=0))


def test_large_tables_learn_what_they_read() -> None:
    description = replace(SMALL, threshold=50_000, features=(Feature("item", 20_000),) * 1)
    part = samples(description, 300, 0)
    torch.manual_seed(3)
    model = DLRM(description)
    before = model.emb_l[0].weight.detach().clone()
    train(model, part, part, recipe=Recipe(epochs=2, patience=5))
    changed = (model.emb_l[0].weight != before).any(1).nonzero()[:, 0].numpy()
    assert set(changed) == set(part.indices[:, 0])
