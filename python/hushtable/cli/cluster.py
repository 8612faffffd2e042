"""``hushtable cluster``: one side's shards, replicas and fronts on a Ray cluster."""

from __future__ import annotations

import dataclasses
import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from .output import Json, command, print_facts, print_json, print_table, progress_bar

File = Annotated[
    Path,
    typer.Argument(help="What the cluster is to be: docs/ray.md.", metavar="CLUSTER.TOML"),
]


@command(
    "hushtable cluster up cluster.toml",
    "hushtable cluster up cluster.toml --source s3://models/clicks-v2",
    "hushtable cluster up cluster.toml --wait-s 0 --json",
)
def up(
    file: File,
    source: Annotated[
        str | None,
        typer.Option(
            help="The model bundle in place of the file's: the next version, say.",
            show_default=False,
        ),
    ] = None,
    wait_s: Annotated[
        float,
        typer.Option(help="How long to wait until every server is ready; 0 not to wait.", min=0),
    ] = 600.0,
    json: Json = False,
) -> None:
    """Bring a cluster to what the file says, and wait until it is ready.

    Run it again after a change of the file: another source, other counts of replicas or fronts,
    other bounds. Where nodes have no room, where the Ray cluster serves the other side, or where it
    lets in who has no token, nothing is started.
    """
    from ..cluster import bring_up, read_cluster

    cluster = read_cluster(file)
    if source is not None:
        place = source if "://" in source else str(Path(source).resolve())
        record = {**cluster.record, "source": place}
        cluster = dataclasses.replace(cluster, source=place, record=record)
    with progress_bar("servers", shown=not json) as bar:
        found = bring_up(cluster, wait_s=wait_s, on_progress=bar)
    _print(found, json)


@command(
    "hushtable cluster status cluster.toml",
    "hushtable cluster status cluster.toml --json",
    "hushtable cluster status cluster.toml --targets > /etc/prometheus/hushtable.json",
)
def status(
    file: File,
    targets: Annotated[
        bool,
        typer.Option(
            "--targets", help="Print the servers' metrics addresses, as Prometheus reads them."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Say how each server is, and how far the newest version."""
    from ..cluster import read_cluster
    from ..cluster import status as ask

    found = ask(read_cluster(file))
    if targets:
        print(json_.dumps(found["targets"], indent=1))
    else:
        _print(found, json)


@command("hushtable cluster down cluster.toml")
def down(file: File, json: Json = False) -> None:
    """Take a cluster down: fronts end what is under way, then shards; copies stay on disks."""
    from ..cluster import read_cluster, take_down

    with progress_bar("servers", shown=not json) as bar:
        removed = take_down(read_cluster(file), on_progress=bar)
    if json:
        print_json(removed)
    else:
        typer.echo(f"removed {removed['actors']} actors and {removed['groups']} placement groups")


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    late = ", later than watch.prepare_s_max" if found["is_late"] else ""
    facts = {
        "side": found["side"],
        "model": f"{found['model']} version {found['version'][:16]} from {found['source']}",
        "state": f"{found['phase']}: {found['ready']} of {found['all']} servers are ready{late}",
    }
    facts |= {one["name"]: one["reason"] for one in found["servers"] if one["reason"]}
    facts |= {f"note {number}": text for number, text in enumerate(found["reasons"], 1)}
    print_facts(facts)
    rows = []
    for server in found["servers"]:
        queue, versions = server["queue_s"], server["versions"]
        name, older = f"front {server['index']}", len(versions) - 1
        if server["shard"] is not None:
            name = f"shard {server['shard']}/{server['index']}"
        rows.append(
            [
                name,
                server["state"],
                server["node"][:6],
                (server["url"] or "").partition("//")[2],
                versions[-1][:8] + (f" +{older}" if older else "") if versions else "",
                "" if queue is None else f"{1e3 * queue:.1f}",
                str(server["restarts"]),
            ]
        )
    print_table(["server", "state", "node", "address", "version", "ms", "restarts"], rows)
