"""What is needed, which deployment has it for the least money, and what that costs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hushtable.errors import ConfigError

from .closed import Carried, alone, carried
from .deployment import BESIDES_BYTES, Deployment, TableSize
from .engine import Load, Run, simulate
from .passes import Profile
from .prices import HOURS_A_MONTH, Instance, Prices

__all__ = ["Answer", "Need", "answer", "choose", "deployments", "remedy"]

#: Of a host's memory, what the system and file caches leave.
_USABLE = 0.95
_SHARDS_TRIED_MAX, _REPLICAS_MAX, _FRONTS_MAX = 256, 64, 1024
_SIMULATED_MAX = 24
#: Passes of each front, and parts of passes, that a simulation aims at.
_PASSES, _PARTS_MAX = 400, 120_000
_LOOKUPS_LEAST, _LOOKUPS_MOST = 10_000, 200_000
#: While candidates are looked through, a part of that.
_ROUGH = 0.3


@dataclass(frozen=True, slots=True)
class Need:
    """What a deployment is for, and what of it is set.

    Attributes:
        tables: that each lookup asks.
        rate: lookups a second.
        prices: where hosts come from.
        profile: how long passes take.
        p99_s: within which 99 % of lookups are answered; None for whatever it is.
        memory_bytes: most of a shard's host; None for as much as instances have.
        versions: of the tables that a host holds while it changes to the next.
        shards, replicas, fronts: None where they are to be chosen.
        replicas_least: where they are chosen: two, so that one may stop.
        instances: of shards, of which the cheapest that does is taken.
        front_instance: None for the cheapest of the same provider with four vCPUs or more.
        threads: of a shard; None for the instance's cores.
        busy_max: of what a deployment carries, the part that it is chosen for.
        zones: over which replicas and fronts are spread.
        settings: others of `Deployment`.
        seed: of simulations.
        lookups: of a simulation; None for as many as tell the 99th percentile.
    """

    tables: tuple[TableSize, ...]
    rate: float
    prices: Prices
    profile: Profile
    p99_s: float | None = None
    memory_bytes: float | None = None
    versions: int = 2
    shards: int | None = None
    replicas: int | None = None
    fronts: int | None = None
    replicas_least: int = 2
    instances: tuple[Instance, ...] = ()
    front_instance: Instance | None = None
    threads: int | None = None
    busy_max: float = 0.7
    zones: int = 1
    settings: dict[str, object] = field(default_factory=dict)
    seed: int = 1
    lookups: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A deployment and what is known of it.

    Attributes:
        deployment: of each of the two sides.
        instance, front_instance: its hosts.
        rate: lookups a second that it was simulated at.
        run: the simulation; None where the rate is beyond what is carried.
        carried: rates that its parts carry.
        is_sustained: whether the queue stays as long as it is.
        memory_bytes: of a shard's host.
        client_bytes_per_s: of all clients, to both sides and back.
        inner_bytes_per_s: between fronts and shards of both sides.
        hosts_dollars, bytes_dollars: a month, of both sides.
    """

    deployment: Deployment
    instance: Instance
    front_instance: Instance
    rate: float
    run: Run | None
    carried: Carried
    is_sustained: bool
    memory_bytes: float
    client_bytes_per_s: tuple[float, float]
    inner_bytes_per_s: float
    hosts_dollars: float
    bytes_dollars: float

    @property
    def hosts(self) -> int:
        """Of both sides."""
        return 2 * self.deployment.hosts

    @property
    def dollars(self) -> float:
        """A month."""
        return self.hosts_dollars + self.bytes_dollars

    @property
    def p99_s(self) -> float:
        """Infinite where the rate is not sustained."""
        return math.inf if self.run is None or not self.is_sustained else self.run.quantile(0.99)


def _front_instance(need: Need, instance: Instance) -> Instance:
    if need.front_instance is not None:
        return need.front_instance
    same = [one for one in need.prices.of(instance.provider) if one.vcpus >= 4]
    return min(same, key=lambda one: one.dollars_per_hour, default=instance)


def _deployment(need: Need, instance: Instance, counts: tuple[int, int, int]) -> Deployment:
    front = _front_instance(need, instance)
    settings: dict[str, object] = {
        "link_gbit_per_s": min(instance.link_gbit_per_s, front.link_gbit_per_s), **need.settings
    }  # fmt: skip
    shards, replicas, fronts = counts
    return Deployment(
        need.tables,
        shards,
        replicas,
        fronts,
        need.profile,
        threads=need.threads or instance.cores,
        **settings,  # type: ignore[arg-type]
    )


def memory_max(need: Need, instance: Instance) -> float:
    """Bytes that a shard's server may have on a host."""
    has = _USABLE * instance.memory_gib * 2**30
    return has if need.memory_bytes is None else min(has, need.memory_bytes)


def answer(
    need: Need, deployment: Deployment, instance: Instance, *, rough: bool = False
) -> Answer:
    """Simulates a deployment at the rate, and counts what it takes."""
    found = carried(deployment)
    run = None
    if need.rate < found.per_s:
        lookups = need.lookups or _lookups(need.rate, deployment, _ROUGH if rough else 1.0)
        run = simulate(deployment, Load(need.rate, lookups), seed=need.seed)
    front = _front_instance(need, instance)
    up, down = deployment.client_bytes
    part_up, part_down = deployment.part_bytes
    parts = sum(side.parts for side in run.sides) if run else 1
    hedged = 1 + (sum(side.hedges for side in run.sides) / max(parts, 1) if run else 0.0)
    inner = 2 * need.rate * deployment.shards * hedged * (part_up + part_down)
    provider = need.prices.providers[instance.provider]
    gb_a_month = HOURS_A_MONTH * 3600 / 1e9
    crossing = 1 - 1 / need.zones
    hosts = 2 * (
        deployment.shards * deployment.replicas * instance.dollars_per_month
        + deployment.fronts * front.dollars_per_month
    )
    return Answer(
        deployment=deployment,
        instance=instance,
        front_instance=front,
        rate=need.rate,
        run=run,
        carried=found,
        is_sustained=run is not None and _is_steady(run),
        memory_bytes=deployment.memory_bytes(need.versions),
        client_bytes_per_s=(2 * need.rate * up, 2 * need.rate * down),
        inner_bytes_per_s=inner,
        hosts_dollars=hosts,
        bytes_dollars=gb_a_month
        * (
            2 * need.rate * down * provider.internet_dollars_per_gb
            + inner * crossing * provider.zone_dollars_per_gb
        ),
    )


def _is_steady(run: Run) -> bool:
    """Whether latencies do not grow for as long as is simulated."""
    count = len(run.latency_s)
    first, last = run.latency_s[: count // 3].mean(), run.latency_s[-count // 10 :].mean()
    return bool(last <= 2 * first)


def _lookups(rate: float, deployment: Deployment, part: float) -> int:
    """As many as make enough passes, and not too many parts."""
    fronts, shards = deployment.fronts, deployment.shards
    cycle = deployment.pass_seconds(1) + deployment.hop_seconds + deployment.own_seconds(1)
    a_pass = min(max(1.0, rate / fronts * cycle), deployment.lookups_max)
    wanted = max(_PASSES * fronts * a_pass, _LOOKUPS_LEAST)
    wanted = min(wanted, _PARTS_MAX / shards * a_pass, _LOOKUPS_MOST)
    return max(1000, int(part * wanted))


def remedy(need: Need, deployment: Deployment, instance: Instance) -> str:
    """What would carry a rate that a deployment does not, in words."""
    found, one = carried(deployment), deployment
    wanted = need.rate / need.busy_max

    def of(name: str, count: int) -> int:
        return math.ceil(count * wanted / found.by[name])

    said = []
    if found.by["shards"] < wanted:
        said.append(
            f"{of('shards', one.replicas)} replicas of each shard (or more shards, whose passes "
            "are shorter)"
        )
    fronts = max(
        (of(name, one.fronts) for name in ("fronts", "threads", "links")
         if name in found.by and found.by[name] < wanted), default=0
    )  # fmt: skip
    if fronts:
        said.append(f"{fronts} fronts")
    if not said:
        said.append(f"more cores than {one.cores}")
    what = {
        "shards": f"the shards ({one.shards} x {one.replicas} {instance.name})",
        "fronts": f"the {one.fronts} fronts, which have {one.passes_at_once} pass under way each",
        "threads": f"the threads of {one.fronts} fronts that take lookups in",
        "links": f"the links of {one.fronts} fronts",
        "cores": f"the {one.cores} cores",
    }[found.limit]
    return (
        f"{need.rate:,.6g} lookups a second are asked, but {what} carry {found.per_s:,.4g}: "
        f"it takes {' and '.join(said)} to be {need.busy_max:.0%} busy"
    )


def _shards_least(need: Need, instance: Instance) -> int | None:
    """How many shards fit on hosts of one kind; None where not even a row does."""
    stored = sum(table.stored_bytes for table in need.tables)
    room = (memory_max(need, instance) - BESIDES_BYTES) / need.versions
    return math.ceil(stored / room) if room > 0 else None


def deployments(need: Need, instance: Instance) -> Iterator[Deployment]:
    """What could do on hosts of one kind: for each number of shards as few replicas and fronts as
    carry the rate."""
    least = _shards_least(need, instance)
    if least is None:
        return
    if need.shards is not None:
        counts = [need.shards] if need.shards >= least else []
    else:
        powers = [1 << power for power in range(_SHARDS_TRIED_MAX.bit_length())]
        most = max(least, min(_SHARDS_TRIED_MAX, sum(table.rows for table in need.tables) // 4096))
        counts = sorted({least, *(one for one in powers if least < one <= most)})
    for shards in counts:
        one = carried(_deployment(need, instance, (shards, 1, 1)))
        wanted = need.rate / need.busy_max

        def of(*names: str, by: dict[str, float] = one.by, wanted: float = wanted) -> int:
            return math.ceil(max(wanted / by[name] for name in names if name in by))

        replicas = need.replicas or max(need.replicas_least, of("shards"))
        fronts = need.fronts or max(need.replicas_least, of("fronts", "threads", "links"))
        if replicas <= _REPLICAS_MAX and fronts <= _FRONTS_MAX:
            yield _deployment(need, instance, (shards, replicas, fronts))


def choose(need: Need, progress: Callable[[int, int], None] | None = None) -> Answer:
    """The cheapest deployment found that carries the rate within the latency.

    Candidates that no closed form rules out are tried by what they cost; one that is too slow comes
    back with a replica and a front more.

    Raises:
        ConfigError: none does; says what came nearest, and what it lacked.
    """
    wanted = math.inf if need.p99_s is None else need.p99_s
    heap: list[tuple[float, int, int, Deployment, Instance]] = []
    count, fastest, fits = 0, math.inf, False
    for instance in need.instances:
        least = _shards_least(need, instance)
        fits = fits or (least is not None and least <= (need.shards or least))
        for one in deployments(need, instance):
            # Hedging takes from p99 what stalls add, never from what most passes take.
            quick = alone(one, 0.5)
            fastest = min(fastest, quick)
            if quick < wanted and carried(one).per_s > need.rate:
                count += 1
                heapq.heappush(heap, (_dollars(need, one, instance), count, 0, one, instance))
    if not fits:
        raise ConfigError(_no_room(need))
    if not heap:
        raise ConfigError(
            f"no deployment answers within {1e3 * wanted:,.4g} ms: a lookup that meets no other "
            f"takes {1e3 * fastest:,.4g} ms at best; allow more, or hosts with more cores"
            if wanted <= fastest < math.inf
            else f"no deployment carries {need.rate:,.6g} lookups a second: leave --shards, "
            f"--replicas and --fronts to be chosen, or ask less than {_REPLICAS_MAX} replicas of "
            f"{_SHARDS_TRIED_MAX} shards and {_FRONTS_MAX:,} fronts carry"
        )
    nearest: Answer | None = None
    for tried in range(_SIMULATED_MAX):
        if not heap:
            break
        _cost, _count, bumps, one, instance = heapq.heappop(heap)
        found = answer(need, one, instance, rough=True)
        if progress is not None:
            progress(tried + 1, _SIMULATED_MAX)
        if found.is_sustained and found.p99_s <= wanted:
            found = answer(need, one, instance)
            if found.is_sustained and found.p99_s <= wanted:
                return found
        if nearest is None or found.p99_s < nearest.p99_s:
            nearest = found
        more = (
            one.replicas + (need.replicas is None),
            one.fronts + (need.fronts is None) * -(-one.fronts // 4),
        )
        if (
            bumps < 4
            and more != (one.replicas, one.fronts)
            and more[0] <= _REPLICAS_MAX
            and more[1] <= _FRONTS_MAX
        ):
            again = replace(one, replicas=more[0], fronts=more[1])
            count += 1
            cost = _dollars(need, again, instance)
            heapq.heappush(heap, (cost, count, bumps + 1, again, instance))
    assert nearest is not None
    near = nearest.deployment
    raise ConfigError(
        f"no deployment of those tried has p99 within {1e3 * wanted:,.4g} ms at {need.rate:,.6g} "
        f"lookups a second: {near.shards} shards x {near.replicas} + {near.fronts} fronts on "
        f"{nearest.instance.name} have {1e3 * nearest.p99_s:,.4g} ms; allow more, or give "
        "--instance with more cores"
    )


def _dollars(need: Need, one: Deployment, instance: Instance) -> float:
    front = _front_instance(need, instance)
    return (
        one.shards * one.replicas * instance.dollars_per_hour + one.fronts * front.dollars_per_hour
    )


def _no_room(need: Need) -> str:
    gib = 2**30
    stored = sum(table.stored_bytes for table in need.tables)
    rooms = {one: (memory_max(need, one) - BESIDES_BYTES) / need.versions for one in need.instances}
    if not rooms:
        return "there is no instance to choose from: give --prices a file with some"
    best = max(rooms, key=lambda one: rooms[one])
    if need.shards is None or rooms[best] <= 0:
        return (
            f"no host has room for a shard: {memory_max(need, best) / gib:.3g} GiB of {best.name} "
            f"are to hold {need.versions} versions beside {BESIDES_BYTES / gib:g} GiB; give "
            "--memory-gib more, or an instance with more"
        )
    least = math.ceil(stored / rooms[best])
    return (
        f"{need.shards} shards of {stored / gib:,.4g} GiB in {need.versions} versions fit no host: "
        f"{best.name} has {memory_max(need, best) / gib:.4g} GiB for them, so it takes {least} "
        "shards, or larger instances"
    )
