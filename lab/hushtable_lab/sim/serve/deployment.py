"""What is deployed: tables on shards, their replicas, the fronts before them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from hushtable.errors import ConfigError

if TYPE_CHECKING:
    from .document import Document
    from .passes import Profile

__all__ = ["BESIDES_BYTES", "Deployment", "Front", "Hedging", "Stalls", "TableSize", "key_bytes"]

#: What a server has besides its rows, as `hushtable shard plan` counts it.
BESIDES_BYTES = 256 << 20
#: Rows and shards that a map may have.
_ROWS_MAX, _SHARDS_MAX = 1 << 32, 4096
#: Bytes of HTTP/2, gRPC and TLS around one request or answer: counted of a lookup of one key.
_MESSAGE_BYTES = 150


def key_bytes(rows: int) -> int:
    """Of one key for a table of ``rows`` (docs/key-format.md)."""
    leaves = -(-rows // 512)
    depth = (leaves - 1).bit_length()
    return 24 + 16 * depth + -(-depth // 8) + 64


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table, and how many of its rows a lookup asks for.

    Attributes:
        name: for people.
        rows: of the whole table.
        row_bytes: as stored.
        keys: that each lookup brings, dummies counted.
    """

    name: str
    rows: int
    row_bytes: int
    keys: int = 1

    def __post_init__(self) -> None:
        for name, value, most in (
            ("rows", self.rows, _ROWS_MAX),
            ("row_bytes", self.row_bytes, 1 << 16),
            ("keys", self.keys, 65_536),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} of {self.name} is {value}, but must be 1 to {most:,}")

    @property
    def stored_bytes(self) -> int:
        """In memory: an engine pads rows to 8 bytes."""
        return self.rows * (-(-self.row_bytes // 8) * 8)


@dataclass(frozen=True, slots=True)
class Front:
    """Seconds that a front takes besides its shards; they are of one thread.

    Attributes:
        request: to take a lookup in, and as much again to answer it.
        once: of a pass.
        shard: of a pass, for each shard: to send keys and take in an answer.
        key: of a pass, for each key.
        shard_key: of a pass, for each key of each shard.
        message: of a shard's server, to take in a pass and answer it.
        message_key: and for each of its keys.
        hop: to a shard and back over loopback, with nothing to do there.
    """

    request: float = 0.0
    once: float = 0.0
    shard: float = 0.0
    key: float = 0.0
    shard_key: float = 0.0
    message: float = 0.0
    message_key: float = 0.0
    hop: float = 0.0

    def as_us(self) -> dict[str, float]:
        """Microseconds by name, as files have them."""
        return {f"{one.name}_us": 1e6 * getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def of_us(found: Mapping[str, float]) -> Front:
        """Of microseconds by name."""
        return Front(**{name.removesuffix("_us"): value / 1e6 for name, value in found.items()})

    def measured(self, detail: Document) -> Front:
        """This with what a record of `hushtable bench shards` says in its place."""
        found = {name: detail.number(name, value) for name, value in self.as_us().items()}
        return Front.of_us(found)

    def own(self, shards: int, keys: float) -> float:
        """Of one pass, all shards' messages with it."""
        return self.once + shards * self.shard + keys * (self.key + shards * self.shard_key)


@dataclass(frozen=True, slots=True)
class Stalls:
    """How passes that are alike differ: a factor (log-normal), and now and then a stall.

    Attributes:
        spread: standard deviation of a pass's logarithm.
        share: of passes that stall.
        seconds: that a stall lasts, mean of an exponential distribution.
    """

    spread: float = 0.0
    share: float = 0.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value, most in (
            ("spread", self.spread, 2.0),
            ("share", self.share, 1.0),
            ("seconds", self.seconds, 3600.0),
        ):
            if not (math.isfinite(value) and 0 <= value <= most):
                raise ConfigError(f"{name} of stalls is {value:g}, but must be 0 to {most:g}")

    @property
    def mean_factor(self) -> float:
        """Of a pass, without stalls."""
        return math.exp(self.spread**2 / 2)


@dataclass(frozen=True, slots=True)
class Hedging:
    """When a second replica is asked, as a front does it (crates/serve, front/hedge.rs).

    Attributes:
        quantile: of the last parts of passes, past which one is late; None for never.
        slack: times that.
        least: seconds below which nothing is late.
        budget: of all parts, how many may be asked twice.
        saved: most that a calm time saves up.
    """

    quantile: float | None = 0.95
    slack: float = 1.25
    least: float = 0.001
    budget: float = 0.05
    saved: float = 10.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """One side; the other is its twin.

    Attributes:
        tables: that each lookup asks.
        shards, replicas, fronts: how many.
        profile: how long passes take.
        threads: of a shard's server.
        hop: seconds to a shard and back, the network's; None for the profile's loopback.
        link_gbit_per_s: of a front and of a shard; None for no bound.
        window: seconds that a front waits for more lookups; None for its own measure of a pass.
        batch_keys_max: of a pass; None for the engine's own.
        passes_at_once: that a front has under way.
        stalls: None for the profile's.
        hedging: as the front does it.
        cores: that all servers of the side share, on one host; None for hosts of their own.

    Raises:
        ConfigError: counts out of range.
    """

    tables: tuple[TableSize, ...]
    shards: int
    replicas: int
    fronts: int
    profile: Profile
    threads: int = 1
    hop: float | None = None
    link_gbit_per_s: float | None = None
    window: float | None = None
    batch_keys_max: int | None = None
    passes_at_once: int = 1
    stalls: Stalls | None = None
    hedging: Hedging = Hedging()
    cores: int | None = None

    def __post_init__(self) -> None:
        for name, value, most in (
            ("shards", self.shards, _SHARDS_MAX),
            ("replicas", self.replicas, 64),
            ("fronts", self.fronts, 1024),
            ("threads", self.threads, 1024),
            ("passes_at_once", self.passes_at_once, 64),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} is {value}, but must be 1 to {most:,}")
        if not self.tables:
            raise ConfigError("there is no table: give rows and row bytes, or a model")
        if self.shards > sum(table.rows for table in self.tables):
            raise ConfigError(f"shards is {self.shards}, but there are fewer rows")

    @property
    def keys(self) -> int:
        """Of a lookup."""
        return sum(table.keys for table in self.tables)

    @property
    def lookups_max(self) -> int:
        """Most lookups in a pass."""
        most = self.batch_keys_max or self.profile.batch_keys_max
        return max(1, most // self.keys)

    @property
    def spreads(self) -> Stalls:
        """How passes differ."""
        return self.profile.stalls if self.stalls is None else self.stalls

    @property
    def hop_seconds(self) -> float:
        """To a shard and back: nothing of it is work."""
        return self.profile.front.hop if self.hop is None else self.hop

    def pass_seconds(self, lookups: float) -> float:
        """Of one shard's pass: work on one host.

        The engine answers keys of a table by passes of as many as suit it.
        """
        best = self.profile.batch_keys_max
        front = self.profile.front
        took = front.message + front.message_key * lookups * self.keys
        for table in self.tables:
            keys, rows = lookups * table.keys, table.rows / self.shards

            def one(keys: float, rows: float = rows, row_bytes: int = table.row_bytes) -> float:
                return self.profile.seconds(rows, row_bytes, keys, self.threads)

            whole = int(keys // best)
            rest = keys - whole * best
            took += whole * one(best) + (one(rest) if rest > 0 else 0.0)
        return took

    def own_seconds(self, lookups: float) -> float:
        """Of the front, of one pass."""
        return self.profile.front.own(self.shards, lookups * self.keys)

    def link_seconds(self, lookups: float) -> float:
        """Until a pass's keys have left the front and its answers have come back."""
        if self.link_gbit_per_s is None:
            return 0.0
        up, down = self.part_bytes
        sent = lookups * (up + down) + 2 * _MESSAGE_BYTES
        return self.shards * sent * 8 / (self.link_gbit_per_s * 1e9)

    @property
    def part_bytes(self) -> tuple[int, int]:
        """Keys and answers of a lookup, to one shard and back; a client sends and gets as much."""
        up = sum(table.keys * key_bytes(table.rows) for table in self.tables)
        return up, sum(table.keys * table.row_bytes for table in self.tables)

    @property
    def client_bytes(self) -> tuple[int, int]:
        """Of a lookup, to one side and back."""
        up, down = self.part_bytes
        return up + _MESSAGE_BYTES, down + _MESSAGE_BYTES

    @property
    def window_seconds(self) -> float:
        """How long a front waits: without an operator's word what a pass of one lookup took."""
        if self.window is not None:
            return self.window
        wanted = self.shards * self.threads
        slower = 1.0 if self.cores is None else max(1.0, wanted / self.cores)
        shard = slower * self.pass_seconds(1)
        return shard + self.own_seconds(1) + self.hop_seconds + self.link_seconds(1)

    def memory_bytes(self, versions: int) -> float:
        """Of one shard's host, while it holds so many versions."""
        stored = sum(table.stored_bytes for table in self.tables)
        return versions * stored / self.shards + BESIDES_BYTES

    @property
    def hosts(self) -> int:
        """Of one side."""
        return self.shards * self.replicas + self.fronts
