"""Small files that claim large sizes, or have names that a terminal would obey."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushtable._printable import named, one_line
from hushtable.errors import Error, ModelError
from hushtable.infer import _draft, networks
from hushtable.infer._draft import Draft

onnx = pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT

Nodes = list[tuple[Any, ...]]

ESCAPES = "\x1b[31mHI\x1b]0;pwn\x07\u202e\n"


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Ends a test that holds more than 300 MB of Python's and numpy's at once."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 300e6


def written(
    folder: Path,
    nodes: Nodes,
    shape: list[int],
    constants: dict[str, np.ndarray],
    outputs: tuple[str, ...] = ("y",),
) -> Path:
    made = [
        helper.make_node(op, inputs.split(), given.split(), **dict(*own))
        for op, inputs, given, *own in nodes
    ]
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(one, FLOAT, None) for one in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return path


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def relus(count: int) -> Nodes:
    names = ["x", *(f"r{at}" for at in range(1, count)), "y"]
    return [("Relu", one, other) for one, other in itertools.pairwise(names)]


ZERO = onnx.numpy_helper.from_array(integers(0))
PARTS = {"s": integers(0), "e": integers(2)}
LARGE: dict[str, tuple[Nodes, list[int], dict[str, np.ndarray], str]] = {
    "input": (
        [("GlobalAveragePool", "x", "y")],
        [1, 1, 2**20, 2**20],
        {},
        "the input: 1099511627776 numbers: at most 16777216 are possible of one value",
    ),
    "part of channels": (
        [("Slice", "x s e a", "z"), ("Relu", "z", "y")],
        [1, 2**27, 1, 1],
        {**PARTS, "a": integers(1)},
        "134217728 numbers: at most 16777216",
    ),
    "channels": (
        [("Mul", "x c", "y")],
        [1, 2**33],
        {"c": np.float32(2)},
        "8589934592 numbers: at most 16777216",
    ),
    "many values": (
        relus(25),
        [1, 1, 2**13, 2**11],
        {},
        "r16: 285212672 numbers of all values so far: at most 268435456",
    ),
    "value": (
        [("Pad", "x p", "z"), ("Relu", "z", "y")],
        [1, 1, 2, 2],
        {"p": integers(0, 0, 2**12, 2**12, 0, 0, 1, 1)},
        "numbers: at most 16777216 are possible of one value",
    ),
    "zeros that no node has": (
        [("Pad", "x p", "z"), ("Shape", "z", "h"), ("Reshape", "x h", "y")],
        [1, 1, 2, 2],
        {"p": integers(0, 0, 2**15, 2**15, 0, 0, 1, 1)},
        "node 'z' (Pad): 1073938441 numbers: at most 16777216",
    ),
    "zeros of a convolution": (
        [("Conv", "x w", "z", {"pads": [2**20] * 4, "strides": [2**20] * 2}), ("Relu", "z", "y")],
        [1, 1, 2, 2],
        {"w": np.ones((1, 1, 1, 1), np.float32)},
        "with the zeros around 4398054899716 numbers: at most 33554432",
    ),
    "windows": (
        [("Conv", "x w", "z"), ("Relu", "z", "y")],
        [1, 1, 2**12, 2**12],
        {"w": np.ones((1, 1, 2**6, 2**6), np.float32)},
        "numbers in all windows: at most 268435456",
    ),
    "windows of a pool": (
        [("MaxPool", "x", "y", {"kernel_shape": [2**11, 2**11]})],
        [1, 1, 2**12, 2**12],
        {},
        "numbers in all windows: at most 268435456",
    ),
    "made weights": (
        [
            ("Conv", "x w", "z", {"dilations": [2**11, 1], "strides": [4096, 4096]}),
            ("Relu", "z", "y"),
        ],
        [1, 2**6, 2**11 + 1, 1],
        {"w": np.ones((2**10, 2**6, 2, 1), np.float32)},
        "134283264 weights that the file does not have: at most 134217728",
    ),
    "choice of channels": (
        [("Slice", "x s e a", "z"), ("Relu", "z", "y")],
        [1, 2**20],
        {"s": integers(2), "e": integers(2**19), "a": integers(1)},
        "weights that the file does not have: at most",
    ),
}
FOLDED: dict[str, tuple[Nodes, dict[str, np.ndarray]]] = {
    "ConstantOfShape": ([("ConstantOfShape", "s", "c")], {"s": integers(2**29)}),
    "ConstantOfShape of nearly no end": ([("ConstantOfShape", "s", "c")], {"s": integers(2**40)}),
    "ConstantOfShape of many": ([("ConstantOfShape", "s", "c")], {"s": integers(*[2**8] * 5)}),
    "Expand": ([("Expand", "v s", "c")], {"s": integers(2**14, 2**14)}),
    "Tile": ([("Tile", "v s", "c")], {"s": integers(2**29)}),
    "Range": (
        [("Range", "b s d", "c")],
        {"b": np.int64(0), "s": np.int64(2**31), "d": np.int64(1)},
    ),
    "Pad": ([("Pad", "v s", "c")], {"s": integers(0, 2**30)}),
    "Gather": (
        [("ConstantOfShape", "s", "i", {"value": ZERO}), ("Gather", "w i", "c")],
        {"s": integers(2**20), "w": np.ones((1, 64), np.float32)},
    ),
    "a broadcast sum": (
        [("Add", "v w", "c")],
        {"v": np.ones((2**13, 1), np.float32), "w": np.ones((1, 2**13), np.float32)},
    ),
    "several": (
        [(f"{op}", "v s", f"c{at}") for at, op in enumerate(["Expand"] * 40)]
        + [("Identity", "c0", "c")],
        {"s": integers(2**20)},
    ),
    "OneHot": ([("OneHot", "i s v", "c")], {"i": integers(0), "s": np.int64(2**40)}),
    "Resize": ([("Resize", "v e s", "c")], {"s": np.float32([2**30]), "e": np.float32([])}),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_file_of_a_few_bytes_that_claims_much_is_refused(case: str, tmp_path: Path) -> None:
    nodes, shape, constants, message = LARGE[case]
    path = written(tmp_path, nodes, shape, constants)
    with pytest.raises(Error) as raised:
        networks.from_onnx(path)
    assert message in str(raised.value)
    assert networks.check(path).refusals


@pytest.mark.parametrize("case", FOLDED)
def test_what_is_computed_over_constants_is_bounded_before(case: str, tmp_path: Path) -> None:
    nodes, constants = FOLDED[case]
    constants = {"v": np.ones(1, np.float32), **constants}
    rest = [("ReduceSum", "c", "q"), ("Add", "x q", "y")]
    path = written(tmp_path, [*nodes, *rest], [1, 2, 2, 2], constants)
    with pytest.raises(ModelError, match="over constants") as raised:
        networks.from_onnx(path)
    assert "ReduceSum" not in str(raised.value)


def test_a_check_says_once_what_is_too_large(tmp_path: Path) -> None:
    nodes = [
        *(("Expand", "v s", "c"), ("ReduceSum", "c", "q"), ("Add", "x q", "z")),
        *(("Expand", "v t", "d"), ("Add", "x d", "e"), ("Add", "z e", "y")),
    ]
    constants = {"v": np.float32([2]), "s": integers(2**40), "t": integers(2)}
    (refused,) = networks.check(written(tmp_path, nodes, [1, 2, 2, 2], constants)).refusals
    assert "node 'c' (Expand): 1099511627776 numbers computed over constants" in refused


def test_constants_of_moderate_size_are_folded(tmp_path: Path) -> None:
    nodes = [("Expand", "v s", "c"), ("ReduceSum", "c", "q"), ("Add", "x q", "y")]
    path = written(tmp_path, nodes, [1, 2, 2, 2], {"v": np.float32([2]), "s": integers(2**10)})
    assert (networks.from_onnx(path).evaluate(np.zeros((1, 2, 2, 2), np.float32)) == 2048).all()


def test_what_another_output_needs_is_not_computed(tmp_path: Path) -> None:
    nodes = [("Relu", "x", "y"), ("Expand", "x s", "z")]
    shape = integers(2**12, 1, 2**12, 2**12)
    path = written(tmp_path, nodes, [1, 1, 1, 1], {"s": shape}, ("y", "z"))
    assert networks.from_onnx(path, output="y").output == "y"


def test_names_of_files_are_printed_and_obeyed_by_no_terminal(tmp_path: Path) -> None:
    nodes: Nodes = [("Identity", "x", "i", {"name": ESCAPES}), ("Relu", "i", "y")]
    network = networks.from_onnx(written(tmp_path, nodes, [1, 1, 2, 2], {}))
    (note,) = network.notes
    assert note == r"\x1b[31mHI\x1b]0;pwn\x07\u202e\n: an identity"


@pytest.mark.parametrize(
    "nodes",
    [
        [("Bad\x1b[31m", "x", "y", {"name": "q"})],
        [("Bad\x1b[31m", "x", "y", {"name": ESCAPES, "domain": ESCAPES.strip()})],
        [("Relu", "x", "y", {"name": ESCAPES, ESCAPES: 1})],
        [("Tanh", "x", "y", {"name": ESCAPES})],
        [("Relu", ESCAPES.strip(), "y")],
        [("Relu", "x", "y"), ("Relu", "x", ESCAPES.strip()), ("Relu", "x", ESCAPES.strip())],
        [("Relu", "x", "y", {"name": "n" * 10**6, "n" * 10**6: 1})],
        [("B" * 10**6, "x", "y")],
    ],
)
def test_messages_are_of_printed_characters(nodes: Nodes, tmp_path: Path) -> None:
    path = written(tmp_path, nodes, [1, 1, 2, 2], {})
    with pytest.raises(ModelError) as raised:
        networks.from_onnx(path)
    for text in (str(raised.value), *networks.check(path).refusals):
        assert text.isprintable()
        assert len(text) < 5000


def test_a_graph_of_names_that_terminals_obey(tmp_path: Path) -> None:
    path = written(tmp_path, [("Relu", "x", "y")], [1, 1, 2, 2], {}, ("y", ESCAPES.strip()))
    with pytest.raises(ModelError) as raised:
        networks.from_onnx(path)
    assert str(raised.value).isprintable()


def test_names_and_lines() -> None:
    assert named("layer1.0/conv-é") == "layer1.0/conv-é"
    assert named("a\tb\ud800") == r"a\tb\ud800"
    assert len(named("\x1b" * 10**6)) == 160
    assert one_line("one\n\n two \x07") == r"one two \x07"
    assert one_line("of itself ") == "of itself "


def test_a_draft_has_the_limits_of_a_program() -> None:
    with pytest.raises(ModelError, match="the input: 16777217 numbers"):
        Draft((2**24 + 1, 1, 1), "it")
    draft = Draft((1, 2**12, 2**12), "it")
    with pytest.raises(ModelError, match="of one value"):
        draft.conv("c", "input", np.ones((2, 1, 1, 1)), None)
    with pytest.raises(ModelError, match="of one value"):
        draft.concat("c", ["input", "input"])
    assert draft.nodes == []
    before = draft.relu("r", "input")
    with pytest.raises(ModelError, match=r"it, r15: .* of all values so far"):
        for at in range(1, math.ceil(2**28 / 2**24)):
            before = draft.relu(f"r{at}", before)


@pytest.mark.parametrize("most", [1e30, 1.1e12])
def test_a_bound_that_compiling_does_not_take_is_refused(most: float, tmp_path: Path) -> None:
    draft = Draft((1, 2, 2), "it")
    message = "a ReLU of at most .*: a number above 0, and up to 1e12, is possible"
    with pytest.raises(ModelError, match=message):
        draft.clip("c", "input", 0, most)
    constants = {"least": np.float32(0), "most": np.float32(most)}
    path = written(tmp_path, [("Clip", "x least most", "y")], [1, 1, 2, 2], constants)
    with pytest.raises(ModelError, match=message):
        networks.from_onnx(path)


def test_weights_that_no_file_has_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_draft, "_MADE_MAX", 2**10)
    draft = Draft((2**5, 8, 8), "it")
    at = "input"
    for name in ("a", "b", "c"):
        at = draft.affine(name, at, 2.0, 0.0)
    draft.channels("d", at, [1, 0, 3])
    message = "weights that the file does not have: at most 1024"
    for refused in (
        lambda: draft.channels("e", at, range(31)),
        lambda: draft.pad_channels("e", at, 1, 1),
        lambda: draft.places("e", at, (8, 8), (0, 0), (1, 1)),
        lambda: draft.conv("e", at, np.ones((4, 32, 2, 2)), None, dilation=(3, 3)),
        lambda: [draft.affine("e", at, 1.0, 2.0) for _ in range(9)],
    ):
        monkeypatch.setattr(draft, "_made", 608)
        with pytest.raises(ModelError, match=message):
            refused()


def test_the_largest_bound_that_compiling_takes() -> None:
    draft = Draft((1, 2, 2), "it")
    network = draft.finish(draft.relu("r", "input", 1e12))
    assert network.nodes[0].attributes["max"] <= 1e12
