"""The way to a Ray cluster: whether it is there, whom it lets in, what its nodes have."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .errors import OtherSide, RayAbsent, RayMissing, RayOpen
from .room import Node
from .spec import SINGLE

__all__ = [
    "COORDINATOR",
    "check_hosts",
    "check_other_side",
    "check_token",
    "connected",
    "import_ray",
    "is_loopback",
    "nodes",
]

#: The name of each side's coordinator, in the side's namespace.
COORDINATOR = "coordinator"
_PROBE_S_MAX = 20.0
# In a process of its own: Ray reads its token once, and waits for minutes where nobody answers.
_PROBE = """
import json, sys
from ray._private.services import canonicalize_bootstrap_address
from ray._raylet import GcsClient
address = canonicalize_bootstrap_address(sys.argv[1])
print(json.dumps({"address": address}), flush=True)
if address:
    nodes = GcsClient(address=address).get_all_node_info(timeout=10)
    alive = [node.node_manager_address for node in nodes.values() if node.state == 0]
    print(json.dumps({"address": address, "hosts": alive}), flush=True)
"""


def import_ray() -> Any:
    """The package ray.

    Raises:
        RayMissing: it is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise RayMissing(
            "clusters are placed by the package ray, which is not installed here: "
            "`pip install 'hushtable[ray]'`, in the version that the Ray cluster has"
        ) from error


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a client of the cluster saw: its address, its nodes' hosts, or why it saw none."""

    address: str | None
    hosts: list[str] | None
    reason: str


def _probe(address: str, *, with_token: bool) -> _Probe:
    env = dict(os.environ)
    if not with_token:
        for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            env.pop(name, None)
        env["RAY_AUTH_MODE"] = "disabled"
    command = [sys.executable, "-c", _PROBE, address]
    found: dict[str, Any] = {}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_PROBE_S_MAX, check=False
        )
        printed, reason = done.stdout, done.stderr.strip().splitlines()[-1:]
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        printed = output.decode() if isinstance(output, bytes) else output
        reason = [f"nothing answered within {_PROBE_S_MAX:g} s"]
    for line in printed.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
    return _Probe(found.get("address"), found.get("hosts"), "".join(reason))


def check_token(address: str) -> str:
    """Asks the cluster as this client, and as one without a token; returns its address.

    Raises:
        RayAbsent: nothing answers at ``address``, or not to this client's token.
        RayOpen: a cluster that other machines reach, and that answers a client without a token.
    """
    with ThreadPoolExecutor(2) as both:
        mine = both.submit(_probe, address, with_token=True)
        stranger = both.submit(_probe, address, with_token=False)
        own, other = mine.result(), stranger.result()
    if own.address is None:
        raise RayAbsent(
            "no Ray cluster runs on this machine: join it to one (`ray start --address HOST:6379`)"
            ', or give one as address = "HOST:6379" in cluster.toml'
        )
    if own.hosts is None:
        if other.hosts is not None:
            raise RayAbsent(
                f"the Ray cluster at {own.address} does not take this client's token, and lets in "
                "clients without one: set RAY_AUTH_MODE=token and the token on every node and here"
            )
        raise RayAbsent(
            f"the Ray cluster at {own.address} does not let this client in ({own.reason}): check "
            "that it runs (`ray status`) and that RAY_AUTH_MODE and the token (RAY_AUTH_TOKEN, "
            "RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token) are those of its nodes"
        )
    check_hosts(own.hosts, is_open=other.hosts is not None)
    return own.address


def check_hosts(hosts: list[str], *, is_open: bool) -> None:
    """Whether a cluster of nodes at ``hosts`` may be used, which is open or asks for tokens.

    Raises:
        RayOpen: it may not.
    """
    reached = [host for host in hosts if not is_loopback(host)]
    if is_open and reached:
        raise RayOpen(
            f"the Ray cluster is reached by other machines (its node {reached[0]}) and lets in "
            "clients without a token: whoever reaches its ports runs code on its nodes. Start all "
            "of them with RAY_AUTH_MODE=token and one token (`ray get-auth-token --generate`), and "
            "close the ports to all but the nodes"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@contextlib.contextmanager
def connected(address: str, namespace: str) -> Iterator[Any]:
    """Within, this process is a client of the Ray cluster; yields the package.

    Raises:
        RayMissing, RayAbsent, RayOpen: as they say.
    """
    ray = import_ray()
    found = check_token(address)
    # Someone else's connection, a test's or a program's, is theirs to end.
    is_mine = not ray.is_initialized()
    if is_mine:
        try:
            with warnings.catch_warnings():
                # What a later Ray will do is for who writes this to know.
                warnings.simplefilter("ignore")
                ray.init(found, namespace=namespace, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RayAbsent(f"the Ray cluster at {found} cannot be joined: {error}") from error
    try:
        yield ray
    finally:
        if is_mine:
            ray.shutdown()


def check_other_side(ray: Any, side: str) -> None:
    """Whether the cluster serves the other side; of a server that is asked alone there is none.

    Raises:
        OtherSide: it does.
    """
    if side == SINGLE:
        return
    other = "right" if side == "left" else "left"
    actors = ray.util.list_named_actors(all_namespaces=True)
    if any(actor["namespace"] == f"hushtable-{other}" for actor in actors):
        raise OtherSide(
            f"this Ray cluster serves the {other} side: whoever runs it would see both halves of "
            f"every question. Bring {side} up on another operator's Ray cluster, or take {other} "
            "down here first",
            side=other,
        )


def nodes(ray: Any) -> list[Node]:
    """The nodes that are alive, with what is free on each."""
    state = importlib.import_module("ray._private.state")
    free = state.available_resources_per_node()
    return [
        Node(node["NodeID"], node["NodeManagerAddress"], free.get(node["NodeID"], {}))
        for node in ray.nodes()
        if node["Alive"]
    ]
