"""How long one server's pass takes, by rows, row bytes, keys and threads: what was measured.

A pass reads all rows once and expands every key. Between measured sizes times are interpolated (by
their logarithms over rows and row bytes, straight lines over keys); beyond the largest table that
was measured they grow with the rows, as both the reading and the expansion do.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hushtable.errors import ConfigError

from .deployment import Front, Stalls
from .document import Document, read_toml

__all__ = ["PROFILES", "Curve", "Profile", "Reading", "read_measured", "read_profile"]

#: Machines that come with the package.
PROFILES = Path(__file__).parent / "profiles"
#: A table of so many bytes is no longer read from a cache.
_CACHED_BYTES = 32 << 20
#: Row bytes this far from a measured size say nothing.
_ROW_BYTES_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Passes over one table on some threads.

    Attributes:
        rows, row_bytes: of the table.
        threads: that the pass ran on.
        keys: of a pass, rising.
        seconds: a pass's median, one for each of ``keys``.
    """

    rows: int
    row_bytes: int
    threads: int
    keys: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, keys: float) -> float:
        """Seconds of a pass of ``keys``; beyond the last, each costs what the last ones did."""
        if len(self.keys) == 1:
            # Of one point all that is known is that more keys take no less.
            return self.seconds[0] * max(1.0, keys / self.keys[0])
        place = min(max(bisect_right(self.keys, keys), 1), len(self.keys) - 1)
        x0, x1 = self.keys[place - 1], self.keys[place]
        y0, y1 = self.seconds[place - 1], self.seconds[place]
        return max(y0 + (y1 - y0) * (keys - x0) / (x1 - x0), min(self.seconds))


@dataclass(frozen=True, slots=True)
class Reading:
    """How fast memory is read.

    Attributes:
        gb_per_s: 10^9 bytes a second of all threads together.
        is_measured: and not a guess.
    """

    gb_per_s: float
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """A machine, as it was measured.

    Attributes:
        name: of it.
        measured: where and when, for people.
        batch_keys_max: most keys that a server takes into a pass.
        reading: how fast all threads read a table that no cache holds.
        front: what a front takes besides its shards.
        stalls: how passes that are alike differ.
        curves: passes of one shard.
    """

    name: str
    measured: str
    batch_keys_max: int
    reading: Reading
    front: Front
    stalls: Stalls
    curves: tuple[Curve, ...]

    def reads(self, gb_per_s: float | None) -> Profile:
        """The same on a host that reads so fast; as measured without."""
        if gb_per_s is None:
            return self
        if not (math.isfinite(gb_per_s) and gb_per_s > 0):
            raise ConfigError(f"--read-gb-per-s is {gb_per_s:g}, but must be above 0")
        return replace(self, reading=Reading(gb_per_s, False))

    @property
    def rows_max(self) -> int:
        """Of the largest table that was measured: beyond, times are carried over."""
        return max(curve.rows for curve in self.curves)

    def seconds(self, rows: float, row_bytes: int, keys: float, threads: int = 1) -> float:
        """Of one pass.

        Raises:
            ConfigError: nothing was measured of rows of about so many bytes.
        """
        used, curves = self._measured(row_bytes, threads)
        took = self._over_row_bytes(curves, rows, row_bytes, keys)
        if used == threads:
            return took
        took = took * used / threads
        stored = rows * (-(-row_bytes // 8) * 8)
        floor = stored / (self.reading.gb_per_s * 1e9) if stored > _CACHED_BYTES else 0.0
        return max(took, floor)

    def _measured(self, row_bytes: int, threads: int) -> tuple[int, list[Curve]]:
        """Curves of the most threads, up to so many, on which such rows were measured."""
        found: dict[int, list[Curve]] = {}
        for curve in self.curves:
            found.setdefault(curve.threads, []).append(curve)
        least = min(found)
        for used in sorted(found, reverse=True):
            sizes = [curve.row_bytes for curve in found[used]]
            if used <= threads and min(sizes) <= row_bytes <= max(sizes):
                return used, found[used]
        return least, found[least]

    def _over_row_bytes(
        self, curves: Sequence[Curve], rows: float, row_bytes: int, keys: float
    ) -> float:
        sizes = sorted({curve.row_bytes for curve in curves})
        low, high = sizes[0] / _ROW_BYTES_FACTOR, sizes[-1] * _ROW_BYTES_FACTOR
        if not low <= row_bytes <= high:
            raise ConfigError(
                f"{self.name} has passes over rows of {sizes[0]} to {sizes[-1]} bytes, but not of "
                f"{row_bytes}: give --machine this, or what `hushtable bench dpf --row-bytes "
                f"{row_bytes} --json` prints with --measured"
            )
        values = [
            self._over_rows([one for one in curves if one.row_bytes == size], rows, keys)
            for size in sizes
        ]
        return _between(sizes, values, min(max(row_bytes, sizes[0]), sizes[-1])) * (
            # What is a little larger than all that was measured is read in proportion.
            max(1.0, row_bytes / sizes[-1])
        )

    def _over_rows(self, curves: Iterable[Curve], rows: float, keys: float) -> float:
        by_rows = {curve.rows: curve for curve in curves}
        sizes = sorted(by_rows)
        values = [by_rows[size].at(keys) for size in sizes]
        if not sizes[0] <= rows <= sizes[-1]:
            nearest = 0 if rows < sizes[0] else -1
            # Small passes have a part that is not of rows: to go below is to flatter them a little.
            return values[nearest] * rows / sizes[nearest]
        return _between(sizes, values, rows)

    def as_toml(self) -> str:
        """What `read_profile` reads."""
        lines = [
            "format = 1",
            f"name = {json.dumps(self.name)}",
            f"measured = {json.dumps(self.measured)}",
            f"batch_keys_max = {self.batch_keys_max}",
            f"read_gb_per_s = {self.reading.gb_per_s:.4g}",
            "",
            "# Microseconds of a front, and of a shard besides its pass (docs/sim-serve.md).",
            "[front]",
            *(f"{name} = {value:.4g}" for name, value in self.front.as_us().items()),
            "",
            "# Passes alike: spread of logarithms; how many stall, and for how long, mean.",
            "[stalls]",
            f"spread = {self.stalls.spread:.4g}",
            f"share = {self.stalls.share:.4g}",
            f"ms = {1e3 * self.stalls.seconds:.4g}",
        ]
        for curve in self.curves:
            shown = ", ".join(f"{seconds:.4g}" for seconds in curve.seconds)
            lines += [
                "",
                "[[passes]]",
                f"rows = {curve.rows}",
                f"row_bytes = {curve.row_bytes}",
                f"threads = {curve.threads}",
                f"keys = [{', '.join(map(str, curve.keys))}]",
                f"seconds = [{shown}]",
            ]
        return "\n".join(lines) + "\n"


def _between(sizes: Sequence[int], values: Sequence[float], size: float) -> float:
    """At ``size``, within ``sizes``, by logarithms."""
    place = min(max(bisect_right(sizes, size), 1), len(sizes) - 1)
    if len(sizes) == 1:
        return values[0]
    part = math.log(size / sizes[place - 1]) / math.log(sizes[place] / sizes[place - 1])
    return float(values[place - 1] ** (1 - part) * values[place] ** part)


def read_profile(name: str) -> Profile:
    """A machine of the package, or one of a TOML file.

    Raises:
        ConfigError: neither, or a value that is missing, wrong or of an unknown name.
    """
    known = sorted(path.stem for path in PROFILES.glob("*.toml"))
    path = PROFILES / f"{name}.toml" if name in known else Path(name)
    if name not in known and path.suffix != ".toml":
        raise ConfigError(
            f"--machine is {name!r}, but must be {', '.join(known)}, this (measured now), or a "
            "FILE.toml"
        )
    document = read_toml(path)
    document.known(
        *("format", "name", "measured", "batch_keys_max", "read_gb_per_s"),
        *("front", "stalls", "passes"),
    )
    stalls = document.table("stalls")
    stalls.known("spread", "share", "ms")
    curves = []
    for one in document.tables("passes"):
        one.known("rows", "row_bytes", "threads", "keys", "seconds")
        keys, seconds = one.numbers("keys"), one.numbers("seconds")
        if len(keys) != len(seconds) or any(a >= b for a, b in pairwise(keys)):
            raise one.wrong("keys", "rising, and as many as seconds")
        curve = Curve(
            one.count("rows"),
            one.count("row_bytes"),
            one.count("threads"),
            tuple(int(key) for key in keys),
            tuple(seconds),
        )
        curves.append(curve)
    return Profile(
        document.text("name"),
        document.text("measured"),
        document.count("batch_keys_max"),
        Reading(document.number("read_gb_per_s", above=0)),
        _front(document.table("front")),
        Stalls(
            stalls.number("spread", 0.0),
            stalls.number("share", 0.0),
            stalls.number("ms", 0.0) / 1e3,
        ),
        tuple(curves),
    )


def _front(document: Document) -> Front:
    names = tuple(Front().as_us())
    document.known(*names)
    return Front.of_us({name: document.number(name) for name in names})


def read_measured(paths: Sequence[Path], base: Profile) -> Profile:
    """``base`` with the passes that `hushtable bench dpf --json` printed in place of its own.

    A file has a record a line, or is one of bench/results. What a front costs is taken from a
    record of `hushtable bench shards --json`, where there is one.

    Raises:
        ConfigError: a file that cannot be read, or one without a pass.
    """
    points: dict[tuple[int, int, int], dict[int, float]] = {}
    front = base.front
    for path in paths:
        found = 0
        for record in _records(path):
            bench, detail = record.get("bench"), record.get("detail")
            if bench == "dpf" and isinstance(detail, Mapping):
                shape, keys, seconds = _pass(path, record)
                points.setdefault(shape, {})[keys] = seconds
                found += 1
            elif bench == "shards" and isinstance(detail, Mapping):
                front = front.measured(Document(f"{path.name}, bench shards, detail", detail))
                found += 1
        if not found:
            raise ConfigError(
                f"{path} has no pass: write it with `hushtable bench dpf --rows R --row-bytes B "
                f"--batch K --json >> {path.name}`, for a few K"
            )
    curves = tuple(
        Curve(*shape, tuple(sorted(of)), tuple(of[keys] for keys in sorted(of)))
        for shape, of in sorted(points.items())
    )
    names = ", ".join(path.name for path in paths)
    return replace(
        base,
        name=names,
        measured=f"{names}; all else as {base.name}" if curves else f"{base.measured}; {names}",
        front=front,
        curves=curves or base.curves,
    )


def _records(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        found = json.loads(text)
        found = found.get("results", [found]) if isinstance(found, dict) else found
    except ValueError:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise ConfigError(f"{path} has a line that is no JSON: {error}") from error
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _pass(path: Path, record: Mapping[str, Any]) -> tuple[tuple[int, int, int], int, float]:
    one = Document(f"{path.name}, bench dpf", {**record.get("params", {}), **record["detail"],
                                               "threads": record.get("threads")})  # fmt: skip
    shape = one.count("rows"), one.count("row_bytes"), one.count("threads")
    return shape, one.count("batch"), one.number("ms_per_batch", above=0) / 1e3
