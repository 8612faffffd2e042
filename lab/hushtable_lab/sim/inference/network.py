"""What a hybrid private inference costs, by its parts: the constants of a TOML profile.

``profiles/paper.toml`` has those of Garimella et al., and is the one place that has them; a user's
own file has the same tables (docs/sim-inference.md).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hushtable.errors import ConfigError

from .deployment import Party

__all__ = [
    "PAPER",
    "Constants",
    "Device",
    "Line",
    "Network",
    "Protocol",
    "Relu",
    "Table",
    "read_constants",
]

#: The paper's constants.
PAPER = Path(__file__).parent / "profiles" / "paper.toml"
#: The file's format.
FORMAT = 1
_T = TypeVar("_T")
_SHORT = {"resnet32": "R32", "vgg16": "VGG", "resnet18": "R18"}
_SETS = {32: "C", 64: "T", 224: "I"}


@dataclass(frozen=True, slots=True)
class Device:
    """A machine that plays one of the parties.

    Attributes:
        name: as ``--client`` and ``--server`` take it.
        cores: that work at once.
        speed: how many times as fast as the machine that was measured.
        circuits_speed: how many times as fast it garbles and evaluates.
    """

    name: str
    cores: int
    speed: float = 1.0
    circuits_speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of n ReLUs on one thread: ``each`` · n + ``once``."""

    each: float
    once: float

    def seconds(self, relus: int, threads: int = 1) -> float:
        """Of ``relus`` shared out among threads."""
        return (self.each * relus + self.once) / threads


@dataclass(frozen=True, slots=True)
class Protocol:
    """What does not depend on the network: seconds of the client, and bytes."""

    keygen_seconds: float
    key_bytes: int
    base_transfer_bytes: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Relu:
    """Bytes of one ReLU: kept, and sent.

    Attributes:
        garbler_bytes: kept by who garbles.
        evaluator_bytes: kept by who evaluates.
        circuit_bytes: sent by who garbles.
        transfer_request_bytes: of oblivious transfer, sent by who evaluates.
        transfer_answer_bytes: and back.
        label_bytes: sent online by a server that garbles.
        evaluator_bytes_as_simulated: what the published scripts have for ``evaluator_bytes``.
    """

    garbler_bytes: float
    evaluator_bytes: float
    circuit_bytes: float
    transfer_request_bytes: float
    transfer_answer_bytes: float
    label_bytes: float
    evaluator_bytes_as_simulated: float = math.nan


@dataclass(frozen=True, slots=True)
class Network:
    """One network on images of one size; seconds are the measured machines', bytes on the wire.

    Attributes:
        name: as `hushtable bench hybrid` has it.
        size: rows and columns of an image.
        relus: numbers that go through ReLUs.
        simulated_relus: as many as bytes and seconds are counted of.
        he_seconds: of all linear layers on the server, with 1, 2, … threads.
        encrypt_seconds: of the client.
        decrypt_seconds: of the client.
        he_up_bytes: ciphertexts to the server, without keys.
        he_down_bytes: and back.
        encode_offline_seconds: writing labels, by who garbles.
        encode_online_seconds: and online.
        shares_seconds: online, on the server.
        online_up_bytes: shares to the server, where the server garbles.
        input_bytes: the masked input, where the client garbles.
        prediction_bytes: back to the client.
        client_elements: ring elements of linear layers that the client keeps of a precompute.
        server_elements: and the server.
    """

    name: str
    size: int
    relus: int
    simulated_relus: int
    he_seconds: tuple[float, ...]
    encrypt_seconds: float
    decrypt_seconds: float
    he_up_bytes: int
    he_down_bytes: int
    encode_offline_seconds: float
    encode_online_seconds: float
    shares_seconds: float
    online_up_bytes: int
    input_bytes: int
    prediction_bytes: int
    client_elements: int
    server_elements: int

    @property
    def title(self) -> str:
        """For people: R18 with TinyImageNet's sizes is T-R18, as in the paper."""
        short, of = _SHORT.get(self.name), _SETS.get(self.size)
        return f"{of}-{short}" if short and of else f"{self.name} {self.size}x{self.size}"

    @property
    def layers(self) -> int:
        """The most threads that encrypt at once: one a linear layer."""
        return len(self.he_seconds)

    def he(self, threads: int) -> tuple[float, int]:
        """Seconds of all linear layers with that many threads or one a layer, and the threads."""
        used = max(1, min(threads, self.layers))
        return self.he_seconds[used - 1], used


@dataclass(frozen=True, slots=True)
class Constants:
    """A whole profile of constants.

    Attributes:
        name: of the profile.
        about: where the numbers come from.
        clients: devices by name; the first is what was measured.
        servers: devices by name; the first is what was measured.
        protocol: what does not depend on the network.
        relu: bytes of one.
        circuits: seconds of garbling and evaluating, by ("garble", "client") and so on.
        networks: in the file's order.
        relus_only: of networks of which nothing else is known, by (name, size).
    """

    name: str
    about: str
    clients: Mapping[str, Device]
    servers: Mapping[str, Device]
    protocol: Protocol
    relu: Relu
    circuits: Mapping[tuple[str, Party], Line]
    networks: tuple[Network, ...]
    relus_only: Mapping[tuple[str, int], int]

    def network(self, name: str, size: int) -> Network | None:
        """One of them; None where there is no such network of that size."""
        return next((one for one in self.networks if (one.name, one.size) == (name, size)), None)


@cache
def read_constants(path: Path = PAPER) -> Constants:
    """Reads and checks a profile.

    Raises:
        ConfigError: no such file, not TOML, or a value that is missing, negative or no number; the
            message names file, table and key.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the profile {path} cannot be read: {error}") from error
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the profile {path} is not TOML: {error}") from error
    top = Table(path, "", found)
    if found.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: format is {found.get('format')!r}, but this version reads {FORMAT}: "
            f"begin the file with `format = {FORMAT}`"
        )
    devices = top.table("devices")
    networks = top.table("networks")
    constants = Constants(
        name=str(found.get("name", path.stem)),
        about=str(found.get("about", path)),
        clients=_devices(devices.table("client")),
        servers=_devices(devices.table("server")),
        protocol=_record(Protocol, top.table("protocol")),
        relu=_record(Relu, top.table("relu"), optional={"evaluator_bytes_as_simulated": math.nan}),
        circuits=_circuits(top.table("circuits")),
        networks=tuple(_network(networks, key) for key in networks.found),
        relus_only=_relus_only(top),
    )
    devices.close(set())
    top.close({"format", "name", "about"})
    if not constants.networks:
        raise ConfigError(f"{path}: [networks] is empty: give at least one, as [networks.mine-32]")
    return constants


_PARTIES: tuple[Party, Party] = ("client", "server")


class Table:
    """One table of a file, whose values are asked for by kind and refused by name."""

    def __init__(self, path: Path, name: str, found: Mapping[str, Any]) -> None:
        self.path, self.name, self.found = path, name, found
        self._asked: set[str] = set()

    def table(self, key: str) -> Table:
        """A table within.

        Raises:
            ConfigError: there is none.
        """
        name = f"{self.name}.{key}" if self.name else key
        found = self.found.get(key)
        self._asked.add(key)
        if not isinstance(found, dict):
            wrong = "is missing" if found is None else f"is {found!r}"
            raise ConfigError(f"{self.path}: the table [{name}] {wrong}: a profile has to have it")
        return Table(self.path, name, found)

    def number(self, key: str, *, least: float = 0.0, default: float | None = None) -> float:
        """A finite number.

        Raises:
            ConfigError: there is none, or it is less.
        """
        self._asked.add(key)
        value = self.found.get(key, default)
        expected = "a finite number" + (", 0 or more" if least == 0 else f", {least:g} or more")
        if value is None:
            raise self.wrong(key, "is missing", expected)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"is {value!r}", expected)
        if not math.isfinite(value) or value < least:
            raise self.wrong(key, f"is {value}", expected)
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self.number(key, default=default)
        if value <= 0:
            raise self.wrong(key, f"is {value:g}", "a number above 0")
        return value

    def count(self, key: str, *, least: int = 0, default: int | None = None) -> int:
        """A whole number."""
        value = self.number(key, default=default)
        if value != int(value) or value < least:
            raise self.wrong(key, f"is {value:g}", f"a whole number, {least} or more")
        return int(value)

    def wrong(self, key: str, what: str, expected: str) -> ConfigError:
        """What to raise of a value."""
        place = f"[{self.name}]" if self.name else "the file"
        return ConfigError(f"{self.path}: {key} of {place} {what}, but must be {expected}")

    def close(self, known: set[str]) -> None:
        """Refuses what nobody reads, which is most often a name typed wrongly."""
        for key in self.found:
            if key not in known | self._asked:
                raise ConfigError(
                    f"{self.path}: {key} of {f'[{self.name}]' if self.name else 'the file'} is "
                    f"not known; known are {', '.join(sorted(known | self._asked))}"
                )


def _typed(table: Table, field: Any) -> Any:
    return table.count(field.name) if "int" in str(field.type) else table.number(field.name)


def _record(kind: type[_T], table: Table, optional: Mapping[str, Any] | None = None) -> _T:
    """A dataclass of numbers, all of which a table has to have but the optional ones."""
    optional = optional or {}
    values = {
        one.name: optional[one.name]
        if one.name in optional and one.name not in table.found
        else _typed(table, one)
        for one in fields(kind)  # type: ignore[arg-type]
    }
    table.close(set())
    return kind(**values)


def _circuits(table: Table) -> Mapping[tuple[str, Party], Line]:
    found: dict[tuple[str, Party], Line] = {}
    for party in _PARTIES:
        for what in ("garble", "evaluate"):
            line = table.table(f"{party}_{what}")
            # A line through measured points may well begin below zero.
            once = line.number("once", least=-1.0, default=0.0)
            found[what, party] = Line(line.number("each"), once)
            line.close(set())
    table.close(set())
    return found


def _relus_only(top: Table) -> Mapping[tuple[str, int], int]:
    if "relus_only" not in top.found:
        return {}
    table = top.table("relus_only")
    return {_name_and_size(table, key): table.count(key, least=1) for key in table.found}


def _devices(table: Table) -> Mapping[str, Device]:
    found = {}
    for name in table.found:
        one = table.table(name)
        speed = one.positive("speed", 1.0)
        circuits_speed = one.positive("circuits_speed", speed)
        found[name] = Device(name, one.count("cores", least=1), speed, circuits_speed)
        one.close(set())
    if not found:
        raise ConfigError(f"{table.path}: [{table.name}] is empty: give at least one device")
    return found


def _name_and_size(table: Table, key: str) -> tuple[str, int]:
    name, _, size = key.rpartition("-")
    if not name or not size.isdigit():
        raise ConfigError(
            f"{table.path}: {key} of [{table.name}] must be a name and an image's size, as mine-32"
        )
    return name, int(size)


def _network(networks: Table, key: str) -> Network:
    name, size = _name_and_size(networks, key)
    table = networks.table(key)
    he = table.found.get("he_seconds")
    expected = "a list of seconds with 1, 2, … threads, each above 0"
    if he is None:
        raise table.wrong("he_seconds", "is missing", expected)
    if not isinstance(he, list) or not he:
        raise table.wrong("he_seconds", f"is {he!r}", expected)
    for value in he:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (math.isfinite(value) and value > 0):
            raise table.wrong("he_seconds", f"has {value!r}", expected)
    relus = table.count("relus", least=1)
    values = {
        one.name: _typed(table, one)
        for one in fields(Network)
        if one.name not in ("name", "size", "relus", "simulated_relus", "he_seconds")
    }
    simulated = table.count("simulated_relus", least=1, default=relus)
    table.close({"he_seconds"})
    return Network(
        name=name,
        size=size,
        relus=relus,
        simulated_relus=simulated,
        he_seconds=tuple(float(one) for one in he),
        **values,
    )
