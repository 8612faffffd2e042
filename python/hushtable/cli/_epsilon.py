"""An epsilon from the command line."""

from __future__ import annotations

import math

from ..errors import ConfigError


def read_epsilon(text: str) -> float:
    """An epsilon from the command line.

    Raises:
        ConfigError: no number, or one below 0.
    """
    try:
        epsilon = float(text)
    except ValueError:
        raise ConfigError(f"epsilon is {text!r}, but must be a number, 0 or more, or inf") from None
    if math.isnan(epsilon) or epsilon < 0:
        raise ConfigError(f"epsilon is {text}, but must be 0 or more, or inf")
    return epsilon
