"""Layers of many tables, and what puts them into a model: torchrec's calls by duck typing."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import hushtable
from hushtable.nn import (
    ClearModel,
    PrivateEmbedding,
    PrivateEmbeddingBag,
    PrivateEmbeddingBagCollection,
    privatize,
)

try:
    import torch
except ImportError:
    torch = None

SHAPES = {"users": (30, 4), "items": (50, 6)}


@dataclass(frozen=True)
class Feature:
    name: str
    table: str
    pooling: str
    max_ids: int


FEATURES = (
    Feature("user", "users", "sum", 1),
    Feature("seen", "items", "sum", 4),
    Feature("liked", "items", "mean", 3),
    Feature("now", "items", "none", 1),
)


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


class CountingModel(ClearModel):
    """A model in the clear that notes what it was asked for."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        tables = {
            name: hushtable.Table.from_weight(weight, name=name) for name, weight in weights.items()
        }
        super().__init__(FEATURES, tables)
        self.asked: list[Mapping[str, Any]] = []

    def lookup_many(self, inferences: Sequence[Mapping[str, Any]]) -> list[dict[str, np.ndarray]]:
        self.asked += inferences
        for inference in inferences:
            for feature in FEATURES:
                assert len(inference.get(feature.name, ())) <= feature.max_ids
        return super().lookup_many(inferences)


class Keyed:
    """What is asked of a torchrec.KeyedJaggedTensor."""

    def __init__(self, keys: list[str], values: Any, lengths: Any, weights: Any = None) -> None:
        self._parts = keys, np.array(values), np.array(lengths), weights

    def keys(self) -> list[str]:
        return self._parts[0]

    def values(self) -> np.ndarray:
        return self._parts[1]

    def lengths(self) -> np.ndarray:
        return self._parts[2]

    def weights_or_none(self) -> Any:
        return self._parts[3]


#: Three samples: of `user`, `seen`, and `liked` the ids of each.
SAMPLES = {
    "user": [[3], [29], [3]],
    "seen": [[7, 1, 7, 2], [], [49]],
    "liked": [[5, 5], [9, 8, 7], []],
}


def as_dict(samples: dict[str, list[list[int]]]) -> dict[str, Any]:
    return {
        name: (
            np.array([one for bag in bags for one in bag], np.int64),
            np.cumsum([0] + [len(bag) for bag in bags]),
        )
        for name, bags in samples.items()
    }


def as_keyed(samples: dict[str, list[list[int]]]) -> Keyed:
    flat = [one for bags in samples.values() for bag in bags for one in bag]
    return Keyed(list(samples), flat, [len(bag) for bags in samples.values() for bag in bags])


def pooled(weight: np.ndarray, bags: list[list[int]], mode: str) -> np.ndarray:
    out = np.zeros((len(bags), weight.shape[1]), np.float32)
    for place, bag in enumerate(bags):
        for one in bag:
            out[place] += weight[one]
        if mode == "mean" and bag:
            out[place] /= np.float32(len(bag))
    return out


@pytest.mark.parametrize("wrap", [as_dict, as_keyed])
def test_a_collection_gives_each_features_bags(weights: dict[str, np.ndarray], wrap: Any) -> None:
    source = CountingModel(weights)
    layer = PrivateEmbeddingBagCollection(source)
    got = layer(wrap({**SAMPLES, "a feature of another collection": [[1], [2], [3]]}))
    assert got.keys() == ["user", "seen", "liked"]
    assert (got.length_per_key(), got.offset_per_key()) == ([4, 6, 6], [0, 4, 10, 16])
    expected = {
        "user": pooled(weights["users"], SAMPLES["user"], "sum"),
        "seen": pooled(weights["items"], SAMPLES["seen"], "sum"),
        "liked": pooled(weights["items"], SAMPLES["liked"], "mean"),
    }
    for name, rows in got.to_dict().items():
        assert np.array_equal(np.asarray(rows), expected[name]), name
    assert np.array_equal(np.asarray(got.values()), np.concatenate(list(expected.values()), axis=1))
    # One inference a sample, and each asks for every feature.
    assert [sorted(one) for one in source.asked] == [["liked", "seen", "user"]] * 3


def test_features_come_in_the_order_they_are_named_in(weights: dict[str, np.ndarray]) -> None:
    layer = PrivateEmbeddingBagCollection(CountingModel(weights), ["liked", "user"])
    got = layer(as_keyed(SAMPLES))
    assert got.keys() == ["liked", "user"]
    assert np.array_equal(np.asarray(got["user"]), pooled(weights["users"], SAMPLES["user"], "sum"))
    with pytest.raises(KeyError, match="no feature 'seen'"):
        got["seen"]


def test_weights_scale_rows(weights: dict[str, np.ndarray]) -> None:
    layer = PrivateEmbeddingBagCollection(CountingModel(weights), ["seen"], is_weighted=True)
    scales = np.array([0.5, -1.5, 2.0, 3.0, 0.25], np.float32)
    values, offsets = as_dict(SAMPLES)["seen"]
    rows = weights["items"][values] * scales[:, None]
    expected = np.stack([rows[:4].sum(axis=0), np.zeros(6, np.float32), rows[4]])
    by_dict = layer({"seen": (values, offsets, scales)})
    np.testing.assert_allclose(np.asarray(by_dict["seen"]), expected, rtol=1e-5, atol=1e-6)
    keyed = layer(Keyed(["seen"], values, np.diff(offsets), scales))
    assert np.array_equal(np.asarray(by_dict["seen"]), np.asarray(keyed["seen"]))
    with pytest.raises(hushtable.ConfigError, match="has no weights"):
        layer({"seen": (values, offsets)})
    with pytest.raises(ValueError, match="4 weights for 5 values"):
        layer({"seen": (values, offsets, scales[:4])})
    with pytest.raises(hushtable.ConfigError, match="'liked' has pooling 'mean'"):
        PrivateEmbeddingBagCollection(CountingModel(weights), is_weighted=True)


def test_too_many_ids_name_the_feature_and_the_remedy(weights: dict[str, np.ndarray]) -> None:
    source = CountingModel(weights)
    layer = PrivateEmbeddingBagCollection(source)
    with pytest.raises(hushtable.TooManyIds, match="'seen' has 5 distinct ids in sample 1") as got:
        layer(as_dict({**SAMPLES, "seen": [[1], [1, 2, 3, 4, 5, 5], []]}))
    assert (got.value.ids, got.value.max_ids) == (5, 4)
    assert "rebuild the bundle with a larger max_ids" in str(got.value)
    with pytest.raises(hushtable.IdOutOfRange, match="feature 'user': id 30") as out:
        layer(as_dict({**SAMPLES, "user": [[1], [30], [2]]}))
    assert (out.value.id, out.value.rows) == (30, 30)
    assert source.asked == [], "nothing was sent"


def test_no_samples_ask_for_nothing(weights: dict[str, np.ndarray]) -> None:
    source = CountingModel(weights)
    got = PrivateEmbeddingBagCollection(source)(as_dict({name: [] for name in SAMPLES}))
    assert np.asarray(got.values()).shape == (0, 16)
    assert source.asked == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"user": [[1], [2]]}, "'user' has 2 samples and feature 'seen' has 3"),
        ({"user": None}, "'user' is missing from the input"),
    ],
)
def test_input_that_does_not_fit_is_refused(
    weights: dict[str, np.ndarray], change: dict[str, Any], text: str
) -> None:
    samples = {name: bags for name, bags in {**SAMPLES, **change}.items() if bags is not None}
    with pytest.raises(hushtable.ConfigError, match=text):
        PrivateEmbeddingBagCollection(CountingModel(weights))(as_dict(samples))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"user": ([1, 2], [0, 1])}, ValueError, "last offset is 1, but must be .* 2"),
        ({"user": ([1, 2], [1, 2])}, ValueError, "begins with 0"),
        ({"user": ([1, 2], [0, 2, 1])}, ValueError, "never falls"),
        ({"user": ([1, 2], [0, 1.5, 2])}, ValueError, "offsets must be whole numbers"),
        ({"user": ([1, 2], [0, -1, 2])}, ValueError, "offsets must be whole numbers"),
        ({"user": ([1, 2],)}, hushtable.ConfigError, "1 parts"),
        ({"user": [1, 2, 3, 4]}, hushtable.ConfigError, "4 parts"),
        ({"user": np.arange(3)}, hushtable.ConfigError, "is a ndarray"),
        (np.arange(3), hushtable.ConfigError, "ndarray holds no bags"),
        (Keyed(["user", "seen"], [1], [1, 0, 0]), hushtable.ConfigError, "2 features, 3 lengths"),
        (Keyed(["user"], [1, 2], [1]), ValueError, "lengths add up to 1, but there are 2"),
        (Keyed(["user"], [1, 2], [1.5, 1.5]), ValueError, "lengths must be whole numbers"),
        (Keyed(["user"], [1, 2], [3, -1]), ValueError, "lengths must be whole numbers"),
        (Keyed(["user"], [1.5], [1]), hushtable.BadIds, "integers"),
        (Keyed(["seen"], [1], [1]), hushtable.ConfigError, "'user' is missing"),
    ],
)
def test_malformed_input_is_refused(
    weights: dict[str, np.ndarray], given: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        PrivateEmbeddingBagCollection(CountingModel(weights), ["user"])(given)


def test_unknown_and_unpooled_features_are_refused(weights: dict[str, np.ndarray]) -> None:
    source = CountingModel(weights)
    with pytest.raises(hushtable.ConfigError, match="no feature 'usr': it has 'liked', 'now'"):
        PrivateEmbeddingBagCollection(source, ["usr"])
    with pytest.raises(hushtable.ConfigError, match="'now' is not pooled"):
        PrivateEmbeddingBagCollection(source, ["now"])
    with pytest.raises(hushtable.ConfigError, match="named twice"):
        PrivateEmbeddingBagCollection(source, ["user", "user"])
    with pytest.raises(hushtable.ConfigError, match="reads table 'items', which is not given"):
        ClearModel(FEATURES, {"users": source["user"]})


class Part:
    """What is asked of a torch.nn.Module that has parts."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)

    def named_modules(self, path: str = "", remove_duplicate: bool = True) -> Iterator[Any]:
        assert not remove_duplicate
        yield path, self
        for name, part in vars(self).items():
            if hasattr(part, "named_modules"):
                inner = f"{path}.{name}" if path else name
                yield from part.named_modules(inner, remove_duplicate=False)

    def submodule(self, path: str) -> Any:
        return functools.reduce(getattr, path.split(".") if path else [], self)

    # As torch names it.
    get_submodule = submodule


def fake(package: str, kind: str) -> type[Part]:
    return type(kind, (Part,), {"__module__": f"{package}.nn.modules.sparse"})


def embedding(weight: np.ndarray, **more: Any) -> Any:
    rows, dim = weight.shape
    facts = {"padding_idx": None, "max_norm": None, **more}
    if torch is not None:
        return torch.nn.Embedding.from_pretrained(torch.tensor(weight), **facts)
    layer = fake("torch", "Embedding")
    return layer(num_embeddings=rows, embedding_dim=dim, weight=weight, **facts)


def embedding_bag(weight: np.ndarray, **more: Any) -> Any:
    rows, dim = weight.shape
    facts = {"mode": "mean", "padding_idx": None, "include_last_offset": False, **more}
    if torch is not None:
        return torch.nn.EmbeddingBag.from_pretrained(torch.tensor(weight), **facts)
    layer = fake("torch", "EmbeddingBag")
    return layer(num_embeddings=rows, embedding_dim=dim, weight=weight, max_norm=None, **facts)


def tree(**parts: Any) -> Any:
    if torch is None:
        return Part(**parts)
    module = torch.nn.Module()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


@dataclass(frozen=True)
class Config:
    """What is asked of a torchrec.EmbeddingBagConfig."""

    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: list[str]
    pooling: str


def collection(*configs: Config) -> Any:
    base = Part if torch is None else torch.nn.Module
    kind = type("EmbeddingBagCollection", (base,), {"__module__": "torchrec.modules"})
    module = kind()
    module.embedding_bag_configs = lambda: list(configs)
    module.is_weighted = lambda: False
    return module


def test_privatize_replaces_what_is_served_and_names_the_rest(
    weights: dict[str, np.ndarray],
) -> None:
    source = CountingModel(weights)
    unserved = embedding(np.zeros((9, 2), np.float32))
    shared = embedding(weights["users"])
    bag = embedding_bag(weights["items"], mode="sum", padding_idx=2, include_last_offset=True)
    model = tree(
        users=shared,
        tower=tree(user=unserved, seen=tree(here=bag)),
        seen=bag,
        items=embedding(weights["items"], max_norm=1.0),
        bags=collection(
            Config("t0", *SHAPES["users"], ["user"], "SUM"),
            Config("t1", *SHAPES["items"], ["seen"], "SUM"),
        ),
        others=collection(Config("t2", 3, 2, ["else"], "SUM")),
    )
    report = privatize(model, source)
    assert [(one.path, one.tables) for one in report.replaced] == [
        ("users", ("users",)),
        ("tower.seen.here", ("items",)),
        ("seen", ("items",)),
        ("bags", ("users", "items")),
    ]
    assert {one.path: one.why for one in report.kept} == {
        "tower.user": "no table is served under its name",
        "items": "it has max_norm, which changes the rows that it looks up",
        "others": "the model that is served has no feature 'else'",
    }
    assert "tower.user: left, no table" in str(report)
    assert isinstance(model.users, PrivateEmbedding)
    assert isinstance(model.seen, PrivateEmbeddingBag)
    assert (model.seen.mode, model.seen.padding_idx, model.seen.include_last_offset) == (
        "sum",
        2,
        True,
    )
    assert model.tower.seen.here is model.seen
    assert isinstance(model.bags, PrivateEmbeddingBagCollection)
    assert model.tower.user is unserved
    ids = np.array([3, 29])
    assert np.array_equal(np.asarray(model.users(ids)), weights["users"][ids])
    got = model.bags(as_keyed(SAMPLES))
    assert np.array_equal(np.asarray(got["user"]), pooled(weights["users"], SAMPLES["user"], "sum"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"forward": lambda self, ids: 2 * ids}, "its class Own has its own forward"),
        ({"weight": property(lambda self: None)}, "its class Own has its own weight"),
        ({"__module__": "torch.ao.nn.quantized", "__name__": "Embedding"}, "arithmetic is another"),
    ],
)
def test_privatize_leaves_what_may_give_something_else(
    weights: dict[str, np.ndarray], change: dict[str, Any], why: str
) -> None:
    layer = embedding(weights["users"])
    own = type(change.pop("__name__", "Own"), (type(layer),), {"__module__": "model", **change})
    layer.__class__ = own
    report = privatize(tree(users=layer), CountingModel(weights))
    assert not report.replaced
    assert why in report.kept[0].why


def test_privatize_takes_a_class_that_looks_up_as_its_base(weights: dict[str, np.ndarray]) -> None:
    layer = embedding(weights["users"])
    layer.__class__ = type(
        "Own", (type(layer),), {"__init__": lambda self: None, "reset_parameters": lambda self: 0}
    )
    assert privatize(tree(users=layer), CountingModel(weights)).replaced


def test_privatize_puts_one_layer_where_one_was_shared(weights: dict[str, np.ndarray]) -> None:
    shared = embedding(weights["users"])
    model = tree(users=shared, again=shared)
    report = privatize(model, CountingModel(weights))
    assert [one.path for one in report.replaced] == ["users", "again"]
    assert model.users is model.again


def test_what_wraps_a_model_is_no_part_of_a_name(weights: dict[str, np.ndarray]) -> None:
    model = tree(module=tree(model=tree(users=embedding(weights["users"]))))
    assert [one.path for one in privatize(model, CountingModel(weights)).replaced] == [
        "module.model.users"
    ]
    other = tree(tower=tree(users=embedding(weights["users"])))
    assert privatize(other, CountingModel(weights)).replaced == ()


def test_padding_that_was_set_to_something_is_looked_up(weights: dict[str, np.ndarray]) -> None:
    zeroed = weights["users"].copy()
    zeroed[4] = 0
    for weight, expected in ((weights["users"], None), (zeroed, 4)):
        model = tree(users=embedding(weight, padding_idx=4))
        privatize(model, CountingModel({**weights, "users": weight}))
        assert model.users.padding_idx == expected
        assert np.array_equal(np.asarray(model.users(np.array([4, 5]))), weight[[4, 5]])


def test_a_table_of_another_shape_is_an_error_and_nothing_changes(
    weights: dict[str, np.ndarray],
) -> None:
    wrong = embedding(np.zeros((50, 7), np.float32))
    model = tree(users=embedding(weights["users"]), items=wrong)
    with pytest.raises(
        hushtable.ConfigError, match="items is 50 x 7, but the table 'items' .* is 50 x 6"
    ):
        privatize(model, CountingModel(weights))
    assert model.items is wrong
    assert not isinstance(model.users, PrivateEmbedding)
    pooling = collection(Config("t", *SHAPES["items"], ["seen"], "MEAN"))
    with pytest.raises(hushtable.ConfigError, match="'seen' has pooling mean, .* sum"):
        privatize(tree(bags=pooling), CountingModel(weights))


def test_privatize_with_a_single_table(weights: dict[str, np.ndarray]) -> None:
    table = hushtable.Table.from_weight(weights["users"], name="bundle")
    model = tree(one=embedding(weights["users"]), two=embedding_bag(weights["items"]))
    report = privatize(model, table)
    assert [one.path for one in report.replaced] == ["one"]
    assert [one.path for one in report.kept] == ["two"]
    # Two layers of its shape: which is meant is not to be guessed.
    model = tree(one=embedding(weights["users"]), two=embedding_bag(weights["users"]))
    assert privatize(model, table).replaced == ()
    named = hushtable.Table.from_weight(weights["users"], name="two")
    assert [one.path for one in privatize(model, named).replaced] == ["two"]
    bags = tree(bags=collection(Config("t", *SHAPES["users"], ["user"], "SUM")))
    assert "serve a model" in str(privatize(bags, table))


def test_what_privatize_cannot_do(weights: dict[str, np.ndarray]) -> None:
    source = CountingModel(weights)
    with pytest.raises(hushtable.ConfigError, match="a list has no layers"):
        privatize([], source)
    table = hushtable.Table.from_weight(weights["users"])
    report = privatize(embedding(weights["users"]), table)
    assert "it is the whole model" in str(report)
    assert str(privatize(tree(), source)) == "the model has no embedding layers"
