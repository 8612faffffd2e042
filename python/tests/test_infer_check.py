"""What is said of somebody's network before it is imported: all that is refused, and the price."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json

from hushtable import infer
from hushtable.errors import ConfigError
from hushtable.infer import networks

onnx = pytest.importorskip("onnx", reason="the extra hushtable[onnx] is not installed")
helper = onnx.helper


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 0.5, shape).astype(np.float32)


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], name=f"the_{output}", **attributes)


CONSTANTS = {"large": np.array(1e9, np.float32), "w": floats(3, 2, 3, 3), "v": floats(4, 108)}
TAKEN = [
    node("Conv", ["x", "w"], "c"),
    node("Relu", ["c"], "r"),
    node("Dropout", ["r"], "d"),
    node("Relu", ["d"], "s"),
    node("Flatten", ["s"], "f"),
    node("Gemm", ["f", "v"], "y", transB=1),
]
#: Three that are not taken, with what is between them and after them: one reads what is refused.
#: What is done to its sizes may be done to constants, so nothing is said of that.
REFUSED = [
    node("Erf", ["x"], "e"),
    node("Relu", ["e"], "r"),
    node("Conv", ["x", "w"], "c", an_option=1),
    node("Add", ["r", "r"], "a"),
    node("Softplus", ["a"], "p"),
    node("Shape", ["p"], "sizes"),
    node("ReduceProd", ["sizes"], "all"),
    node("Reshape", ["p", "all"], "flat"),
    node("Flatten", ["flat"], "f"),
    node("Relu", ["f"], "y"),
]


def write(path: Path, nodes: list[Any], shape: Any = ("batch", 2, 8, 8)) -> Path:
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in CONSTANTS.items()]
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)]
        for name, size in (("x", shape), ("y", None))
    ]
    graph = helper.make_graph(nodes, "graph", *ends, tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def compiled(network: networks.Network, folder: Path) -> infer.HybridPlanInfo:
    """What is said where nobody checks before: by compiling, and by `infer plan`."""
    bundle = network.build(folder)
    plan = infer.compile(bundle, scheme="hybrid")
    assert infer.describe(bundle) == plan
    return dataclasses.replace(plan, name="", plan="")


def test_the_price_of_a_network_is_its_plans(tmp_path: Path) -> None:
    path = write(tmp_path / "small.onnx", TAKEN)
    report = networks.check(path)
    assert (report.source, report.kind, report.refusals) == ("small.onnx", "ONNX", ())
    assert report.operators == {"relu": 2, "conv": 1, "flatten": 1, "linear": 1}
    assert report.network is not None
    assert report.network.notes == ("the_d: a dropout, which inference does without",)
    assert report.network.checked.startswith("2 random inputs have the answers of onnx's")
    assert report.plan == compiled(networks.from_onnx(path), tmp_path / "model")
    assert report.plan.activations == 108  # the second ReLU has nothing to do

    record = run_json("infer", "check", path)
    assert record.pop("plan") == {**dataclasses.asdict(report.plan), "input": [2, 8, 8]}
    assert record == {
        "file": "small.onnx",
        "kind": "ONNX",
        "refusals": [],
        "input": [2, 8, 8],
        "answers": 4,
        "parameters": 54 + 432,
        "relus": 2 * 108,
        "operators": report.operators,
        "notes": list(report.network.notes),
        "checked": report.network.checked,
    }
    found = run("infer", "check", path)
    assert found.returncode == 0, found.stderr
    for line in (
        "file        small.onnx, ONNX",
        "taken       relu 2, conv 1, flatten 1, linear 1",
        "left out    the_d: a dropout, which inference does without",
        "refused     nothing",
        f"{report.plan.bytes_if_server_garbles['client']:,} B at the client",
        f"{report.plan.link_if_client_garbles['up_bytes']:,} B up",
    ):
        assert line in found.stdout
    assert sorted(tmp_path.iterdir()) == [tmp_path / "model", path]


def test_all_that_is_refused_is_said_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.onnx", REFUSED)
    report = networks.check(path)
    erf, option, behind = report.refusals
    assert "node 'the_e' (Erf): the operator Erf is not supported" in erf
    assert "node 'the_c' (Conv): " in option and "an_option" in option
    assert "node 'the_p' (Softplus): the operator Softplus is not supported" in behind
    assert (report.network, report.plan, report.operators) == (None, None, {})

    found = run("infer", "check", path)
    assert found.returncode == run("infer", "import", path, "-o", tmp_path / "m").returncode == 2
    assert found.stderr == ""
    assert [line for line in found.stdout.splitlines() if line.startswith("- ")] == [
        f"- {erf}",
        f"- {option}",
        f"- {behind}",
    ]
    found = run("infer", "check", path, "--json")
    assert (found.returncode, found.stderr) == (2, "")
    record = json.loads(found.stdout)
    assert record["refusals"] == [erf, option, behind]
    assert record["plan"] is record["input"] is record["checked"] is None
    assert record["operators"] == {}


def test_what_only_compiling_refuses_is_said_of_what_was_taken(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "large"], "m"), *TAKEN]
    nodes[1] = node("Conv", ["m", "w"], "c")
    report = networks.check(write(tmp_path / "large.onnx", nodes))
    (refusal,) = report.refusals
    assert re.search(r"large\.onnx, compiling: .* is out of range: with 12 fraction bits", refusal)
    assert report.operators["conv"] == 1
    assert report.plan is None
    found = run("infer", "check", tmp_path / "large.onnx")
    assert found.returncode == 2
    assert "taken " in found.stdout and f"- {refusal}" in found.stdout


def test_a_file_that_is_refused_as_a_whole_is_one_refusal(tmp_path: Path) -> None:
    (tmp_path / "odd.onnx").write_bytes(b"text")
    (refusal,) = networks.check(tmp_path / "odd.onnx").refusals
    assert "is no readable ONNX model" in refusal
    free = write(tmp_path / "free.onnx", TAKEN, shape=("batch", 2, "rows", "columns"))
    (refusal,) = networks.check(free).refusals
    assert "shape" in refusal
    assert networks.check(free, shape=(2, 8, 8), output="y").refusals == ()
    assert run_json("infer", "check", free, "--shape", "2,8,8")["input"] == [2, 8, 8]


def test_names_and_options_that_cannot_be_are_errors_as_of_an_import(tmp_path: Path) -> None:
    odd = tmp_path / "model.pt"
    for command in (["check"], ["import", "-o", tmp_path / "m"]):
        for path, options, says in (
            (odd, (), f"error: {odd} is of no kind that is known by its name: possible are .onnx"),
            (tmp_path / "no.onnx", (), "no.onnx is no file"),
            (tmp_path / "no.h5", (), "no.h5 is no file"),
            (tmp_path / "no.h5", ("--shape", "1,2,3"), "are for .onnx: a Keras model says its own"),
            (tmp_path / "no.onnx", ("--shape", "1,2"), "expected (channels, rows, columns)"),
            (tmp_path / "no.onnx", ("--shape", "x"), "expected whole numbers as in 3,224,224"),
        ):
            found = run("infer", *command, path, *options)
            assert (found.returncode, found.stdout) == (2, "")
            assert says in found.stderr
    with pytest.raises(ConfigError, match="checked with shape="):
        networks.check(object())
    with pytest.raises(ConfigError, match="without output"):
        networks.check(object(), shape=(1, 2, 3), output="y")


def test_a_keras_file_is_checked(tmp_path: Path) -> None:
    import keras_models as keras  # which needs h5py

    made = keras.Made(6, 6, 2)
    made.add(keras.layer("Conv2D", "c"))
    made.add(keras.layer("ReLU", "r"))
    made.add(keras.layer("GlobalAveragePooling2D", "g"))
    path = keras.write(tmp_path / "k.h5", made.functional(), made.weights)
    report = networks.check(path)
    assert (report.source, report.kind, report.refusals) == ("k.h5", "Keras", ())
    assert report.operators == {"conv": 1, "relu": 1, "global_average_pool": 1}
    assert report.plan == compiled(networks.from_keras(path), tmp_path / "model")
    made.add(keras.layer("Softplus", "s"))
    made.add(keras.layer("Lambda", "l"), "c")
    path = keras.write(path, made.functional("s"), made.weights)
    first, second = networks.check(path).refusals
    assert "Softplus" in first and "Lambda" in second
    assert run("infer", "check", path).returncode == 2
