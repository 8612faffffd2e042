"""Networks as they are imported: what they compute, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushtable.errors import ConfigError, ModelError
from hushtable.infer import networks
from hushtable.infer.networks import Draft, Network

RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.5, shape).astype(np.float32)


def small() -> Network:
    draft = Draft((3, 8, 8), "small")
    at = draft.conv("c", "input", floats(4, 3, 3, 3), floats(4), pad=(1, 1, 1, 1))
    at = draft.relu("r", at)
    more = draft.conv("d", at, floats(4, 2, 3, 3), None, pad=(1, 1, 1, 1), groups=2)
    at = draft.relu("s", draft.add("a", more, at))
    at = draft.pool("p", "max_pool", at, (2, 2), (2, 2))
    at = draft.pool("q", "average_pool", at, (4, 4), (4, 4))
    return draft.finish(draft.linear("l", at, floats(5, 4), floats(5)))


def naive(images: np.ndarray, weight: np.ndarray, stride: int, pad: tuple[int, ...]) -> np.ndarray:
    """A convolution by its definition."""
    top, left, bottom, right = pad
    padded = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right))).astype(np.float64)
    kernel = weight.shape[2]
    rows = (padded.shape[2] - kernel) // stride + 1
    columns = (padded.shape[3] - kernel) // stride + 1
    out = np.zeros((len(images), len(weight), rows, columns))
    for row in range(rows):
        for column in range(columns):
            view = padded[:, :, row * stride :, column * stride :][:, :, :kernel, :kernel]
            out[:, :, row, column] = np.einsum("nchw,ochw->no", view, weight)
    return out


@pytest.mark.parametrize(
    ("stride", "pad"), [(1, (1, 1, 1, 1)), (2, (0, 0, 1, 1)), (3, (2, 0, 0, 1))]
)
def test_a_convolution_is_its_definition(stride: int, pad: tuple[int, int, int, int]) -> None:
    weight, images = floats(4, 3, 3, 3), floats(2, 3, 9, 7)
    draft = Draft((3, 9, 7), "one")
    name = draft.conv("c", "input", weight, None, stride=(stride, stride), pad=pad)
    found = draft.finish(name).evaluate(images)
    np.testing.assert_allclose(found, naive(images, weight, stride, pad).reshape(2, -1), atol=1e-5)


def test_the_same_network_makes_the_same_file(tmp_path: Path) -> None:
    network = small()
    network.save(tmp_path / "a")
    network.save(tmp_path / "b")
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    graph = json.loads(header["__metadata__"][networks.METADATA_KEY])
    assert graph["format"] == 1 and graph["input"] == {"shape": [3, 8, 8]}
    assert graph["output"] == "l"
    ops = [node["op"] for node in graph["nodes"]]
    assert ops == [
        *("conv", "relu", "conv", "add", "relu", "max_pool", "global_average_pool", "linear"),
    ]
    begin, end = header["d.weight"]["data_offsets"]
    kept = np.frombuffer(data[8 + size + begin : 8 + size + end], "<f4")
    np.testing.assert_array_equal(kept, network.tensors["d.weight"].ravel())
    assert network.activations == 2 * 4 * 8 * 8
    assert network.answers == 5
    assert (
        network.parameters
        == sum(
            one["data_offsets"][1] - one["data_offsets"][0]
            for one in header.values()
            if "dtype" in one
        )
        // 4
    )


def test_what_the_output_does_not_need_is_left_out() -> None:
    draft = Draft((1, 4, 4), "one")
    at = draft.conv("used", "input", floats(1, 1, 1, 1), None)
    draft.conv("unused", "input", floats(1, 1, 1, 1), None)
    network = draft.finish(at)
    assert [node.name for node in network.nodes] == ["used"]
    assert set(network.tensors) == {"used.weight"}


@pytest.mark.parametrize(
    ("shape", "says"),
    [((3, 8), "expected"), ((8, 8, 3), "3, 8, 8"), ((2, 8, 8), "3, 8, 8")],
)
def test_images_of_another_shape_are_refused(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        small().evaluate(np.zeros((1, *shape), np.float32))


def test_drafts_name_what_is_wrong() -> None:
    draft = Draft((3, 8, 8), "model.onnx")
    with pytest.raises(ModelError, match=r"model\.onnx, wide: .*2 groups over 3 channels"):
        draft.conv("wide", "input", floats(4, 3, 3, 3), None, groups=2)
    with pytest.raises(ModelError, match="flatten before"):
        draft.linear("l", "input", floats(4, 192), None)
    with pytest.raises(ModelError, match="variance that is not positive"):
        ones = np.ones(3)
        draft.batch_norm(
            "n", "input", scale=ones, shift=ones, mean=ones, variance=-ones, epsilon=0.5
        )
    with pytest.raises(ModelError, match="not finite"):
        draft.conv("c", "input", np.full((1, 3, 1, 1), np.nan), None)
    with pytest.raises(ModelError, match="must be alike"):
        draft.add("a", "input", draft.pool("p", "max_pool", "input", (2, 2), (2, 2)))
    flat = draft.flatten("f", "input")
    with pytest.raises(ModelError, match="at the end"):
        draft.relu("r", draft.post("s", "softmax", flat))
    with pytest.raises(ModelError, match="nothing to compute"):
        Draft((3, 8, 8), "x").finish("input")


def test_same_pads_as_frameworks_do() -> None:
    # TensorFlow: of 32 by stride 2 and kernel 3, one zero below and to the right.
    assert networks.same_pad(32, 32, (3, 3), (2, 2)) == (0, 0, 1, 1)
    assert networks.same_pad(32, 32, (3, 3), (2, 2), more_below=False) == (1, 1, 0, 0)
    assert networks.same_pad(32, 32, (3, 3), (1, 1)) == (1, 1, 1, 1)
    assert networks.same_pad(32, 32, (1, 1), (2, 2)) == (0, 0, 0, 0)


# ONNX.


def onnx_model(nodes: list[Any], constants: dict[str, np.ndarray], *, shape: Any, out: str) -> Any:
    onnx = pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
    helper = onnx.helper
    number = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", number, shape)],
        [helper.make_tensor_value_info(out, number, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    onnx = pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
    return onnx.helper.make_node(op, inputs, [output], name=f"the_{output}", **attributes)


def read(model: Any, folder: Path) -> Network:
    import onnx

    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return networks.from_onnx(path)


def test_an_onnx_network_computes_what_the_reference_evaluator_does(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
    from onnx.reference import ReferenceEvaluator

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
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "sizes": np.array([0, -1], np.int64),
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
    model = onnx_model(nodes, constants, shape=["batch", 3, 16, 16], out="y")
    images = RANDOM.random((3, 3, 16, 16)).astype(np.float32)
    network = read(model, tmp_path)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": images})
    np.testing.assert_allclose(network.evaluate(images), expected, atol=1e-5)
    assert network.notes == (
        "the_same: an identity",
        "the_d4: a dropout, which inference does without",
    )
    assert network.nodes[-1].op == "softmax"


def test_constants_are_folded_as_older_exports_have_them(tmp_path: Path) -> None:
    """`x.view(x.size(0), -1)`: Shape, Gather, Unsqueeze, Concat, Reshape."""
    constants = {
        "zero": np.array(0, np.int64),
        "axis": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
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
    network = read(onnx_model(nodes, constants, shape=[1, 3, 2, 2], out="y"), tmp_path)
    assert [one.op for one in network.nodes] == ["relu", "flatten", "linear"]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [("Erf", ["x"], "y", {})],
            r"node 'the_y' \(Erf\).*Erf is not supported: possible are Add",
        ),
        (
            [("Conv", ["x", "w"], "y", {"dilations": [2, 2]})],
            r"node 'the_y' \(Conv\).*dilations \[2, 2\]",
        ),
        ([("MaxPool", ["x"], "y", {"kernel_shape": [2, 2], "ceil_mode": 1})], "ceil_mode 1"),
        ([("Conv", ["x", "x"], "y", {})], "weight 'x' must be a constant"),
        ([("Flatten", ["x"], "y", {"axis": 2})], "axis 2: 1 is possible"),
        ([("Pad", ["x", "pads"], "p", {}), ("Relu", ["p"], "y", {})], "not followed by a conv"),
        ([("Pad", ["x", "pads"], "y", {"mode": "reflect"})], "nothing else"),
        ([("Softmax", ["x"], "y", {})], "over planes"),
        ([("Add", ["x", "wide"], "y", {})], "for 3 channels"),
        ([("Relu", ["w"], "y", {})], "does not depend on the input"),
    ],
)
def test_what_is_not_supported_is_named_with_its_place(
    nodes: list[Any], says: str, tmp_path: Path
) -> None:
    made = [node(op, inputs, output, **more) for op, inputs, output, more in nodes]
    constants = {
        "w": floats(2, 3, 3, 3),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "wide": floats(1, 3, 8, 8),
    }
    model = onnx_model(made, constants, shape=[1, 3, 8, 8], out="y")
    with pytest.raises(ModelError, match=says):
        read(model, tmp_path)


@pytest.mark.parametrize(
    ("shape", "says"),
    [([1, 3, "h", 8], "fixed"), ([4, 3, 8, 8], "of 4 images"), ([1, 3, 8], "expected")],
)
def test_inputs_must_be_images_of_a_size(shape: list[Any], says: str, tmp_path: Path) -> None:
    model = onnx_model([node("Relu", ["x"], "y")], {}, shape=shape, out="y")
    with pytest.raises(ModelError, match=says):
        read(model, tmp_path)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
    with pytest.raises(ConfigError, match="no file"):
        networks.from_onnx(tmp_path / "none.onnx")
    for name, content in (("empty", b""), ("noise", bytes(range(256)) * 5)):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(ModelError, match=f"{name}.onnx is no readable ONNX model"):
            networks.from_onnx(path)


# Keras.


def keras_file(path: Path, layers: list[dict[str, Any]], weights: dict[str, np.ndarray]) -> Path:
    h5py = pytest.importorskip("h5py", reason="the extra hushtable[keras] is not installed")
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "S", "config": {"layers": layers}})
        for name, value in weights.items():
            layer = name.split("/")[0]
            file[f"model_weights/{layer}/{name}:0"] = value
    return path


def layer(kind: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, **config}}


def test_a_keras_network_is_turned_channels_first(tmp_path: Path) -> None:
    kernel, matrix, bias = floats(3, 3, 2, 4), floats(2 * 2 * 4, 3), floats(3)
    path = keras_file(
        tmp_path / "cnn.h5",
        [
            layer(
                "Conv2D",
                "c",
                batch_input_shape=[None, 4, 4, 2],
                strides=[2, 2],
                padding="same",
                activation="relu",
                use_bias=False,
            ),
            layer("Dropout", "d", rate=0.5),
            layer("Flatten", "f"),
            layer("Dense", "l", activation="linear", use_bias=True),
        ],
        {"c/kernel": kernel, "l/kernel": matrix, "l/bias": bias},
    )
    network = networks.from_keras(path)
    assert network.input == (2, 4, 4)
    images = floats(3, 2, 4, 4)
    planes = naive(images, kernel.transpose(3, 2, 0, 1), 2, (0, 0, 1, 1))
    rows = np.maximum(planes, 0).transpose(0, 2, 3, 1).reshape(3, -1)
    np.testing.assert_allclose(network.evaluate(images), rows @ matrix + bias, atol=1e-5)
    assert network.notes == ("d: a dropout, which inference does without",)


def test_a_keras_layer_that_is_not_supported_is_named(tmp_path: Path) -> None:
    first = layer("LSTM", "memory", batch_input_shape=[None, 4, 4, 2])
    path = keras_file(tmp_path / "rnn.h5", [first], {"memory/kernel": floats(2, 2)})
    with pytest.raises(
        ModelError, match=r"rnn\.h5, layer 'memory': the layer LSTM is not supported"
    ):
        networks.from_keras(path)
    noise = tmp_path / "noise.h5"
    noise.write_bytes(b"noise")
    with pytest.raises(ModelError, match="no Keras model"):
        networks.from_keras(noise)


# torch.


def test_a_torch_module_is_taken_apart(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.conv(x))
            y += x
            return torch.relu(y)

    class Whole(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2))
            self.blocks = nn.Sequential(Block(), Block())
            self.last = nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            x = self.blocks(self.first(x)).mean((2, 3))
            return self.last(nn.functional.dropout(x.view(x.size(0), -1), training=self.training))

    torch.manual_seed(0)
    module = Whole()
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_()
            one.running_var.uniform_(0.5, 2)
    network = networks.from_torch(module, (3, 16, 16), range=(-1.0, 1.0))
    assert module.training
    assert network.range == (-1.0, 1.0)
    images = floats(3, 3, 16, 16)
    expected = module.eval()(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(network.evaluate(images), expected, atol=1e-5)
    with pytest.raises(ModelError, match=r"node '_0' \(0\): GELU is not supported"):
        networks.from_torch(nn.Sequential(nn.GELU()), (3, 8, 8))
    with pytest.raises(ConfigError, match="channels, rows, columns"):
        networks.from_torch(module, (3, 16))
