"""Times held against a prediction on a machine that others use too."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

#: For so long a quiet moment is waited for.
SECONDS_MAX = 150.0


def hold(once: Callable[[], float], bound: float) -> None:
    """Measures until the error is within the bound; fails where it never is.

    Args:
        once: measures for a while, and gives the largest error of what was predicted.
        bound: of the error.
    """
    errors = []
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        errors.append(once())
        if errors[-1] <= bound:
            return
    each = ", ".join(f"{error:.0%}" for error in errors)
    pytest.fail(f"predictions are off by {each}, time after time; {bound:.0%} is allowed")
