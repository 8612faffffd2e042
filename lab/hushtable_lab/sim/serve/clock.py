"""Simulated time, and what takes it: threads, and cores that several servers share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Clock", "Cores", "Thread", "Work"]

Then = Callable[[], None]
#: Ends that lie so close together are one, whatever floating-point numbers made of them.
_NEAR = 1e-12


class Clock:
    """What happens when, in order; what is at the same time in the order it was said."""

    __slots__ = ("_count", "_heap", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._count = 0
        self._heap: list[tuple[float, int, Then]] = []

    def at(self, time: float, then: Then) -> None:
        """Has ``then`` called at ``time``, or now if that has passed."""
        self._count += 1
        heappush(self._heap, (max(time, self.now), self._count, then))

    def run(self, until: float = float("inf")) -> None:
        """Goes on until nothing is left, or to ``until``."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _count, then = heappop(heap)
            then()


class Work:
    """Runs jobs at once, each as long as it takes: on a host of its own."""

    __slots__ = ("_clock", "used")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.used = 0.0

    def begin(self, seconds: float, threads: int, then: Then) -> None:
        """Starts a job; ``then`` is called at its end."""
        self.used += seconds * threads
        self._clock.at(self._clock.now + seconds, then)


class Cores(Work):
    """Cores shared by jobs that all progress at min(1, cores / threads that want them).

    As the rate is the same for all, a job's end is fixed in the time of an undisturbed job when it
    begins: nothing is done for the others when one comes or goes.
    """

    __slots__ = ("_before", "_count", "_demand", "_done", "_jobs", "_timer", "cores")

    def __init__(self, clock: Clock, cores: float) -> None:
        super().__init__(clock)
        self.cores = cores
        self._demand = 0
        self._count = self._timer = 0
        self._before = self._done = 0.0
        self._jobs: list[tuple[float, int, int, Then]] = []

    def begin(self, seconds: float, threads: int, then: Then) -> None:
        self.used += seconds * threads
        self._advance()
        self._count += 1
        heappush(self._jobs, (self._done + seconds, self._count, threads, then))
        self._demand += threads
        self._set()

    def _rate(self) -> float:
        return 1.0 if self._demand <= self.cores else self.cores / self._demand

    def _advance(self) -> None:
        if self._demand:
            self._done += (self._clock.now - self._before) * self._rate()
        self._before = self._clock.now

    def _set(self) -> None:
        self._timer += 1
        timer = self._timer
        delay = max(0.0, self._jobs[0][0] - self._done) / self._rate()

        def tick() -> None:
            # A timer that a change made useless stays in the heap, and ends here.
            if timer == self._timer:
                self._end()

        self._clock.at(self._clock.now + delay, tick)

    def _end(self) -> None:
        self._advance()
        jobs, ended = self._jobs, []
        self._done = max(self._done, jobs[0][0])
        while jobs and jobs[0][0] <= self._done + _NEAR:
            _end, _count, threads, then = heappop(jobs)
            self._demand -= threads
            ended.append(then)
        if jobs:
            self._set()
        else:
            self._done = 0.0
            self._timer += 1
        for then in ended:
            then()


class Thread:
    """Jobs one after the other, in the order in which they come."""

    __slots__ = ("_is_busy", "_on", "_waiting", "used")

    def __init__(self, on: Work) -> None:
        self._on = on
        self._waiting: deque[tuple[float, Then]] = deque()
        self._is_busy = False
        self.used = 0.0

    def run(self, seconds: float, then: Then) -> None:
        """Has a job done; ``then`` is called at its end."""
        self.used += seconds
        if self._is_busy:
            self._waiting.append((seconds, then))
        elif seconds <= 0:
            then()
        else:
            self._start(seconds, then)

    def _start(self, seconds: float, then: Then) -> None:
        self._is_busy = True

        def end() -> None:
            self._is_busy = False
            if self._waiting:
                self._start(*self._waiting.popleft())
            then()

        self._on.begin(seconds, 1, end)
