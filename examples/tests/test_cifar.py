"""The networks that others trained: whether they are taken as they are, and answer privately."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from examples.cifar import __main__
from examples.cifar.networks import Trained, load

from hushtable.data import DownloadFailed, Images, fetch, load_cifar
from hushtable.infer.networks import Draft

RANDOM = np.random.default_rng(4)


@pytest.fixture(scope="module")
def images() -> Images:
    try:
        return load_cifar(fetch("cifar-images"))
    except DownloadFailed as error:
        pytest.skip(f"the images are not here, and no registry has brought them: {error}")


def trained(name: str) -> Trained:
    pytest.importorskip("h5py", reason="the extra hushtable[keras] is not installed")
    try:
        return load(name, lambda _line: None)
    except DownloadFailed as error:
        pytest.skip(f"{name} is not here, and no registry has brought it: {error}")


def tiny() -> Trained:
    """A network of the same kind as theirs, small enough to be asked in a second."""
    draft = Draft((3, 32, 32), "tiny")
    weight = RANDOM.normal(0, 0.2, (4, 3, 4, 4)).astype(np.float32)
    at = draft.conv("c", "input", weight, None, stride=(4, 4))
    at = draft.pool("p", "max_pool", draft.relu("r", at), (2, 2), (2, 2))
    matrix = RANDOM.normal(0, 0.2, (10, 64)).astype(np.float32)
    network = draft.finish(draft.linear("l", draft.flatten("f", at), matrix, np.zeros(10)))
    return Trained("tiny", network, lambda pixels: pixels.astype(np.float32) / 255)


def test_the_networks_are_as_good_as_is_said(images: Images) -> None:
    assert len(images) == __main__.IMAGES
    for name, right, parameters in (("cifar-cnn", 20, 969_418), ("cifar-resnet", 18, 78_666)):
        own = trained(name)
        found = own.network.evaluate(own.inputs(images.pixels))
        assert int((found.argmax(1) == images.labels).sum()) == right
        assert own.network.parameters == parameters


def test_private_classes_are_the_clear_ones_through_a_real_server(tmp_path: Path) -> None:
    pixels = RANDOM.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    own = tiny()
    labels = own.network.evaluate(own.inputs(pixels)).argmax(1)
    said: list[str] = []
    judged = __main__.run(
        [own], Images(pixels, labels), ["server", "client"], tmp_path, said.append, most=2
    )
    assert [found.garbler for found in judged] == ["server", "client"]
    for found in judged:
        assert (found.images, found.clear_right, found.private_right) == (2, 2, 2)
        assert (found.integers_right, found.differing) == (2, 0)
        assert found.error_max < 0.05
        assert found.offline_bytes > found.online_bytes > 0
    by_server, by_client = judged
    assert by_server.client_bytes > by_client.client_bytes
    assert len(said) == 3


@pytest.mark.parametrize("garbler", ["server", "client"])
def test_the_cnn_is_right_privately(garbler: str, images: Images, tmp_path: Path) -> None:
    """On one image; on all 20 where HUSHTABLE_SOAK_LONG is set."""
    most = None if "HUSHTABLE_SOAK_LONG" in os.environ else 1
    own = trained("cifar-cnn")
    (found,) = __main__.run([own], images, [garbler], tmp_path, print, most)  # type: ignore[list-item]
    assert (found.private_right, found.differing) == (most or 20, 0)
