"""One party of a private inference by SPU with Cheetah; bench/peers/hybrid.py runs two of them.

    python party.py RANK NETWORK SIZE PORT0 PORT1 RUNS

Rank 0 owns the weights, rank 1 the image; weights and image are random. Prints a JSON line of each
run: seconds, and whether the answer is near the float one. It runs in SPU's own venv, and knows
nothing of hushtable.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spu.api as spu_api
from session import compiled, linked, revealed
from spu import libspu

SERVER, CLIENT = 0, 1


class Weights:
    """Draws convolutions in the order in which a network asks for them, or hands them out again."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)
        self.kept: list[np.ndarray] = []

    def convolution(self, outputs: int, inputs: int, kernel: int) -> None:
        scale = np.sqrt(2 / (inputs * kernel * kernel))
        weights = self.random.normal(0, scale, (outputs, inputs, kernel, kernel))
        self.kept.append(weights.astype(np.float32))
        self.kept.append(np.full((1, outputs, 1, 1), 0.01, np.float32))


def blocks(network: str) -> tuple[int, list[tuple[int, int, int]]]:
    """Planes of the first convolution; then of each block its inputs, outputs and stride."""
    if network == "resnet32":
        width, stages = 16, [(16, 5, 1), (32, 5, 2), (64, 5, 2)]
    else:
        width, stages = 64, [(64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2)]
    found, inputs = [], width
    for outputs, count, stride in stages:
        for at in range(count):
            found.append((inputs, outputs, stride if at == 0 else 1))
            inputs = outputs
    return width, found


def weights_of(network: str, classes: int) -> list[np.ndarray]:
    """Batch norms are folded: each convolution has a bias."""
    made = Weights()
    width, all_blocks = blocks(network)
    made.convolution(width, 3, 3)
    for inputs, outputs, stride in all_blocks:
        made.convolution(outputs, inputs, 3)
        made.convolution(outputs, outputs, 3)
        if stride != 1 or inputs != outputs:
            made.convolution(outputs, inputs, 1)
    made.convolution(classes, all_blocks[-1][1], 1)
    return made.kept


def forward(network: str) -> Any:
    """The network as a function of the image and the weights."""

    def convolve(x: Any, own: list[Any], stride: int) -> Any:
        weights, bias = own.pop(0), own.pop(0)
        pad = (weights.shape[2] - 1) // 2
        y = jax.lax.conv_general_dilated(
            x,
            weights,
            (stride, stride),
            [(pad, pad), (pad, pad)],
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )
        return y + bias

    def answer(x: Any, *weights: Any) -> Any:
        own = list(weights)
        x = jnp.maximum(convolve(x, own, 1), 0)
        for inputs, outputs, stride in blocks(network)[1]:
            y = jnp.maximum(convolve(x, own, stride), 0)
            y = convolve(y, own, 1)
            short = convolve(x, own, stride) if stride != 1 or inputs != outputs else x
            x = jnp.maximum(y + short, 0)
        x = jnp.mean(x, axis=(2, 3), keepdims=True)
        return convolve(x, own, 1).reshape(1, -1)

    return answer


def main() -> None:
    rank, network, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ports, runs = sys.argv[4:6], int(sys.argv[6])
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.CHEETAH, field=libspu.FieldType.FM64)
    config.experimental_enable_colocated_optimization = True
    config.enable_pphlo_profile = rank == SERVER
    link = linked(rank, ports)

    image = np.random.default_rng(1).random((1, 3, size, size), np.float32)
    weights = weights_of(network, {32: 100, 64: 200}[size])
    function = forward(network)
    values = [image, *weights]
    secret = [libspu.Visibility.VIS_SECRET] * len(values)
    executable, names = compiled(function, values, secret)
    io = spu_api.Io(2, config)
    runtime = spu_api.Runtime(link, config)
    for name, value, owner in zip(names, values, [CLIENT] + [SERVER] * len(weights), strict=True):
        # Only the owner's own share holds the value: the other party's is empty.
        shares = io.make_shares(value, libspu.Visibility.VIS_SECRET, owner)
        runtime.set_var(name, shares[rank])
    clear = np.asarray(function(image, *weights)).ravel() if rank == SERVER else None
    for run in range(runs):
        link.barrier()
        began = time.perf_counter()
        runtime.run(executable)
        link.barrier()
        seconds = time.perf_counter() - began
        found = revealed(link, io, runtime.get_var("out0"))
        if clear is None:
            continue
        off = float(np.abs(found - clear).max())
        print(json.dumps({"run": run, "seconds": seconds, "error_max": off}), flush=True)
    link.stop_link()


if __name__ == "__main__":
    main()
