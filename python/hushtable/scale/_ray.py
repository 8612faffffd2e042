"""Ray, where it is installed: how this process joins a cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from ..fl.accountant import MissingExtra

__all__ = ["check_guarded", "join", "require_ray"]

#: Where actors and tasks of this package live, so that names of other programs do not meet them.
_NAMESPACE = "hushtable"
_CONNECT_SECONDS = 5.0


def require_ray() -> Any:
    """The module ``ray``.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtra(
            "this runs on Ray, which is not installed: `pip install 'hushtable[ray]'`, on every"
            " machine of the cluster; or leave --ray (address=) out and stay on this machine"
        ) from error
    return ray


def join(address: str, *, insecure: bool = False) -> Any:
    """Joins a Ray cluster; where this process is in one already, that one.

    Args:
        address: ``HOST:PORT`` of its head, ``ray://...``, ``auto`` for the one that this machine is
            in, or ``local`` for a new one on this machine, which ends with the process.
        insecure: take a cluster of several machines without token authentication too.

    Returns:
        the module ``ray``.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: there is no cluster, or whoever reaches its ports may run code in it.
    """
    # Nothing of ours uses an accelerator: Ray then need not warn of how it hides them.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = require_ray()
    if not ray.is_initialized():
        _check_reachable(address)
        try:
            ray.init(
                address=address,
                namespace=_NAMESPACE,
                log_to_driver=False,
                logging_level="warning",
                **({"include_dashboard": False} if address == "local" else {}),
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"no Ray cluster at {address!r}: {reason[:200]}. `ray start --head` starts one,"
                " `auto` finds the one that this machine is in, `local` starts one for this process"
            ) from error
    check_guarded(ray.nodes(), os.environ, insecure=insecure)
    return ray


def _check_reachable(address: str) -> None:
    """Refuses an address at which nobody listens: Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster at {address!r}: {error}. Give HOST:PORT of the head's GCS server, as"
            " `ray start --head` prints it, or auto on a machine of the cluster"
        ) from error


def check_guarded(
    nodes: Sequence[Mapping[str, Any]], environment: Mapping[str, str], *, insecure: bool
) -> None:
    """Refuses a cluster of several machines in which anybody may run code.

    What runs there reads traces, or the keys of controllers.
    """
    machines = {node.get("NodeManagerAddress") for node in nodes if node.get("Alive", True)}
    if len(machines) <= 1 or environment.get("RAY_AUTH_MODE") == "token" or insecure:
        return
    raise ConfigError(
        f"this Ray cluster is {len(machines)} machines without authentication: whoever reaches its"
        " ports runs code on them, and reads what is trained or tuned there. Set"
        " RAY_AUTH_MODE=token on all of them, or say that the network is closed to others by"
        " --insecure (insecure=True)"
    )
