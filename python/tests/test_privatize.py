"""Which of torch's layers `privatize` replaces, and what it compares before it does."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from conftest import Deployment
from test_nn_models import SHAPES
from torch_layers import (
    DIM,
    IDS,
    ROWS,
    Called,
    Counting,
    Initialised,
    Longer,
    Offset,
    Scaled,
    Weighed,
    changed,
    model_in_the_clear,
    net_of,
    plain,
)

import hushtable
from hushtable.nn import (
    ClearModel,
    PrivateEmbedding,
    PrivateEmbeddingBagCollection,
    privatize,
)

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
pytestmark = [
    # What torch's own compilers and tracer say of themselves.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:torch.*"),
]


@pytest.fixture(scope="module")
def rows_of() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda rows: plain(rows, Scaled), "its class Scaled has its own forward"),
        (lambda rows: plain(rows, Offset), "its class Offset has its own forward"),
        (lambda rows: plain(rows, Weighed), "its class Weighed has its own __getattr__"),
        (lambda rows: plain(rows, Called), "its class Called has its own __call__"),
        (lambda rows: plain(rows, Longer), "it has a buffer positions"),
        (lambda rows: plain(rows, max_norm=1.0), "it has max_norm"),
        (lambda rows: plain(rows, scale_grad_by_freq=True), "it has scale_grad_by_freq"),
        (lambda rows: changed(rows, "forward hook"), "it has forward hooks"),
        (lambda rows: changed(rows, "pre-hook"), "it has forward pre hooks"),
        (lambda rows: changed(rows, "backward hook"), "it has backward hooks"),
        (lambda rows: changed(rows, "forward"), "its forward was replaced"),
        (lambda rows: changed(rows, "parametrization"), "it has parametrizations"),
        (lambda rows: changed(rows, "resized"), "its weight is [100, 6], but it says"),
        (lambda rows: changed(rows, "quantised"), "quantized.modules.embedding_ops.Embedding"),
        (lambda rows: changed(rows, "scripted"), "it is a program of torch.jit"),
        (lambda rows: changed(rows, "float16"), "its rows are float16"),
        (lambda rows: changed(rows, "bfloat16"), "its rows are bfloat16"),
        (lambda rows: changed(rows, "float64"), "its rows are float64"),
    ],
)
def test_a_layer_that_gives_something_else_is_left(
    rows_of: np.ndarray, make: Any, why: str
) -> None:
    layer = make(rows_of)
    net = net_of(layer)
    source = Counting(rows_of)
    report = privatize(net, source)
    assert not report.replaced
    assert why in report.kept[0].why
    assert net.films is layer
    assert source.lookups == 0, "what is left is not compared"


#: Of the largest value of a row, what no type rounds it by.
STEPS = {"f32": 2.0**-20, "fp8_e4m3": 1, "fp8_e5m2": 1, "int4": 4, "int4/32": 4, "int2": 4}


@pytest.mark.parametrize(
    "dtype", ["f32", "f16", "bf16", "int8", "int4", "int2", "int4/32", "fp8_e4m3", "fp8_e5m2"]
)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.nn.Embedding, {}),
        (torch.nn.Embedding, {"padding_idx": 7, "sparse": True}),
        (Initialised, {}),
        (torch.nn.EmbeddingBag, {"mode": "mean"}),
        (torch.nn.EmbeddingBag, {"mode": "max", "padding_idx": 7, "include_last_offset": True}),
    ],
)
def test_what_a_table_rounds_is_no_difference(
    rows_of: np.ndarray, dtype: str, kind: Any, options: dict[str, Any]
) -> None:
    source = Counting(rows_of)
    source.table = hushtable.Table.from_weight(rows_of, dtype=dtype)
    source.info = source.table.info
    net = net_of(plain(rows_of, kind, **options))
    report = privatize(net, source)
    assert [(one.path, one.compared) for one in report.replaced] == [("films", True)]
    assert source.lookups == 1
    # One step more than the type rounds is another table.
    for row in (0, 1, ROWS - 1):
        other = rows_of.copy()
        other[row, 3] += np.abs(rows_of[row]).max() * STEPS.get(dtype, 2.0**-5)
        layer = plain(other, kind, **options)
        net = net_of(layer)
        with pytest.raises(hushtable.ConfigError, match=f"films and .* row {row}, column 3 is"):
            privatize(net, source)
        assert net.films is layer
        assert privatize(net, source, compare=False).replaced[0].compared is False


def test_nothing_is_replaced_where_one_layer_has_other_rows(rows_of: np.ndarray) -> None:
    random = np.random.default_rng(5)
    tables = {name: random.normal(size=shape) for name, shape in SHAPES.items()}
    net = torch.nn.Module()
    net.users, net.items = (
        torch.nn.Embedding.from_pretrained(torch.tensor(tables[name], dtype=torch.float32))
        for name in ("users", "items")
    )
    last = net.items.weight[-1].clone()
    net.items.weight[-1] += 1
    with pytest.raises(hushtable.ConfigError, match="items and the table 'items' .* row 49"):
        privatize(net, model_in_the_clear())
    assert not any(isinstance(layer, PrivateEmbedding) for layer in net.children())
    net.items.weight[-1] = last
    assert len(privatize(net, model_in_the_clear()).replaced) == 2


def test_a_layer_without_values_is_not_compared(rows_of: np.ndarray) -> None:
    source = Counting(rows_of)
    net = net_of(torch.nn.Embedding(ROWS, DIM, padding_idx=3, device="meta"))
    report = privatize(net, source)
    assert str(report) == "films: private, table (rows not compared)"
    assert source.lookups == 0
    assert torch.equal(net.films(IDS), torch.tensor(rows_of)[IDS])


def test_rows_that_are_no_numbers_are_the_same_rows(rows_of: np.ndarray) -> None:
    odd = rows_of.copy()
    odd[0, :3] = np.nan, np.inf, -np.inf
    source = Counting(odd)
    assert privatize(net_of(plain(odd)), source).replaced
    for value in (0.0, np.inf):
        other = odd.copy()
        other[0, 0] = value
        with pytest.raises(hushtable.ConfigError, match="row 0, column 0"):
            privatize(net_of(plain(other)), source)


def collection_of(rows_of: np.ndarray, data_type: str = "FP32", **options: Any) -> Any:
    """What is asked of a torchrec.EmbeddingBagCollection, and what it is made of."""
    config = types.SimpleNamespace(
        name="t_films",
        num_embeddings=ROWS,
        embedding_dim=DIM,
        feature_names=["films"],
        pooling="SUM",
        data_type=data_type,
        weight_init_max=0.5,
        need_pos=False,
        **options,
    )
    kind = type(
        "EmbeddingBagCollection",
        (torch.nn.Module,),
        {
            "__module__": "torchrec.modules.embedding_modules",
            "embedding_bag_configs": lambda self: [config],
            "is_weighted": lambda self: False,
        },
    )
    layer = kind()
    bag = plain(rows_of, torch.nn.EmbeddingBag, mode="sum", include_last_offset=True)
    layer.embedding_bags = torch.nn.ModuleDict({"t_films": bag})
    return layer


class Facts:
    name = table = "films"
    pooling = "sum"
    max_ids = 1


def test_a_collections_tables_are_compared_and_its_options_read(rows_of: np.ndarray) -> None:
    table = Counting(rows_of)
    source = ClearModel([Facts()], {"films": table})
    net = net_of(collection_of(rows_of))
    assert privatize(net, source).replaced[0].compared
    assert isinstance(net.films, PrivateEmbeddingBagCollection)
    assert table.lookups == 1
    with pytest.raises(hushtable.ConfigError, match="films and the table .* row 0"):
        privatize(net_of(collection_of(rows_of + 1)), source)
    hooked, scaled, other = (collection_of(rows_of) for _ in range(3))
    hooked.register_forward_hook(lambda layer, given, rows: rows)
    scaled.embedding_bags.t_films.register_forward_hook(lambda layer, given, rows: rows * 2)
    other.embedding_bags.t_films.mode = "mean"
    for layer, why in (
        (hooked, "it has forward hooks"),
        (scaled, "of its layer for table 't_films': it has forward hooks"),
        (other, "its options are not those that the collection gave it"),
        (collection_of(rows_of, "FP16"), "its table 't_films' has data_type FP16: FP32 is possi"),
        (collection_of(rows_of, num_embeddings_post_pruning=9), "num_embeddings_post_pruning 9"),
        (collection_of(rows_of, hashed=True), "the option hashed (True): not read"),
    ):
        net = net_of(layer)
        assert why in privatize(net, source).kept[0].why
        assert net.films is layer


def test_a_comparison_is_one_lookup_of_four_keys(
    deployment: Deployment, weight: np.ndarray
) -> None:
    with deployment.connect() as client:
        layer = torch.nn.Embedding.from_pretrained(torch.tensor(weight), padding_idx=17)
        assert privatize(net_of(layer), client).replaced[0].compared
        stats = client.last_stats
        assert stats is not None
        assert (stats.ids, stats.keys) == (4, 4)
        closed = net_of(layer)
    with pytest.raises(hushtable.ConfigError, match="closed"):
        privatize(closed, client)
    assert closed.films is layer
