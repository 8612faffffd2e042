"""The layers against a plain numpy reading of torch's documentation, and against torch itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hushtable
from hushtable._bags import reduce_bags
from hushtable.nn import PrivateEmbedding, PrivateEmbeddingBag

ROWS, DIM = 50, 6
MODES = ["sum", "mean", "max"]


@pytest.fixture(scope="module")
def weight() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(ROWS, DIM)).astype(np.float32)


class CountingSource:
    """A table in the clear that notes what a server would have seen."""

    def __init__(self, weight: np.ndarray) -> None:
        self.table = hushtable.Table.from_weight(weight)
        self.info = self.table.info
        self.seen: list[int] = []

    def lookup(self, ids: Any, max_ids: int | None = None) -> np.ndarray:
        assert max_ids is not None
        assert len(ids) <= max_ids
        self.seen.append(max_ids)
        return self.table.rows(ids)


def reference_bags(
    weight: np.ndarray,
    bags: list[list[int]],
    mode: str,
    padding_idx: int | None = None,
    weights: list[list[float]] | None = None,
) -> np.ndarray:
    out = []
    for index, bag in enumerate(bags):
        scales = weights[index] if weights else [1.0] * len(bag)
        pairs = [
            (weight[i] * np.float32(w))
            for i, w in zip(bag, scales, strict=True)
            if i != padding_idx
        ]
        if not pairs:
            out.append(np.zeros(DIM, dtype=np.float32))
        elif mode == "max":
            out.append(np.max(pairs, axis=0))
        else:
            total = np.sum(pairs, axis=0)
            out.append(total / len(pairs) if mode == "mean" else total)
    return np.array(out, dtype=np.float32)


def test_embedding_returns_the_rows(weight: np.ndarray) -> None:
    layer = PrivateEmbedding(hushtable.Table.from_weight(weight))
    ids = np.array([[1, 2, 3], [49, 2, 0]])
    assert np.array_equal(np.asarray(layer(ids)), weight[ids])
    assert (layer.num_embeddings, layer.embedding_dim) == (ROWS, DIM)


def test_embedding_padding_is_zero(weight: np.ndarray) -> None:
    ids = np.array([[1, 49], [49, 0]])
    expected = weight[ids]
    expected[ids == 49] = 0
    for padding_idx in (49, -1):
        layer = PrivateEmbedding(hushtable.Table.from_weight(weight), padding_idx=padding_idx)
        assert layer.padding_idx == 49
        assert np.array_equal(np.asarray(layer(ids)), expected)


def test_one_call_shows_a_size_that_depends_on_the_shape_alone(weight: np.ndarray) -> None:
    source = CountingSource(weight)
    layer = PrivateEmbedding(source, padding_idx=0)
    layer(np.zeros((3, 7), dtype=np.int64))  # a user without a history
    layer(np.arange(21).reshape(3, 7))
    layer(np.full((3, 7), 5))
    assert source.seen == [32, 32, 32]
    PrivateEmbedding(source, max_ids=40)(np.arange(3))
    assert source.seen[3:] == [40]


def test_max_ids_bounds_distinct_ids(weight: np.ndarray) -> None:
    layer = PrivateEmbedding(CountingSource(weight), padding_idx=0, max_ids=3)
    assert np.asarray(layer(np.array([[1, 2, 3, 0], [3, 2, 1, 0]]))).shape == (2, 4, DIM)
    with pytest.raises(hushtable.TooManyIds, match="4 distinct ids") as caught:
        layer(np.array([1, 2, 3, 4]))
    assert (caught.value.ids, caught.value.max_ids) == (4, 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_bags_match_the_reference(weight: np.ndarray, mode: Any, padding_idx: int | None) -> None:
    bags = [[3, 1, 4], [], [1, 5, 9, 2], [3, 3], [49]]
    flat = np.concatenate([np.array(bag, dtype=np.int64) for bag in bags])
    offsets = np.cumsum([0] + [len(bag) for bag in bags])
    excluded = None if padding_idx is None else padding_idx % ROWS
    expected = reference_bags(weight, bags, mode, excluded)
    table = hushtable.Table.from_weight(weight)
    layer = PrivateEmbeddingBag(table, mode=mode, padding_idx=padding_idx)
    np.testing.assert_allclose(np.asarray(layer(flat, offsets[:-1])), expected, rtol=1e-6)
    csr = PrivateEmbeddingBag(table, mode=mode, padding_idx=padding_idx, include_last_offset=True)
    np.testing.assert_allclose(np.asarray(csr(flat, offsets)), expected, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_two_dimensional_bags(weight: np.ndarray, mode: Any) -> None:
    bags = [[3, 1, 4], [2, 2, 7]]
    layer = PrivateEmbeddingBag(hushtable.Table.from_weight(weight), mode=mode)
    expected = reference_bags(weight, bags, mode)
    np.testing.assert_allclose(np.asarray(layer(np.array(bags))), expected, rtol=1e-6)


def test_weighted_sum(weight: np.ndarray) -> None:
    bags, scales = [[3, 1], [4, 3]], [[0.5, -2.0], [1.5, 0.25]]
    layer = PrivateEmbeddingBag(hushtable.Table.from_weight(weight), mode="sum", padding_idx=3)
    got = layer(np.array(bags), per_sample_weights=np.array(scales, dtype=np.float32))
    expected = reference_bags(weight, bags, "sum", 3, scales)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


def nearest(exact: Fraction) -> np.float32:
    """The float32 nearest to ``exact``, ties to even."""
    close = np.float32(float(exact))
    around = (
        np.nextafter(close, np.float32(-np.inf)),
        close,
        np.nextafter(close, np.float32(1e38)),
    )
    return min(
        around, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1)
    )


def test_a_weighted_row_is_added_with_one_rounding() -> None:
    random = np.random.default_rng(11)
    exponents = random.integers(-3, 4, (40, DIM)).astype(np.float32)
    rows = random.normal(size=(40, DIM)).astype(np.float32) * np.exp2(exponents)
    scales = random.normal(size=40).astype(np.float32)
    # A sum whose float64 lies just between two float32: rounding twice would go up, not down. And
    # sums below the smallest normal float32.
    rows[0], scales[0] = 1.0, 1.0 + 2.0**-23
    rows[1], scales[1] = 2.0**-24 * (1 - 2.0**-23), 1.0 + 2.0**-23
    rows[2], scales[2] = 3e-39, 0.7
    rows[3], scales[3] = 5e-40, -0.3
    bounds = np.array([0, 2, 4, 4, 9, 40])
    expected = np.zeros((5, DIM), dtype=np.float32)
    for bag in range(5):
        for row, scale in zip(
            rows[bounds[bag] : bounds[bag + 1]], scales[bounds[bag] :], strict=False
        ):
            for column in range(DIM):
                exact = Fraction(float(row[column])) * Fraction(float(scale))
                exact += Fraction(float(expected[bag, column]))
                expected[bag, column] = nearest(exact)
    fused = reduce_bags(rows, bounds, "sum", weights=scales)
    assert np.array_equal(fused, expected)
    plain = reduce_bags(rows, bounds, "sum", weights=scales, fused=False)
    assert not np.array_equal(plain, expected)
    np.testing.assert_allclose(plain, expected, rtol=1e-3, atol=1e-5)


def test_sums_are_made_in_the_order_of_the_ids() -> None:
    rows = np.array([[1.0], [2.0**-24], [2.0**-24], [-1.0]], dtype=np.float32)
    bounds = np.array([0, 4])
    assert reduce_bags(rows, bounds, "sum").item() == 0.0
    assert reduce_bags(rows[::-1], bounds, "sum").item() == 2.0**-23
    assert reduce_bags(rows[::-1], bounds, "mean").item() == 2.0**-25


def test_the_default_mode_is_torchs(weight: np.ndarray) -> None:
    assert PrivateEmbeddingBag(hushtable.Table.from_weight(weight)).mode == "mean"


@pytest.mark.parametrize(
    ("input", "offsets", "text"),
    [
        ([1, 2, 3], None, "needs offsets"),
        ([[1, 2, 3]], [0], "leave offsets out"),
        ([[[1]]], None, "1-D .with offsets. or 2-D, not 3-D"),
        ([1, 2, 3], [1], "offsets.0. must be 0"),
        ([1, 2, 3], [0, 2, 1], "must not fall"),
        ([1, 2, 3], [0, 4], "must not fall, nor pass"),
        ([1, 2, 3], [[0]], "offsets must be 1-D"),
        ([1, 2, 3], [0.0, 1.5], "offsets must be whole numbers"),
        ([1, 2, 3], [0, -1], "offsets must be whole numbers"),
        ([1, 2, 3], [False, True], "offsets must be whole numbers"),
    ],
)
def test_bad_bags_are_refused(weight: np.ndarray, input: Any, offsets: Any, text: str) -> None:
    layer = PrivateEmbeddingBag(hushtable.Table.from_weight(weight))
    with pytest.raises(ValueError, match=text):
        layer(np.array(input), None if offsets is None else np.array(offsets))


def test_bad_arguments_are_refused(weight: np.ndarray) -> None:
    table = hushtable.Table.from_weight(weight)
    with pytest.raises(hushtable.ConfigError, match='mode="sum"'):
        PrivateEmbeddingBag(table)(np.array([[1]]), per_sample_weights=np.array([[1.0]]))
    with pytest.raises(ValueError, match="shape"):
        PrivateEmbeddingBag(table, mode="sum")(np.array([[1]]), per_sample_weights=np.array([1.0]))
    bad_mode: Any = "median"
    with pytest.raises(hushtable.ConfigError, match="sum, mean or max"):
        PrivateEmbeddingBag(table, mode=bad_mode)
    with pytest.raises(hushtable.ConfigError, match="padding_idx 50"):
        PrivateEmbedding(table, padding_idx=ROWS)
    with pytest.raises(hushtable.ConfigError, match="max_ids"):
        PrivateEmbedding(table, max_ids=0)
    with pytest.raises(hushtable.IdOutOfRange):
        PrivateEmbedding(table)(np.array([ROWS]))


class TestAgainstTorch:
    """With torch (the extra `torch`) the layers are modules and agree with its own."""

    torch: Any

    @pytest.fixture(autouse=True)
    def import_torch(self) -> None:
        reason = "torch is not installed: pip install hushtable[torch] compares with its layers"
        self.torch = pytest.importorskip("torch", reason=reason)

    def test_layers_are_modules_without_gradient(self, weight: np.ndarray) -> None:
        layer = PrivateEmbedding(hushtable.Table.from_weight(weight), padding_idx=2)
        assert isinstance(layer, self.torch.nn.Module)
        assert repr(layer) == "PrivateEmbedding(50, 6, padding_idx=2)"
        rows = layer(self.torch.tensor([1, 2]))
        assert rows.dtype == self.torch.float32
        assert not rows.requires_grad

    def test_embedding(self, weight: np.ndarray) -> None:
        own = self.torch.nn.Embedding.from_pretrained(self.torch.tensor(weight))
        layer = PrivateEmbedding(hushtable.Table.from_weight(own))
        ids = self.torch.randint(ROWS, (4, 5, 2), dtype=self.torch.int32)
        assert self.torch.equal(layer(ids), own(ids))

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("padding_idx", [None, 3, -1])
    @pytest.mark.parametrize("last", [False, True])
    def test_bags(self, weight: np.ndarray, mode: Any, padding_idx: int | None, last: bool) -> None:
        torch = self.torch
        own = torch.nn.EmbeddingBag(
            ROWS,
            DIM,
            mode=mode,
            padding_idx=padding_idx,
            include_last_offset=last,
            _weight=torch.tensor(weight),
        )
        layer = PrivateEmbeddingBag(
            hushtable.Table.from_weight(weight),
            mode=mode,
            padding_idx=padding_idx,
            include_last_offset=last,
        )
        flat = torch.tensor([3, 1, 4, 1, 5, 9, 2, 3, 3, 49])
        offsets = torch.tensor([0, 3, 3, 7, 9, *([10] if last else [])])
        weights = torch.rand(10) if mode == "sum" else None
        assert torch.equal(layer(flat, offsets, weights), own(flat, offsets, weights).detach())
        square = torch.tensor([[3, 1, 4], [49, 3, 3]])
        weights = torch.rand(2, 3) if mode == "sum" else None
        assert torch.equal(
            layer(square, per_sample_weights=weights),
            own(square, per_sample_weights=weights).detach(),
        )

    @pytest.mark.parametrize("padding_idx", [None, 3])
    @pytest.mark.parametrize("dim", [1, 6, 16, 33, 128])
    def test_long_bags_are_the_same_bits(self, dim: int, padding_idx: int | None) -> None:
        torch = self.torch
        random = np.random.default_rng(dim)
        weight = random.normal(size=(ROWS, dim)).astype(np.float32)
        ids = torch.tensor(random.integers(0, ROWS, 700))
        offsets = torch.tensor(np.sort(np.r_[0, random.integers(0, 700, 9)]))
        scales = torch.tensor(random.normal(size=700).astype(np.float32))
        for mode, weights in (("sum", None), ("sum", scales), ("mean", None), ("max", None)):
            own = torch.nn.EmbeddingBag(
                ROWS, dim, mode=mode, padding_idx=padding_idx, _weight=torch.tensor(weight)
            )
            table = hushtable.Table.from_weight(weight)
            layer = PrivateEmbeddingBag(table, mode=mode, padding_idx=padding_idx)
            assert torch.equal(layer(ids, offsets, weights), own(ids, offsets, weights).detach())
