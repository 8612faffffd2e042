"""One side's servers under load, event by event.

A front's rules are those of crates/serve: `batch/queue.rs` says when a pass begins and what it
takes, `shards/passes.rs` and `hedge.rs` which replica is asked and when a second one. A
shard's server has no window: it takes what waits, in one pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hushtable.errors import ConfigError

from .clock import Clock, Cores, Thread, Work
from .deployment import Deployment

__all__ = ["Load", "Run", "Side", "simulate"]

Floats = npt.NDArray[np.float64]
_NEAR = 1e-12
#: Times that are remembered of each kind of part, and how few of them say nothing.
_RING, _RING_LEAST = 1024, 16
#: After so many new ones it is looked again which are late.
_LOOK_EVERY = 64


@dataclass(frozen=True, slots=True)
class Load:
    """Who asks.

    Attributes:
        rate: lookups a second that come by themselves (Poisson); 0 for a closed loop.
        lookups: that are simulated.
        clients: of a closed loop: each asks again once it has its answer.
        client_seconds: of a closed loop: work of one thread of all clients, for each lookup.
        warmup: the part of the lookups that is not counted.
    """

    rate: float = 0.0
    lookups: int = 20_000
    clients: int = 0
    client_seconds: float = 0.0
    warmup: float = 0.1

    def __post_init__(self) -> None:
        if not 100 <= self.lookups <= 100_000_000:
            raise ConfigError(
                f"{self.lookups} lookups are simulated, but must be 100 to 100,000,000"
            )
        if (self.rate > 0) == (self.clients > 0):
            raise ConfigError("a load has either a rate above 0 or clients")

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """When lookups come, of a rate."""
        return np.cumsum(rng.exponential(1 / self.rate, self.lookups))


@dataclass(frozen=True, slots=True)
class Side:
    """What became of one side.

    Attributes:
        ended_s: when each lookup was answered, in the order they came.
        asked_s: when each was asked.
        passes: of fronts.
        lookups_mean: in a pass.
        parts: of passes, that shards were asked for; hedged ones not counted.
        hedges: parts that a second replica was asked for.
        shard_busy: share of the time that a shard's server answers, mean.
        front_busy: share of the time that a front has all the passes under way that it may, mean.
        thread_busy: share of the time that a front's thread of connections works, mean.
        waited: lookups that had no answer when the last one came.
    """

    ended_s: Floats
    asked_s: Floats
    passes: int
    lookups_mean: float
    parts: int
    hedges: int
    shard_busy: float
    front_busy: float
    thread_busy: float
    waited: int


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation: latency is until both sides have answered.

    Attributes:
        sides: one or two.
        latency_s: of each lookup that counts.
        per_s: lookups answered a second, of those.
    """

    sides: tuple[Side, ...]
    latency_s: Floats
    per_s: float

    def quantile(self, part: float) -> float:
        """Seconds within which this part of the lookups is answered."""
        return float(np.quantile(self.latency_s, part))


class _Noise:
    """Factors and stalls of passes, drawn in blocks."""

    def __init__(self, deployment: Deployment, rng: np.random.Generator) -> None:
        self._stalls, self._rng = deployment.spreads, rng
        self._drawn: list[tuple[float, float]] = []

    def draw(self) -> tuple[float, float]:
        """A factor of the work, and seconds of a stall."""
        if not self._drawn:
            stalls, rng, count = self._stalls, self._rng, 4096
            factors = np.exp(rng.normal(0.0, 1.0, count) * stalls.spread)
            is_stall = rng.random(count) < stalls.share
            seconds = np.where(is_stall, rng.exponential(1.0, count) * stalls.seconds, 0.0)
            self._drawn = list(zip(factors.tolist(), seconds.tolist(), strict=True))
        return self._drawn.pop()


class _Part:
    """One shard's part of a pass."""

    __slots__ = ("asked", "back", "of", "shard")

    def __init__(self, of: _Pass, shard: int) -> None:
        self.of, self.shard = of, shard
        #: When the first answer is back at the front; None while there is none.
        self.back: float | None = None
        self.asked: list[int] = []


class _Pass:
    __slots__ = ("end", "front", "left", "lookups", "sent")

    def __init__(self, front: _Front, lookups: list[int], shards: int) -> None:
        self.front, self.lookups, self.left = front, lookups, shards
        self.sent = self.end = 0.0


class _Replica:
    """A server of a shard: what waits goes into its next pass."""

    __slots__ = ("busy_s", "host", "is_busy", "number", "side", "waiting")

    def __init__(self, side: _Servers, number: int, host: Work) -> None:
        self.side, self.number, self.host = side, number, host
        self.waiting: deque[_Part] = deque()
        self.is_busy = False
        self.busy_s = 0.0

    def take(self) -> None:
        side, count = self.side, 0
        taken: list[_Part] = []
        while self.waiting:
            part = self.waiting[0]
            # Of a part that another answered first, before this one began it, nothing is left.
            if part.back is None:
                more = len(part.of.lookups)
                if taken and count + more > side.lookups_max:
                    break
                taken.append(part)
                count += more
            self.waiting.popleft()
        if not taken:
            return
        self.is_busy = True
        began = side.clock.now
        factor, stall = side.noise.draw()

        def end() -> None:
            if stall:
                side.clock.at(side.clock.now + stall, done)
            else:
                done()

        def done() -> None:
            self.is_busy = False
            self.busy_s += side.clock.now - began
            back = side.clock.now + side.half_hop
            for part in taken:
                part.of.front.part_done(part, back)
            self.take()

        self.host.begin(side.pass_seconds(count) * factor, side.deployment.threads, end)


class _Front:
    """Batches lookups, asks all shards, waits for the last."""

    def __init__(self, side: _Servers, host: Work) -> None:
        self.side, self.clock = side, side.clock
        deployment = side.deployment
        self.thread = Thread(host)
        self.host = host
        self.waiting: deque[tuple[float, int]] = deque()
        self.last_end: float | None = None
        self.crowd = 0
        self.under_way = 0
        self.looks_at = -1.0
        self.full_s = self.full_since = 0.0
        self.passes = self.taken = self.hedges = 0
        #: By shard and replica: parts that have no answer.
        self.open = [[0] * deployment.replicas for _ in range(deployment.shards)]
        self.turns = [0] * deployment.shards
        self.rings: dict[int, deque[float]] = {}
        self.late: dict[int, float] = {}
        self.noted = 0
        self.tokens = 0.0

    def arrive(self, lookup: int) -> None:
        def enter() -> None:
            self.waiting.append((self.clock.now, lookup))
            self.look()

        self.thread.run(self.side.request, enter)

    def look(self) -> None:
        """Begins a pass if one is due."""
        side, now = self.side, self.clock.now
        if not self.waiting or self.under_way >= side.deployment.passes_at_once:
            return
        oldest = self.waiting[0][0]
        last = self.last_end
        due = (oldest if last is None else max(last, oldest)) + side.window
        # Who came soon after the last pass is most likely of the crowd that it answered.
        is_crowd = last is not None and oldest <= last + side.window
        is_complete = len(self.waiting) >= self.crowd if is_crowd else not side.lone_waits
        is_full = len(self.waiting) >= side.lookups_max
        if is_full or is_complete or now >= due - _NEAR:
            self.begin()
        elif self.looks_at != due:
            self.looks_at = due
            self.clock.at(due, self.look)

    def begin(self) -> None:
        side = self.side
        count = min(len(self.waiting), side.lookups_max)
        lookups = [self.waiting.popleft()[1] for _ in range(count)]
        one = _Pass(self, lookups, side.deployment.shards)
        self.passes += 1
        self.taken += count
        self.under_way += 1
        if self.under_way == side.deployment.passes_at_once:
            self.full_since = self.clock.now

        def send() -> None:
            one.sent = self.clock.now
            on_link = side.link_seconds(count)
            arrives = one.sent + side.half_hop + on_link
            parts = [_Part(one, shard) for shard in range(side.deployment.shards)]
            asked = [(part, self.choose(part)) for part in parts]

            def arrive() -> None:
                for part, number in asked:
                    side.ask(part, number)

            self.clock.at(arrives, arrive)
            self.watch(parts, count, on_link)

        self.host.begin(side.own_seconds(count), 1, send)

    def choose(self, part: _Part) -> int:
        """The replica with the least to do for this front that was not asked for the part yet; of
        those that are alike each in turn."""
        found = self.open[part.shard]
        number = 0
        if len(found) > 1:
            others = [number for number in range(len(found)) if number not in part.asked]
            least = min(found[number] for number in others)
            equal = [number for number in others if found[number] == least]
            number = equal[self.turns[part.shard] % len(equal)]
            self.turns[part.shard] += 1
        found[number] += 1
        part.asked.append(number)
        return number

    def is_other_free(self, part: _Part) -> bool:
        """A second server that has as much to do would be as late."""
        found = self.open[part.shard]
        busy = found[part.asked[-1]]
        return any(open_ < busy for number, open_ in enumerate(found) if number not in part.asked)

    def watch(self, parts: list[_Part], count: int, on_link: float) -> None:
        """Asks a second replica for what is late."""
        hedging, deployment = self.side.deployment.hedging, self.side.deployment
        if hedging.quantile is None or deployment.replicas == 1:
            return
        self.tokens = min(self.tokens + len(parts) * hedging.budget, hedging.saved)
        late = self.late.get(count.bit_length())
        if late is None:
            return

        def ask_again() -> None:
            now = self.clock.now
            for part in parts:
                is_late = part.back is None or part.back > now
                if is_late and self.tokens >= 1 and self.is_other_free(part):
                    self.tokens -= 1
                    self.hedges += 1
                    arrives = now + self.side.half_hop + on_link / len(parts)
                    self.clock.at(arrives, partial(self.side.ask, part, self.choose(part)))

        self.clock.at(self.clock.now + late, ask_again)

    def part_done(self, part: _Part, back: float) -> None:
        one = part.of
        if part.back is not None:
            return
        part.back = back
        for number in part.asked:
            self.open[part.shard][number] -= 1
        one.end = max(one.end, back)
        one.left -= 1
        self.note(len(one.lookups).bit_length(), back - one.sent)
        if one.left == 0:
            self.clock.at(one.end, lambda: self.finish(one))

    def note(self, kind: int, took: float) -> None:
        deployment = self.side.deployment
        hedging = deployment.hedging
        if hedging.quantile is None or deployment.replicas == 1:
            return
        ring = self.rings.setdefault(kind, deque(maxlen=_RING))
        ring.append(took)
        self.noted += 1
        if len(ring) < _RING_LEAST or (self.noted % _LOOK_EVERY and kind in self.late):
            return
        late = sorted(ring)[int(len(ring) * hedging.quantile)]
        self.late[kind] = max(late, hedging.least) * hedging.slack

    def finish(self, one: _Pass) -> None:
        side, now = self.side, self.clock.now
        if self.under_way == side.deployment.passes_at_once:
            self.full_s += now - self.full_since
        self.under_way -= 1
        self.last_end = now
        self.crowd = len(one.lookups) + len(self.waiting)
        # All answers of a pass are written before the first leaves: their connections come after.
        self.thread.run(side.request * len(one.lookups), partial(side.answered, one.lookups))
        self.look()


class _Servers:
    """A side: its fronts and replicas, and who asked."""

    def __init__(self, deployment: Deployment, load: Load, seed: Sequence[int]) -> None:
        self.clock = Clock()
        self.deployment, self.load = deployment, load
        self.noise = _Noise(deployment, np.random.default_rng([*seed, 1]))
        self.half_hop = deployment.hop_seconds / 2
        self.request = deployment.profile.front.request
        self.window = deployment.window_seconds
        self.lone_waits = deployment.window is not None
        self.lookups_max = deployment.lookups_max
        self._took: dict[int, float] = {}
        self._own: dict[int, float] = {}
        shared = None if deployment.cores is None else Cores(self.clock, deployment.cores)

        def host() -> Work:
            return Work(self.clock) if shared is None else shared

        self.fronts = [_Front(self, host()) for _ in range(deployment.fronts)]
        self.replicas = [
            [_Replica(self, number, host()) for number in range(deployment.replicas)]
            for _ in range(deployment.shards)
        ]
        self.clients = Thread(Work(self.clock))
        self.asked = np.full(load.lookups, np.nan)
        self.ended = np.full(load.lookups, np.nan)
        self.count = self.answers = self.waited = 0

    def pass_seconds(self, lookups: int) -> float:
        if lookups not in self._took:
            self._took[lookups] = self.deployment.pass_seconds(lookups)
        return self._took[lookups]

    def own_seconds(self, lookups: int) -> float:
        if lookups not in self._own:
            self._own[lookups] = self.deployment.own_seconds(lookups)
        return self._own[lookups]

    def link_seconds(self, lookups: int) -> float:
        return self.deployment.link_seconds(lookups)

    def ask(self, part: _Part, number: int) -> None:
        replica = self.replicas[part.shard][number]
        replica.waiting.append(part)
        if not replica.is_busy:
            replica.take()

    def open_loop(self, arrivals: Floats, fronts: list[int]) -> None:
        """Lookups that come by themselves, each to its front."""
        self.asked[:] = arrivals
        times = arrivals.tolist()

        def arrive() -> None:
            lookup = self.count
            self.count += 1
            if self.count < len(times):
                self.clock.at(times[self.count], arrive)
            else:
                self.waited = len(times) - self.answers
            self.fronts[fronts[lookup]].arrive(lookup)

        self.clock.at(times[0], arrive)
        self.clock.run()

    def closed_loop(self) -> None:
        """Clients that each have one lookup open."""
        self.ask_next(min(self.load.clients, self.load.lookups))
        self.clock.run()

    def ask_next(self, count: int) -> None:
        """So many clients ask: who was answered together asks together."""
        first, count = self.count, min(count, self.load.lookups - self.count)
        self.count += count

        def send() -> None:
            for lookup in range(first, first + count):
                self.asked[lookup] = self.clock.now
                self.fronts[lookup % len(self.fronts)].arrive(lookup)

        if count:
            self.clients.run(self.load.client_seconds / 2 * count, send)

    def answered(self, lookups: list[int]) -> None:
        """The answers of a pass have left."""
        if self.load.clients:
            work = self.load.client_seconds / 2 * len(lookups)
            self.clients.run(work, partial(self.taken_in, lookups))
        else:
            self.taken_in(lookups)

    def taken_in(self, lookups: list[int]) -> None:
        self.ended[lookups] = self.clock.now
        self.answers += len(lookups)
        if self.load.clients:
            self.ask_next(len(lookups))

    def report(self) -> Side:
        elapsed = max(self.clock.now, _NEAR)
        replicas = [one for shard in self.replicas for one in shard]
        passes = sum(front.passes for front in self.fronts)
        fronts = len(self.fronts)
        return Side(
            ended_s=self.ended,
            asked_s=self.asked,
            passes=passes,
            lookups_mean=sum(front.taken for front in self.fronts) / max(passes, 1),
            parts=passes * self.deployment.shards,
            hedges=sum(front.hedges for front in self.fronts),
            shard_busy=sum(one.busy_s for one in replicas) / len(replicas) / elapsed,
            front_busy=sum(front.full_s for front in self.fronts) / fronts / elapsed,
            thread_busy=sum(front.thread.used for front in self.fronts) / fronts / elapsed,
            waited=self.waited,
        )


def simulate(deployment: Deployment, load: Load, *, seed: int = 1, sides: int = 2) -> Run:
    """Answers the lookups of a load; the same seed gives the same times.

    Args:
        deployment: one side, as all are.
        load: who asks. Clients of a closed loop ask one side.
        seed: of arrivals, noise and choices.
        sides: that a lookup asks, at once.

    Raises:
        ConfigError: sides that are not 1 or 2, or a closed loop of both.
    """
    if sides not in (1, 2) or (load.clients and sides == 2):
        raise ConfigError("a load asks 1 or 2 sides; clients of a closed loop ask 1")
    rng = np.random.default_rng([seed, 0])
    arrivals = load.arrivals(rng) if load.rate > 0 else np.empty(0)
    found: list[Side] = []
    for number in range(sides):
        servers = _Servers(deployment, load, (seed, number))
        if load.rate > 0:
            chosen: Any = rng.integers(deployment.fronts, size=load.lookups)
            servers.open_loop(arrivals, chosen.tolist())
        else:
            servers.closed_loop()
        found.append(servers.report())
    first = int(load.lookups * load.warmup)
    asked = found[0].asked_s[first:]
    ended = np.maximum.reduce([side.ended_s for side in found])[first:]
    # From the first to the last end: what is open at either of them is as much at both.
    elapsed = float(ended.max() - np.min(ended)) if load.clients else float(asked[-1] - asked[0])
    return Run(tuple(found), ended - asked, (len(ended) - 1) / max(elapsed, _NEAR))
