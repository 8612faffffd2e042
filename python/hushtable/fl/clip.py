"""How much of one user's upload counts in a round.

A mean over users is as large as the largest of them makes it: without a bound, one user with a
gradient of 3e38, or a weight of millions, undoes what all others learnt. A :class:`Clip` is applied
by the controller, inside what it keeps secret, before anything is added up: first the weight is
capped, then each number, then the norm of the whole upload.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConfigError
from ._arrays import Flags, Floats

__all__ = ["Clip", "clip_spec"]

#: The largest number of a gradient in any controller, with a clip or without: larger ones count as
#: this one, so that no sum is ever infinite.
VALUE_MAX = 2.0**32
#: The largest weight of a user.
WEIGHT_MAX = 2.0**24
#: Aggregates that clip each row or user by a norm of their own, and count every user once.
_CLIPPING = ("dp_fed_avg", "eana", "lazy_dp")


@dataclass(frozen=True, slots=True)
class Clip:
    """Bounds on one user's upload.

    The defaults are three times the largest norm, three times the largest number and twice the
    largest weight of 20,000 honest uploads of ``examples/fedrec``, rows of 16 numbers that start at
    0.1 or less. Rows of another scale, or users that train for longer, need others.

    Attributes:
        norm: the largest L2 norm of all of a user's gradients together, those of slots whose rows
            are the table's; longer uploads are scaled down to it.
        value: the largest absolute value of one number; larger ones count as this one.
        weight: the largest weight; heavier users count as this one.

    Raises:
        ConfigError: a norm or value that is not more than 0 and at most 2^32, a weight that is not
            more than 0 and at most 2^24.
    """

    norm: float = 2.0
    value: float = 0.5
    weight: float = 100.0

    def __post_init__(self) -> None:
        """Checks the bounds."""
        for name, most in (("norm", VALUE_MAX), ("value", VALUE_MAX), ("weight", WEIGHT_MAX)):
            bound = getattr(self, name)
            if not 0 < bound <= most:
                raise ConfigError(
                    f"the clip's {name} is {bound}, but must be more than 0 and at most {most:.0f}"
                )

    def apply(self, gradients: Floats, weight: float, found: Flags) -> tuple[Floats, float]:
        """What counts of an upload: float32 [slots, dim], zero where not ``found`` [slots]."""
        held = np.clip(gradients, -np.float32(self.value), np.float32(self.value))
        held = np.where(found[:, None], held, np.float32(0)) if weight else np.zeros_like(held)
        norm = float(np.sqrt(np.square(held, dtype=np.float64).sum()))
        bound = float(np.float32(self.norm)) * (1 - float(np.finfo(np.float32).eps))
        if norm > bound:
            held = (held * (bound / norm)).astype(np.float32)
        return held, min(weight, float(np.float32(self.weight)))


def clip_spec(
    clip: str | Clip | Mapping[str, Any] | None, aggregate: Mapping[str, Any]
) -> dict[str, float] | None:
    """The ``clip`` of a ``controller.json``; None for none.

    Args:
        clip: ``default``, which is ``Clip()`` unless the aggregate clips by itself; settings as
            ``norm=2,value=0.5,weight=100``, those left out as in ``Clip()``; a :class:`Clip`, or
            its attributes by name; None for no clip.
        aggregate: as in ``controller.json``.

    Raises:
        ConfigError: a setting that no clip has, or a bound that cannot be.
    """
    if clip == "default":
        clip = None if aggregate.get("name") in _CLIPPING else Clip()
    if clip is None:
        return None
    if isinstance(clip, str):
        settings: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in clip.split(","))):
            name, _, value = part.partition("=")
            try:
                settings[name.strip()] = float(value)
            except ValueError:
                raise ConfigError(
                    f"clip {clip!r}: {part!r} is no SETTING=NUMBER; write it as "
                    "norm=2,value=0.5,weight=100"
                ) from None
        clip = settings
    if not isinstance(clip, Clip):
        known = [field.name for field in dataclasses.fields(Clip)]
        extra = sorted(set(clip) - set(known))
        if extra:
            raise ConfigError(
                f"a clip has no setting {', '.join(extra)}: it has {', '.join(known)}"
            )
        clip = Clip(**clip)
    return dataclasses.asdict(clip)
