"""Layers under torch's compilers, its autograd and its loaders; where torch is installed."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Deployment
from torch_layers import (
    DIM,
    IDS,
    ROWS,
    Counting,
    Scaled,
    changed,
    model_in_the_clear,
    plain,
)

import hushtable
from hushtable.nn import (
    PrivateEmbedding,
    PrivateEmbeddingBag,
    PrivateEmbeddingBagCollection,
    bind,
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
