"""Networks as they are imported: what they compute, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hushtable.errors import ConfigError, ModelError
from hushtable.infer import _draft, networks
from hushtable.infer._compare import compared
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
    assert _draft.same_pad(32, 32, (3, 3), (2, 2)) == (0, 0, 1, 1)
    assert _draft.same_pad(32, 32, (3, 3), (2, 2), more_below=False) == (1, 1, 0, 0)
    assert _draft.same_pad(32, 32, (3, 3), (1, 1)) == (1, 1, 1, 1)
    assert _draft.same_pad(32, 32, (1, 1), (2, 2)) == (0, 0, 0, 0)


def test_answers_without_a_finite_number_show_nothing() -> None:
    draft = Draft((1, 1, 1), "odd")
    network = draft.finish(draft.linear("l", "input", np.ones((2, 1)), None))
    for answer in (np.nan, np.inf):
        with pytest.raises(ModelError, match="no finite number, so nothing shows"):
            compared(network, "it", lambda _, answer=answer: np.full(2, answer), list, "odd")


def test_sigmoids_of_large_numbers_do_not_overflow() -> None:
    draft = Draft((3, 1, 1), "steep")
    network = draft.finish(draft.post("s", "sigmoid", draft.linear("l", "input", np.eye(3), None)))
    with np.errstate(over="raise"):
        found = network.evaluate(np.array([-3e4, 0, 3e4]).reshape(1, 3, 1, 1))
    assert found.tolist() == [[0, 0.5, 1]]
