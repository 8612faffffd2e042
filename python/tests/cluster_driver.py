"""A Ray cluster of several raylets on this machine, and its client, as a process of its own.

Ray keeps what it was told first (a token, say) for as long as a process lives, and other tests use
Ray in another way. Requests are lines of JSON on standard input, answers on standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
import urllib.request
from typing import Any

from ray.cluster_utils import Cluster

from hushtable.cluster import Source, bring_up, status, take_down
from hushtable.cluster.connection import COORDINATOR
from hushtable.cluster.spec import Cluster as Wanted


class Driver:
    """The nodes, the head among them, in the order in which they came."""

    def __init__(self, cpus: list[float], gcs_port: int | None) -> None:
        more = {} if gcs_port is None else {"gcs_server_port": gcs_port}
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": cpus[0], "include_dashboard": False, **more},
        )
        self.nodes = [self.cluster.head_node]
        for count in cpus[1:]:
            self.add(count)

    def add(self, cpus: float) -> str:
        node = self.cluster.add_node(num_cpus=cpus)
        self.nodes.append(node)
        return str(node.node_id)

    def address(self) -> str:
        return str(self.cluster.address)

    def node_ids(self) -> list[str]:
        return [str(node.node_id) for node in self.nodes]

    def kill_raylet(self, index: int) -> None:
        """SIGKILL: as where a machine loses its power."""
        process = self.nodes[index].all_processes["raylet"][0].process
        os.kill(process.pid, signal.SIGKILL)
        # Its workers end when it is gone: a zombie is there.
        process.wait()

    def connect(self, side: str) -> None:
        import ray

        namespace = f"hushtable-{side}"
        ray.init(self.address(), namespace=namespace, log_to_driver=False, logging_level="ERROR")

    def look(self) -> Any:
        """What the coordinator says; None while it does not."""
        import ray

        try:
            running = ray.get_actor(COORDINATOR)
            return ray.get(running.status.remote(), timeout=3)
        except (ValueError, ray.exceptions.RayError):
            return None

    def up(self, record: dict[str, Any], source: list[Any] | None, wait_s: float) -> Any:
        """With a stand-in for a model, which is not read."""
        found = None if source is None else Source(*source)
        return bring_up(Wanted.of_record(record), source=found, wait_s=wait_s)

    def status(self, record: dict[str, Any]) -> Any:
        return status(Wanted.of_record(record))

    def down(self, record: dict[str, Any]) -> Any:
        return take_down(Wanted.of_record(record))

    def metrics(self) -> str:
        """What every node exports."""
        import ray

        found = []
        for node in ray.nodes():
            if node["Alive"]:
                url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
                with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as got:
                    found.append(got.read().decode())
        return "\n".join(found)

    def actors(self) -> Any:
        """Names of actors, and of placement groups that hold room, of every side."""
        import ray

        groups = ray.util.placement_group_table().values()
        return {
            "actors": [a["name"] for a in ray.util.list_named_actors(all_namespaces=True)],
            "groups": [g["name"] for g in groups if g["state"] != "REMOVED"],
        }


def main() -> None:
    spec = json.loads(sys.argv[1])
    driver = Driver(spec["cpus"], spec.get("gcs_port"))
    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps({"value": driver.address()}), file=answers, flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": getattr(driver, name)(*arguments)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    driver.cluster.shutdown()


if __name__ == "__main__":
    main()
