"""Where controllers run: each in a thread of this process, or as a Ray actor.

A *host* keeps one table's controller and does what it is told, one call at a time. A *link* is how
the rest reaches it: calls return at once with a future. Only sealed messages, counts and reports
go over a link; ids, gradients and keys never do.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..errors import ConfigError, ControllerError, RoundError
from ..fl import Controller, Floats, RoundReport, Spent
from ..table import Table
from ._ray import join

__all__ = ["HostFacts", "Hosts", "Link", "RayHosts", "TableHost", "TablePlace", "ThreadHosts"]

#: How long a folder may stay in use by a process that was ended: just now by us, and before.
_FREE_SECONDS_MAX = {True: 10.0, False: 2.0}


@dataclass(frozen=True)
class TablePlace:
    """A table's controller: where its files are, and what it needs.

    Paths are those of the machine on which the controller runs. On Ray that is one that has the
    ``resources``: name the machine that has the folder's disk by one of its own, as
    ``ray start --resources '{"disk-3": 1}'``.

    Attributes:
        name: the table's.
        folder: the controller's.
        key: the file of its key; None with ``key_beside``.
        counter: its root counter, a file or an ``etcd://`` URL; ``FOLDER.counter`` by default.
        key_beside: take a key that lies beside the folder.
        cpus: processors that it keeps busy.
        memory_bytes: what it keeps in memory; 0 asks for none in particular.
        resources: others of Ray's, by name.
    """

    name: str
    folder: str
    key: str | None = None
    counter: str | None = None
    key_beside: bool = False
    cpus: float = 1.0
    memory_bytes: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        """As :meth:`hushtable.fl.Controller.open` takes them."""
        return {"key": self.key, "counter": self.counter, "key_beside": self.key_beside}


@dataclass(frozen=True)
class HostFacts:
    """What an opened controller says of itself.

    Attributes:
        pin: what users know it by.
        terms: its ``controller.json``, byte for byte.
        spec: the same, read.
        rounds: rounds committed.
        machine: where it runs.
        process: the number of its process there.
    """

    pin: str
    terms: bytes
    spec: dict[str, Any]
    rounds: int
    machine: str
    process: int


class TableHost:
    """One table's controller, where it runs. Calls come one at a time."""

    def __init__(self, place: TablePlace) -> None:
        self._place = place
        self._controller: Controller | None = None
        self._round: int | None = None

    def ready(self) -> None:
        """Answers, once there is somewhere to run."""

    def create(self, bundle: str, settings: dict[str, Any]) -> HostFacts:
        """Makes the controller from a bundle, in a new folder."""
        place = self._place
        Path(place.folder).parent.mkdir(parents=True, exist_ok=True)
        if place.key is not None:
            Path(place.key).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.counter is not None and "://" not in place.counter:
            Path(place.counter).parent.mkdir(parents=True, exist_ok=True)
        self._controller = Controller.create(
            place.folder,
            table=Table.open(bundle),
            name=place.name,
            **place.keywords(),
            **settings,
        )
        return self._facts(self._controller)

    def open(self, is_again: bool) -> HostFacts:
        """Opens it as of its last committed round, whatever ended it."""
        self.close()
        until = time.monotonic() + _FREE_SECONDS_MAX[is_again]
        while True:
            try:
                controller = Controller.open(self._place.folder, **self._place.keywords())
            except ControllerError as error:
                # Who had it was ended a moment ago.
                if "in use" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                self._controller = controller
                return self._facts(controller)

    def _facts(self, controller: Controller) -> HostFacts:
        return HostFacts(
            controller.pin,
            controller._native.terms,
            controller.spec,
            controller.rounds,
            socket.gethostname(),
            os.getpid(),
        )

    def open_round(self, users: int) -> int:
        """Opens a round of sealed requests: its number."""
        self._round = self._opened().open_round(users)
        return self._round

    def request(self, round: int, user: int, sealed: bytes) -> str | None:
        """Takes a request; says why it does not."""
        return _refused(lambda: self._in(round).request(user, sealed))

    def close_requests(self, round: int, users: list[int]) -> tuple[int, dict[int, bytes]]:
        """Reads the rows: k, and what is sealed to each of ``users``."""
        controller = self._in(round)
        k = controller.close_requests()
        return k, {user: controller.reply(user) for user in users}

    def upload(self, round: int, user: int, sealed: bytes) -> str | None:
        """Takes gradients; says why it does not."""
        return _refused(lambda: self._in(round).upload(user, sealed))

    def commit(self, round: int) -> RoundReport:
        """Updates the rows; durable when it returns."""
        report = self._in(round).commit()
        self._round = None
        return report

    def abandon(self, round: int) -> None:
        """Ends that round; none where it is not open."""
        if self._controller is not None and self._round == round:
            self._round = None
            self._controller.abandon()

    def outcome(self, round: int) -> tuple[str, RoundReport | None] | None:
        """How a round has ended, as the journal has it."""
        return self._opened().outcome(round)

    def spent(self) -> Spent:
        """What its rounds have cost."""
        return self._opened().spent

    def export(self) -> Floats:
        """All rows."""
        return self._opened().export()

    def export_bundle(self, out: str, dtype: str) -> str:
        """Writes all rows as a bundle: its version."""
        return self._opened().export_bundle(Path(out), dtype=dtype).info.version

    def close(self) -> None:
        """Ends the controller in order."""
        controller, self._controller, self._round = self._controller, None, None
        if controller is not None:
            controller.close()

    def _opened(self) -> Controller:
        if self._controller is None:
            raise ControllerError(f"the controller of {self._place.name!r} is not open")
        return self._controller

    def _in(self, round: int) -> Controller:
        if self._round != round:
            raise ControllerError(
                f"the controller of {self._place.name!r} was opened anew within the round"
            )
        return self._opened()


def _refused(take: Callable[[], None]) -> str | None:
    try:
        take()
    except RoundError as error:
        return str(error)
    return None


class Link(Protocol):
    """A way to one host.

    Attributes:
        lost: what futures raise where the host itself is gone.
    """

    lost: tuple[type[Exception], ...]

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Begins a call of a :class:`TableHost`."""

    def restart(self) -> None:
        """Ends what runs there. The next call finds a host that has to open its controller."""

    def close(self) -> None:
        """Ends it."""


class Hosts(Protocol):
    """Starts hosts."""

    def start(self, place: TablePlace) -> Link:
        """A link to a new host of the table."""

    def close(self) -> None:
        """Ends what they share."""


class ThreadHosts:
    """Controllers in this process, side by side: their work is done outside the interpreter's lock.

    Args:
        workers: controllers that work at once; all by default, with 1 one after the other.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"workers is {workers}, but must be 1 or more")
        self._shared = None if workers is None else ThreadPoolExecutor(workers)

    def start(self, place: TablePlace) -> Link:
        """A link to a new host of the table."""
        return _ThreadLink(place, self._shared)

    def close(self) -> None:
        """Ends the threads."""
        if self._shared is not None:
            self._shared.shutdown(wait=False)


class _ThreadLink:
    lost: tuple[type[Exception], ...] = ()

    def __init__(self, place: TablePlace, shared: ThreadPoolExecutor | None) -> None:
        self._place = place
        self._own = None if shared is not None else ThreadPoolExecutor(1)
        self._pool = shared or self._own
        self._host = TableHost(place)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        assert self._pool is not None
        return self._pool.submit(getattr(self._host, method), *arguments)

    def restart(self) -> None:
        # A thread cannot be ended: what it does goes on, and holds the folder until it is done.
        host, self._host = self._host, TableHost(self._place)

        def end() -> None:
            with contextlib.suppress(Exception):
                host.close()

        assert self._pool is not None
        self._pool.submit(end)

    def close(self) -> None:
        if self._own is not None:
            self._own.shutdown(wait=False)


class RayHosts:
    """Controllers as Ray actors, one a table, each where its resources are.

    An actor belongs to this process: when this one ends, however it ends, its controllers do too,
    and their journals say how their rounds ended.

    Args:
        address: see :func:`~hushtable.scale.join`.
        insecure: take a cluster of several machines without token authentication too: whoever
            reaches it can read the controllers' keys.
    """

    def __init__(self, address: str = "auto", *, insecure: bool = False) -> None:
        self._ray = join(address, insecure=insecure)

    def start(self, place: TablePlace) -> Link:
        """A link to a new host of the table."""
        return _RayLink(self._ray, place)

    def close(self) -> None:
        """See :class:`Hosts`. The connection to Ray is the process's."""


class _RayLink:
    def __init__(self, ray: Any, place: TablePlace) -> None:
        self._ray = ray
        self.lost: tuple[type[Exception], ...] = (ray.exceptions.RayError,)
        memory = {"memory": place.memory_bytes} if place.memory_bytes else {}
        self._make = functools.partial(
            ray.remote(TableHost)
            .options(
                num_cpus=place.cpus,
                resources=dict(place.resources),
                # A call is never repeated by Ray, and an actor that died is not started by it:
                # whether the round goes on is decided by who asks the journal.
                max_restarts=0,
                max_task_retries=0,
                **memory,
            )
            .remote,
            place,
        )
        self._actor: Any = None

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        if self._actor is None:
            self._actor = self._make()
        reference = getattr(self._actor, method).remote(*arguments)
        raised: Future[Any] = reference.future()
        return _unwrapped(self._ray, raised)

    def restart(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)

    def close(self) -> None:
        self.restart()


def _unwrapped(ray: Any, future: Future[Any]) -> Future[Any]:
    """A future that raises what the host raised, not what Ray makes of it."""
    own: Future[Any] = Future()

    def done(_: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            own.set_result(future.result())
        elif isinstance(error, ray.exceptions.RayTaskError):
            own.set_exception(error.cause if isinstance(error.cause, Exception) else error)
        else:
            own.set_exception(error)

    future.add_done_callback(done)
    return own
