"""Pure work on many parts side by side: in threads, in processes, or on Ray.

Results come in the order of the parts, whatever is done first, so they are those of a loop:

    with open_pool(workers=4) as pool:
        stage = pool.stage(build, arguments)     # built once in each worker
        for result in stage.map(work, parts):    # work(build(*arguments), part)
            ...

``build`` and ``work`` are functions of a module that the workers can import, and ``work`` must
return the same for the same part, wherever and however often it runs: on Ray a part whose machine
was lost is done again.
"""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import tempfile
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from .._closing import Closing
from .._machine import cores
from ..errors import ConfigError, Error
from ._ray import join

__all__ = ["Pool", "ProcessPool", "RayPool", "SerialPool", "Stage", "WorkerLost", "open_pool"]

Part = TypeVar("Part")
Result = TypeVar("Result")
_Made = TypeVar("_Made", covariant=True)

#: Built states that a worker keeps: those of a search and of the one before.
_STATES_MAX = 2
#: Parts on their way for each worker: one that is worked on, and one that waits.
_PARTS_A_WORKER = 2
#: How often Ray does a part again whose worker or machine was lost.
_RETRIES = 3


class WorkerLost(Error):
    """A worker that died, or did not answer in time."""


class Stage(Closing):
    """A state that each worker builds once, and work on parts with it."""

    def __init__(self, pool: Pool, key: str, source: Any) -> None:
        self._pool = pool
        self._key = key
        self._source = source

    def map(
        self, work: Callable[[Any, Part], Result], parts: Iterable[Part], *, threads: float = 1
    ) -> Iterator[Result]:
        """``work(state, part)`` of each part, in the order of the parts.

        Args:
            work: a function of a module.
            parts: taken as results are: few are on their way at once.
            threads: processors that one part keeps busy, for who places them.

        Raises:
            WorkerLost: a worker died, or did not answer in time.
        """
        waiting: deque[Pending[Result]] = deque()
        try:
            for part in parts:
                waiting.append(self._pool.submit(self._key, self._source, work, part, threads))
                if len(waiting) >= _PARTS_A_WORKER * self._pool.size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for pending in waiting:
                pending.cancel()

    def close(self) -> None:
        """Lets go of the arguments."""
        self._pool.drop(self._source)


class Pending(Protocol[_Made]):
    """A result that is on its way."""

    def result(self) -> _Made:
        """Waits for it."""

    def cancel(self) -> None:
        """Nobody waits for it."""


class Pool(Protocol):
    """Where work is done.

    Attributes:
        size: parts that are worked on at once.
    """

    size: int

    def stage(self, build: Callable[..., Any], *arguments: Any) -> Stage:
        """A state for work: ``build(*arguments)``, once in each worker that needs it."""

    def submit(
        self, key: str, source: Any, work: Callable[..., Any], part: Any, threads: float
    ) -> Pending[Any]:
        """Begins with one part."""

    def drop(self, source: Any) -> None:
        """Lets go of a stage's arguments."""

    def close(self) -> None:
        """Ends the workers."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def open_pool(
    workers: int | None = None, address: str | None = None, *, insecure: bool = False
) -> Pool:
    """Workers: on Ray with ``address``, else processes of this machine.

    Args:
        workers: parts worked on at once; as many as there are processors by default. 1 without an
            address is this process itself.
        address: of a Ray cluster, ``auto`` or ``local``; see :func:`~hushtable.scale.join`.
        insecure: take a cluster of several machines without token authentication too.

    Raises:
        ConfigError: fewer than one worker; no such cluster.
        MissingExtra: an address, and Ray is not installed.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}, but must be 1 or more")
    if address is not None:
        return RayPool(address, workers, insecure=insecure)
    count = cores() if workers is None else workers
    return SerialPool() if count == 1 else ProcessPool(count)


class _Ending(Closing):
    """Ends with its ``with``."""

    def close(self) -> None:
        """Ends the workers."""


class _Done(Generic[Result]):
    def __init__(self, result: Result) -> None:
        self._result = result

    def result(self) -> Result:
        return self._result

    def cancel(self) -> None:
        return


class SerialPool(_Ending):
    """This process, one part after the other."""

    size = 1

    def __init__(self) -> None:
        self._states: OrderedDict[str, Any] = OrderedDict()

    def stage(self, build: Callable[..., Any], *arguments: Any) -> Stage:
        """See :class:`Pool`."""
        return Stage(self, uuid.uuid4().hex, (build, arguments))

    def submit(
        self, key: str, source: Any, work: Callable[..., Any], part: Any, threads: float
    ) -> Pending[Any]:
        """See :class:`Pool`."""
        build, arguments = source
        return _Done(work(_state(self._states, key, lambda: build(*arguments)), part))

    def drop(self, source: Any) -> None:
        """See :class:`Pool`."""


class ProcessPool(Closing):
    """Processes of this machine."""

    def __init__(self, workers: int) -> None:
        self.size = workers
        # Not forked: threads of the native module would be lost on the way.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=context)
        self._folder = tempfile.TemporaryDirectory(prefix="hushtable-stage-")
        self._numbers = itertools.count()

    def stage(self, build: Callable[..., Any], *arguments: Any) -> Stage:
        """See :class:`Pool`. The arguments go through a file, once for all workers."""
        path = Path(self._folder.name, str(next(self._numbers)))
        with path.open("wb") as file:
            pickle.dump((build, arguments), file, protocol=5)
        return Stage(self, uuid.uuid4().hex, path)

    def submit(
        self, key: str, source: Any, work: Callable[..., Any], part: Any, threads: float
    ) -> Pending[Any]:
        """See :class:`Pool`."""
        try:
            return _OfProcess(self._pool.submit(_run_from_file, key, source, work, part))
        except BrokenProcessPool as error:
            raise _died() from error

    def drop(self, source: Any) -> None:
        """See :class:`Pool`."""
        source.unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()


class _OfProcess(Generic[Result]):
    def __init__(self, future: Future[Result]) -> None:
        self._future = future

    def result(self) -> Result:
        try:
            return self._future.result()
        except BrokenProcessPool as error:
            raise _died() from error

    def cancel(self) -> None:
        self._future.cancel()


def _died() -> WorkerLost:
    return WorkerLost(
        "a worker process died, most likely killed for want of memory (`dmesg` says): take fewer"
        " --workers"
    )


class RayPool(_Ending):
    """Tasks on a Ray cluster. Traces and other arguments are in its object store, once a machine.

    Args:
        address: see :func:`~hushtable.scale.join`.
        workers: tasks at once at most; as many as the cluster has processors by default.
        insecure: take a cluster of several machines without token authentication too.
        part_seconds_max: after this long without the next result, the work is given up: most
            likely no machine has what a task asks for.
    """

    def __init__(
        self,
        address: str,
        workers: int | None = None,
        *,
        insecure: bool = False,
        part_seconds_max: float = 3600.0,
    ) -> None:
        self._ray = join(address, insecure=insecure)
        total = int(self._ray.cluster_resources().get("CPU", 1))
        self.size = max(total, 1) if workers is None else workers
        self._seconds_max = part_seconds_max
        self._run = self._ray.remote(max_retries=_RETRIES)(_run_from_store)

    def stage(self, build: Callable[..., Any], *arguments: Any) -> Stage:
        """See :class:`Pool`."""
        # In a list, so that a task gets the reference: it reads what is there only to build.
        return Stage(self, uuid.uuid4().hex, [self._ray.put((build, arguments))])

    def submit(
        self, key: str, source: Any, work: Callable[..., Any], part: Any, threads: float
    ) -> Pending[Any]:
        """See :class:`Pool`."""
        reference = self._run.options(num_cpus=threads).remote(key, source, work, part)
        return _OfRay(self._ray, reference, self._seconds_max)

    def drop(self, source: Any) -> None:
        """See :class:`Pool`."""
        source.clear()


class _OfRay(Generic[Result]):
    def __init__(self, ray: Any, reference: Any, seconds_max: float) -> None:
        self._ray, self._reference, self._seconds_max = ray, reference, seconds_max

    def result(self) -> Result:
        exceptions = self._ray.exceptions
        try:
            result: Result = self._ray.get(self._reference, timeout=self._seconds_max)
        except exceptions.GetTimeoutError as error:
            self.cancel()
            raise WorkerLost(
                f"no result from Ray for {self._seconds_max:g} s: `ray status` says whether a"
                " machine has the processors that the tasks ask for"
            ) from error
        except exceptions.RayTaskError as error:
            # What the function raised, as it would have come without Ray.
            if isinstance(error.cause, Error):
                raise error.cause from None
            raise
        except exceptions.RayError as error:
            reason = " ".join(str(error).split())
            raise WorkerLost(
                f"a task was lost {_RETRIES + 1} times on Ray: {reason[:300]}"
            ) from error
        return result

    def cancel(self) -> None:
        self._ray.cancel(self._reference, force=False)


# --- in the workers -----------------------------------------------------------------------------

#: What this worker built, the latest last.
_built: OrderedDict[str, Any] = OrderedDict()


def _state(states: OrderedDict[str, Any], key: str, make: Callable[[], Any]) -> Any:
    if key not in states:
        while len(states) >= _STATES_MAX:
            states.popitem(last=False)
        states[key] = make()
    states.move_to_end(key)
    return states[key]


def _run_from_file(key: str, path: Path, work: Callable[..., Any], part: Any) -> Any:
    def make() -> Any:
        with path.open("rb") as file:
            # Written by the process that this one is a child of.
            build, arguments = pickle.load(file)
        return build(*arguments)

    return work(_state(_built, key, make), part)


def _run_from_store(key: str, source: list[Any], work: Callable[..., Any], part: Any) -> Any:
    def make() -> Any:
        import ray

        build, arguments = ray.get(source[0])
        return build(*arguments)

    return work(_state(_built, key, make), part)
