"""One party of an MLP on CrypTen; bench/peers/shares.py runs two of them.

    python mlp.py RANK NETWORK.npz RENDEZVOUS CALLS

The network's weights are public, its input is secret and shared beforehand, and so is its answer
after. Prints a JSON line of each call: the party's seconds, its processor's seconds and the logit.
A call more has CrypTen count its bytes and rounds. It runs in CrypTen's own environment, and knows
nothing of hushtable.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import crypten
import numpy as np
import torch
from crypten import communicator
from crypten.config import cfg


def forward(x: Any, weights: list[torch.Tensor]) -> Any:
    """ReLU after each layer but the last."""
    for at in range(0, len(weights), 2):
        x = (x.relu() if at else x).matmul(weights[at]).add(weights[at + 1])
    return x


def main() -> None:
    rank, network, rendezvous, calls = sys.argv[1], np.load(sys.argv[2]), *sys.argv[3:5]
    torch.set_num_threads(1)
    os.environ.update(RANK=rank, WORLD_SIZE="2", RENDEZVOUS=rendezvous, GLOO_SOCKET_IFNAME="lo")
    crypten.init()
    x, *weights = (torch.from_numpy(network[name]) for name in network.files)
    shared = crypten.cryptensor(x, src=0)
    for _ in range(int(calls)):
        communicator.get().barrier()
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = forward(shared, weights)
        line = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - began_cpu}
        print(json.dumps({**line, "logit": float(answer.get_plain_text()[0])}), flush=True)
    cfg.communicator.verbose = True
    crypten.reset_communication_stats()
    forward(shared, weights)
    counted = communicator.get().get_communication_stats()
    print(json.dumps({"bytes": counted["bytes"], "rounds": counted["rounds"]}), flush=True)
    communicator.get().barrier()


if __name__ == "__main__":
    main()
