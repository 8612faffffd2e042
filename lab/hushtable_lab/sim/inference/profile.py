"""Where costs come from: a TOML profile of constants, or what `hushtable bench hybrid` measured."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from hushtable.errors import ConfigError

from .deployment import Costs, Deployment, Party, Resource, Step
from .network import PAPER, Constants, Device, Network, read_constants

__all__ = ["Parallel", "Profile", "TableProfile", "profile"]

#: How linear layers are encrypted: all at once, one after the other, or one precompute a core.
Parallel = Literal["layer", "sequential", "request"]
_PARALLEL = ("layer", "sequential", "request")
#: The paper's links, up and down, by who garbles: an even split, and the best one of its largest
#: network (section 5.3).
_MBPS: Mapping[Party, tuple[float, float]] = {"server": (500.0, 500.0), "client": (835.0, 165.0)}
_SPEED = re.compile(r"([0-9.]+)x(?::([0-9]+))?")


class Profile(ABC):
    """What networks cost, by who garbles, how layers are encrypted, and which devices run it.

    Attributes:
        name: for people.
        about: what was measured, where.
        clients: devices by name; the first is what was measured.
        servers: likewise.
    """

    name: str
    about: str
    clients: Mapping[str, Device]
    servers: Mapping[str, Device]

    @property
    @abstractmethod
    def networks(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of images."""

    @abstractmethod
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
        """The steps of both phases.

        Args:
            network: one of the profile's.
            size: rows and columns of an image.
            garbler: who garbles.
            parallel: "layer" encrypts as many layers at once as the server has cores,
                "sequential" one after the other; "request" has one core at either party for all
                of a precompute.
            client: a device of the profile, or "0.5x" for half the speed of the first one, "2x:8"
                for twice its speed and eight cores; None is the first.
            server: likewise.
            client_gc_threads: of garbling or evaluating; None is the profile's own.
            server_gc_threads: likewise.
            is_as_published: with the published simulator's bytes of storage.

        Raises:
            ConfigError: no such network, garbler, way or device.
        """

    def device(self, party: Party, name: str | None) -> Device:
        """A device of the profile, or a multiple of the first one.

        Raises:
            ConfigError: no such device.
        """
        devices = self.clients if party == "client" else self.servers
        first = next(iter(devices.values()))
        if name is None:
            return first
        if name in devices:
            return devices[name]
        found = _SPEED.fullmatch(name)
        try:
            speed = float(found[1]) if found else 0.0
        except ValueError:
            speed = 0.0
        cores = int(found[2]) if found and found[2] else first.cores
        if found is None or speed <= 0 or cores < 1:
            raise ConfigError(
                f"{name!r} is no {party} of the profile {self.name}: give one of "
                f"{', '.join(devices)}, or 0.5x for half the speed of {first.name}, "
                "2x:8 for twice its speed and 8 cores"
            )
        return Device(name, cores, first.speed * speed, first.circuits_speed * speed)

    def deployment(
        self,
        network: str = "resnet18",
        size: int = 64,
        garbler: Party = "client",
        parallel: Parallel | None = None,
        client: str | None = None,
        server: str | None = None,
        *,
        client_storage_gb: float = 16.0,
        server_storage_gb: float = 10_000.0,
        up_mbps: float | None = None,
        down_mbps: float | None = None,
        clients: int = 1,
        client_cores: int | None = None,
        server_cores: int | None = None,
        client_gc_threads: int | None = None,
        server_gc_threads: int | None = None,
        is_as_published: bool = False,
    ) -> Deployment:
        """A server with clients; what is left out is as in the paper.

        Where the server garbles, that is 500 Mbit/s each way and layers one after the other; where
        the client does, 835 up and 165 down, and layers in parallel. Servers keep 10 TB.

        Raises:
            ConfigError: as :meth:`costs`, or a number that cannot be.
        """
        if garbler not in _MBPS:
            raise ConfigError(f"the garbler is {garbler!r}, but must be server or client")
        if parallel is None:
            parallel = "sequential" if garbler == "server" else "layer"
        up, down = _MBPS[garbler]
        up, down = up if up_mbps is None else up_mbps, down if down_mbps is None else down_mbps
        for name, value in (
            ("the rate up", up),
            ("the rate down", down),
            ("the client's storage", client_storage_gb),
            ("the server's storage", server_storage_gb),
        ):
            least = value > 0 if name.startswith("the rate") else value >= 0
            if not (math.isfinite(value) and least):
                raise ConfigError(f"{name} is {value:g}, but must be finite and above 0")
        for name, count in (
            ("clients", clients),
            ("client cores", client_cores),
            ("server cores", server_cores),
        ):
            if count is not None and count < 1:
                raise ConfigError(f"{name} are {count}, but must be 1 or more")
        ours, theirs = self.device("client", client), self.device("server", server)
        costs = self.costs(
            network,
            size,
            garbler,
            parallel,
            client,
            server,
            client_gc_threads=client_gc_threads,
            server_gc_threads=server_gc_threads,
            is_as_published=is_as_published,
        )
        at_once = 1
        if parallel == "request":
            at_once = max(1, int(client_storage_gb * 1e9 // max(costs.client_bytes, 1)))
        return Deployment(
            costs=costs,
            client_cores=client_cores or ours.cores,
            server_cores=server_cores or theirs.cores,
            up_mbps=up,
            down_mbps=down,
            client_storage_bytes=client_storage_gb * 1e9,
            server_storage_bytes=server_storage_gb * 1e9,
            clients=clients,
            precomputes_at_once=at_once,
            is_as_published=is_as_published,
        )

    def _check(self, network: str, size: int, garbler: str, parallel: str) -> None:
        if garbler not in ("server", "client"):
            raise ConfigError(f"the garbler is {garbler!r}, but must be server or client")
        if parallel not in _PARALLEL:
            raise ConfigError(f"parallel is {parallel!r}, but must be {', '.join(_PARALLEL)}")
        if (network, size) not in self.networks:
            known = ", ".join(f"{name} {rows}" for name, rows in self.networks)
            raise ConfigError(
                f"the profile {self.name} has no {network} for images of {size}: it has {known}"
            )


class TableProfile(Profile):
    """Constants of DELPHI's protocol, in the serial order of the published simulator."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.name, self.about = constants.name, constants.about
        self.clients, self.servers = constants.clients, constants.servers

    @property
    def networks(self) -> tuple[tuple[str, int], ...]:
        return tuple((one.name, one.size) for one in self.constants.networks)

    def network(self, name: str, size: int) -> Network:
        """The constants of one.

        Raises:
            ConfigError: there is none.
        """
        found = self.constants.network(name, size)
        if found is None:
            self._check(name, size, "server", "layer")
        assert found is not None
        return found

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
        self._check(network, size, garbler, parallel)
        one = self.network(network, size)
        ours, theirs = self.device("client", client), self.device("server", server)
        threads = {
            "client": client_gc_threads or ours.cores,
            "server": server_gc_threads or theirs.cores,
        }
        offline_threads = dict(threads)
        if parallel == "request":
            offline_threads = dict.fromkeys(threads, 1)
        speeds = {"client": ours, "server": theirs}
        relus, relu, protocol = one.simulated_relus, self.constants.relu, self.constants.protocol
        evaluator: Party = "client" if garbler == "server" else "server"
        to_evaluator: Resource = "down" if garbler == "server" else "up"
        to_garbler: Resource = "up" if garbler == "server" else "down"

        def busy(part: str, on: Party, seconds: float, cores: int = 1) -> Step:
            return Step(part, on, seconds / speeds[on].speed, cores)

        def circuits(part: str, on: Party, cores: int) -> Step:
            seconds = self.constants.circuits[part, on].seconds(relus, cores)
            return Step(part, on, max(seconds, 0.0) / speeds[on].circuits_speed, cores)

        def sent(part: str, on: Resource, count: float) -> Step:
            return Step(part, on, float(count))

        he_seconds, he_threads = one.he(theirs.cores if parallel == "layer" else 1)
        transfers = (
            sent("ot", to_garbler, relus * relu.transfer_request_bytes),
            sent("ot", to_evaluator, relus * relu.transfer_answer_bytes),
        )
        offline = [
            busy("keygen", "client", protocol.keygen_seconds),
            sent("he", "up", protocol.key_bytes),
            busy("he", "client", one.encrypt_seconds),
            sent("he", "up", one.he_up_bytes),
            busy("he", "server", he_seconds, he_threads),
            sent("he", "down", one.he_down_bytes),
            busy("he", "client", one.decrypt_seconds),
            circuits("garble", garbler, offline_threads[garbler]),
            busy("encode", garbler, one.encode_offline_seconds),
            sent("circuits", to_evaluator, relus * relu.circuit_bytes),
            sent("ot", to_garbler, protocol.base_transfer_bytes),
        ]
        if garbler == "server":
            offline += transfers
            online = [
                sent("shares", "up", one.online_up_bytes),
                busy("encode", "server", one.encode_online_seconds),
                sent("labels", "down", relus * relu.label_bytes),
                busy("shares", "server", one.shares_seconds),
            ]
        else:
            online = [
                sent("shares", "up", one.input_bytes),
                busy("shares", "server", one.shares_seconds),
                busy("encode", "client", one.encode_online_seconds),
                *transfers,
            ]
        online += [
            circuits("evaluate", evaluator, threads[evaluator]),
            sent("prediction", "down", one.prediction_bytes),
        ]
        evaluator_bytes = relu.evaluator_bytes
        if is_as_published and math.isfinite(relu.evaluator_bytes_as_simulated):
            evaluator_bytes = relu.evaluator_bytes_as_simulated
        kept = {
            garbler: relus * relu.garbler_bytes,
            evaluator: relus * evaluator_bytes,
        }
        element = protocol.element_bytes
        return Costs(
            network=f"{network} {size}x{size}",
            garbler=garbler,
            offline=tuple(offline),
            online=tuple(online),
            client_bytes=round(kept["client"] + element * one.client_elements),
            server_bytes=round(kept["server"] + element * one.server_elements),
        )


def profile(name: str | Path = "paper") -> Profile:
    """Reads a profile.

    Args:
        name: "paper" (DELPHI on the paper's machines), "measured" (hushtable on the machine that
            the package says), a TOML file of constants, a cost file of `hushtable bench hybrid
            --cost`, or a folder of such.

    Raises:
        ConfigError: it cannot be read, or has a cost that is missing, negative or no number.
    """
    from .measured import MEASURED, MeasuredProfile

    if name == "paper":
        return TableProfile(read_constants(PAPER))
    if name == "measured":
        return MeasuredProfile.read(MEASURED)
    path = Path(name)
    if path.is_dir() or path.suffix == ".json":
        return MeasuredProfile.read(path)
    if not path.exists():
        raise ConfigError(
            f"there is no profile {str(name)!r}: give paper, measured, a TOML file, or a cost file "
            "of `hushtable bench hybrid --cost FOLDER` or their folder"
        )
    return TableProfile(read_constants(path))
