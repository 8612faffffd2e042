"""Predicts with ImageNet's networks, 224 x 224, by hybrid private inference: both parties here.

    make .venv-torch/.installed
    .venv-torch/bin/python bench/imagenet.py [--network resnet50,mobilenet_v2] [--out FILE]

Each network is torch's, layer for layer, with random weights: what it costs does not depend on
them. It is imported (and compared with torch), compiled, and computed in the clear and simulated.
Then a server and a client, processes of their own with precomputes on disk, make one precompute and
one prediction, for each garbler. The answer is held against torch's; memory is each process's peak.

Exits with 1 where an answer is not torch's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run import machine
from torch import nn

from hushtable.infer import HybridModel, compile, networks
from hushtable_lab.measure.records import bench_record

HUSHTABLE = (sys.executable, "-m", "hushtable", "infer")
START_S_MAX, CALL_S_MAX = 60.0, 1200
#: Of the largest number of an answer: twelve fraction bits over fifty layers.
ERROR_MAX = 0.05


class Bottleneck(nn.Module):
    """ResNet's: 1 x 1, 3 x 3 and 1 x 1, beside what it reads."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one = normed(inputs, width, 1)
        self.two = normed(width, width, 3, stride)
        self.three = normed(width, outputs, 1)
        self.relu = nn.ReLU(inplace=True)
        is_same = inputs == outputs and stride == 1
        self.beside = nn.Identity() if is_same else normed(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.three(self.relu(self.two(self.relu(self.one(x)))))
        found: torch.Tensor = self.relu(y + self.beside(x))
        return found


class Inverted(nn.Module):
    """MobileNetV2's: wide, each channel by itself, narrow, and what it reads added."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = inputs * factor
        layers: list[nn.Module] = []
        if factor != 1:
            layers += [normed(inputs, wide, 1), nn.ReLU6(inplace=True)]
        layers += [normed(wide, wide, 3, stride, groups=wide), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*layers, normed(wide, outputs, 1))
        self.is_added = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return x + found if self.is_added else found


def normed(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    pad = kernel // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def resnet50() -> nn.Module:
    layers = [normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(channels, width, 4 * width, stride if index == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [normed(3, 32, 3, 2), nn.ReLU6(inplace=True)]
    channels = 32
    for factor, outputs, blocks, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for index in range(blocks):
            layers.append(Inverted(channels, outputs, stride if index == 0 else 1, factor))
            channels = outputs
    layers += [normed(channels, 1280, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
}


def module_of(network: str) -> nn.Module:
    """With random weights, and statistics that keep numbers of one size through all layers."""
    torch.manual_seed(0)
    module = NETWORKS[network]()
    with torch.no_grad():
        for _ in range(8):
            module.train()(torch.randn(8, 3, 64, 64))
    return module.eval()


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak_bytes(pid: int) -> int:
    """What a process had in memory at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 1024 * int(found[1]) if found else 0


@contextlib.contextmanager
def served(model: Path, store: Path) -> Iterator[tuple[str, int]]:
    """A server of its own process: its address and process."""
    command = [*HUSHTABLE, "serve", str(model), "--port", "0", "--metrics-addr", "none"]
    command += ["--store", str(store), "--store-ledger", f"{store}-ledger"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"https?://\S+", line)
        if address is None:
            raise SystemExit(f"the server does not start: {line!r}")
        yield address[0].rstrip(",.;"), server.pid
    finally:
        server.terminate()
        server.wait(START_S_MAX)


def call(*arguments: str) -> tuple[dict[str, Any], float, int]:
    """A command's facts, its seconds, and its memory."""
    began, peak = time.monotonic(), 0
    command = [*HUSHTABLE, *arguments, "--timeout", str(CALL_S_MAX), "--json"]
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, text=True)
        # What waiting for a process tells of its memory has this one's in it.
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            time.sleep(0.02)
        seconds = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"hushtable infer {arguments[0]} ended with {process.returncode}")
        printed.seek(0)
        return json.load(printed), seconds, peak


def privately(
    model: Path, garbler: str, image: Path, expected: np.ndarray[Any, Any], folder: Path
) -> dict[str, Any]:
    """One precompute and one prediction."""
    stores = {side: folder / f"{garbler}-{side}" for side in ("server", "client")}
    with served(model, stores["server"]) as (address, pid):
        to = ["--server", address, "--garbler", garbler, "--store", str(stores["client"])]
        to += ["--store-ledger", f"{stores['client']}-ledger"]
        _, offline_s, offline_peak = call("precompute", "--count", "1", *to)
        stored = {side: folder_bytes(store) for side, store in stores.items()}
        answer, online_s, online_peak = call("query", "--input", str(image), *to)
        server_peak = peak_bytes(pid)
    outputs = np.array(answer["outputs"][0])
    return {
        "offline_s": round(offline_s, 1),
        "online_s": round(online_s, 1),
        "stored_bytes": stored,
        "peak_bytes": {"server": server_peak, "client": max(offline_peak, online_peak)},
        "largest_error": float(np.abs(outputs - expected).max()),
        "is_the_class": bool(outputs.argmax() == expected.argmax()),
    }


def measured(network: str, size: int, folder: Path) -> dict[str, Any]:
    module = module_of(network)
    image = np.random.default_rng(0).uniform(-2, 2, (1, 3, size, size)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(image)).numpy()[0]
    np.save(folder / "image.npy", image)

    began = time.monotonic()
    imported = networks.from_torch(module, (3, size, size), range=(-2.7, 2.7))
    import_s = time.monotonic() - began
    model = imported.build(folder / network)
    began = time.monotonic()
    compile(model, scheme="hybrid", samples=image)
    compile_s = time.monotonic() - began
    local = HybridModel.load(model)
    errors = {
        how: float(np.abs(local.predict(image[0], fhe=how).outputs - expected).max())
        for how in ("clear", "simulate")
    }
    own_peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "checked": imported.checked,
        "relus": imported.activations,
        "parameters": imported.parameters,
        "import_s": round(import_s, 1),
        "compile_s": round(compile_s, 1),
        "peak_bytes": own_peak,
        "largest_answer": float(np.abs(expected).max()),
        "largest_error": errors,
    }
    for garbler in ("server", "client"):
        found[f"{garbler}_garbles"] = privately(
            model, garbler, folder / "image.npy", expected, folder
        )
        print(network, garbler, json.dumps(found[f"{garbler}_garbles"]), file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default=",".join(NETWORKS), help="which, with commas")
    parser.add_argument("--size", type=int, default=224, help="rows and columns of an image")
    parser.add_argument("--out", type=Path, help="a file for the record, too")
    options = parser.parse_args()
    asked = options.network.split(",")
    if unknown := [name for name in asked if name not in NETWORKS]:
        parser.error(f"no network {', '.join(unknown)}: there are {', '.join(NETWORKS)}")
    found = {}
    for network in asked:
        with tempfile.TemporaryDirectory(prefix="hushtable-imagenet-") as folder:
            found[network] = measured(network, options.size, Path(folder))
    slowest = max(
        own[f"{garbler}_garbles"]["offline_s"] + own[f"{garbler}_garbles"]["online_s"]
        for own in found.values()
        for garbler in ("server", "client")
    )
    facts = machine()
    record = bench_record(
        "imagenet",
        {"networks": asked, "size": options.size},
        round(slowest, 1),
        "s",
        None,
        None,
        os.cpu_count() or 1,
        facts["doctor"]["isa"]["used"],
        networks=found,
    )
    print(json.dumps(record))
    if options.out:
        whole = {"machine": facts, "results": [record]}
        options.out.write_text(json.dumps(whole, indent=2) + "\n")
    bad = [
        network
        for network, own in found.items()
        for garbler in ("server", "client")
        if own[f"{garbler}_garbles"]["largest_error"] > ERROR_MAX * own["largest_answer"]
    ]
    if bad:
        raise SystemExit(f"{', '.join(bad)}: an answer that is not torch's")


if __name__ == "__main__":
    main()
