"""What a private prediction of a network takes: seconds, bytes and memory of each party.

The cost file is what simulators of many requests read (docs/hybrid-costs.md).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushtable import _native
from hushtable._machine import instruction_ns
from hushtable.client import ClientOptions, connect
from hushtable.client.options import Garbler
from hushtable.errors import ConfigError
from hushtable.infer._hybrid import OnlineStats, PrecomputeStats
from hushtable.infer._plan import compile as compile_model
from hushtable.infer._server import ServerProcess
from hushtable.server import _affinity, make_certificates

from . import native, paper_networks
from .measure.floors import multiply_ns, transform_floor
from .measure.memory import peak_bytes
from .measure.records import bench_record

__all__ = ["COST_FORMAT", "Characterised", "measure", "read_cost"]

#: The cost file's format.
COST_FORMAT = 1
#: AES blocks of a gate, by who garbles and who evaluates (two a hash), and of an oblivious
#: transfer, by both: SoftSpoken expands 32 trees of 16 leaves to a bit each, 512 bits a transfer.
_GARBLE_BLOCKS, _EVALUATE_BLOCKS, _TRANSFER_BLOCKS = 8, 4, 2 * 4


@dataclass(frozen=True)
class Characterised:
    """What was found of one network in one role.

    Attributes:
        network: its name.
        size: rows and columns of an image.
        garbler: who garbles.
        parallel: how layers were encrypted.
        counts: sizes and operations, which follow from the plan.
        offline: of the two processes.
        online: of the two processes.
        memory_bytes: the most that client and server held.
        parts: of both parties in one process, by part; None where that was not measured.
    """

    network: str
    size: int
    garbler: Garbler
    parallel: str
    counts: dict[str, Any]
    offline: PrecomputeStats
    online: OnlineStats
    memory_bytes: tuple[int, int]
    parts: dict[str, Any] | None

    @property
    def seconds(self) -> float:
        """Offline and online."""
        return self.offline.seconds + self.online.seconds

    def floor(self) -> tuple[float | None, str]:
        """The least seconds of both parties' AES and transforms, one core each; what binds."""
        counts = self.counts
        round_ns, product_ns = instruction_ns()[1], multiply_ns()
        transform = transform_floor(counts["degree"])
        if round_ns is None or product_ns is None or transform is None:
            return None, "aes"
        blocks = counts["and_gates"] * (_GARBLE_BLOCKS + _EVALUATE_BLOCKS)
        blocks += counts["transfers"] * _TRANSFER_BLOCKS
        aes = blocks * 10 / 4 * round_ns * 1e-9
        # A plaintext goes forward once, an upload forward and back at either side, an answer back
        # with its two polynomials; a product is of two polynomials, two instructions eight numbers.
        forward = counts["transforms"] + 2 * counts["uploads"] + 2 * counts["answers"]
        vectors = counts["ciphertext_products"] * 2 * 2 * counts["degree"] / 8
        he = counts["primes"] * (forward * transform.seconds + vectors * product_ns * 1e-9)
        # Garbling and encryption at one party overlap with the other's at best.
        return (aes + he) / 2, "aes" if aes > he else "ifma"

    def record(self) -> dict[str, Any]:
        """What `hushtable bench hybrid --json` prints."""
        floor, bound = self.floor()
        detail: dict[str, Any] = {
            "bound": bound,
            "offline_s": self.offline.seconds,
            "online_s": self.online.seconds,
            "offline_bytes_up": self.offline.bytes_up,
            "offline_bytes_down": self.offline.bytes_down,
            "online_bytes_up": self.online.bytes_up,
            "online_bytes_down": self.online.bytes_down,
            "client_storage_bytes": self.counts["client_bytes"],
            "server_storage_bytes": self.counts["server_bytes"],
            "evaluator_bytes_per_relu": self.counts["circuit_bytes"] / self.counts["activations"],
            "client_memory_bytes": self.memory_bytes[0],
            "server_memory_bytes": self.memory_bytes[1],
            **{
                name: self.counts[name]
                for name in ("bits", "fraction", "lattice", "activations", "and_gates", "transfers")
            },
        }
        if self.parts is not None:
            for phase in ("offline", "online"):
                for party in ("client", "server"):
                    for part, seconds in self.parts[phase][party].items():
                        detail[f"{phase}_{party}_{part}_s"] = seconds
            for way in ("up", "down"):
                for kind in ("he", "ot", "circuits"):
                    detail[f"offline_{kind}_bytes_{way}"] = self.parts["offline"][way][kind]
            detail["exact"] = self.parts["exact"]
        detail |= self._beside_the_paper()
        return bench_record(
            "hybrid",
            {
                "network": self.network,
                "size": self.size,
                "garbler": self.garbler,
                "parallel": self.parallel,
            },
            self.seconds,
            "s",
            floor,
            None if floor is None else floor / self.seconds,
            1,
            _native.platforms().chosen,
            **detail,
        )

    def _beside_the_paper(self) -> dict[str, Any]:
        """DELPHI's figures, and how many times as much that is; its network is left out."""
        paper = paper_networks.network(self.network, self.size)
        if paper is None:
            return {}
        client_garbles = self.garbler == "client"
        offline, online = paper.seconds(client_garbles=client_garbles)
        up, down = paper.traffic(client_garbles=client_garbles)
        own = self.offline.bytes_up + self.online.bytes_up
        own += self.offline.bytes_down + self.online.bytes_down
        kept = paper.client_bytes(client_garbles=client_garbles)
        return {
            "paper_compute_s": offline + online,
            "paper_seconds_ratio": (offline + online) / self.seconds,
            "paper_he_s": paper.he_seconds[0],
            "paper_bytes": up + down,
            "paper_bytes_ratio": (up + down) / own,
            "paper_client_storage_bytes": kept,
            "paper_client_storage_ratio": kept / self.counts["client_bytes"],
        }

    def cost_file(self) -> dict[str, Any]:
        """What a simulator reads.

        Raises:
            ConfigError: parts were not measured.
        """
        if self.parts is None:
            raise ConfigError("a cost file has the time of each part: measure with parts")
        return {
            "format": COST_FORMAT,
            "network": self.network,
            "size": self.size,
            "garbler": self.garbler,
            "parallel": self.parallel,
            "isa": _native.platforms().chosen,
            "counts": self.counts,
            "storage": {
                "client_bytes": self.counts["client_bytes"],
                "server_bytes": self.counts["server_bytes"],
            },
            "memory": {
                "client_bytes": self.memory_bytes[0],
                "server_bytes": self.memory_bytes[1],
            },
            "offline": {
                **self.parts["offline"],
                "measured_s": self.offline.seconds,
                "bytes_up": self.offline.bytes_up,
                "bytes_down": self.offline.bytes_down,
            },
            "online": {
                **self.parts["online"],
                "measured_s": self.online.seconds,
                "bytes_up": self.online.bytes_up,
                "bytes_down": self.online.bytes_down,
            },
        }


def read_cost(path: Path) -> dict[str, Any]:
    """A cost file.

    Raises:
        ConfigError: a file that is none, or of another format.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != COST_FORMAT:
            raise ConfigError(
                f"{path} has format {found['format']!r}, this version reads {COST_FORMAT}"
            )
        for name in ("network", "size", "garbler", "counts", "storage", "offline", "online"):
            found[name]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is no cost file of `bench hybrid`: {error!r}") from error
    return dict(found)


def measure(
    network: str,
    size: int,
    *,
    garbler: Garbler = "server",
    parallel: Literal["layer", "sequential"] = "layer",
    runs: int = 1,
    parts: bool = True,
    up_mbps: float | None = None,
    down_mbps: float | None = None,
    verify_uploads: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Characterised:
    """Serves a built-in network from a process of its own, and predicts privately.

    Raises:
        ConfigError: no such network, or a rate that is none.
    """
    client_garbles = garbler == "client"
    options = ClientOptions(
        garbler=garbler, parallel=parallel, timeout=3600.0, up_mbps=up_mbps, down_mbps=down_mbps
    )
    with tempfile.TemporaryDirectory(prefix="hushtable-hybrid-") as folder:
        bundle = Path(folder) / network
        dense = Path(folder) / "dense.safetensors"
        say(f"making {network} up, and compiling it")
        native.hybrid_network(dense, network=network, size=size)
        _native.model_of_dense(bundle, network, dense)
        dense.unlink()
        compile_model(bundle, scheme="hybrid", verify_uploads=verify_uploads)
        certificates = make_certificates(Path(folder) / "certificates")
        ours, theirs = _own_cores()
        with (
            ServerProcess(bundle, tls=certificates.server, cpus=theirs) as server,
            # Threads inherit where they may run: those of the client are made in here.
            _affinity(ours),
            connect(
                server=server.url, scheme="hybrid", tls=certificates.ca, options=options
            ) as client,
        ):
            found: list[tuple[PrecomputeStats, OnlineStats]] = []
            image = np.random.default_rng(1).uniform(-1, 1, client.info.input)
            for run in range(runs):
                say(f"run {run + 1} of {runs}: offline")
                offline = client.precompute(1)
                say("online")
                online = client.predict(image.astype(np.float32)).stats[0]
                found.append((offline, online))
            memory = (peak_bytes(), peak_bytes(server.process.pid))
    say("both parties in one process, for the time of each part")
    bench = native.HybridBench(network, size, verify_uploads=verify_uploads)
    counts = json.loads(bench.counts(client_garbles=client_garbles))
    by_part = json.loads(bench.measure(client_garbles=client_garbles)) if parts else None
    if by_part is not None:
        by_part.pop("counts")
    best = min(found, key=lambda one: one[0].seconds + one[1].seconds)
    return Characterised(
        network, size, garbler, parallel, counts, best[0], best[1], memory, by_part
    )


def _own_cores() -> tuple[set[int] | None, set[int] | None]:
    """One processor for the client and one for the server, where there are two."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None, None
    return {allowed[0]}, {allowed[1]}
