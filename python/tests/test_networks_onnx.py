"""ONNX files as networks: each is computed as onnx's reference evaluator does, or refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json

from hushtable.errors import ConfigError, ModelError
from hushtable.infer import _onnx, networks
from hushtable.infer.networks import Draft, Network

onnx = pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
reference = pytest.importorskip("onnx.reference")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT

RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.5, shape).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def node(op: str, inputs: list[str], *outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, name=f"the_{outputs[0]}", **attributes)


def model_of(
    nodes: list[Any],
    constants: dict[str, np.ndarray],
    *,
    shape: Any = ("batch", 4, 5, 4),
    out: str = "y",
    opset: int = 17,
    kind: int = FLOAT,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(out, FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def read(model: Any, folder: Path) -> Network:
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return networks.from_onnx(path)


@pytest.fixture
def uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader alone, without what compares its networks."""
    monkeypatch.setattr(_onnx, "compared", lambda network, *_: network)


def test_an_onnx_network_computes_what_the_reference_evaluator_does(tmp_path: Path) -> None:
    constants = {
        "mean": np.array([[[0.4]], [[0.5]], [[0.6]]], np.float32),
        "deviation": np.array(0.25, np.float32),
        "w1": floats(4, 3, 3, 3),
        "b1": floats(4),
        "s": floats(4),
        "t": floats(4),
        "m": floats(4),
        "v": np.abs(floats(4)) + np.float32(0.5),
        "w2": floats(4, 4, 3, 3),
        "w3": floats(6, 4, 2, 2),
        "pads": integers(0, 0, 1, 1, 0, 0, 1, 1),
        "sizes": integers(0, -1),
        "w4": floats(90, 7),
        "b4": floats(7),
        "w5": floats(5, 7),
        "b5": floats(5),
    }
    nodes = [
        node("Sub", ["x", "mean"], "x1"),
        node("Div", ["x1", "deviation"], "x2"),
        node("Conv", ["x2", "w1", "b1"], "c1", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("BatchNormalization", ["c1", "s", "t", "m", "v"], "n1", epsilon=1e-3),
        node("Relu", ["n1"], "r1"),
        node("Pad", ["r1", "pads"], "padded"),
        node("Identity", ["padded"], "same"),
        node("Conv", ["same", "w2"], "c2", kernel_shape=[3, 3]),
        node("Add", ["c2", "r1"], "a2"),
        node("Relu", ["a2"], "r2"),
        node("MaxPool", ["r2"], "p2", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p2", "w3"], "c3", pads=[0, 1, 0, 1], group=1),
        node("Reshape", ["c3", "sizes"], "f"),
        node("MatMul", ["f", "w4"], "l4"),
        node("Add", ["l4", "b4"], "a4"),
        node("Relu", ["a4"], "r4"),
        node("Dropout", ["r4"], "d4"),
        node("Gemm", ["d4", "w5", "b5"], "l5", transB=1),
        node("Softmax", ["l5"], "y"),
    ]
    model = model_of(nodes, constants, shape=["batch", 3, 16, 16])
    images = RANDOM.random((3, 3, 16, 16)).astype(np.float32)
    network = read(model, tmp_path)
    (expected,) = reference.ReferenceEvaluator(model).run(None, {"x": images})
    np.testing.assert_allclose(network.evaluate(images), expected, atol=1e-5)
    assert network.notes == (
        "the_same: an identity",
        "the_d4: a dropout, which inference does without",
    )
    assert network.nodes[-1].op == "softmax"
    assert network.checked.startswith("2 random inputs have the answers of onnx's reference")


def test_constants_are_folded_as_older_exports_have_them(tmp_path: Path) -> None:
    """`x.view(x.size(0), -1)`: Shape, Gather, Unsqueeze, Concat, Reshape."""
    constants = {
        "zero": np.array(0, np.int64),
        "axis": integers(0),
        "rest": integers(-1),
        "w": floats(2, 12),
    }
    nodes = [
        node("Relu", ["x"], "r"),
        node("Shape", ["r"], "shape"),
        node("Gather", ["shape", "zero"], "size"),
        node("Unsqueeze", ["size", "axis"], "sizes"),
        node("Concat", ["sizes", "rest"], "target", axis=0),
        node("Reshape", ["r", "target"], "f"),
        node("Gemm", ["f", "w"], "y", transB=1),
    ]
    for batch in (1, "batch"):
        network = read(model_of(nodes, constants, shape=[batch, 3, 2, 2]), tmp_path)
        assert [one.op for one in network.nodes] == ["relu", "flatten", "linear"]


#: Over an input of [batch, 4, 5, 4]: as many channels as columns.
CONSTANTS = {
    "w": floats(2, 4, 3, 3),
    "odd": floats(3, 2, 3, 3),
    "double": np.ones((2, 4, 3, 3)),
    "pads": integers(0, 0, 1, 1, 0, 0, 1, 1),
    "images first": integers(1, 0, 0, 0, 0, 0, 0, 0),
    "many": integers(0, 0, 10**9, 0, 0, 0, 0, 0),
    "less": integers(0, 0, -1, 0, 0, 0, 0, 0),
    "all pads": integers(0, 1, 2, 0, 0, 2, 0, 1),
    "last pads": integers(0, 1, 0, 0, 0, 0, 1, 0),
    "wide": floats(1, 4, 5, 4),
    "C": floats(4),
    "C11": floats(4, 1, 1),
    "columns": floats(1, 1, 1, 4),
    "rows": floats(5, 1),
    "images": floats(3, 4, 1, 1),
    "deep": np.ones((1, 1, 1, 1, 1), np.float32),
    "same": np.full(4, 2, np.float32),
    "square": floats(4, 4),
    "80x3": floats(80, 3) + np.float32(2),
    "3": floats(3),
    "3x1": floats(3, 1),
    "1x3": floats(1, 3),
    "one": np.ones(1, np.float32),
    "zero": np.zeros(1, np.float32),
    "true": np.array(True),
    "none": np.array(np.finfo(np.float32).max),
    "inf": np.array(np.inf, np.float32),
    "nan": np.array(np.nan, np.float32),
    "i-1": integers(-1),
    "i1": integers(1),
    "i2": integers(2),
    "i0,1": integers(0, 1),
    "i2,1": integers(2, 1),
    "i4,4": integers(4, 4),
    "i1,-1": integers(1, -1),
    "i0,-1": integers(0, -1),
    "i-1,1,1,4": integers(-1, 1, 1, 4),
    "all": integers(2**63 - 1),
    "all,3": integers(2**63 - 1, 3),
    "first": integers(-(2**63)),
    "0": np.array(0, np.float32),
    "minus": np.array(-0.25, np.float32),
    "80": floats(80),
    "w2": floats(3, 4, 2, 2),
    "i-1,5,4,4": integers(-1, 5, 4, 4),
    "half": np.array(0.5, np.float32),
    "i2,3": integers(2, 3),
    "i3": integers(3),
    "i0": integers(0),
    "i1,80": integers(1, 80),
    "i4,-1": integers(4, -1),
    "i0,0,-1": integers(0, 0, -1),
    "i-1,4,1,1": integers(-1, 4, 1, 1),
    "4x1": floats(4, 1),
    "1x4": floats(1, 4),
    "positive": np.abs(floats(4)) + np.float32(0.5),
}
FLAT = ("Flatten", ["x"], "f", {})
MEAN = ("GlobalAveragePool", ["x"], "g", {})
NORM = ["x", "C", "C", "C", "positive"]
NOT_READ = "not read, and it may change numbers"
SPREAD = "one for each channel"


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [("Erf", ["x"], "y", {})],
            r"node 'the_y' \(Erf\).*Erf is not supported, for it .* curve: possible are Add",
        ),
        (
            [("Transpose", ["x"], "y", {"perm": [0, 1, 3, 2]})],
            "the graph's output: .* in the order channels, columns, rows",
        ),
        ([("Cast", ["x"], "y", {"to": FLOAT})], "Cast is not supported"),
        ([("Transpose", ["x"], "y", {"perm": [1, 0, 2, 3]})], "leaves images first"),
        ([("LSTM", ["x", "w", "w"], "y", {})], "LSTM is not supported, for it is recurrent"),
        ([("Resize", ["x", "", "C"], "y", {})], "for it makes planes larger"),
        ([("HardSwish", ["x"], "y", {})], "HardSwish is not supported, for it computes a curve"),
        ([("HardSigmoid", ["x"], "y", {})], "HardSigmoid is not supported, for it computes"),
        # Bounds and slopes.
        ([("Clip", ["x"], "y", {})], "min None and max None"),
        ([("Clip", ["x", "half"], "y", {})], "min 0.5 and max None"),
        ([("Clip", ["x", "", "half"], "y", {})], "min None and max 0.5"),
        ([("Clip", ["x", "half", "none"], "y", {})], "max None"),
        ([("Clip", ["x", "half", "nan"], "y", {})], "0.5 and nan"),
        ([("Clip", ["x", "inf", "none"], "y", {})], "min inf and max None"),
        ([("Clip", ["x", "half", "half"], "y", {})], "0.5 and 0.5"),
        ([("Clip", ["x", "C", "half"], "y", {})], r"min of \[4\]: one number"),
        ([("Clip", ["x", "x", "half"], "y", {})], "its min 'x' must be a constant"),
        ([("LeakyRelu", ["x"], "y", {"alpha": float("nan")})], "not finite"),
        ([("PRelu", ["x", "C"], "y", {})], SPREAD),
        ([("PRelu", ["x", "wide"], "y", {})], SPREAD),
        ([("PRelu", ["x", "x"], "y", {})], "its slope 'x' must be a constant"),
        # What the graph computes.
        ([("Max", ["x", "half"], "y", {})], "a constant other than 0"),
        ([("Max", ["x", "x"], "y", {})], "its constant 'x' must be a constant"),
        ([("Max", ["x"], "y", {})], "must be a constant"),
        ([("Mul", ["x", "x"], "y", {})], "a product of two values that the graph computes"),
        ([("Div", ["x", "x"], "y", {})], "divisor 'x' must be a constant"),
        ([FLAT, ("Sub", ["x", "f"], "y", {})], "a sum of"),
        ([MEAN, ("Add", ["x", "g"], "y", {})], "a sum of"),
        (
            [("Transpose", ["x"], "t", {"perm": [0, 3, 2, 1]}), ("Add", ["x", "t"], "y", {})],
            "alike",
        ),
        ([FLAT, ("MatMul", ["f", "f"], "y", {})], "right side 'f' must be a constant"),
        # Parts, and what is put together.
        ([("Concat", ["x", "x"], "y", {"axis": 2})], "that of channels, are possible"),
        ([("Concat", ["x", "x"], "y", {"axis": 0})], "that of channels, are possible"),
        ([("Concat", ["x", "x"], "y", {"axis": 4})], "axis 4 of 4 axes"),
        ([("Concat", ["x", "wide"], "y", {"axis": 1})], "'wide' is a constant"),
        ([FLAT, ("Concat", ["x", "f"], "y", {"axis": 1})], "as many axes"),
        ([MEAN, ("Concat", ["x", "g"], "y", {"axis": 1})], "they must be alike"),
        ([("Slice", ["x", "i0", "i3", "i0"], "y", {})], "axis 0 of"),
        ([("Slice", ["x", "i3", "i3", "i-1"], "y", {})], "3 to 3 by 1 of axis 3"),
        ([("Slice", ["x", "i3", "i0", "i3", "i-1"], "y", {})], "by -1: forwards"),
        ([("Slice", ["x", "i0", "i3", "i3", "i0"], "y", {})], "by no 0"),
        ([("Slice", ["x", "i2,3", "i2,3", "i3"], "y", {})], r"starts \[2, 3\]"),
        ([FLAT, ("Slice", ["f", "f", "i3"], "y", {})], "must be a constant"),
        ([("Split", ["x"], "y", {"axis": 2})], "axis 2 of .* into"),
        ([("Split", ["x", "i2,3"], "y", {"axis": 1})], r"into \[2, 3\]"),
        ([("Unsqueeze", ["x", "i0"], "y", {})], r"axes \[0\]"),
        ([("Squeeze", ["x", "i3"], "y", {})], "axes of one are possible"),
        ([("Relu", ["x"], "y", {"alpha": 1.0})], "alpha"),
        (
            [("Conv", ["x", "w"], "y", {"dilations": [2, 2]})],
            r"node 'the_y' \(Conv\).*a kernel of \[5, 5\] over \[5, 4\]",
        ),
        ([("Conv", ["x", "w"], "y", {"dilations": [1]})], r"dilations \[1\]"),
        ([("Conv", ["x", "w"], "y", {"dilations": [1, 0]})], r"dilations \[1, 0\]"),
        ([("Conv", ["x", "w"], "y", {"dilations": [10**12, 1]})], "a kernel of .* over"),
        ([("Conv", ["x", "C11"], "y", {})], "a kernel of 1 dimensions"),
        ([("Conv", ["x", "w"], "y", {"pads": [2, 0, 0, -1]})], "0 or more"),
        ([("Conv", ["x", "w"], "y", {"pads": [10**9] * 4})], "numbers: at most"),
        ([("Pad", ["x", "many"], "p", {}), ("Relu", ["p"], "y", {})], "numbers: at most"),
        ([("Conv", ["x", "w"], "y", {"kernel_shape": [2, 2]})], r"kernel_shape \[2, 2\]: \[3, 3\]"),
        ([("Conv", ["x", "x"], "y", {})], "weight 'x' must be a constant"),
        ([("Conv", ["x", "double"], "y", {})], "float64, expected float32"),
        ([("Conv", ["x", "odd"], "y", {"group": 2})], "3 kernels in 2 groups"),
        (
            [("Conv", ["x", "w"], "y", {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]})],
            r"pads \[1, 1, 1, 1\]",
        ),
        ([("Conv", ["x", "w"], "y", {"strides": [2]})], r"strides \[2\]"),
        ([("Conv", ["x", "w"], "y", {"pads": [1, 1]})], r"pads \[1, 1\]"),
        ([FLAT, ("Conv", ["f", "w"], "y", {})], r"\[batch, 80\]"),
        (
            [("MaxPool", ["x"], "y", {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [5, 5]})],
            "ceil_mode 1, by strides",
        ),
        (
            [
                (
                    *("MaxPool", ["x"], "y"),
                    {"kernel_shape": [2, 2], "ceil_mode": 1, "auto_pad": "SAME_UPPER"},
                )
            ],
            "auto_pad SAME_UPPER: NOTSET is possible",
        ),
        (
            [
                (
                    *("AveragePool", ["x"], "y"),
                    {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]},
                )
            ],
            "windows that reach over the end",
        ),
        ([("MaxPool", ["x"], "y", {"kernel_shape": [2, 2], "dilations": [1, 2]})], "dilations"),
        (
            [("MaxPool", ["x"], "y", {"kernel_shape": [1, 2], "pads": [1, 0, 0, 0]})],
            "smaller than",
        ),
        ([("MaxPool", ["x"], "y", {})], "kernel_shape"),
        (
            [("AveragePool", ["x"], "y", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})],
            "count_include_pad",
        ),
        ([("BatchNormalization", NORM, "y", {"training_mode": 1})], "training_mode 1: 0 is"),
        ([("Dropout", ["x", "half", "true"], "y", {})], "training"),
        # What broadcasts along another axis than that of channels.
        ([("Mul", ["x", "C"], "y", {})], SPREAD),
        ([("Add", ["x", "columns"], "y", {})], SPREAD),
        ([("Sub", ["x", "rows"], "y", {})], SPREAD),
        ([("Div", ["x", "wide"], "y", {})], "for 4 channels.*" + SPREAD),
        ([("Mul", ["x", "images"], "y", {})], SPREAD),
        ([("Mul", ["x", "deep"], "y", {})], SPREAD),
        ([MEAN, ("Add", ["g", "columns"], "y", {})], SPREAD),
        ([MEAN, ("Flatten", ["g"], "f", {}), ("Mul", ["f", "C11"], "y", {})], SPREAD),
        ([MEAN, ("Flatten", ["g"], "f", {}), ("Add", ["f", "4x1"], "y", {})], SPREAD),
        ([("Div", ["x", "zero"], "y", {})], "division by 0"),
        ([("Div", ["C11", "x"], "y", {})], "divisor 'x' must be a constant"),
        ([MEAN, ("Flatten", ["g"], "f", {}), ("Add", ["g", "f"], "y", {})], "must be alike"),
        # Axes.
        ([MEAN, ("Softmax", ["g"], "y", {})], "axis -1"),
        ([FLAT, ("Softmax", ["f"], "y", {"axis": 0})], "axis 0"),
        ([("Softmax", ["x"], "y", {"axis": 1})], "over planes"),
        ([("Flatten", ["x"], "y", {"axis": 2})], "axis 2: 1 is possible"),
        ([("Flatten", ["x"], "y", {"axis": 0})], "axis 0: 1 is possible"),
        ([("ReduceMean", ["x"], "y", {"axes": [1, 2]})], r"axes \[1, 2\]"),
        ([("ReduceMean", ["x"], "y", {"axes": [2, 7]})], "axis 7 of 4 axes"),
        ([("ReduceMean", ["x"], "y", {"axes": [2, -2]})], r"axes \[2, -2\]"),
        ([("ReduceMean", ["x"], "y", {"axes": [0, 2, 3]})], r"axes \[0, 2, 3\]"),
        ([("ReduceMax", ["x"], "y", {"axes": [3]})], r"axes \[3\]"),
        ([("ReduceMean", ["x"], "y", {})], "axes"),
        ([FLAT, ("ReduceMean", ["f"], "y", {"axes": [1]})], r"axes \[1\]"),
        ([MEAN, ("Squeeze", ["g"], "y", {})], "axes"),
        (
            [("Squeeze", ["x", "i2,3"], "y", {})],
            r"axes \[2, 3\] of \[batch, 4, 5, 4\]: axes of one",
        ),
        ([("MatMul", ["x", "square"], "y", {})], "flatten before it"),
        ([MEAN, ("MatMul", ["g", "1x4"], "y", {})], "flatten before it"),
        ([("Gemm", ["x", "square"], "y", {})], "flatten before it"),
        ([FLAT, ("MatMul", ["f", "3"], "y", {})], "expected a matrix"),
        ([FLAT, ("Gemm", ["f", "half"], "y", {})], "expected a matrix"),
        ([FLAT, ("Gemm", ["f", "80x3", "half"], "y", {"alpha": 3e38})], "not finite"),
        ([FLAT, ("Gemm", ["f", "80x3", "3x1"], "y", {})], r"a bias of \[3, 1\]"),
        ([FLAT, ("Gemm", ["f", "80x3"], "y", {"transA": 1})], "transA 1: 0 is possible"),
        # Shapes: those of one image only, and others.
        ([("Reshape", ["x", "i1,-1"], "y", {})], r"a reshape of \[batch, 4, 5, 4\] to \[1, -1\]"),
        ([("Reshape", ["x", "i4,-1"], "y", {})], "a reshape"),
        ([("Reshape", ["x", "i-1,5,4,4"], "y", {})], "not be divided"),
        ([("Reshape", ["x", "i0,0,-1"], "r", {}), ("Conv", ["r", "w"], "y", {})], "expected"),
        ([("Shape", ["x"], "s", {}), ("Reshape", ["x", "x"], "y", {})], "must be a constant"),
        (
            [
                ("Shape", ["x"], "s", {"end": 1}),
                ("Cast", ["s"], "n", {"to": FLOAT}),
                ("Mul", ["x", "n"], "y", {}),
            ],
            "depends on how many images",
        ),
        # Zeros around an image.
        ([("Pad", ["x", "images first"], "y", {})], "pads of axis 0"),
        ([("Pad", ["x", "less"], "y", {})], "two an axis"),
        ([("Pad", ["x", "pads"], "y", {"mode": "reflect"})], "mode reflect: constant is possible"),
        ([("Pad", ["x", "pads", "half"], "y", {})], "zeros"),
        ([("Pad", ["x", "i0,0,-1"], "y", {})], "two an axis"),
        ([("Relu", ["w"], "y", {})], "does not depend on the input"),
        ([("RandomNormal", [], "n", {"shape": [1]}), ("Mul", ["x", "n"], "y", {})], "RandomNormal"),
        ([("Relu", ["w"], "x", {}), ("Relu", ["x"], "y", {})], "'x'.*already"),
        ([("Relu", ["x"], "w", {}), ("Relu", ["w"], "y", {})], "'w'.*already"),
    ],
)
@pytest.mark.usefixtures("uncompared")
def test_what_is_not_supported_is_named_with_its_place(
    nodes: list[Any], says: str, tmp_path: Path
) -> None:
    made = [node(op, inputs, output, **more) for op, inputs, output, more in nodes]
    with pytest.raises(ModelError, match=says):
        read(model_of(made, CONSTANTS), tmp_path)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Mul", ["x", "C11"], "y", {})],
        [("Sub", ["C11", "x"], "y", {})],
        [("Mul", ["x", "same"], "y", {})],
        [("Div", ["x", "same"], "y", {})],
        [("Add", ["one", "x"], "y", {})],
        [MEAN, ("Flatten", ["g"], "f", {}), ("Mul", ["f", "C"], "y", {})],
        [MEAN, ("Flatten", ["g"], "f", {}), ("Sub", ["f", "1x4"], "y", {})],
        [MEAN, ("Softmax", ["g"], "y", {"axis": 1})],
        [MEAN, ("Softmax", ["g"], "y", {"axis": -3})],
        [MEAN, ("Reshape", ["g", "i-1,4,1,1"], "h", {}), ("Mul", ["h", "C11"], "y", {})],
        [("Flatten", ["x"], "y", {"axis": -3})],
        [FLAT, ("Gemm", ["f", "80x3", "1x3"], "y", {"alpha": 0.5, "beta": 2.0})],
        [FLAT, ("Gemm", ["f", "80x3", "one"], "y", {"beta": 0.0})],
        [("ReduceMean", ["x"], "g", {"axes": [-1, 2]}), ("Mul", ["g", "C11"], "y", {})],
        [
            ("ReduceMean", ["x"], "f", {"axes": [2, 3], "keepdims": 0}),
            ("Mul", ["f", "C"], "y", {}),
        ],
        # A mean of windows as large as the image, over zeros around it.
        [
            (
                *("AveragePool", ["x"], "y"),
                {"kernel_shape": [5, 4], "pads": [1] * 4, "strides": [3, 3]}
                | {"count_include_pad": 1},
            )
        ],
        [
            (
                *("AveragePool", ["x"], "y"),
                {"kernel_shape": [3, 2], "pads": [0, 1, 2, 0], "count_include_pad": 1},
            )
        ],
        [("MaxPool", ["x"], "y", {"kernel_shape": [3, 2], "pads": [2, 0, 0, 1]})],
        [("Conv", ["x", "w"], "y", {"auto_pad": "SAME_LOWER", "strides": [2, 1]})],
        [
            ("Pad", ["x", "pads"], "p", {}),
            ("Conv", ["p", "w"], "y", {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
        ],
        # Bounds and slopes.
        [("Clip", ["x", "0", "half"], "y", {})],
        [("Clip", ["x", "0"], "y", {})],
        [("Clip", ["x", "0", "none"], "y", {})],
        [("Clip", ["x", "minus", "half"], "y", {})],
        [("Max", ["zero", "x"], "y", {})],
        [("LeakyRelu", ["x"], "y", {})],
        [("LeakyRelu", ["x"], "y", {"alpha": -1.5})],
        [("LeakyRelu", ["x"], "y", {"alpha": 0.0})],
        [("PRelu", ["x", "C11"], "y", {})],
        [("PRelu", ["x", "half"], "y", {})],
        [FLAT, ("PRelu", ["f", "80"], "y", {})],
        # What the graph computes.
        [("Relu", ["x"], "r", {}), ("Sub", ["x", "r"], "y", {})],
        [("Sub", ["x", "x"], "y", {})],
        [("Relu", ["x"], "r", {}), ("Sum", ["x", "r", "x"], "y", {})],
        # Parts, and what is put together.
        [("Relu", ["x"], "r", {}), ("Concat", ["x", "r", "x"], "y", {"axis": -3})],
        [("Relu", ["x"], "r", {}), ("Concat", ["r"], "y", {"axis": 1})],
        [FLAT, ("Relu", ["f"], "r", {}), ("Concat", ["f", "r"], "y", {"axis": -1})],
        [
            ("Transpose", ["x"], "t", {"perm": [0, 2, 3, 1]}),
            ("Concat", ["t", "t"], "u", {"axis": 3}),
            ("Transpose", ["u"], "y", {"perm": [0, 3, 1, 2]}),
        ],
        [("Slice", ["x", "i0,1", "i2,3", "i2,3"], "y", {})],
        [("Slice", ["x", "i2", "all", "i2", "all"], "y", {})],
        [("Slice", ["x", "i-1", "first", "i2", "first"], "y", {})],
        [("Slice", ["x", "i-1", "first", "i1", "i-1"], "y", {})],
        [("Slice", ["x", "i1", "all", "i-1", "i2"], "y", {})],
        [("Slice", ["x", "i0", "all", "i-1", "i2"], "y", {})],
        [("Slice", ["x", "i2,3", "i4,4", "i2,1", "i2,1"], "y", {})],
        [("Slice", ["x", "i0,1", "all,3"], "y", {})],
        [FLAT, ("Slice", ["f", "i2", "all", "i-1", "i3"], "y", {})],
        [
            ("Slice", ["x", "i1", "i2", "i1"], "p", {}),
            ("Relu", ["p"], "r", {}),
            ("Concat", ["r", "x", "p"], "y", {"axis": 1}),
        ],
        # Zeros around.
        [("Pad", ["x", "pads"], "p", {}), ("Relu", ["p"], "y", {})],
        [("Pad", ["x", "all pads"], "y", {})],
        [("Pad", ["x", "all pads"], "p", {}), ("Pad", ["p", "pads"], "y", {})],
        [("Pad", ["x", "all pads"], "p", {}), ("Add", ["p", "p"], "y", {})],
        [MEAN, ("Pad", ["g", "pads"], "p", {}), ("Relu", ["p"], "y", {})],
        [
            ("Transpose", ["x"], "t", {"perm": [0, 2, 3, 1]}),
            ("Pad", ["t", "last pads"], "p", {}),
            ("Transpose", ["p"], "u", {"perm": [0, 3, 1, 2]}),
            ("Conv", ["u", "w"], "y", {}),
        ],
        [
            ("Pad", ["x", "pads"], "p", {}),
            ("Conv", ["p", "w"], "y", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ],
        [("Pad", ["x", "pads"], "p", {}), ("MaxPool", ["p"], "y", {"kernel_shape": [2, 2]})],
        [
            ("Relu", ["x"], "r", {}),
            ("Pad", ["r", "pads"], "p", {}),
            ("MaxPool", ["p"], "y", {"kernel_shape": [2, 3], "pads": [1, 1, 1, 1]}),
        ],
        [
            ("Relu", ["x"], "r", {}),
            ("Pad", ["r", "all pads"], "p", {}),
            ("MaxPool", ["p"], "y", {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}),
        ],
        [("Pad", ["x", "pads"], "p", {}), ("AveragePool", ["p"], "y", {"kernel_shape": [3, 2]})],
        [("Pad", ["x", "all pads"], "p", {}), ("GlobalMaxPool", ["p"], "y", {})],
        # Windows.
        [("Conv", ["x", "w2"], "y", {"dilations": [3, 2]})],
        [
            ("Conv", ["x", "w"], "y", {"dilations": [2, 1], "auto_pad": "SAME_UPPER"}),
        ],
        [("Conv", ["x", "w"], "y", {"dilations": [2, 2], "pads": [1, 0, 0, 2]})],
        [("MaxPool", ["x"], "y", {"kernel_shape": [2, 2], "ceil_mode": 1})],
        [("MaxPool", ["x"], "y", {"kernel_shape": [2, 3], "ceil_mode": 1, "strides": [2, 2]})],
        [
            (
                *("MaxPool", ["x"], "y"),
                {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2], "pads": [1, 1, 1, 1]},
            )
        ],
        [("GlobalMaxPool", ["x"], "y", {})],
        [("ReduceMax", ["x"], "y", {"axes": [3, 2], "keepdims": 0})],
        # Axes of one, and orders.
        [MEAN, ("Squeeze", ["g", "i3"], "y", {})],
        [MEAN, ("Unsqueeze", ["g", "i1,-1"], "u", {}), ("Reshape", ["u", "i0,-1"], "y", {})],
        [
            MEAN,
            ("Reshape", ["g", "i-1,1,1,4"], "h", {}),
            ("Mul", ["h", "C"], "m", {}),
            ("MatMul", ["m", "square"], "p", {}),
            ("Transpose", ["p"], "t", {"perm": [0, 3, 1, 2]}),
            ("Softmax", ["t"], "y", {"axis": 1}),
        ],
        [("Reshape", ["x", "i0,0,-1"], "r", {}), ("ReduceMean", ["r"], "y", {"axes": [2]})],
        [FLAT, ("Unsqueeze", ["f", "i2"], "u", {}), ("ReduceMean", ["u"], "y", {"axes": [2]})],
        # Channels last.
        [
            ("Transpose", ["x"], "t", {"perm": [0, 2, 3, 1]}),
            ("Mul", ["t", "C"], "m", {}),
            ("Relu", ["m"], "r", {}),
            ("ReduceMean", ["r"], "y", {"axes": [1, 2]}),
        ],
        [
            ("Transpose", ["x"], "t", {"perm": [0, 2, 3, 1]}),
            ("Reshape", ["t", "i0,-1"], "f", {}),
            ("Relu", ["f"], "r", {}),
            ("MatMul", ["r", "80x3"], "y", {}),
        ],
        [
            ("Transpose", ["x"], "t", {"perm": [0, 3, 2, 1]}),
            ("Flatten", ["t"], "f", {}),
            ("Gemm", ["f", "80x3", "3"], "y", {"alpha": 0.5}),
        ],
        [
            ("Transpose", ["x"], "t", {"perm": [0, 2, 3, 1]}),
            ("MatMul", ["t", "square"], "m", {}),
            ("Add", ["m", "C"], "a", {}),
            ("Add", ["a", "t"], "b", {}),
            ("Transpose", ["b"], "y", {"perm": [0, 3, 1, 2]}),
        ],
        [
            ("Shape", ["x"], "s", {"start": 1}),
            ("ReduceProd", ["s"], "n", {}),
            ("Concat", ["i-1", "n"], "t", {"axis": 0}),
            ("Reshape", ["x", "t"], "y", {}),
        ],
    ],
)
@pytest.mark.usefixtures("uncompared")
def test_what_is_close_to_it_is_computed(nodes: list[Any], tmp_path: Path) -> None:
    made = [node(op, inputs, output, **more) for op, inputs, output, more in nodes]
    model = model_of(made, CONSTANTS)
    images = floats(3, 4, 5, 4)
    (expected,) = reference.ReferenceEvaluator(model).run(None, {"x": images})
    found = read(model, tmp_path).evaluate(images)
    np.testing.assert_allclose(found, expected.reshape(3, -1), atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "nodes"),
    [
        (7, [("Clip", ["x"], "y", {"min": -0.5, "max": 0.25})]),
        (10, [("Clip", ["x"], "y", {"min": 0.0, "max": 6.0})]),
        (10, [("Clip", ["x"], "y", {"min": 0.0})]),
        (9, [("Slice", ["x"], "y", {"axes": [1, 0], "starts": [1, 0], "ends": [-1, 2**31 - 1]})]),
        (9, [("Slice", ["x"], "y", {"starts": [0, 1], "ends": [2**31 - 1, 3]})]),
        (10, [("Pad", ["x"], "y", {"pads": [0, 0, 1, 0, 0, 1, 0, 2]})]),
        (18, [("Pad", ["x", "i2,3", "", "i-1"], "y", {})]),
        (18, [("ReduceMax", ["x", "i2,3"], "y", {"keepdims": 0})]),
        (
            11,
            [
                ("Relu", ["x"], "r", {}),
                ("Unsqueeze", ["r"], "u", {"axes": [1]}),
                ("Squeeze", ["u"], "y", {"axes": [1]}),
            ],
        ),
        (11, [("Split", ["x"], ["a", "b"], {"axis": 1, "split": [1, 3]})]),
        (11, [("Split", ["x"], ["b", "a"], {"axis": -3})]),
        (13, [("Split", ["x", "i3,1"], ["a", "b"], {"axis": 1})]),
        (18, [("Split", ["x"], ["b", "a"], {"axis": 1, "num_outputs": 2})]),
        (18, [FLAT, ("Split", ["f"], ["a", "c", "b"], {"axis": 1, "num_outputs": 3})]),
    ],
)
@pytest.mark.usefixtures("uncompared")
def test_operators_are_those_of_their_opset(opset: int, nodes: list[Any], tmp_path: Path) -> None:
    made = [
        helper.make_node(op, inputs, [output] if isinstance(output, str) else output, **more)
        for op, inputs, output, more in nodes
    ]
    out = "b" if isinstance(nodes[-1][2], list) else "y"
    more = {"i3,1": integers(3, 1)}
    model = model_of(made, CONSTANTS | more, opset=opset, out=out)
    images = floats(3, 4, 5, 4)
    (expected,) = reference.ReferenceEvaluator(model).run(None, {"x": images})
    found = read(model, tmp_path).evaluate(images)
    np.testing.assert_allclose(found, expected.reshape(3, -1), atol=1e-5)


@pytest.mark.usefixtures("uncompared")
def test_a_file_may_be_for_one_image_only(tmp_path: Path) -> None:
    """Where the shape of one is written out; a size that fits the rest would mix several."""
    images = floats(1, 4, 5, 4)
    for batch, shapes in (("batch", ["i1,80"]), (1, ["i1,80", "i1,-1"])):
        for shape in shapes:
            nodes = [node("Reshape", ["x", shape], "f"), node("Softmax", ["f"], "y")]
            model = model_of(nodes, CONSTANTS, shape=[batch, 4, 5, 4])
            (expected,) = reference.ReferenceEvaluator(model).run(None, {"x": images})
            np.testing.assert_allclose(read(model, tmp_path).evaluate(images), expected, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 9, 13, 14])
def test_a_normalisation_is_that_of_inference_in_any_opset(opset: int, tmp_path: Path) -> None:
    """Where onnx's own evaluator has the one of training, below 14."""
    model = model_of([node("BatchNormalization", NORM, "y")], CONSTANTS, opset=opset)
    images = floats(2, 4, 5, 4)
    scale, shift, mean, variance = (CONSTANTS[name][:, None, None] for name in NORM[1:])
    expected = scale * (images - mean) / np.sqrt(variance + 1e-5) + shift
    found = read(model, tmp_path).evaluate(images)
    np.testing.assert_allclose(found, expected.reshape(2, -1), atol=1e-5)


def test_a_softmax_without_an_axis_is_that_of_its_opset(tmp_path: Path) -> None:
    nodes = [node(*MEAN[:3]), node("Softmax", ["g"], "y")]
    images = floats(2, 4, 5, 4)
    powers = np.exp(images.mean((2, 3)))
    for opset in (7, 11, 12):
        found = read(model_of(nodes, {}, opset=opset), tmp_path).evaluate(images)
        np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), atol=1e-5)
    with pytest.raises(ModelError, match="axis -1"):
        read(model_of(nodes, {}, opset=13), tmp_path)


@pytest.mark.parametrize(
    ("own", "around"),
    [
        ({"pads": [0, 2, 1, 0], "strides": [1, 1]}, ((0, 1), (2, 0))),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, ((1, 1), (1, 0))),
    ],
)
def test_pads_of_largest_windows_are_their_own(own: Any, around: Any, tmp_path: Path) -> None:
    """Where onnx's own evaluator mistakes them."""
    model = model_of([node("MaxPool", ["x"], "y", kernel_shape=[3, 3], **own)], {})
    images = floats(2, 4, 5, 4) - np.float32(9)
    (top, bottom), (left, right) = around
    down, across = own["strides"]
    expected = [
        images[:, :, max(row, 0) : row + 3, max(column, 0) : column + 3].max((2, 3))
        for row in range(-top, 5 + bottom - 2, down)
        for column in range(-left, 4 + right - 2, across)
    ]
    found = read(model, tmp_path).evaluate(images)
    np.testing.assert_array_equal(found, np.stack(expected, 2).reshape(2, -1))


@pytest.mark.usefixtures("uncompared")
def test_an_output_beside_the_first_is_read_by_nothing(tmp_path: Path) -> None:
    pooled = node("MaxPool", ["x"], "p", "i", kernel_shape=[2, 2])
    assert read(model_of([pooled, node("Relu", ["p"], "y")], {}), tmp_path).nodes[0].op
    with pytest.raises(ModelError, match="'i' is an output of node 'the_p' .MaxPool. beside"):
        read(model_of([pooled, node("Add", ["p", "i"], "y")], {}), tmp_path)
    with pytest.raises(ModelError, match="'i' is an output of node 'the_p' .MaxPool. beside"):
        read(model_of([pooled], {}, out="i"), tmp_path)
    trained = node("BatchNormalization", NORM, "y", "m2", "v2", "m3", "v3")
    with pytest.raises(ModelError, match="outputs"):
        read(model_of([trained], CONSTANTS, opset=9), tmp_path)


def test_parts_of_a_file_that_are_not_read_are_refused(tmp_path: Path) -> None:
    def changed(change: Any) -> Any:
        model = model_of([node("Relu", ["x"], "y")], {})
        change(model)
        return model

    def function(model: Any) -> None:
        one = helper.make_function(
            "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], "b")], model.opset_import
        )
        model.functions.append(one)
        model.opset_import.append(helper.make_opsetid("own", 1))
        model.graph.node[0].op_type, model.graph.node[0].domain = "Twice", "own"

    def sparse(model: Any) -> None:
        values = helper.make_tensor("s", FLOAT, [1], [1.0])
        places = helper.make_tensor("places", onnx.TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))

    def subgraph(model: Any) -> None:
        part = helper.make_graph(
            [node("Relu", ["x"], "z")], "g", [], [helper.make_tensor_value_info("z", FLOAT, None)]
        )
        truth = onnx.numpy_helper.from_array(np.array(True), "truth")
        model.graph.initializer.append(truth)
        branches = {"then_branch": part, "else_branch": part}
        model.graph.node[0].CopyFrom(node("If", ["truth"], "y", **branches))

    for change, says in [
        (function, "inline_local_functions"),
        (sparse, "sparse initializer"),
        (subgraph, "_branch is a graph"),
        (lambda model: model.training_info.add(), "training"),
        (lambda model: model.graph.quantization_annotation.add(), "quantisation"),
        (lambda model: model.graph.output.add(name="z"), "2 outputs"),
        (lambda model: model.opset_import.append(helper.make_opsetid("", 11)), "opsets"),
        (lambda model: model.opset_import[0].ClearField("version"), "opset 0: 7 and later"),
        (lambda model: setattr(model.opset_import[0], "version", 999), "opset 999.*a newer one"),
        (lambda model: setattr(model, "ir_version", 999), "format 999.*a newer one"),
        (lambda model: setattr(model.graph.node[0], "op_type", "R"), "No Op registered for R"),
        (lambda model: setattr(model.graph.node[0], "domain", "own"), "own.Relu is not supported"),
        (lambda model: model.graph.initializer.add(name="n", dims=[3], data_type=1), "'n'"),
    ]:
        with pytest.raises(ModelError, match=says):
            read(changed(change), tmp_path)


@pytest.mark.parametrize(
    ("shape", "says"),
    [([1, 4, "h", 8], "fixed"), ([4, 4, 8, 8], "for one image"), ([1, 4, 8], "expected")],
)
def test_inputs_must_be_images_of_a_size(shape: list[Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=says):
        read(model_of([node("Relu", ["x"], "y")], {}, shape=shape), tmp_path)


def test_sizes_that_a_file_leaves_open_are_given(tmp_path: Path) -> None:
    model = model_of(
        [node("Conv", ["x", "w"], "y")], {"w": floats(6, 4, 3, 3)}, shape=["n", 4, "r", "c"]
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    with pytest.raises(ModelError, match=r"0 where it is not fixed.*--shape"):
        networks.from_onnx(path)
    with pytest.raises(ConfigError, match="does not fit"):
        networks.from_onnx(path, shape=(3, 7, 8))
    network = networks.from_onnx(path, shape=(4, 7, 8))
    assert network.input == (4, 7, 8)
    found = run_json("infer", "import", str(path), "-o", str(tmp_path / "m"), "--shape", "4,7,8")
    assert found["input"] == [4, 7, 8]
    for given in ("4,7", "4,7,x"):
        done = run("infer", "import", str(path), "-o", str(tmp_path / "n"), "--shape", given)
        assert done.returncode == 2 and "Traceback" not in done.stderr


def test_one_of_several_outputs_is_chosen(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], "c"), node("Relu", ["c"], "y"), node("Erf", ["c"], "z")]
    model = model_of(nodes, {"w": floats(6, 4, 3, 3)})
    model.graph.output.append(helper.make_tensor_value_info("z", FLOAT, None))
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    with pytest.raises(ModelError, match="2 outputs, 'y', 'z': choose one"):
        networks.from_onnx(path)
    with pytest.raises(ConfigError, match="no output 'c': it has 'y', 'z'"):
        networks.from_onnx(path, output="c")
    with pytest.raises(ModelError, match="Erf is not supported"):
        networks.from_onnx(path, output="z")
    network = networks.from_onnx(path, output="y")
    assert any(note.startswith("z: an output that was not chosen") for note in network.notes)
    images = RANDOM.random((1, 4, 5, 4)).astype(np.float32)
    expected = reference.ReferenceEvaluator(model).run(["y"], {"x": images})[0]
    np.testing.assert_allclose(network.evaluate(images), expected.reshape(1, -1), atol=1e-5)


def test_images_that_are_channels_last_are_turned(tmp_path: Path) -> None:
    turn = node("Transpose", ["x"], "t", perm=[0, 3, 1, 2])
    conv = node("Conv", ["t", "w"], "y")
    model = model_of([turn, conv], {"w": floats(6, 3, 2, 2)}, shape=["n", 5, 4, 3])
    network = read(model, tmp_path)
    assert network.input == (3, 5, 4)
    images = RANDOM.random((1, 5, 4, 3)).astype(np.float32)
    (expected,) = reference.ReferenceEvaluator(model).run(None, {"x": images})
    found = network.evaluate(images.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(found, expected.reshape(1, -1), atol=1e-5)
    # Others of it, or elsewhere, would change the order of numbers.
    for nodes in (
        [turn, conv, node("Transpose", ["y"], "z", perm=[0, 2, 3, 1])],
        [node("Transpose", ["x"], "t", perm=[0, 3, 2, 1]), conv],
        [turn, conv, node("Relu", ["x"], "z")],
    ):
        odd = model_of(nodes, {"w": floats(6, 3, 2, 2)}, shape=["n", 5, 4, 3], out="z")
        with pytest.raises(
            ModelError, match="in the order (rows, columns|columns, rows), channels"
        ):
            read(odd, tmp_path)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_of_channels_last_is_read_as_its_exports_write_it(
    channels: int, tmp_path: Path
) -> None:
    """A mean is taken off, convolutions have transposes around them, a row is of channels last."""
    first = node("Transpose", ["a"], "b", perm=[0, 3, 1, 2])
    if channels == 1:
        first = node("Reshape", ["a", "one channel"], "b")
    nodes = [
        node("Sub", ["x", "mean"], "a"),
        first,
        node("Pad", ["b", "pads"], "c"),
        node("Conv", ["c", "kernel"], "d", strides=[2, 2]),
        node("Transpose", ["d"], "e", perm=[0, 2, 3, 1]),
        node("Add", ["e", "C"], "f"),
        node("Clip", ["f", "0", "6"], "g"),
        node("MatMul", ["g", "square"], "h"),
        node("Add", ["h", "g"], "i"),
        node("Reshape", ["i", "row"], "j"),
        node("MatMul", ["j", "48x3"], "k"),
        node("Softmax", ["k"], "y"),
    ]
    constants = CONSTANTS | {
        "mean": floats(channels),
        "one channel": integers(-1, 1, 7, 5),
        "kernel": floats(4, channels, 3, 3),
        "6": np.array(6, np.float32),
        "row": integers(-1, 48),
        "48x3": floats(48, 3),
    }
    model = model_of(nodes, constants, shape=["n", 7, 5, channels])
    network = read(model, tmp_path)
    assert network.input == (channels, 7, 5) and "2 random" in network.checked
    images = floats(3, 7, 5, channels)
    (expected,) = reference.ReferenceEvaluator(model).run(None, {"x": images})
    found = network.evaluate(images.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_all_that_is_refused_is_said_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Erf", ["x"], "e"),
        node("Relu", ["e"], "after"),
        helper.make_node("Erf", ["x"], ["e2", ""], name="odd"),
        node("Conv", ["x", "C11", ""], "c"),
        node("RandomNormal", [], "n", shape=[1]),
        node("Mul", ["after", "n"], "m"),
        node("Add", ["c", "m"], "y"),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model_of(nodes, CONSTANTS), str(path))
    found: list[str] = []
    assert _onnx.read(path, None, None, found) is None
    assert [one.split("'")[1] for one in found] == ["the_e", "odd", "the_c", "the_n"]
    with pytest.raises(ModelError) as raised:
        _onnx.read(path, None, None)
    assert str(raised.value) == found[0]
    onnx.save(model_of([node("Relu", ["x"], "y")], {}), str(path))
    found.clear()
    assert _onnx.read(path, None, None, found) and not found


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT16", "UINT8"])
def test_inputs_must_be_floats(kind: str, tmp_path: Path) -> None:
    model = model_of([node("Relu", ["x"], "y")], {}, kind=getattr(onnx.TensorProto, kind))
    with pytest.raises(ModelError, match=f"numbers of {kind}, expected FLOAT"):
        read(model, tmp_path)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        networks.from_onnx(tmp_path / "none.onnx")
    for name, content in (("empty", b""), ("noise", bytes(range(256)) * 5)):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(ModelError, match=f"{name}.onnx is no readable ONNX model"):
            networks.from_onnx(path)


# Weights in a file of their own.


def apart(folder: Path) -> Path:
    """A model, and its weights in a file beside it."""
    folder.mkdir(parents=True)
    model = model_of([node("Conv", ["x", "w"], "y")], {"w": CONSTANTS["w"]})
    path = folder / "model.onnx"
    options = {"location": "model.onnx.data", "size_threshold": 0}
    onnx.save(model, str(path), save_as_external_data=True, **options)
    return path


def hub(folder: Path, data: Path) -> Path:
    """A cache of blobs, with links to them as the Hugging Face hub's client makes them."""
    path, blobs, snapshot = apart(folder / "made"), folder / "blobs", folder / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    shutil.copy(path, blobs / "1a")
    shutil.copy(path.parent / "model.onnx.data", data)
    (snapshot / "model.onnx").symlink_to("../../blobs/1a")
    (snapshot / "model.onnx.data").symlink_to(data)
    return snapshot / "model.onnx"


def test_weights_beside_the_file_are_read(tmp_path: Path) -> None:
    for path in (
        apart(tmp_path / "a"),
        hub(tmp_path / "b", tmp_path / "b" / "blobs" / "2b"),
    ):
        (weight,) = networks.from_onnx(path).tensors.values()
        np.testing.assert_array_equal(weight, CONSTANTS["w"])


def test_weights_that_are_elsewhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(ModelError, match="is a link.*copy the model"):
        networks.from_onnx(hub(tmp_path / "b", tmp_path / "other" / "2b"))
    path = apart(tmp_path / "a")
    (path.parent / "model.onnx.data").rename(tmp_path / "model.onnx.data")
    with pytest.raises(ModelError, match="model.onnx.data.*copy the model"):
        networks.from_onnx(path)
    (path.parent / "loop").symlink_to("loop")
    for location in ("../model.onnx.data", str(tmp_path / "model.onnx.data"), ".", "loop", "\0"):
        model = onnx.load(path, load_external_data=False)
        entries = model.graph.initializer[0].external_data
        next(one for one in entries if one.key == "location").value = location
        path.write_bytes(model.SerializeToString())
        with pytest.raises(ModelError, match="copy the model"):
            networks.from_onnx(path)
    entries.add(key="scale", value="2")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=f"scale.*{NOT_READ}"):
        networks.from_onnx(path)


# The second net: what a reader takes wrongly is seen where it is compared.


def test_a_reader_that_is_wrong_is_told_so_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        node("Relu", ["x"], "r"),
        node("Conv", ["r", "w"], "c"),
        node("Relu", ["c"], "y"),
    ]
    model = model_of(nodes, CONSTANTS)
    real = Draft.conv
    wrong = {"stride": (1, 1), "pad": (0, 0, 0, 0), "groups": 1}

    def conv(draft: Draft, name: str, source: str, weight: Any, bias: Any, **_: Any) -> str:
        return real(draft, name, source, weight[:, :, ::-1], bias, **wrong)

    monkeypatch.setattr(Draft, "conv", conv)
    with pytest.raises(
        ModelError, match=r"node 'the_c' \(Conv\): onnx's reference evaluator computes other"
    ):
        read(model, tmp_path)


def test_the_command_says_what_it_was_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of([node("Conv", ["x", "w"], "y")], CONSTANTS), str(path))
    made = run_json("infer", "import", str(path), "-o", str(tmp_path / "a"))
    assert made["notes"] == [] and "2 random inputs" in made["checked"]
    done = run("infer", "import", str(path), "-o", str(tmp_path / "b"))
    assert "nothing was left out" in done.stdout and "2 random inputs" in done.stdout
