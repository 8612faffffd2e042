"""Layers under torch's compilers, its autograd and its loaders; where torch is installed."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Deployment
from test_nn_models import FEATURES, SHAPES

import hushtable
from hushtable.nn import (
    ClearModel,
    PrivateEmbedding,
    PrivateEmbeddingBag,
    PrivateEmbeddingBagCollection,
    bind,
    privatize,
)

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
pytestmark = [
    # What torch's own compilers and tracer say of themselves.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:torch.*"),
]

ROWS, DIM = 50, 6


@pytest.fixture(scope="module")
def rows_of() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(ROWS, DIM)).astype(np.float32)


class Counting:
    """A table in the clear that counts lookups."""

    def __init__(self, weight: np.ndarray) -> None:
        self.table = hushtable.Table.from_weight(weight)
        self.info = self.table.info
        self.lookups = 0

    def lookup(self, ids: Any, max_ids: int | None = None) -> np.ndarray:
        self.lookups += 1
        return self.table.rows(ids)


class Net(torch.nn.Module):
    """A private layer among torch's own."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.bags = PrivateEmbeddingBag(source, mode="sum")
        self.one = PrivateEmbedding(source, padding_idx=0)
        torch.manual_seed(1)
        self.top = torch.nn.Linear(2 * DIM, 3)

    def forward(self, ids: Any, scales: Any) -> Any:
        bags = self.bags(ids, per_sample_weights=scales)
        return torch.relu(self.top(torch.cat([bags, self.one(ids[:, 0])], dim=1)))


IDS = torch.tensor([[1, 2, 3], [4, 4, 0]])
SCALES = torch.tensor([[0.5, -1.0, 2.0], [1.0, 3.0, 0.25]])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_model_compiles_as_one_graph(rows_of: np.ndarray, backend: str) -> None:
    source = Counting(rows_of)
    net = Net(source)
    expected = net(IDS, SCALES)
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    for ids in (IDS, IDS.flip(0), torch.tensor([[9, 9, 9], [8, 7, 6]])):
        before = source.lookups
        torch.testing.assert_close(compiled(ids, SCALES), net(ids, SCALES))
        assert source.lookups == before + 4, "each call looks its rows up"
    torch.testing.assert_close(compiled(IDS, SCALES), expected)
    with pytest.raises(hushtable.IdOutOfRange):
        compiled(IDS + ROWS, SCALES)


def test_a_compiled_layer_takes_other_shapes(rows_of: np.ndarray) -> None:
    layer = PrivateEmbedding(Counting(rows_of))
    compiled = torch.compile(layer, backend="eager", dynamic=True, fullgraph=True)
    for shape in ((3,), (2, 5), (1, 1, 4)):
        ids = torch.randint(ROWS, shape)
        assert torch.equal(compiled(ids), torch.tensor(rows_of)[ids])
        assert torch.equal(layer.last_kept, torch.ones(shape, dtype=torch.bool))


def test_an_exported_program_holds_the_lookup_and_no_rows(rows_of: np.ndarray) -> None:
    source = Counting(rows_of)
    net = Net(source)
    program = torch.export.export(net, (IDS, SCALES))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called.count("hushtable.lookup.default") == 2
    assert called.count("hushtable.reduce.default") == 1
    assert {tuple(one.shape) for one in program.state_dict.values()} == {(3, 12), (3,)}
    other = IDS.flip(0)
    before = source.lookups
    torch.testing.assert_close(program.module()(other, SCALES), net(other, SCALES))
    assert source.lookups == before + 4


def test_an_exported_program_runs_where_its_layers_are_bound(
    rows_of: np.ndarray, tmp_path: Path
) -> None:
    bundle, file = tmp_path / "films", tmp_path / "model.pt2"
    table = hushtable.Table.from_weight(rows_of, name="films")
    table.save(bundle)
    layer = PrivateEmbedding(table)
    program = torch.export.export(layer, (IDS,))
    torch.export.save(program, file)
    code = f"""
import sys, torch, hushtable
from hushtable.nn import PrivateEmbedding, bind
program = torch.export.load({str(file)!r}).module()
ids = torch.tensor([[7, 7, 1], [2, 3, 49]])
try:
    program(ids)
except hushtable.ConfigError as error:
    print("bind(handle, layer)" in str(error))
layer = PrivateEmbedding(hushtable.Table.open({str(bundle)!r}))
bind({layer.handle!r}, layer)
print(program(ids).sum().item())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    refused, total = ran.stdout.split()
    assert refused == "True"
    expected = rows_of[[7, 7, 1, 2, 3, 49]].sum()
    assert float(total) == pytest.approx(float(expected), rel=1e-5)


def test_a_traced_model_looks_up_anew(rows_of: np.ndarray) -> None:
    source = Counting(rows_of)
    net = Net(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(net, (IDS, SCALES))
        loaded = io.BytesIO()
        torch.jit.save(traced, loaded)
    other, before = torch.tensor([[9, 8, 7], [6, 0, 4]]), source.lookups
    torch.testing.assert_close(traced(other, SCALES), net(other, SCALES))
    assert source.lookups == before + 4, "the rows of the first call are not in the graph"
    assert rows_of[1].tobytes() not in loaded.getvalue()


def own_bag(rows_of: np.ndarray, **options: Any) -> Any:
    return torch.nn.EmbeddingBag(
        ROWS, DIM, mode="sum", _weight=torch.tensor(rows_of), **options
    ).requires_grad_(False)


@pytest.mark.parametrize("padding_idx", [None, 3])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_weights_of_rows_have_torchs_gradient(
    rows_of: np.ndarray, padding_idx: int | None, last: bool, compiled: bool
) -> None:
    options = {"padding_idx": padding_idx, "include_last_offset": last}
    layer = PrivateEmbeddingBag(hushtable.Table.from_weight(rows_of), mode="sum", **options)
    call = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiled else layer
    own = own_bag(rows_of, **options)
    flat = torch.tensor([3, 1, 4, 1, 5, 3, 49])
    offsets = torch.tensor([0, 3, 3, 5, *([7] if last else [])])
    scales = torch.linspace(-1, 2, 7)
    upstream = torch.randn(4 - last + int(last), DIM)
    for ids, at in ((flat, offsets), (flat[:6].reshape(2, 3), None)):
        given = [scales[: ids.numel()].reshape(ids.shape).clone() for _ in range(2)]
        for one, bags in zip(given, (call, own), strict=True):
            one.requires_grad_()
            found = bags(ids, at, one)
            found.backward(upstream[: found.shape[0]])
        torch.testing.assert_close(given[0].grad, given[1].grad)
        assert given[0].grad.abs().sum() > 0


def test_the_gradient_is_that_of_differences(rows_of: np.ndarray) -> None:
    bags = PrivateEmbeddingBag(hushtable.Table.from_weight(rows_of), mode="sum")
    step = 2.0**-6
    scales = SCALES.clone().requires_grad_()
    bags(IDS, per_sample_weights=scales).square().sum().backward()
    for place in np.ndindex(2, 3):
        moved = torch.zeros(2, 3)
        moved[place] = step
        up, down = (
            bags(IDS, per_sample_weights=SCALES + sign * moved).square().sum() for sign in (1, -1)
        )
        assert scales.grad[place].item() == pytest.approx(
            ((up - down) / (2 * step)).item(), rel=1e-2, abs=1e-2
        )


def test_what_stands_behind_the_last_offset_has_no_gradient(rows_of: np.ndarray) -> None:
    layer = PrivateEmbeddingBag(
        hushtable.Table.from_weight(rows_of), mode="sum", include_last_offset=True
    )
    scales = torch.ones(4, requires_grad=True)
    layer(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2]), scales).sum().backward()
    assert scales.grad[:2].abs().min() > 0
    assert scales.grad[2:].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_other_types(rows_of: np.ndarray, dtype: Any) -> None:
    layer = PrivateEmbeddingBag(hushtable.Table.from_weight(rows_of), mode="sum")
    for odd, text in ((SCALES + 1j, "not complex"), (SCALES.double() * 1e300, "past the range")):
        with pytest.raises(hushtable.ConfigError, match=text):
            layer(IDS, per_sample_weights=odd)
    scales = SCALES.to(dtype).requires_grad_()
    bags = layer(IDS, per_sample_weights=scales)
    assert bags.dtype is torch.float32
    torch.testing.assert_close(bags, layer(IDS, per_sample_weights=scales.detach().float()))
    bags.sum().backward()
    assert scales.grad.dtype is dtype
    expected = torch.tensor(rows_of)[IDS].sum(-1)
    torch.testing.assert_close(scales.grad.float(), expected, rtol=1e-2, atol=1e-2)


def model_in_the_clear() -> ClearModel:
    random = np.random.default_rng(5)
    tables = {
        name: hushtable.Table.from_weight(random.normal(size=shape).astype(np.float32), name=name)
        for name, shape in SHAPES.items()
    }
    return ClearModel(FEATURES, tables)


class Rows(torch.nn.Module):
    """What a collection gives, as one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = PrivateEmbeddingBagCollection(
            model_in_the_clear(), ["user", "seen"], is_weighted=True
        )

    def forward(self, features: Any) -> Any:
        return self.bags(features).values()


def weighted(scales: Any) -> dict[str, Any]:
    return {
        "user": (torch.tensor([3, 29, 3]), torch.tensor([0, 1, 2, 3]), torch.ones(3)),
        "seen": (torch.tensor([7, 1, 7, 49]), torch.tensor([0, 3, 3, 4]), scales),
    }


class Keyed:
    """What is asked of a torchrec.KeyedJaggedTensor, of tensors."""

    def __init__(self, features: dict[str, Any]) -> None:
        self._keys = list(features)
        self._values = torch.cat([values for values, _, _ in features.values()])
        self._lengths = torch.cat([offsets.diff() for _, offsets, _ in features.values()])
        self._weights = torch.cat([scales for _, _, scales in features.values()])

    def keys(self) -> list[str]:
        return self._keys

    def values(self) -> Any:
        return self._values

    def lengths(self) -> Any:
        return self._lengths

    def weights_or_none(self) -> Any:
        return self._weights


def test_a_collection_compiles_is_exported_and_has_a_gradient() -> None:
    net = Rows()
    scales = torch.tensor([0.5, -1.0, 2.0, 3.0])
    expected = net(weighted(scales))
    assert expected.shape == (3, 10)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(weighted(scales)), expected)
    program = torch.export.export(net, (weighted(scales),))
    called = [str(node.target) for node in program.graph.nodes]
    assert called.count("hushtable.lookup_features.default") == 1
    torch.testing.assert_close(program.module()(weighted(scales)), expected)
    table = torch.tensor(model_in_the_clear()["seen"].lookup(np.arange(50)))
    for call, wrap in ((net, dict), (compiled, dict), (net, Keyed)):
        given = scales.clone().requires_grad_()
        found = call(wrap(weighted(given)))
        torch.testing.assert_close(found.detach(), expected)
        found.sum().backward()
        torch.testing.assert_close(given.grad, table[[7, 1, 7, 49]].sum(-1))


def test_a_privatised_models_state_says_what_it_lacks(rows_of: np.ndarray) -> None:
    net = Net(hushtable.Table.from_weight(rows_of, name="films"))
    state = net.state_dict()
    assert sorted(state) == ["bags._extra_state", "one._extra_state", "top.bias", "top.weight"]
    said = state["bags._extra_state"]["rows are at servers"]
    assert said == {"films": {"rows": ROWS, "dim": DIM, "version": net.bags.source.info.version}}
    net.load_state_dict(state)
    # As torch reads files of strangers.
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    net.load_state_dict(torch.load(file, weights_only=True))
    newer = Net(hushtable.Table.from_weight(rows_of + 1, name="films"))
    newer.load_state_dict(state)
    for other, text in (
        (hushtable.Table.from_weight(rows_of, name="books"), "this layer reads 'books'"),
        (hushtable.Table.from_weight(rows_of[1:], name="films"), "served is 49 x 6"),
    ):
        with pytest.raises(Exception, match=text):
            Net(other).load_state_dict(state)


def test_a_checkpoint_with_rows_is_refused_with_the_reason(rows_of: np.ndarray) -> None:
    net = Net(hushtable.Table.from_weight(rows_of, name="films"))
    checkpoint = {
        "bags.weight": torch.tensor(rows_of),
        "one.weight": torch.tensor(rows_of),
        "top.weight": torch.zeros(3, 12),
        "top.bias": torch.ones(3),
    }
    with pytest.raises(RuntimeError, match="bags.weight .no place for it.*'films' \\(50 x 6\\)"):
        net.load_state_dict(checkpoint)
    found = net.load_state_dict(checkpoint, strict=False)
    assert found.unexpected_keys == ["bags.weight", "one.weight"]
    assert net.top.bias.tolist() == [1, 1, 1]


class Histories(torch.utils.data.Dataset):
    """Samples whose rows a worker looks up by a layer of its own."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.layer(torch.tensor([index, index + 1]))


def test_layers_travel(deployment: Deployment, weight: np.ndarray) -> None:
    expected = torch.tensor(weight)
    with deployment.connect() as client:
        layer = PrivateEmbedding(client, max_ids=2)
        net = torch.nn.Sequential(layer, torch.nn.Flatten())
        copied = copy.deepcopy(net)
        assert copied[0].source is not client
        assert copied[0].handle != layer.handle
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        ids = torch.tensor([[1, 2]])
        for one in (net, copied, loaded):
            assert torch.equal(one(ids), expected[ids].flatten(1))
        compiled = torch.compile(copied, backend="eager", fullgraph=True)
        assert torch.equal(compiled(ids), expected[ids].flatten(1))
        loader = torch.utils.data.DataLoader(
            Histories(layer), batch_size=2, num_workers=1, multiprocessing_context="spawn"
        )
        found = torch.cat(list(loader))
        assert torch.equal(found, expected[torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]])])
        for one in (copied, loaded):
            one[0].source.close()


def test_a_bound_layer_answers_for_a_handle(rows_of: np.ndarray) -> None:
    first = PrivateEmbedding(hushtable.Table.from_weight(rows_of))
    second = PrivateEmbedding(hushtable.Table.from_weight(rows_of + 1))
    program = torch.export.export(first, (IDS,)).module()
    bind(first.handle, second)
    torch.testing.assert_close(program(IDS), torch.tensor(rows_of + 1)[IDS])


class Scaled(torch.nn.Embedding):
    """As language models have it."""

    def forward(self, input: Any) -> Any:
        return super().forward(input) * self.embedding_dim**0.5


class Offset(torch.nn.Embedding):
    """As OPT and BART have it."""

    def forward(self, input: Any) -> Any:
        return super().forward((input + 2) % ROWS)


class Weighed(torch.nn.Embedding):
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return found * 2 if name == "weight" else found


class Called(torch.nn.Embedding):
    def __call__(self, input: Any) -> Any:
        return super().__call__(input) + 1


class Longer(torch.nn.Embedding):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("positions", torch.arange(3))


class Initialised(torch.nn.Embedding):
    """A class of its own that looks up as its base does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.note = "filled anew"

    def reset_parameters(self) -> None:
        torch.nn.init.uniform_(self.weight)


class Twice(torch.nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight * 2


def plain(rows_of: np.ndarray, kind: Any = torch.nn.Embedding, **options: Any) -> Any:
    return kind(ROWS, DIM, _weight=torch.tensor(rows_of), **options).requires_grad_(False)


def changed(rows_of: np.ndarray, how: str) -> Any:
    """An embedding that was changed in one way."""
    layer = plain(rows_of)
    if how == "forward hook":
        layer.register_forward_hook(lambda layer, given, rows: rows * 2)
    elif how == "pre-hook":
        layer.register_forward_pre_hook(lambda layer, given: ((given[0] + 1) % ROWS,))
    elif how == "backward hook":
        layer.register_full_backward_hook(lambda layer, given, found: None)
    elif how == "forward":
        layer.forward = lambda ids: torch.nn.functional.embedding(ids, layer.weight) * 2
    elif how == "parametrization":
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    elif how == "resized":
        layer.weight = torch.nn.Parameter(torch.cat([layer.weight, layer.weight]))
    elif how == "scripted":
        layer = torch.jit.script(layer)
    elif how == "quantised":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of what it will remove
            layer = torch.ao.nn.quantized.Embedding(ROWS, DIM)
    else:
        layer = layer.to(getattr(torch, how))
    return layer


def net_of(layer: Any) -> Any:
    net = torch.nn.Sequential()
    net.add_module("films", layer)
    return net


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


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda rows: plain(rows, Scaled), "its class Scaled has its own forward"),
        (lambda rows: plain(rows, max_norm=1.0), "it has max_norm"),
        (lambda rows: changed(rows, "forward hook"), "it has forward hooks"),
        (lambda rows: changed(rows, "quantised"), "quantized.modules.embedding_ops.Embedding"),
        (lambda rows: torch.nn.Linear(3, 2), "a Linear is no layer of one table"),
        (lambda rows: changed(rows, "float32").to("meta"), "out of meta tensor"),
        (lambda rows: torch.tensor(rows).to_sparse(), "Use Tensor.to_dense"),
        (lambda rows: torch.tensor(rows) + 1j, "must be numbers, not complex64"),
        (lambda rows: torch.tensor(rows).double() * 1e300, "past the range of float32"),
    ],
)
def test_a_table_is_made_of_rows_alone(rows_of: np.ndarray, make: Any, why: str) -> None:
    with pytest.raises(hushtable.Error, match=why):
        hushtable.Table.from_weight(make(rows_of))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "float8_e5m2"])
def test_a_table_takes_every_float(rows_of: np.ndarray, dtype: str) -> None:
    weight = torch.tensor(rows_of).to(getattr(torch, dtype))
    for given in (weight, torch.nn.Embedding.from_pretrained(weight)):
        found = hushtable.Table.from_weight(given).rows(np.arange(ROWS))
        assert np.array_equal(found, weight.float().numpy())


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (torch.zeros(2, dtype=torch.long, device="meta"), "no data"),
        ([torch.tensor(True), torch.tensor(2)], "True and False are among them"),
        (torch.eye(2, dtype=torch.long).to_sparse(), "gives none"),
        (torch.ones(2, dtype=torch.bfloat16), "gives none"),
        (torch.ones(2), "not float32"),
    ],
)
def test_tensors_that_are_no_ids_are_refused(rows_of: np.ndarray, ids: Any, text: str) -> None:
    with pytest.raises(hushtable.BadIds, match=text):
        hushtable.Table.from_weight(rows_of).lookup(ids)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "int8"])
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
        other[row, 3] += np.abs(rows_of[row]).max() * {"f32": 2.0**-20}.get(dtype, 2.0**-5)
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


def test_layers_are_modules_to_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    file = tmp_path / "typed.py"
    file.write_text(
        "import torch\n"
        "from hushtable.nn import PrivateEmbedding, RowSource\n"
        "def parts(source: RowSource) -> list[torch.nn.Module]:\n"
        "    net = torch.nn.Sequential(PrivateEmbedding(source), torch.nn.Flatten())\n"
        "    return [PrivateEmbedding(source), net]\n"
        "def wrong(source: RowSource) -> torch.Tensor:\n"
        "    return PrivateEmbedding(source)\n"
    )
    package = Path(hushtable.__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(file)],
        capture_output=True,
        text=True,
        env={"MYPYPATH": str(package), "PATH": ""},
    )
    errors = [line for line in ran.stdout.splitlines() if "typed.py" in line and "error" in line]
    assert len(errors) == 1, ran.stdout
    assert ":7: error: Incompatible return value" in errors[0]
