"""When requests come: at random, in bursts, or as they did once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hushtable.errors import ConfigError

__all__ = ["Arrivals", "Bursty", "Poisson", "Trace", "arrivals_of"]

Floats = npt.NDArray[np.float64]


class Arrivals(Protocol):
    """What draws the requests of one client."""

    def draw(self, seconds: float, rng: np.random.Generator) -> Floats:
        """Seconds at which requests come, sorted, from 0 on and before ``seconds``."""


def _check(name: str, value: float, least: float, unit: str) -> None:
    if not (math.isfinite(value) and value > least):
        raise ConfigError(f"{name} is {value:g}{unit}, but must be finite and above {least:g}")


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent requests; the first comes after a gap like any other.

    Attributes:
        rate: a second, mean.

    Raises:
        ConfigError: the rate is not above 0.
    """

    rate: float

    def __post_init__(self) -> None:
        _check("the rate", self.rate, 0, " requests a second")

    def draw(self, seconds: float, rng: np.random.Generator) -> Floats:
        return np.sort(rng.random(rng.poisson(self.rate * seconds)) * seconds)


@dataclass(frozen=True, slots=True)
class Bursty:
    """A Poisson process of two rates (Markov-modulated): bursts, and what is between them.

    Attributes:
        rate: a second, mean over both.
        factor: how many times that rate a burst has.
        burst_seconds: how long one lasts, mean of an exponential distribution.
        share: of all requests that come in bursts; the rest come between them.

    Bursts take share / factor of the time.

    Raises:
        ConfigError: a rate or length not above 0, a factor not above 1, a share not in (0, 1].
    """

    rate: float
    factor: float = 8.0
    burst_seconds: float = 600.0
    share: float = 0.8

    def __post_init__(self) -> None:
        _check("the rate", self.rate, 0, " requests a second")
        _check("the burst factor", self.factor, 1, "")
        _check("the length of bursts", self.burst_seconds, 0, " s")
        if not 0 < self.share <= 1:
            raise ConfigError(
                f"the share of requests in bursts is {self.share:g}, but must be above 0, at most 1"
            )

    def draw(self, seconds: float, rng: np.random.Generator) -> Floats:
        of_time = self.share / self.factor
        calm_seconds = self.burst_seconds * (1 - of_time) / of_time
        calm_rate = self.rate * (1 - self.share) / (1 - of_time)
        now, is_burst = 0.0, bool(rng.random() < of_time)
        found = []
        while now < seconds:
            length = rng.exponential(self.burst_seconds if is_burst else calm_seconds)
            rate = self.rate * self.factor if is_burst else calm_rate
            found.append(now + np.sort(rng.random(rng.poisson(rate * length)) * length))
            now, is_burst = now + length, not is_burst
        times: Floats = np.concatenate(found)
        return times[times < seconds]


class Trace:
    """Requests as they came once, whatever is drawn.

    Args:
        path: text with a time in seconds a line: the first column of a CSV. A first line without a
            number is a heading; empty lines and those that begin with # are left out.

    Raises:
        ConfigError: no such file, or a line that is no time, is negative, not finite or earlier
            than the one before.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            lines = self.path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the trace {path} cannot be read as text: {error}") from error
        times: list[float] = []
        is_first = True
        for number, line in enumerate(lines, 1):
            cell = line.split(",")[0].strip()
            if not cell or cell.startswith("#"):
                continue
            where = f"{path}, line {number}"
            was_first, is_first = is_first, False
            try:
                value = float(cell)
            except ValueError as error:
                if was_first:
                    continue
                raise ConfigError(f"{where}: {cell!r} is no time: give seconds, as 12.5") from error
            if not math.isfinite(value) or value < 0:
                raise ConfigError(f"{where}: {cell} is no time: it must be finite, and 0 or more")
            if times and value < times[-1]:
                raise ConfigError(
                    f"{where}: {cell} comes before {times[-1]:g}: sort the trace by time"
                )
            times.append(value)
        if not times:
            raise ConfigError(f"the trace {path} has no request: give seconds, one a line")
        self.times = np.array(times)

    @property
    def rate(self) -> float:
        """Requests a second, mean up to the last one; infinite where all are at 0."""
        last = float(self.times[-1])
        return len(self.times) / last if last else math.inf

    def draw(self, seconds: float, rng: np.random.Generator) -> Floats:
        return self.times[self.times < seconds]


def _always(found: Trace, _rate: float) -> Arrivals:
    return found


def arrivals_of(
    kind: str,
    *,
    factor: float = 8.0,
    burst_seconds: float = 600.0,
    trace: str | Path | None = None,
) -> Callable[[float], Arrivals]:
    """What makes arrivals of a rate, by name; it can be sent to other processes.

    Args:
        kind: "poisson", "bursty" or "trace".
        factor: of "bursty".
        burst_seconds: of "bursty".
        trace: the file of "trace", which has a rate of its own.

    Raises:
        ConfigError: there is no such kind, a trace without a file, or what these raise.
    """
    if kind == "poisson":
        return Poisson
    if kind == "bursty":
        Bursty(1.0, factor, burst_seconds)
        return partial(Bursty, factor=factor, burst_seconds=burst_seconds)
    if kind == "trace" and trace is not None:
        return partial(_always, Trace(trace))
    raise ConfigError(f"arrivals are {kind!r}, but must be poisson, bursty, or trace with a file")
