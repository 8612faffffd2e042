"""``cluster.toml``: what one side's cluster is to be, or that of a server that is asked alone."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .._settings import checked, did_you_mean, flat, settings
from ..errors import ConfigError
from .errors import OtherSide

__all__ = ["Cluster", "Fronts", "Scaling", "Shards", "TlsFiles", "Watch", "read_cluster"]

Placement = Literal["strict_spread", "spread", "pack"]
_Scheme = Literal["pair", "onion"]

#: The side of a server that is asked alone: in names, in metrics and in certificates.
SINGLE = "single"

#: Settings of a server that the cluster gives itself.
_RESERVED = frozenset(
    {
        "addr",
        "exit_with_parent",
        "keys_folder",
        "metrics_addr",
        "port",
        "prepared",
        "push_folder",
        "push_token_file",
        "shard",
        "shards",
        "shards_file",
        "side",
        "table",
        "tables",
        "watch",
    }
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, by their paths on the nodes.

    Attributes:
        cert: the certificate.
        key: its private key.
        ca: the authority of who is on the other end; a server then asks for a certificate.
    """

    cert: str
    key: str
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What one server takes of a node.

    Attributes:
        num_cpus: processors.
        memory_bytes: memory; 0 where none is to be reserved.
        resources: others, by the names that nodes were started with.
    """

    num_cpus: float
    memory_bytes: int
    resources: Mapping[str, float]

    def bundle(self) -> dict[str, float]:
        """By Ray's names, as a bundle of a placement group has it."""
        found = {"CPU": self.num_cpus, "memory": float(self.memory_bytes), **self.resources}
        return {name: value for name, value in found.items() if value > 0}


@dataclass(frozen=True, slots=True)
class Shards:
    """The servers of shards.

    Attributes:
        replicas_min: replicas of each shard, for which room is reserved.
        replicas_max: replicas that a shard may come to under load.
        needs: what one takes.
        placement: ``strict_spread`` keeps a shard's replicas on different nodes.
        host: where they listen; None for the node's own address.
        tls: their certificate, and the authority of fronts.
        settings: further settings of ``hushtable serve``, by name.
    """

    replicas_min: int
    replicas_max: int
    needs: Needs
    placement: Placement
    host: str | None
    tls: TlsFiles | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fronts:
    """The servers that clients talk to.

    Attributes:
        count: how many.
        port: where they listen; 0 for any.
        metrics_port: where their metrics are; 0 for any.
        needs: what one takes.
        placement: as of shards.
        host: as of shards.
        tls: what clients see, and the authority of clients where they need a certificate.
        to_shards: what they show to shards, and the authority of shards.
        settings: further settings of ``hushtable serve``, by name.
    """

    count: int
    port: int
    metrics_port: int
    needs: Needs
    placement: Placement
    host: str | None
    tls: TlsFiles | None
    to_shards: TlsFiles | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Watch:
    """How the source is followed.

    Attributes:
        every_s: seconds between two looks; 0 for none but at ``cluster up``.
        prepare_s_max: seconds after which a new version that is not everywhere is called late.
    """

    every_s: float
    prepare_s_max: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """When a shard gets a replica more, or one less.

    Attributes:
        queue_s_low: mean seconds in the queue below which it may lose one.
        queue_s_high: above which it needs one.
        up_after_s: for how long.
        down_after_s: for how long.
        cooldown_s: seconds after a change in which there is no other.
    """

    queue_s_low: float
    queue_s_high: float
    up_after_s: float
    down_after_s: float
    cooldown_s: float


@dataclass(frozen=True)
class Cluster:
    """One side's cluster, as ``cluster.toml`` describes it; always valid.

    Attributes:
        scheme: ``pair``, or ``onion`` for a server that is asked alone.
        side: ``left`` or ``right``; ``single`` of a server that is asked alone.
        source: the model bundle with its map of shards: a folder or a URL.
        folder: where each node keeps copies.
        address: of the Ray cluster; ``auto`` for the one that this machine is part of.
        command: what starts hushtable on a node.
        autoscaler: whether Ray adds nodes when there is no room.
        drain_s: the longest wait for a server to end what is under way.
        targets_file: where the coordinator writes the servers' metrics addresses; None for nowhere.
        record: what the file held, as it travels.
    """

    scheme: _Scheme
    side: str
    source: str
    folder: str
    address: str
    command: tuple[str, ...]
    autoscaler: bool
    drain_s: float
    targets_file: str | None
    shards: Shards
    fronts: Fronts
    watch: Watch
    scaling: Scaling
    record: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Cluster:
        """Checks what a file held.

        Raises:
            ConfigError: an entry that is missing, unknown or cannot be.
            OtherSide: one that names both sides.
        """
        return _parse(record)

    @property
    def namespace(self) -> str:
        """Where its actors have their names."""
        return f"hushtable-{self.side}"


def read_cluster(path: Path) -> Cluster:
    """Reads and checks a ``cluster.toml``; relative paths in it are those from its own folder.

    Raises:
        ConfigError: a file that cannot be read, or an entry that is missing, unknown or cannot be.
        OtherSide: a file that names both sides.
    """
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is not there: give the cluster.toml of one side") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    source = record.get("source")
    if isinstance(source, str) and "://" not in source:
        record["source"] = str((path.parent / source).resolve())
    try:
        return Cluster.of_record(record)
    except OtherSide as error:
        raise OtherSide(f"{path}: {error}", side=error.side) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


class _Table:
    """A table of the file whose entries are taken one by one; what is left is unknown."""

    def __init__(self, name: str, entries: Any) -> None:
        if not isinstance(entries, Mapping):
            raise ConfigError(f"{name} must be a table of entries, not {entries!r}")
        self.name, self.left = name, dict(entries)
        self.known: list[str] = []

    def _take(self, name: str, default: Any) -> Any:
        self.known.append(name)
        if name not in self.left and default is ...:
            raise ConfigError(f"{self._full(name)} is missing")
        return self.left.pop(name, default)

    def _full(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name

    def table(self, name: str) -> _Table:
        return _Table(self._full(name), self._take(name, {}))

    def text(self, name: str, default: Any = ...) -> Any:
        value = self._take(name, default)
        if value is not None and (not isinstance(value, str) or not value):
            raise ConfigError(f"{self._full(name)} must be text, not {value!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self._full(name)} must be true or false, not {value!r}")
        return value

    def word(self, name: str, words: tuple[str, ...], default: Any) -> Any:
        value = self._take(name, default)
        if value not in words:
            raise ConfigError(f"{self._full(name)} must be {' or '.join(words)}, not {value!r}")
        return value

    def count(self, name: str, default: Any, least: int, most: int) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{self._full(name)} must be {least} to {most}, not {value!r}")
        return value

    def number(self, name: str, default: Any, most: float = 1e9) -> float:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ConfigError(f"{self._full(name)} must be 0 to {most:g}, not {value!r}")
        return float(value)

    def bytes(self, name: str) -> int:
        value = self._take(name, 0)
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]iB|B)?\s*", str(value))
        if isinstance(value, bool) or found is None:
            raise ConfigError(f"{self._full(name)} must be bytes, 64GiB say, not {value!r}")
        return int(float(found[1]) * _UNITS[found[2] or "B"])

    def texts(self, name: str, default: list[str]) -> tuple[str, ...]:
        value = self._take(name, default)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{self._full(name)} must be a list of words, not {value!r}")
        return tuple(value)

    def end(self) -> None:
        for name in self.left:
            near = did_you_mean(name, self.known)
            raise ConfigError(f"there is no entry {self._full(name)!r}{near}")


_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_PLACEMENTS = ("strict_spread", "spread", "pack")


def _parse(record: Mapping[str, Any]) -> Cluster:
    top = _Table("", record)
    scheme: _Scheme = top.word("scheme", ("pair", "onion"), "pair")
    side = top.left.get("side")
    if isinstance(side, list) or side == "both" or {"left", "right"} <= set(top.left):
        raise OtherSide(
            "it names both sides: left and right are two operators, each with a cluster.toml and a "
            "Ray cluster of its own"
        )
    if scheme == "pair":
        side = top.word("side", ("left", "right"), None)
    elif top.text("side", None) is None:
        side = SINGLE
    else:
        raise ConfigError(
            f'side is {side!r}, and scheme = "onion" has one server alone: leave it out'
        )
    source, folder = top.text("source"), top.text("folder")
    if not Path(folder).is_absolute():
        raise ConfigError(f"folder must be an absolute path, for it is one of each node: {folder}")
    address = top.text("address", "auto")
    command = top.texts("command", ["hushtable"])
    autoscaler = top.flag("autoscaler", False)
    drain_s = top.number("drain_s", 30, 3600)
    targets_file = top.text("targets_file", None)
    shards, fronts = _shards(top.table("shards"), scheme), _fronts(top.table("fronts"), scheme)
    watch, scaling = _watch(top.table("watch")), _scaling(top.table("scale"))
    top.end()
    if shards.tls is None and fronts.to_shards is not None:
        raise ConfigError("fronts.to_shards is what shards see over TLS: give shards.tls too")
    if shards.tls is not None and fronts.to_shards is None:
        raise ConfigError("shards.tls has shards ask for TLS: give fronts.to_shards too")
    return Cluster(
        scheme=scheme,
        side=side,
        source=source,
        folder=folder,
        address=address,
        command=command,
        autoscaler=autoscaler,
        drain_s=drain_s,
        targets_file=targets_file,
        shards=shards,
        fronts=fronts,
        watch=watch,
        scaling=scaling,
        record=dict(record),
    )


def _needs(table: _Table, num_cpus: float) -> Needs:
    cpus, memory_bytes = table.number("num_cpus", num_cpus, 1e5), table.bytes("memory")
    resources = table.table("resources")
    found = {name: resources.number(name, ...) for name in list(resources.left)}
    needs = Needs(cpus, memory_bytes, found)
    if not needs.bundle():
        raise ConfigError(
            f"{table.name}: a server needs something of a node, or nodes are never missing: give "
            "num_cpus or memory"
        )
    return needs


def _shards(table: _Table, scheme: _Scheme) -> Shards:
    replicas_min = table.count("replicas_min", 2, 1, 64)
    replicas_max = table.count("replicas_max", replicas_min, 1, 64)
    if replicas_max < replicas_min:
        raise ConfigError(
            f"shards.replicas_max is {replicas_max}, below replicas_min, which is {replicas_min}"
        )
    shards = Shards(
        replicas_min=replicas_min,
        replicas_max=replicas_max,
        needs=_needs(table, 1),
        placement=table.word("placement", _PLACEMENTS, "strict_spread"),
        host=table.text("host", None),
        tls=_tls(table.table("tls"), "client_ca"),
        settings=_settings(table.table("settings"), scheme),
    )
    table.end()
    return shards


def _fronts(table: _Table, scheme: _Scheme) -> Fronts:
    fronts = Fronts(
        count=table.count("count", 2, 1, 256),
        port=table.count("port", 4000, 0, 65_535),
        metrics_port=table.count("metrics_port", 4001, 0, 65_535),
        needs=_needs(table, 1),
        placement=table.word("placement", _PLACEMENTS, "strict_spread"),
        host=table.text("host", None),
        tls=_tls(table.table("tls"), "client_ca"),
        to_shards=_tls(table.table("to_shards"), "ca"),
        settings=_settings(table.table("settings"), scheme),
    )
    table.end()
    if fronts.port and fronts.port == fronts.metrics_port:
        raise ConfigError(f"fronts.port and fronts.metrics_port are both {fronts.port}")
    if fronts.to_shards is not None and fronts.to_shards.ca is None:
        raise ConfigError("fronts.to_shards.ca is missing: the authority of shards' certificates")
    return fronts


def _tls(table: _Table, ca: str) -> TlsFiles | None:
    if not table.left:
        return None
    files = TlsFiles(table.text("cert"), table.text("key"), table.text(ca, None))
    table.end()
    for path in (files.cert, files.key, files.ca):
        if path is not None and not Path(path).is_absolute():
            raise ConfigError(f"{table.name}: {path} must be an absolute path: it is on each node")
    return files


def _settings(table: _Table, scheme: _Scheme) -> dict[str, Any]:
    found = checked(scheme, flat(table.left))
    for name in found:
        if name in _RESERVED or name.startswith("tls."):
            raise ConfigError(f"{table.name}.{name} is not to be set: the cluster gives it itself")
    return found


def _watch(table: _Table) -> Watch:
    watch = Watch(table.number("every_s", 0), table.number("prepare_s_max", 3600))
    table.end()
    return watch


def _scaling(table: _Table) -> Scaling:
    scaling = Scaling(
        queue_s_low=table.number("queue_s_low", 0.005),
        queue_s_high=table.number("queue_s_high", 0.05),
        up_after_s=table.number("up_after_s", 30),
        down_after_s=table.number("down_after_s", 600),
        cooldown_s=table.number("cooldown_s", 120),
    )
    table.end()
    if scaling.queue_s_low >= scaling.queue_s_high:
        raise ConfigError(
            f"scale.queue_s_low ({scaling.queue_s_low:g}) must be below scale.queue_s_high "
            f"({scaling.queue_s_high:g}): between the two nothing changes"
        )
    return scaling


def setting_flags(values: Mapping[str, Any], scheme: _Scheme = "pair") -> list[str]:
    """Settings of a scheme's server as flags of ``hushtable serve``."""
    known = {setting.name: setting for setting in settings(scheme)}
    flags: list[str] = []
    for name, value in values.items():
        flag = known[name].flag
        if isinstance(value, bool):
            flags.append(flag if value else "--no-" + flag.removeprefix("--"))
        elif isinstance(value, list):
            flags += [flag, ",".join(map(str, value))]
        else:
            flags += [flag, str(value)]
    return flags
