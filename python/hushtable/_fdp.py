"""How many rows a round reads: the mechanisms of epsilon-FDP by their names, and what each costs.

A round has K requests for k_union different rows, and reads k rows (FEDORA, section 3.3). A
mechanism is written as a word, or a word with settings:

``geometric``
    Two-sided geometric noise about k_union, clamped to 1..K.
``shifted:by=S,least=M``
    The same noise about k_union + S, clamped to M..K: rows are lost where the noise is below -S
    and k_union above M. ``shifted:loss=0.1``, or the word alone, takes M = 1 / epsilon and the
    least S with which no union loses more than that share of its rows on average.
``eq3:y=uniform``, ``eq3:y=square,low=25,high=100``, ``eq3:y=power,exponent=5``, ``eq3:y=delta``
    Equation 3 of the paper with its four sample weights; ``eq3`` is uniform.

What samples in earnest is ``hushtable_oram::fdp`` in exact integers; here are the same
distributions in float64, to plan by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigError

__all__ = ["DEFAULT", "LOSS", "Mechanism", "uniform_worst_loss"]

#: What the word ``shifted`` bounds the mean loss by, as a share of the rows asked for.
LOSS = 0.1
#: Of controllers that are created without a word about it.
DEFAULT = "shifted"
_SETTINGS = {
    "geometric": (),
    "shifted": ("loss", "by", "least"),
    "eq3": ("y", "low", "high", "exponent", "at"),
}
_SHAPES = {
    "uniform": (),
    "square": ("low", "high"),
    "power": ("exponent",),
    "delta": ("at",),
}


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism, as its text has it.

    Attributes:
        kind: ``geometric``, ``shifted`` or ``eq3``.
        shape: Y of equation 3: ``uniform``, ``square``, ``power`` or ``delta``.
        numbers: the settings that are numbers, by name.
    """

    kind: str
    shape: str
    numbers: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, text: str) -> Mechanism:
        """Reads ``NAME[:SETTING=VALUE[,...]]``.

        Raises:
            ConfigError: a name or setting that no mechanism has.
        """
        kind, _, rest = text.strip().partition(":")
        if kind not in _SETTINGS:
            raise ConfigError(
                f"mechanism is {text!r}, but must be one of {', '.join(_SETTINGS)}, with settings"
                " as shifted:loss=0.1 or eq3:y=power,exponent=5"
            )
        shape, numbers = "uniform", {}
        for part in filter(None, (part.strip() for part in rest.split(","))):
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in _SETTINGS[kind]:
                known = ", ".join(_SETTINGS[kind]) or "none"
                raise ConfigError(f"mechanism {text!r}: {kind} has no {name!r}; settings: {known}")
            if name == "y":
                shape = "power" if value == "pow" else value
                continue
            try:
                numbers[name] = float(value)
            except ValueError:
                numbers[name] = math.nan
            if not math.isfinite(numbers[name]) or numbers[name] < 0:
                raise ConfigError(f"mechanism {text!r}: {part!r} is no {name}=NUMBER, 0 or more")
            if name not in ("loss", "exponent") and numbers[name] % 1:
                raise ConfigError(f"mechanism {text!r}: {name} is a number of rows, and so whole")
        if shape not in _SHAPES:
            raise ConfigError(f"mechanism {text!r}: y is one of {', '.join(_SHAPES)}")
        if kind == "eq3":
            strange = [name for name in numbers if name not in _SHAPES[shape]]
            if strange:
                raise ConfigError(f"mechanism {text!r}: y={shape} has no {strange[0]!r}")
            missing = [n for n in _SHAPES[shape] if n not in numbers and n != "at"]
            if missing:
                raise ConfigError(f"mechanism {text!r}: y={shape} needs {missing[0]}=")
        if numbers.get("least", 1) < 1:
            raise ConfigError(f"mechanism {text!r}: least is 1 row or more")
        if "loss" in numbers:
            if len(numbers) > 1:
                raise ConfigError(f"mechanism {text!r}: loss= chooses by and least: leave them out")
            if not 0 < numbers["loss"] < 1:
                raise ConfigError(f"mechanism {text!r}: loss is a share, more than 0 and below 1")
        return cls(kind, shape, tuple(sorted(numbers.items())))

    def spec(self, epsilon: float, requests: int) -> str | dict[str, Any]:
        """``fdp.mechanism`` of a controller.json.

        Args:
            epsilon: of one value.
            requests: K of the largest round, which no number of rows is above.
        """
        numbers = dict(self.numbers)
        if self.kind == "geometric":
            return "geometric"
        if self.kind == "shifted":
            by, least = self.shift(epsilon, requests)
            return {"shifted": {"by": by, "least": least}}
        if self.shape == "uniform":
            return {"exponential": {"shape": "uniform"}}
        given = {n: v if n == "exponent" else int(v) for n, v in numbers.items()}
        return {"exponential": {"shape": {self.shape: given}}}

    @classmethod
    def of_spec(cls, spec: str | Mapping[str, Any]) -> Mechanism:
        """The mechanism that a controller.json names.

        Raises:
            ConfigError: one that this version does not know.
        """
        try:
            if isinstance(spec, str):
                return cls.parse(spec)
            ((kind, settings),) = spec.items()
            if kind == "shifted":
                return cls.parse("shifted:" + ",".join(f"{n}={v}" for n, v in settings.items()))
            shape = settings["shape"]
            if isinstance(shape, str):
                return cls.parse(f"eq3:y={shape}")
            ((name, numbers),) = shape.items()
            return cls.parse(",".join([f"eq3:y={name}", *(f"{n}={v}" for n, v in numbers.items())]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"no mechanism of this version: {spec!r}") from error

    def shift(self, epsilon: float, requests: int) -> tuple[int, int]:
        """S and M of ``shifted``; 0 and 1, which change nothing, of ``geometric``.

        With r = e^-epsilon and u = k_union > M, the mean loss is
        r^S · r / (1 - r²) · (1 - r^(u - M)) rows, and none for u up to M: the noise passes -S by as
        much on average, and is cut off at M. Its share of u has one maximum.
        """
        numbers = dict(self.numbers)
        if self.kind != "shifted":
            return 0, 1
        if "by" in numbers or "least" in numbers:
            by, least = int(numbers.get("by", 0)), int(numbers.get("least", 1))
            return min(by, requests), min(least, requests)
        if epsilon == 0 or math.isinf(epsilon):
            return 0, 1
        least = min(math.ceil(1 / epsilon), requests)
        worst = _scale(epsilon) * _worst_share(epsilon, least, requests)
        by = math.ceil(math.log(max(worst / numbers.get("loss", LOSS), 1)) / epsilon)
        # Noise as wide as that needs all rows to be read, nearly always: read them all.
        return (by, least) if by < requests else (0, requests)

    def worst_loss(self, epsilon: float) -> float:
        """An upper bound of what one value may lose in one round at ``epsilon``, whatever K:
        epsilon, or less where less is known."""
        if self.kind != "eq3":
            return epsilon
        if self.shape == "delta":
            return 0.0
        if self.shape == "uniform" and 0 < epsilon < math.inf:
            return min(epsilon, uniform_worst_loss(epsilon))
        return epsilon

    def mean(self, requests: int, k_union: float, epsilon: float) -> tuple[float, float]:
        """Dummies and lost rows of a round, in the mean; ``epsilon`` above 0.

        In closed form but for weights other than uniform, whose outcomes are summed.
        """
        if self.kind == "eq3":
            if self.shape != "uniform":
                noise = np.arange(1, requests + 1) - k_union
                chances = self.probabilities(requests, round(k_union), epsilon)
                return float(chances @ np.maximum(noise, 0)), float(chances @ np.maximum(-noise, 0))
            # The terms are r^|i - k_union|, r = e^(-epsilon / 2).
            rate, below, above = epsilon / 2, k_union - 1, requests - k_union
            total = 1 + _powers(rate, below) + _powers(rate, above)
            return _moments(rate, above) / total, _moments(rate, below) / total
        by, least = self.shift(epsilon, requests)
        if math.isinf(epsilon):
            return 0.0, 0.0
        if (by, least) == (0, 1):
            # The noise is j or more with probability r^j / (1 + r).
            half = 1 + math.exp(-epsilon)
            return _powers(epsilon, requests - k_union) / half, _powers(epsilon, k_union - 1) / half
        centre = k_union + by

        def past(start: float) -> float:
            """E max(0, centre + noise - start)."""
            far = centre - start
            return max(far, 0.0) + _scale(epsilon) * math.exp(-epsilon * abs(far))

        lost = 0.0
        if k_union > least:
            over = -math.expm1(-epsilon * (k_union - least))
            lost = _scale(epsilon) * math.exp(-epsilon * by) * over
        reads = least + past(least) - past(requests)
        return max(reads - k_union + lost, 0.0), lost

    def probabilities(self, requests: int, k_union: int, epsilon: float) -> NDArray[np.float64]:
        """The probability of each k from 1 to K; float64 [K]. ``epsilon`` is above 0."""
        outcomes = np.arange(1, requests + 1)
        numbers = dict(self.numbers)
        if self.kind == "eq3":
            logs = -epsilon / 2 * np.abs(outcomes - k_union)
            if math.isinf(epsilon):
                logs = np.where(outcomes == k_union, 0.0, -math.inf)
            if self.shape == "power":
                logs = logs + numbers["exponent"] * np.log(outcomes)
            elif self.shape == "square":
                low, high = numbers["low"], numbers["high"]
                if not 1 <= low <= high <= requests:
                    raise ConfigError(
                        f"y=square from {low:g} to {high:g}: expected 1 <= low <= high <="
                        f" {requests} requests"
                    )
                logs = np.where((outcomes >= low) & (outcomes <= high), logs, -math.inf)
            elif self.shape == "delta":
                at = numbers.get("at", requests)
                if not 1 <= at <= requests:
                    raise ConfigError(f"y=delta at {at:g}: expected 1 to {requests} requests")
                return np.asarray(outcomes == at, np.float64)
            if math.isinf(epsilon) and self.shape == "square":
                return np.asarray(outcomes == np.clip(k_union, low, high), np.float64)
            # exp underflows to zero far from k_union, where nothing is lost by it.
            weights = np.exp(logs - logs.max())
            return np.asarray(weights / weights.sum())
        if math.isinf(epsilon) or requests == 1:
            return np.asarray(outcomes == k_union, np.float64)
        by, least = self.shift(epsilon, requests)
        ratio, centre = math.exp(-epsilon), k_union + by
        weights = (1 - ratio) / (1 + ratio) * ratio ** np.abs(outcomes - centre).astype(np.float64)
        weights[: least - 1] = 0

        def at_least(distance: int) -> float:
            """The chance of noise of ``distance`` or more, either way."""
            if distance > 0:
                return ratio**distance / (1 + ratio)
            return 1 - ratio ** (1 - distance) / (1 + ratio)

        # What falls outside is moved to the ends.
        weights[least - 1] = at_least(centre - least)
        weights[-1] = 1.0 if least == requests else at_least(requests - centre)
        return np.asarray(weights)


def uniform_worst_loss(epsilon: float) -> float:
    """The largest loss of equation 3 with Y = 1, whatever K: of a union of one row and one of two.

    For a = e^(-epsilon/2), the sums of terms are as 1 + a - a² to 1 at most.
    """
    a = math.exp(-epsilon / 2)
    return epsilon / 2 + math.log1p(a - a * a)


def _scale(epsilon: float) -> float:
    """E max(0, noise) of the two-sided geometric: r / (1 - r²)."""
    return 0.5 / math.sinh(epsilon) if epsilon < 700 else 0.0


def _worst_share(epsilon: float, least: int, requests: int) -> float:
    """The largest (1 - r^(u - M)) / u of all u from M to K, or a little more."""
    low, high = 0.0, float(requests - least)
    # (1 - r^v) / (v + M) grows with v as long as epsilon r^v (v + M) > 1 - r^v.
    for _ in range(100):
        v = (low + high) / 2
        grows = epsilon * math.exp(-epsilon * v) * (v + least) > -math.expm1(-epsilon * v)
        low, high = (v, high) if grows else (low, v)
    return -math.expm1(-epsilon * high) / (high + least)


def _powers(rate: float, count: float) -> float:
    """sum of e^(-rate j), j from 1 to count."""
    if math.isinf(rate):
        return 0.0
    return math.exp(-rate) * math.expm1(-rate * count) / math.expm1(-rate)


def _moments(rate: float, count: float) -> float:
    """sum of j e^(-rate j), j from 1 to count."""
    if math.isinf(rate):
        return 0.0
    if rate * count < 1e-9:
        return count * (count + 1) / 2  # the difference below would be of equals
    last = count * math.exp(-rate * (count + 1))
    return (_powers(rate, count) - last) / -math.expm1(-rate)
