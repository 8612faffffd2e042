"""Variables that the command reads, and those that look as if it did."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["known_variables", "warn_of_unknown"]

_PREFIX = "HUSHTABLE_"
#: Variables that are no option's: what this machine is, where things are on it, and our own.
_OTHERS = frozenset(
    {
        "HUSHTABLE_DATA",
        "HUSHTABLE_ISA",
        "HUSHTABLE_LOG",
        "HUSHTABLE_MAVEN",
        "HUSHTABLE_NVRTC",
        "HUSHTABLE_PARENT_PROCESS",
        "HUSHTABLE_SHOW_CLIENT_ERRORS",
    }
)
#: Variables of options that are no settings of servers, without the prefix: here too, so that none
#: of the commands need be imported to know them. A test holds it.
_OF_OPTIONS = (
    *("CA", "CERTIFICATE", "CERTIFICATE_KEY", "CONFIG", "GATEWAY_ADDR", "GATEWAY_ALLOW_HOST"),
    *("GATEWAY_BODY_BYTES_MAX", "GATEWAY_DRAIN_SECONDS", "GATEWAY_IDS_MAX", "GATEWAY_LOG"),
    *("GATEWAY_MODEL", "GATEWAY_PLAIN_HTTP", "GATEWAY_REQUESTS_MAX", "GATEWAY_TLS_CERT"),
    *("GATEWAY_TLS_KEY", "GATEWAY_TOKEN_FILE", "GATEWAY_UNIX", "GATEWAY_VERSION"),
    *("INFER", "KEY", "LEFT", "LEFT_CA", "LOG"),
    *("LOG_JSON", "MAX_IDS", "PARAMETER_SET", "PRG", "RIGHT", "RIGHT_CA", "SCHEME", "SERVER"),
    "TIMEOUT",
)
#: What our tests are told by.
_OF_TESTS = (
    "HUSHTABLE_NEEDS_",
    "HUSHTABLE_SCALE_",
    "HUSHTABLE_SHUFFLE",
    "HUSHTABLE_SOAK_",
    "HUSHTABLE_TEST_",
)


def known_variables() -> frozenset[str]:
    """Every variable that some command reads."""
    from .. import _native
    from .._settings import settings

    of_servers = {one.variable for kind in _native.schemes() for one in settings(kind.name)}
    return _without_settings() | of_servers


def _without_settings() -> frozenset[str]:
    return _OTHERS | {_PREFIX + name for name in _OF_OPTIONS}


def warn_of_unknown(environment: Mapping[str, str] = os.environ) -> None:
    """Says on standard error which variables look like settings and are none."""
    named = [name for name in sorted(environment) if name.startswith(_PREFIX)]
    strange = {name for name in named if not name.startswith(_OF_TESTS)} - _without_settings()
    if not strange:
        return
    from .._settings import did_you_mean

    known = known_variables()
    for name in sorted(strange - known):
        print(
            f"warning: {name} is no variable of hushtable{did_you_mean(name, known)}",
            file=sys.stderr,
        )
