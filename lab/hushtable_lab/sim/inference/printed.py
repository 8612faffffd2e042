"""Published numbers beside ours, of two kinds.

What the authors' own scripts print from the constants has to be within 0.1 %. What the paper prints
is rounded in some places and cut off in others (9.18 is 9.1), so one unit of the last printed digit
counts as repeated.
"""

from __future__ import annotations

from ..published import Comparison, Published
from .network import Constants, Network
from .profile import TableProfile, profile

__all__ = ["HATCHES", "T_R18", "constants", "network_of", "paper", "printed", "script"]

_EXACT = 0.001
HATCHES = ("", "//", "..", "xx")
#: The paper's largest network, of which most figures are.
T_R18 = ("resnet18", 64)


def paper() -> TableProfile:
    found = profile("paper")
    assert isinstance(found, TableProfile)
    return found


def constants() -> Constants:
    return paper().constants


def network_of(title: str) -> Network:
    return next(one for one in constants().networks if one.title == title)


def script(
    name: str, ours: float, value: float, unit: str = "s", *, source: str, note: str = ""
) -> Comparison:
    """Beside what the authors' scripts print."""
    return Comparison(Published(name, value, unit, f"{source}, artifact", _EXACT, note=note), ours)


def printed(
    name: str,
    ours: float,
    value: float,
    digit: float,
    unit: str = "s",
    *,
    source: str,
    note: str = "",
    is_input: bool = False,
) -> Comparison:
    """Beside what the paper prints, to one unit of its last digit."""
    tolerance = max(_EXACT, digit / value)
    said = Published(name, value, unit, source, tolerance, is_fitted=is_input, note=note)
    return Comparison(said, ours)
