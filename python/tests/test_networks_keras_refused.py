"""Keras files of which something is not read: refused by name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_models import Layer, Made, but, h5py, image, layer, made, refused, residual, write

from hushtable.errors import ConfigError, ModelError
from hushtable.infer import _keras, networks

FLAT, LAST = layer("Flatten", "flat"), layer("Dense", "last")
CONV, NORM, RELU = layer("Conv2D", "c"), layer("BatchNormalization", "n"), layer("ReLU", "r")
SOFTMAX, POOL = layer("Activation", "a", activation="softmax"), layer("MaxPooling2D", "p")
MEAN = layer("GlobalAveragePooling2D", "g")
ZEROS, DILATED = layer("ZeroPadding2D", "z"), but(CONV, dilation_rate=[1, 2])
HALF = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
BOUNDED = {"class_name": "ReLU", "config": {"max_value": 6.0}}


def nested(*layers: Layer, **config: Any) -> Layer:
    """A model as a layer."""
    return {"class_name": "Sequential", "config": {"name": "inner", "layers": [*layers], **config}}


def deep(models: int) -> Layer:
    found = FLAT
    for _ in range(models):
        found = nested(found)
    return found


INNER = nested(FLAT, build_input_shape=[None, 9, 9, 2])
REFUSED: tuple[tuple[str | Layer, ...], ...] = (
    ("r: a ReLU of at most 0.0: a number above 0", but(RELU, max_value=0)),
    ("r: a ReLU of at most nan", but(RELU, max_value=float("nan"))),
    ("'r': max_value '6': a number is possible", but(RELU, max_value="6")),
    ("'r': max_value 6.0 and negative_slope 0.1: one", but(RELU, max_value=6, negative_slope=0.1)),
    ("'r': negative_slope -0.1: 0 and more", but(RELU, negative_slope=-0.1)),
    ("'r': negative_slope None: a number", but(RELU, negative_slope=None)),
    ("'r': threshold 1.0: 0 is possible", but(RELU, threshold=1.0)),
    ("'r': the attribute slope .0.: not read", but(RELU, slope=0)),
    ("'g': data_format channels_first: channels_last", but(MEAN, data_format="channels_first")),
    ("'flat': data_format channels_first", but(FLAT, data_format="channels_first"), LAST),
    ("'c': data_format channels_first", but(CONV, data_format="channels_first")),
    ("'p': data_format channels_first", but(POOL, data_format="channels_first")),
    (r"'n': axis \[1\]: -1 and 3 and \[-1\] and \[3\] are possible", but(NORM, axis=[1])),
    ("'n': axis 2", but(NORM, axis=2)),
    ("'n': axis", but(NORM, axis=[1, 3])),
    ("'n': the attribute renorm .True.", but(NORM, renorm=True)),
    ("'n': epsilon nan|n: a variance", but(NORM, epsilon=float("nan"))),
    ("'n': epsilon '1': a number", but(NORM, epsilon="1")),
    ("'c': strides .2, 1. with dilation_rate .1, 2.: one is", but(DILATED, strides=[2, 1])),
    (r"c: a kernel of \(3, 5\) over 3 x 4", but(POOL, pool_size=2, strides=1), DILATED),
    (r"c: a kernel of \(2000000001, .*\) over 4 x 5", but(DILATED, dilation_rate=[10**9, 9])),
    ("'c': dilation_rate 0: two whole numbers", but(DILATED, dilation_rate=0)),
    ("'c': padding 'causal': valid and same", but(CONV, padding="causal")),
    ("'c': 3 groups of 2 channels", but(CONV, groups=3)),
    (r"'c': strides \[0, 1\]: two whole numbers", but(CONV, strides=[0, 1])),
    ("'c': strides None: two whole numbers", but(CONV, strides=None)),
    ("'p': strides", but(POOL, strides=[10**400, 1])),
    ("'p': pool_size .True, 1.", but(POOL, pool_size=[True, 1])),
    ("p: windows of", but(POOL, pool_size=[5, 5])),
    (
        "'p': an average of padded windows: padding valid is possible",
        layer("AveragePooling2D", "p", pool_size=[3, 3], padding="same"),
    ),
    ("'c': the activation swish is not supported: possible are", but(CONV, activation="swish")),
    ("'last': the activation elu is not supported", FLAT, but(LAST, activation="elu")),
    ("'c': the activation that is an object of ReLU is not", but(CONV, activation=BOUNDED)),
    ("a_softmax: a softmax over planes", SOFTMAX),
    ("last_softmax: a softmax over planes", but(LAST, activation="softmax")),
    ("last: a linear after a softmax", MEAN, SOFTMAX, LAST),
    ("'c': dtype 'float16': float32 is possible", but(CONV, dtype="float16")),
    ("'c': dtype 'mixed_float16': float32 is possible", but(CONV, dtype=HALF)),
    ("'c': its input is a row of numbers: planes are possible", FLAT, CONV),
    ("'p': its input is a row", FLAT, but(POOL, pool_size=[1, 1])),
    ("'g': its input is a row", FLAT, MEAN),
    ("net.h5: the answers of 'c' are planes: Keras gives rows", CONV),
    ("the answers of 'flat' are planes", CONV, FLAT),
    ("the answers of 'r' are planes", FLAT, NORM, RELU),
    ("the answers of 'a' are planes", FLAT, SOFTMAX),
    ("'other': a second InputLayer", image(4, 5, 2, name="other"), FLAT, LAST),
    ("'d': groups 2: 1 is possible", layer("DepthwiseConv2D", "d", groups=2)),
    ("'d': depth_multiplier 0: a whole", layer("DepthwiseConv2D", "d", depth_multiplier=0)),
    ("'s': its input is a row", FLAT, layer("SeparableConv2D", "s")),
    ("'l': alpha None: a number", layer("LeakyReLU", "l", alpha=None)),
    ("'l': the attribute negative_slope", layer("LeakyReLU", "l", negative_slope=0.1)),
    ("l.slope.scale: weights that are not", layer("LeakyReLU", "l", alpha=float("nan"))),
    ("'q': slopes of each place, shared_axes None: one a", layer("PReLU", "q", shared_axes=None)),
    ("'q': slopes of each place, shared_axes .1.", layer("PReLU", "q", shared_axes=[1])),
    ("'q': shared_axes .0, 1, 2.: axes from 1 to 3", layer("PReLU", "q", shared_axes=[0, 1, 2])),
    ("'q': shared_axes .2.: axes from 1 to 1", FLAT, layer("PReLU", "q", shared_axes=[2])),
    ("'q': shared_axes .True.: axes", layer("PReLU", "q", shared_axes=[True])),
    ("'s': axis 1: -1 and 3 and", layer("Softmax", "s", axis=1)),
    (r"'s': axis \[1, 2\]", layer("Softmax", "s", axis=[1, 2])),
    ("s: a softmax over planes", layer("Softmax", "s")),
    ("last: a linear after a softmax", FLAT, layer("Softmax", "s"), LAST),
    ("'z': padding .1, 1, 1.: ..top, bottom., .left, right", but(ZEROS, padding=[1, 1, 1])),
    ("'z': padding ..1, 1., .1..", but(ZEROS, padding=[[1, 1], [1]])),
    ("'z': padding -1: ", but(ZEROS, padding=-1)),
    ("'z': padding True: ", but(ZEROS, padding=True)),
    ("'z': data_format channels_first", but(ZEROS, data_format="channels_first")),
    ("'z': its input is a row", FLAT, ZEROS),
    ("z: with the zeros around .* numbers: at most 33", but(ZEROS, padding=10**9), FLAT, LAST),
    ("the answers of 'z' are planes", ZEROS),
    ("'h': data_format channels_f", layer("GlobalMaxPooling2D", "h", data_format="channels_first")),
    ("'v': target_shape .4, -1.: a row is possible", layer("Reshape", "v", target_shape=[4, -1])),
    ("'v': target_shape .1, 1, 40.", FLAT, layer("Reshape", "v", target_shape=[1, 1, 40])),
    ("'v': target_shape .20.", layer("Reshape", "v", target_shape=[20])),
    ("'e': scale .1, 2.: a number", layer("Rescaling", "e", scale=[1, 2])),
    ("'inner': its inputs are .None, 9, 9, 2., and it reads one of .4, 5, 2.", INNER, LAST),
    ("'inner/l': the layer Lambda is not supported", nested(layer("Lambda", "l"), FLAT), LAST),
    ("'inner/i': the attribute slope", nested(layer("ReLU", "i", slope=1)), FLAT, LAST),
    ("'inner/inner': a second InputLayer", nested(RELU, image(4, 5, 2, name="inner")), LAST),
    (
        "'inner': it has no attribute layers",
        {"class_name": "Sequential", "config": {"name": "inner"}},
        LAST,
    ),
    ("'inner': it has no attribute input_layers", {**nested(FLAT), "class_name": "Model"}, LAST),
    ("model_config over 100 deep: models within models", deep(40), LAST),
)
OTHERS = "LSTM Lambda Permute Cropping2D Multiply Conv2DTranspose UpSampling2D ELU TFOpLambda"


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: str(case[0]))
def test_what_has_other_answers_is_refused_by_name(case: Any, tmp_path: Path) -> None:
    match, *layers = case
    chain = made((4, 5, 2), *layers)
    refused(tmp_path, chain.sequential(), chain.weights, match)
    refused(tmp_path, chain.functional(), chain.weights, match)


@pytest.mark.parametrize("kind", [*OTHERS.split(), "Custom>Dense"])
def test_a_keras_layer_that_is_not_supported_is_named(kind: str, tmp_path: Path) -> None:
    chain = made((4, 5, 2), layer(kind, "other", function=["YWJj", None, None]), LAST)
    match = f"net.h5, layer 'other': the layer {kind} is not supported: possible are Activation, A"
    refused(tmp_path, chain.sequential(), chain.weights, match)


def called(name: str, *tensor: Any) -> Any:
    """Has a layer read another tensor."""
    return lambda named, _config: named[name].update(inbound_nodes=[[[*tensor]]])


OTHER = {**image(4, 5, 2, name="other"), "name": "other", "inbound_nodes": []}
GRAPHS: tuple[tuple[str, Any], ...] = (
    ("'n': training True: None and False are", called("n", "image", 0, 0, {"training": True})),
    ("'n': the argument y .2.0.: not read", called("n", "image", 0, 0, {"y": 2.0})),
    ("'n': the tensor .'image', 1, 0, .*: .layer, 0, 0. is", called("n", "image", 1, 0, {})),
    ("'n': the tensor .'image', 0, 1", called("n", "image", 0, 1)),
    ("'n': the tensor .'_CONSTANT_VALUE', -1", called("n", "_CONSTANT_VALUE", -1, 2.0, {})),
    ("'n': it reads 'none', which is no layer", called("n", "none", 0, 0, {})),
    ("layers that read each other in a circle: ", called("c", "sum", 0, 0, {})),
    ("'sum': 1 inputs: 2 and more are possible", called("sum", "c", 0, 0, {})),
    ("'n': it is used more than once", lambda named, _: named["n"]["inbound_nodes"].append([])),
    ("'n': the tensor .'c', 1, 0", called("n", "c", 1, 0)),
    ("'n': 2 inputs: 1 is", lambda named, _: named["n"]["inbound_nodes"][0].append(["c", 0, 0])),
    ("'n': 0 inputs: 1 is", lambda named, _: named["n"].update(inbound_nodes=[])),
    ("'n': name o: n is possible", lambda named, _: named["n"].update(name="o")),
    ("'n': module mine: keras.layers is", lambda named, _: named["n"].update(module="mine")),
    ("'other': a second InputLayer", lambda _, config: config["layers"].insert(0, OTHER)),
    (
        "input_layers .*: a list of one",
        lambda _, config: config["input_layers"].append(["c", 0, 0]),
    ),
    ("its input 'c' is no InputLayer", lambda _, config: config.update(input_layers=[["c", 0, 0]])),
    ("two layers of one name", lambda named, config: config["layers"].append(named["n"])),
    ("net.h5: the attribute quantize", lambda _, config: config.update(quantize=True)),
    (
        "output_layers .*: a list of one",
        lambda _, config: config["output_layers"].append(["c", 0, 0]),
    ),
    ("its output 'none' is no", lambda _, config: config.update(output_layers=[["none", 0, 0]])),
    ("the output is the input", lambda _, config: config.update(output_layers=[["image", 0, 0]])),
    ("answers of 'sum' are planes", lambda _, config: config.update(output_layers=[["sum", 0, 0]])),
)


@pytest.mark.parametrize(("match", "change"), GRAPHS)
def test_graphs_that_are_not_read_are_refused_by_name(
    match: str, change: Any, tmp_path: Path
) -> None:
    net = residual()
    model = copy.deepcopy(net.functional())
    change({one["name"]: one for one in model["config"]["layers"]}, model["config"])
    refused(tmp_path, model, net.weights, match)


def test_all_refusals_of_layers_are_said_at_once(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    net.add(layer("Lambda", "l"), net.add(CONV))
    net.add(but(RELU, slope=1))
    net.add(layer("ELU", "e"))
    net.add(but(NORM, axis=1), "c")
    net.add(layer("Add", "sum"), "n", "e")
    net.nest(made((4, 5, 2), layer("ELU", "f"), CONV, layer("ELU", "g")), "inner", "image")
    net.add(FLAT, "c")
    net.add(but(LAST, slope=1))
    refusals: list[str] = []
    path = write(tmp_path / "net.h5", net.functional(), net.weights)
    assert _keras.read(path, refusals) is None
    assert [one.partition(": ")[0] for one in refusals] == [
        *("net.h5, layer 'l'", "net.h5, layer 'e'", "net.h5, layer 'n'"),
        *("net.h5, layer 'inner/f'", "net.h5, layer 'inner/g'", "net.h5, layer 'last'"),
    ]
    with pytest.raises(ModelError) as error:
        networks.from_keras(path)
    assert str(error.value) == refusals[0]
    # Of the whole there is one, and of what is read none.
    with pytest.raises(ModelError, match="layer_names"):
        whole = made((4, 5, 2), MEAN, LAST)
        path = write(path, whole.sequential(), whole.weights)
        with h5py.File(path, "a") as file:
            file["model_weights"].attrs["layer_names"] = [b"g"]
        _keras.read(path, [])
    path = write(path, whole.sequential(), whole.weights)
    network = _keras.read(path, refusals := [])
    assert network is not None and not refusals


def test_weights_of_models_within_models_are_refused_in_another_order(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    net.nest(made((4, 5, 2), CONV, NORM, but(CONV, name="d"), MEAN), "inner")
    listed = net.weights["inner"]
    names = list(listed)
    assert names[-4:] == ["d/kernel", "d/bias", "n/moving_mean", "n/moving_variance"]
    for match, order in (
        ("'inner': its weights are kernel, .*: kernel, bias, gamma, .* are possible", names[:-1]),
        ("'inner': its weights are bias, kernel", [names[1], names[0], *names[2:]]),
        (
            "'inner/c': in its weights' place, of kernel, are those named inner/d/kernel",
            [*names[4:6], *names[2:4], *names[:2], *names[6:]],
        ),
        ("no layer takes|its weights are", [*names, "e/kernel"]),
    ):
        own = {name: listed.get(name, listed["c/kernel"]) for name in order}
        refused(tmp_path, net.functional(), {"inner": own}, match)
    path = write(tmp_path / "net.h5", net.functional(), net.weights)
    with h5py.File(path, "a") as file:
        del file["model_weights/inner"].attrs["weight_names"]
    with pytest.raises(ModelError, match="'inner': the file does not list its weights"):
        networks.from_keras(path)


def test_planes_after_rows_are_refused(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    means, kept = net.add(MEAN, "image"), but(MEAN, name="h", keepdims=True)
    net.add(layer("Concatenate", "two"), means, net.add(kept, "image"))
    refused(tmp_path, net.functional(), net.weights, "'two': rows of numbers after planes: one")
    net = Made(4, 5, 2)
    net.add(layer("Concatenate", "two", axis=1), "image", "image")
    refused(tmp_path, net.functional(), net.weights, "'two': axis 1: -1 and 3 are possible")
    net.layers[-1]["config"]["axis"] = 3
    net.layers[-1]["inbound_nodes"][0][1:] = []
    refused(tmp_path, net.functional(), net.weights, "'two': 1 inputs: 2 and more are possible")


def test_a_sum_of_rows_in_two_orders_is_refused(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    net.add(layer("Add", "sum"), net.add(FLAT), net.add(layer("Dense", "d", units=40)))
    net.add(LAST)
    refused(tmp_path, net.functional(), net.weights, "'sum': a sum of two whose numbers stand in")
    net = Made(4, 5, 2)
    means = net.add(MEAN, "image")
    net.add(layer("Add", "sum"), means, net.add(but(MEAN, name="h", keepdims=True), "image"))
    refused(tmp_path, net.functional(), net.weights, "'sum': a sum of two whose numbers stand in")


def test_models_that_are_not_read_are_refused_by_name(tmp_path: Path) -> None:
    chain = made((4, 5, 2), FLAT, LAST)
    model = chain.sequential()
    (first, *rest), config = model["config"]["layers"], model["config"]
    nameless = [first, but(rest[0], name="\ud800"), rest[1]]
    for match, changed in (
        ("net.h5: it is of the class 'Net', which may compute what", {"class_name": "Net"}),
        ("net.h5: it is of the class None", {"class_name": None}),
        ("net.h5: it has no attribute input_layers", {"class_name": "Functional"}),
        ("net.h5: the attribute compiled .3.: not read", {"compiled": 3}),
        ("net.h5: it has no layers", {"config": []}),
        ("net.h5: build_input_shape", {"config": {**config, "build_input_shape": [1, 2, 3, 4]}}),
        ("inputs are None, expected .null, rows, columns, channels.", {"config": rest}),
        ("inputs are None, expected", {"config": [but(first, batch_input_shape=None), *rest]}),
        ("net.h5: the output is the input", {"config": [first]}),
        ("registered_name My", {"config": [first, {**rest[0], "registered_name": "My>Flatten"}]}),
        ("inbound_nodes: in a Sequential", {"config": [first, chain.layers[1], *rest[1:]]}),
        ("layer 1 has no name that can be", {"config": nameless}),
        ("layer 1 is None, expected an object", {"config": [first, None]}),
    ):
        refused(tmp_path, {**model, **changed}, chain.weights, match)
    for match, more in (
        ("inputs are .None, None, None, 3., e", {"batch_input_shape": [None, None, None, 3]}),
        ("inputs are .None, 4, 4., expected", {"batch_input_shape": [None, 4, 4]}),
        ("the input: 40000000000 numbers: at most", {"batch_input_shape": [None, 4, 5, 2 * 10**9]}),
        ("'image': batch_shape .None, 4, 5, 3.", {"batch_shape": [None, 4, 5, 3]}),
        ("'image': sparse True: False is possible", {"sparse": True}),
        ("'image': ragged True: False is possible", {"ragged": True}),
        ("'image': dtype uint8: float32 and float64 are possible", {"dtype": "uint8"}),
    ):
        changed = {"config": [image(4, 5, 2, **more), *rest]}
        refused(tmp_path, {**model, **changed}, chain.weights, match)


def test_weights_that_are_not_read_are_refused_by_name(tmp_path: Path) -> None:
    net = made((4, 5, 2), but(CONV, use_bias=False), NORM, RELU, FLAT, LAST)
    kernel, norm = net.weights["c"]["kernel"], net.weights["n"]
    swapped = {part: norm[part] for part in ("beta", "gamma", "moving_mean", "moving_variance")}
    for match, name, own in (
        ("'c': the file has no weights kernel", "c", {}),
        ("'c': its weights are kernel, bias: kernel are", "c", {"kernel": kernel, "bias": kernel}),
        (r"kernel are float32 of shape \[2, 3, 2, 3\]: floats", "c", {"kernel": kernel[:2]}),
        (r"kernel are .*: floats of shape \[3, 3, 2, 3\]", "c", {"kernel": kernel[..., 0]}),
        ("'c': the weights kernel are int64 of shape", "c", {"kernel": kernel.astype(int)}),
        ("c.weight: weights that are not finite", "c", {"kernel": kernel * np.nan}),
        ("c.weight: weights that are not", "c", {"kernel": kernel.astype(float) * 1e300}),
        ("'n': its weights are beta, gamma, moving_mean, moving_variance: gamma, b", "n", swapped),
        ("'n': the weights moving_mean are", "n", {**norm, "moving_mean": kernel}),
        ("n: a variance that is not", "n", {**norm, "moving_variance": -norm["moving_variance"]}),
        ("'r': its weights are alpha: none are possible", "r", {"alpha": kernel}),
        ("weights that no layer takes: .'image/image/mean:0'", "image", {"mean": kernel}),
    ):
        refused(tmp_path, net.sequential(), {**net.weights, name: own}, match)


def linked(group: Any) -> None:
    del group["c/c/kernel:0"]
    group["c/c/kernel:0"] = h5py.ExternalLink("other.h5", "kernel")


def elsewhere(group: Any) -> None:
    del group["c/c/kernel:0"]
    own = [("/etc/hostname", 0, 3 * 3 * 2 * 3 * 4)]
    group.create_dataset("c/c/kernel:0", (3, 3, 2, 3), "f4", external=own)


def unwritten(group: Any) -> None:
    del group["c/c/kernel:0"]
    group.create_dataset("c/c/kernel:0", (3, 3, 2, 3), "f4", chunks=(3, 3, 2, 3))


WEIGHTS: tuple[tuple[str, Any], ...] = (
    ("no layer takes: .'c/c/scale:0'", lambda group: group.update({"c/c/scale:0": [1.0]})),
    ("no layer takes: .'other/kernel:0'", lambda group: group.update({"other/kernel:0": [1.0]})),
    ("'c': the file has no weights kernel, and lists", lambda group: group.pop("c/c/kernel:0")),
    ("'c': the file has no weights kernel, and lists", linked),
    ("'c': the weights kernel are not in the file in full", elsewhere),
    ("'c': the weights kernel are not in the file in full", unwritten),
    (
        "layer_names is last, c: it must name the layers with weights in their order",
        lambda group: group.attrs.update({"layer_names": [b"last", b"flat", b"c"]}),
    ),
    ("layer_names is c: it must", lambda group: group.attrs.update({"layer_names": [b"c"]})),
    ("is no Keras model", lambda group: group.attrs.update({"layer_names": 3})),
    ("is no Keras model", lambda group: group["c"].attrs.update({"weight_names": [b"\xff"]})),
)


@pytest.mark.parametrize(("match", "change"), WEIGHTS)
def test_weights_that_stand_otherwise_are_refused(match: str, change: Any, tmp_path: Path) -> None:
    net = made((4, 5, 2), CONV, FLAT, LAST)
    path = write(tmp_path / "net.h5", net.sequential(), net.weights)
    with h5py.File(path, "a") as file:
        change(file["model_weights"])
    with pytest.raises(ModelError, match=match):
        networks.from_keras(path)


def test_files_that_are_no_models_of_keras_2_are_refused(tmp_path: Path) -> None:
    chain = made((4, 5, 2), FLAT, LAST)
    model = chain.sequential()
    for match, attributes in (
        ("net.h5 is of Keras 3.5.0, and 2 is possible: save it by", {"keras_version": "3.5.0"}),
        ("net.h5 is of Keras 1.2.2", {"keras_version": b"1.2.2"}),
        ("net.h5 is of Keras on theano", {"backend": "theano"}),
    ):
        refused(tmp_path, model, chain.weights, match, **attributes)
    path = write(tmp_path / "net.h5", model, chain.weights)
    whole = path.read_bytes()

    def not_read(match: str, content: bytes | None = None) -> None:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError, match=match):
            networks.from_keras(path)

    for match, text in (
        ("net.h5 is no Keras model with its weights", "{"),
        ("net.h5 is no Keras model with its weights", b"\xff"),
        ("net.h5 is no Keras model with its weights", "[" * 100_000),
        ("net.h5: model_config is 3, expected an object", "3"),
        ("net.h5: config is 3, expected an object", '{"class_name": "Sequential", "config": 3}'),
    ):
        with h5py.File(path, "a") as file:
            file.attrs["model_config"] = text
        not_read(match)
    with h5py.File(path, "a") as file:
        del file.attrs["model_config"]
    not_read("net.h5 is no Keras model: it has no model_config")
    with h5py.File(path, "a") as file:
        file.attrs["layer_names"] = [b"last"]
    not_read("it has weights only, as of save_weights; save it by Keras 2")
    for size in (*range(0, 100, 9), *range(100, len(whole), len(whole) // 30)):
        not_read("is no Keras model", whole[:size])
    not_read("is no Keras model", b"noise")
    not_read("net.h5 is a zip archive, as Keras' .keras files are: save", b"PK\x03\x04 and so on")
    (tmp_path / "saved").mkdir()
    with pytest.raises(ConfigError, match="saved is no file"):
        networks.from_keras(tmp_path / "saved")
    (tmp_path / "saved/saved_model.pb").write_bytes(b"")
    with pytest.raises(ModelError, match="saved is a SavedModel of TensorFlow: save it by Keras 2"):
        networks.from_keras(tmp_path / "saved")
