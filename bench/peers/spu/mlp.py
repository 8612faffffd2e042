"""One party of an MLP on SPU's SEMI2K; bench/peers/shares.py runs two of them.

    python mlp.py RANK NETWORK.npz FIELD PORT0 PORT1 CALLS

The network's weights are public, its input is secret and shared beforehand, and so is its answer
after. Prints a JSON line of each call: the party's seconds, its processor's seconds and the logit.
A call more has SPU count its bytes. It runs in SPU's own environment, and knows nothing of
hushtable.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import spu.api as spu_api
from session import compiled, linked, revealed
from spu import libspu


def forward(x: Any, *weights: Any) -> Any:
    """ReLU after each layer but the last."""
    for at in range(0, len(weights), 2):
        x = (jnp.maximum(x, 0) if at else x) @ weights[at] + weights[at + 1]
    return x


def main() -> None:
    rank, network, field = int(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3]
    ports, calls = sys.argv[4:6], int(sys.argv[6])
    ring = getattr(libspu.FieldType, field)
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.SEMI2K, field=ring)
    link = linked(rank, ports)
    values = [network[name] for name in network.files]
    weights = len(values) - 1
    visible = [libspu.Visibility.VIS_SECRET] + [libspu.Visibility.VIS_PUBLIC] * weights
    executable, names = compiled(forward, values, visible)
    io = spu_api.Io(2, config)
    shares = [io.make_shares(*one)[rank] for one in zip(values, visible, strict=True)]
    # Either party's are made of randomness of its own: the input's must come from one of them.
    both = io.make_shares(values[0], visible[0])
    chunks = json.dumps([one.share_chunks[0].hex() for one in both])
    shares[0].share_chunks = [bytes.fromhex(json.loads(link.broadcast(chunks, 0))[rank])]

    def runtime(config: Any) -> Any:
        made = spu_api.Runtime(link, config)
        for name, share in zip(names, shares, strict=True):
            made.set_var(name, share)
        return made

    timed = runtime(config)
    for _ in range(calls):
        link.barrier()
        began, began_cpu = time.perf_counter(), time.process_time()
        timed.run(executable)
        line = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - began_cpu}
        logit = revealed(link, io, timed.get_var("out0"))
        print(json.dumps({**line, "logit": float(logit[0])}), flush=True)
    counting = libspu.RuntimeConfig(config)
    counting.enable_pphlo_profile = True
    runtime(counting).run(executable)
    link.barrier()
    link.stop_link()


if __name__ == "__main__":
    main()
