"""A profile of what `hushtable bench hybrid --cost FOLDER` measured."""

from __future__ import annotations

import heapq
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hushtable.errors import ConfigError

from .deployment import Costs, Party, Resource, Step
from .network import Device, Table
from .profile import Parallel, Profile

__all__ = ["MEASURED", "MeasuredProfile", "makespan"]

#: Cost files that come with the package; machine.toml says of what machine.
MEASURED = Path(__file__).parent / "profiles" / "measured"
_PARTS = ("he", "ot", "garble", "evaluate", "shares")


class MeasuredProfile(Profile):
    """Seconds of one thread by part, bytes and storage, of one machine that was both parties."""

    def __init__(
        self, name: str, about: str, cores: int, files: Mapping[tuple[str, int, Party], Table]
    ) -> None:
        self.name, self.about = name, about
        self.files = files
        here = Device("this", cores)
        self.clients = {"this": here}
        self.servers = {"this": here}

    @classmethod
    def read(cls, path: Path) -> MeasuredProfile:
        """A cost file, or a folder of them, with machine.toml if it is there.

        Raises:
            ConfigError: no cost file, or one with a cost that is missing, negative or no number.
        """
        # It brings the native module, which constants do without.
        from ...characterise import read_cost

        paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not paths:
            raise ConfigError(
                f"{path} has no cost files: write them with `hushtable bench hybrid --cost {path}`"
            )
        files: dict[tuple[str, int, Party], Table] = {}
        for one in paths:
            table = Table(one, "", read_cost(one))
            garbler = table.found["garbler"]
            if garbler not in ("server", "client"):
                raise table.wrong("garbler", f"is {garbler!r}", "server or client")
            _check(table)
            files[str(table.found["network"]), table.count("size", least=1), garbler] = table
        machine = path / "machine.toml" if path.is_dir() else None
        about, cores = f"hushtable, measured: {path}", os.cpu_count() or 1
        if machine is not None and machine.exists():
            try:
                said = tomllib.loads(machine.read_text(encoding="utf-8-sig"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise ConfigError(f"{machine} cannot be read: {error}") from error
            cores = Table(machine, "", said).count("cores", least=1)
            about = f"hushtable on {said.get('machine', 'this machine')}, {said.get('isa', '')}, "
            about += f"{said.get('date', 'at an unknown date')}"
        return cls(path.stem, about, cores, files)

    @property
    def networks(self) -> tuple[tuple[str, int], ...]:
        return tuple(dict.fromkeys((name, size) for name, size, _ in self.files))

    def costs(
        self,
        network: str,
        size: int,
        garbler: Party,
        parallel: Parallel = "layer",
        client: str | None = None,
        server: str | None = None,
        *,
        client_gc_threads: int | None = None,
        server_gc_threads: int | None = None,
        is_as_published: bool = False,
    ) -> Costs:
        """As for any profile. Garbling, evaluating and transfers have one thread, as they were
        measured, unless threads are given: then garbling and evaluating are shared out."""
        self._check(network, size, garbler, parallel)
        if (network, size, garbler) not in self.files:
            raise ConfigError(
                f"the profile {self.name} has {network} {size} with the other garbler alone: "
                f"measure it with `hushtable bench hybrid --network {network} --size {size} "
                f"--garbler {garbler} --cost FOLDER`"
            )
        file = self.files[network, size, garbler]
        devices = {"client": self.device("client", client), "server": self.device("server", server)}
        threads = {"client": client_gc_threads or 1, "server": server_gc_threads or 1}
        offline, online = file.table("offline"), file.table("online")

        def busy(phase: Table, on: Party, part: str) -> Step:
            device, cores = devices[on], 1
            seconds, speed = phase.table(on).number(part), device.speed
            if part in ("garble", "evaluate"):
                cores, speed = threads[on], device.circuits_speed
            elif part == "he" and on == "server" and parallel == "layer":
                layers = offline.found["layers"]
                cores = max(1, min(device.cores, len(layers)))
                rest = max(seconds - sum(layers), 0.0)
                return Step(part, on, (makespan(layers, cores) + rest) / speed, cores)
            return Step(part, on, seconds / cores / speed, cores)

        def sent(phase: Table, way: str, part: str) -> Step:
            on: Resource = "up" if way == "up" else "down"
            return Step(part, on, phase.table(way).number(part))

        evaluator: Party = "client" if garbler == "server" else "server"
        outward, back = ("down", "up") if garbler == "server" else ("up", "down")
        steps = [
            busy(offline, "client", "he"),
            sent(offline, "up", "he"),
            busy(offline, "server", "he"),
            sent(offline, "down", "he"),
            busy(offline, "client", "shares"),
            busy(offline, "server", "shares"),
            busy(offline, garbler, "garble"),
            sent(offline, outward, "circuits"),
            sent(offline, back, "circuits"),
            busy(offline, evaluator, "ot"),
            sent(offline, back, "ot"),
            busy(offline, garbler, "ot"),
            sent(offline, outward, "ot"),
        ]
        predict = [
            busy(online, "server", "shares"),
            busy(online, "client", "ot"),
            busy(online, "server", "ot"),
            Step("labels", "up", online.number("bytes_up")),
            Step("labels", "down", online.number("bytes_down")),
            busy(online, evaluator, "evaluate"),
            busy(online, "client", "shares"),
        ]
        storage = file.table("storage")
        return Costs(
            network=f"{network} {size}x{size}",
            garbler=garbler,
            offline=tuple(step for step in steps if step.amount > 0),
            online=tuple(step for step in predict if step.amount > 0),
            client_bytes=round(storage.number("client_bytes")),
            server_bytes=round(storage.number("server_bytes")),
        )


def makespan(seconds: Sequence[float], cores: int) -> float:
    """Until the last of independent jobs is done, the longest begun first (Graham's LPT)."""
    if not seconds:
        return 0.0
    free = [0.0] * max(1, cores)
    for one in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _check(table: Table) -> None:
    """Every number that is read later, so that a file is good or is refused."""
    storage = table.table("storage")
    for key in ("client_bytes", "server_bytes"):
        storage.number(key)
    for name in ("offline", "online"):
        phase = table.table(name)
        for party in ("client", "server"):
            for part in _PARTS:
                phase.table(party).number(part)
        for way in ("up", "down"):
            phase.number(f"bytes_{way}")
    for way in ("up", "down"):
        for part in ("he", "ot", "circuits"):
            table.table("offline").table(way).number(part)
    offline = table.table("offline")
    layers: Any = offline.found.get("layers")
    expected = "a list of the seconds of each layer, 0 or more"
    if not isinstance(layers, list) or not layers:
        raise offline.wrong(
            "layers", "is missing" if layers is None else f"is {layers!r}", expected
        )
    for value in layers:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise offline.wrong("layers", f"has {json.dumps(value)}", expected)
