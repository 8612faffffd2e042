"""What hushtable's native module measures with, in builds that have it: ``native.pyi`` lists it.

Wheels do not: it looks nothing up.
"""

from __future__ import annotations

from typing import Any

from hushtable import _native
from hushtable.errors import ConfigError

__all__ = ["require"]


def require() -> None:
    """Asks for these measurements, before anything is made for them.

    Raises:
        ConfigError: this build of hushtable has none.
    """
    if getattr(_native, "bench", None) is None:
        raise ConfigError(
            "this build of hushtable measures nothing, as no wheel does: build it with its "
            "measurements, in a checkout by `make setup` or "
            "`pip install . --config-settings=build-args='--features bench'`"
        )


def __getattr__(name: str) -> Any:
    # Whoever inspects this module asks for names of Python's own.
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require()
    return getattr(_native.bench, name)
