"""One simulated day of private inference: clients, their queues and stores, and a server.

Each client has a queue (first in, first out) that one request at a time leaves, a store of
precomputes, and a maker of them. All share the server's cores and storage. A request waits for
those before it (waiting), then for a precompute (offline), then is predicted (online).

By default phases compete. A step is a job on the client's cores, the server's cores, or one
direction of the client's link; jobs there progress at the same rate, min(1, capacity / demand),
where a step's demand is its threads, or all of the link. A precompute is begun as soon as both
stores have room, which is set aside then and given back when the prediction that used it has ended.

A deployment that ``is_as_published`` is simulated as the authors' simulator does it. What that
means was read off its processes, and is what repeats the runs of it that we have:

- phases do not compete: each takes the sum of its steps on idle cores and links;
- one offline phase at a time, whatever ``precomputes_at_once``; its maker looks once a second from
  the start, and again from one second after each precompute, so it begins on those seconds only;
- a store must be left with more than no room (strictly less than its capacity), set aside when a
  precompute begins, which is no different with one maker; both start empty, and the first
  precompute begins at 0;
- an online phase takes its precompute, and so frees the stores, at its start;
- the first request comes after a first gap, not at 0; what comes or ends after the last second
  does not count.

In both, where a store has no room for one precompute the whole protocol runs for each request.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from hushtable.errors import ConfigError

from .deployment import Deployment, Step

__all__ = ["Run", "Shared", "is_online_only", "simulate"]

Floats = npt.NDArray[np.float64]
#: Progress that is lost to rounding, in seconds: jobs this close to their end have ended.
_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class Run:
    """What happened to each request that was served, in the order in which they ended.

    Attributes:
        client: whose it was.
        arrival_s: when it came.
        waiting_s: behind others in its client's queue.
        offline_s: for a precompute, or while the offline phase ran for it.
        online_s: the online phase.
        arrivals: requests that came.
        queued: of them, still in a queue at the end.
        left: of them, not served at the end: queued, or begun.
        precomputes: made, without those that ran for a request.
        most_stored: precomputes that any client held at once, set-aside room included.
        most_stored_bytes: likewise at the server, of all clients.
        is_online_only: whether stores are too small for one precompute.
        busy: the mean share of capacity in use, by resource; those of clients are means over them.
            Empty where phases do not compete.
    """

    client: npt.NDArray[np.int64]
    arrival_s: Floats
    waiting_s: Floats
    offline_s: Floats
    online_s: Floats
    arrivals: int
    queued: int
    left: int
    precomputes: int
    most_stored: int
    most_stored_bytes: float
    is_online_only: bool
    busy: dict[str, float]

    @property
    def latency_s(self) -> Floats:
        """From a request's arrival to its prediction."""
        return self.waiting_s + self.offline_s + self.online_s


def is_online_only(deployment: Deployment) -> bool:
    """Whether either store is too small for one precompute."""
    costs, strict = deployment.costs, deployment.is_as_published
    return any(
        kept > room or (strict and kept == room)
        for kept, room in (
            (costs.client_bytes, deployment.client_storage_bytes),
            (costs.server_bytes, deployment.server_storage_bytes),
        )
    )


def _simpy() -> Any:
    try:
        return importlib.import_module("simpy")
    except ImportError as error:
        raise ConfigError(
            "simulating private inference needs simpy: install it by "
            "`pip install 'hushtable-lab[sim]'`"
        ) from error


class _Clock:
    """SimPy's environment, by events with one callback: a third of what a process costs."""

    __slots__ = ("_timeout", "environment")

    def __init__(self) -> None:
        simpy = _simpy()
        self.environment = simpy.Environment()
        self._timeout = simpy.Timeout

    @property
    def now(self) -> float:
        return float(self.environment.now)

    def after(self, seconds: float, then: Callable[[Any], None]) -> Any:
        event = self._timeout(self.environment, seconds)
        event.callbacks.append(then)
        return event

    def run(self, seconds: float) -> None:
        self.environment.run(until=seconds)


class Shared:
    """Cores or a link, shared by jobs that all progress at min(1, capacity / sum of demands).

    As the rate is the same for all, a job's end is fixed in the time of an undisturbed job when it
    begins. So a job costs O(log jobs), and nothing is done for the others when one comes or goes.
    """

    __slots__ = ("_before", "_clock", "_count", "_done", "_jobs", "_timer", "_used", "capacity",
                 "demand")  # fmt: skip

    def __init__(self, clock: Any, capacity: float) -> None:
        self._clock, self.capacity = clock, capacity
        self.demand = 0.0
        #: Ends, in progress made; an index that keeps order; demands; what to do.
        self._jobs: list[tuple[float, int, float, Callable[[], None]]] = []
        self._count = 0
        self._before = self._done = self._used = 0.0
        self._timer: Any = None

    def begin(self, seconds: float, demand: float, then: Callable[[], None]) -> None:
        """Starts a job of ``seconds`` on idle capacity; ``then`` is called at its end."""
        self._advance()
        before, rate = self._jobs[0] if self._jobs else None, self._rate()
        job = (self._done + seconds, self._count, demand, then)
        self._count += 1
        heappush(self._jobs, job)
        self.demand += demand
        if self._timer is None or self._jobs[0] is not before or rate != self._rate():
            self._set()

    def busy_s(self) -> float:
        """Seconds of all of the capacity that were used so far."""
        self._advance()
        return self._used / self.capacity

    def _rate(self) -> float:
        return 1.0 if self.demand <= self.capacity else self.capacity / self.demand

    def _advance(self) -> None:
        now = self._clock.now
        if now > self._before:
            if self.demand:
                passed = now - self._before
                self._done += passed * self._rate()
                self._used += passed * min(self.demand, self.capacity)
            self._before = now

    def _set(self) -> None:
        delay = max(0.0, self._jobs[0][0] - self._done) / self._rate()
        self._timer = self._clock.after(delay, self._tick)

    def _tick(self, event: Any) -> None:
        # Timers that a change made useless stay in SimPy's heap, and end here.
        if event is not self._timer:
            return
        self._timer = None
        self._advance()
        jobs = self._jobs
        self._done = max(self._done, jobs[0][0])
        ended = []
        while jobs and jobs[0][0] <= self._done + _NEAR:
            _end, _index, demand, then = heappop(jobs)
            self.demand -= demand
            ended.append(then)
        if not jobs:
            self._done = self.demand = 0.0
        for then in ended:
            then()
        if self._timer is None and jobs:
            self._set()


#: A step as it is simulated: which of (client, server, up, down), seconds when idle, demand.
_Job = tuple[int, float, float]
_ORDER = ("client", "server", "up", "down")


def _jobs(steps: Sequence[Step], deployment: Deployment) -> tuple[_Job, ...]:
    """Steps as jobs; neighbours that load the same thing alike are one."""
    found: list[_Job] = []
    for step in steps:
        seconds, demand = step.amount, float(step.threads)
        if step.on in ("up", "down"):
            mbps = deployment.up_mbps if step.on == "up" else deployment.down_mbps
            seconds, demand = step.amount * 8 / (mbps * 1e6), 1.0
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ConfigError(
                f"step {step.part!r} on {step.on} takes {step.amount:g}, but must be 0 or more"
            )
        where = _ORDER.index(step.on)
        if found and found[-1][0] == where and found[-1][2] == demand:
            found[-1] = (where, found[-1][1] + seconds, demand)
        elif seconds > 0:
            found.append((where, seconds, demand))
    return tuple(found)


class _Phase:
    """Runs jobs one after the other."""

    __slots__ = ("_at", "_jobs", "_on", "_then")

    def __init__(
        self, jobs: tuple[_Job, ...], on: tuple[Shared, ...], then: Callable[[], None]
    ) -> None:
        self._jobs, self._on, self._then, self._at = jobs, on, then, 0
        self.go_on()

    def go_on(self) -> None:
        if self._at == len(self._jobs):
            self._then()
            return
        where, seconds, demand = self._jobs[self._at]
        self._at += 1
        self._on[where].begin(seconds, demand, self.go_on)


class _Server:
    """What clients share: cores, storage, and whose turn it is when storage is freed."""

    def __init__(self, deployment: Deployment, clock: _Clock) -> None:
        self.deployment, self.clock = deployment, clock
        self.strict = deployment.is_as_published
        self.cores = Shared(clock, deployment.server_cores)
        self.offline = _jobs(deployment.costs.offline, deployment)
        self.online = _jobs(deployment.costs.online, deployment)
        self.offline_s = sum(seconds for _on, seconds, _demand in self.offline)
        self.online_s = sum(seconds for _on, seconds, _demand in self.online)
        self.is_online_only = is_online_only(deployment)
        self.stored = self.most_stored_bytes = 0.0
        self.clients: list[_Client] = []
        self._turn = 0

    def has_room(self, stored: int) -> bool:
        """For one more at a client that holds ``stored``."""
        costs, deployment = self.deployment.costs, self.deployment
        client = (stored + 1) * costs.client_bytes
        server = self.stored + costs.server_bytes
        if self.strict:
            return client < deployment.client_storage_bytes and (
                server < deployment.server_storage_bytes
            )
        return client <= deployment.client_storage_bytes and (
            server <= deployment.server_storage_bytes
        )

    def take(self) -> None:
        self.stored += self.deployment.costs.server_bytes
        self.most_stored_bytes = max(self.most_stored_bytes, self.stored)

    def free(self, client: _Client) -> None:
        """Gives back the room of one, which the others may be waiting for."""
        self.stored -= self.deployment.costs.server_bytes
        count = len(self.clients)
        if count == 1:
            client.make()
            return
        self._turn = (self._turn + 1) % count
        for index in range(count):
            self.clients[(self._turn + index) % count].make()


class _Client:
    def __init__(
        self, server: _Server, arrivals: Sequence[float], is_full: bool, index: int
    ) -> None:
        self.server, self.clock, self.index = server, server.clock, index
        self.arrivals, self.is_full = arrivals, is_full
        deployment = server.deployment
        self.is_published = deployment.is_as_published
        self.at_once = 1 if self.is_published else deployment.precomputes_at_once
        self.resources = (
            Shared(self.clock, deployment.client_cores),
            server.cores,
            Shared(self.clock, 1.0),
            Shared(self.clock, 1.0),
        )
        self.queue: deque[float] = deque()
        self.came = self.precomputes = self.most_stored = 0
        #: Precomputes: ready; in the making; that hold room, those in use included.
        self.ready = self.making = self.stored = 0
        self.is_serving = self.is_short = False
        #: From when the published maker looks, once a second.
        self.looks_from = 0.0
        self.served: list[tuple[int, float, float, float, float]] = []
        self.arrived = self.began = self.predicting = 0.0

    def start(self) -> None:
        self.make()
        if self.is_full:
            self.serve()
        elif len(self.arrivals):
            self.clock.after(self.arrivals[0], self.arrive)

    def arrive(self, _event: Any) -> None:
        now = self.arrivals[self.came]
        self.came += 1
        if self.came < len(self.arrivals):
            self.clock.after(max(0.0, self.arrivals[self.came] - self.clock.now), self.arrive)
        self.queue.append(now)
        if not self.is_serving:
            self.serve()

    def serve(self) -> None:
        self.is_serving = bool(self.queue) or self.is_full
        if not self.is_serving:
            return
        self.began = self.clock.now
        self.arrived = self.began if self.is_full else self.queue.popleft()
        if self.server.is_online_only:
            self.run(self.server.offline, self.server.offline_s, self.predict)
        elif self.ready:
            self.use()
        else:
            self.is_short = True

    def use(self) -> None:
        self.ready -= 1
        self.is_short = False
        # Before the room is given back, whose maker may end at once.
        self.predict()
        if self.is_published:
            self.give_back()

    def give_back(self) -> None:
        self.stored -= 1
        self.server.free(self)

    def predict(self) -> None:
        self.predicting = self.clock.now
        self.run(self.server.online, self.server.online_s, self.end)

    def end(self) -> None:
        now = self.clock.now
        self.served.append(
            (
                self.index,
                self.arrived,
                self.began - self.arrived,
                self.predicting - self.began,
                now - self.predicting,
            )
        )
        if not (self.is_published or self.server.is_online_only):
            self.give_back()
        self.serve()

    def make(self) -> None:
        """Begins as many precomputes as there is room for."""
        if self.server.is_online_only:
            return
        if self.is_published:
            if self.making == 0 and self.server.has_room(self.stored):
                now = self.clock.now
                looks = math.ceil(max(0.0, now - self.looks_from) - _NEAR)
                self.making = 1
                self.clock.after(max(0.0, self.looks_from + looks - now), self.look)
            return
        while self.making < self.at_once and self.server.has_room(self.stored):
            self.making += 1
            self.hold()
            self.run(self.server.offline, self.server.offline_s, self.made)

    def look(self, _event: Any) -> None:
        if not self.server.has_room(self.stored):
            # Another client was first; its room comes back with a call.
            self.making = 0
            return
        self.hold()
        self.clock.after(self.server.offline_s, self.published)

    def published(self, _event: Any) -> None:
        self.looks_from = self.clock.now + 1.0
        self.made()
        self.make()

    def hold(self) -> None:
        self.stored += 1
        self.most_stored = max(self.most_stored, self.stored)
        self.server.take()

    def made(self) -> None:
        self.making -= 1
        self.precomputes += 1
        self.ready += 1
        if self.is_short:
            self.use()
        if not self.is_published:
            self.make()

    def run(self, jobs: tuple[_Job, ...], seconds: float, then: Callable[[], None]) -> None:
        if self.is_published:
            self.clock.after(seconds, lambda _event: then())
        else:
            _Phase(jobs, self.resources, then)


def simulate(
    deployment: Deployment,
    arrivals: Sequence[Sequence[float]] | Sequence[Floats],
    seconds: float,
    *,
    is_full: bool = False,
) -> Run:
    """Simulates ``seconds``, from empty stores.

    Args:
        deployment: the server, the clients, their costs.
        arrivals: when each client's requests come, in seconds from the start, sorted.
        seconds: how long.
        is_full: clients always have a next request, whatever ``arrivals`` says.

    Raises:
        ConfigError: lists of arrivals that are not one a client, or not sorted; a time that is not
            above 0; steps that cannot be; simpy is not installed.
    """
    if len(arrivals) != deployment.clients:
        raise ConfigError(
            f"there are arrivals of {len(arrivals)} clients, but {deployment.clients} clients"
        )
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigError(f"{seconds:g} seconds are simulated, but must be above 0")
    clock = _Clock()
    server = _Server(deployment, clock)
    for index, each in enumerate(arrivals):
        times = np.asarray(each, dtype=np.float64)
        if times.size and not (np.isfinite(times).all() and times[0] >= 0):
            raise ConfigError(f"client {index} has a request at no time of 0 or later")
        if (np.diff(times) < 0).any():
            raise ConfigError(f"the requests of client {index} are not sorted by time")
        kept = times[times < seconds].tolist()
        server.clients.append(_Client(server, kept, is_full, index))
    for client in server.clients:
        client.start()
    clock.run(seconds)
    served = [one for client in server.clients for one in client.served]
    table = np.array(served, dtype=np.float64).reshape(-1, 5)
    count = deployment.clients
    busy = {}
    if not deployment.is_as_published:
        # The server's cores once, as they are the same for all.
        busy = {
            name: sum(one.resources[where].busy_s() for one in server.clients) / count / seconds
            for where, name in enumerate(_ORDER)
        }
    came = sum(client.came for client in server.clients)
    return Run(
        client=table[:, 0].astype(np.int64),
        arrival_s=table[:, 1],
        waiting_s=table[:, 2],
        offline_s=table[:, 3],
        online_s=table[:, 4],
        arrivals=came,
        queued=sum(len(client.queue) for client in server.clients),
        left=sum(len(client.queue) + client.is_serving for client in server.clients),
        precomputes=sum(client.precomputes for client in server.clients),
        most_stored=max(client.most_stored for client in server.clients),
        most_stored_bytes=server.most_stored_bytes,
        is_online_only=server.is_online_only,
        busy=busy,
    )
