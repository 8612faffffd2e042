"""A model trained by a controller for each of its tables, in rounds of all of them.

    with ModelController.open("clicks", hosts=RayHosts("auto")) as model:
        strategy = ModelRowStrategy(FedAvg(...), model)     # hushtable.scale.flower

Each table has an oblivious memory, a key, a pin and a budget of its own. A round is one for
whoever takes part, and a :class:`ModelController` is a
:class:`~hushtable.fl.sealed.SealedController`: messages have a part for each table, which goes to
that table's controller and is opened there alone.

**When a table fails** in a round, up to and without its commit, the round is abandoned in all
tables: every row is as it was, and those tables that had begun have spent the round's epsilon.
When a table fails as it commits, the others' commits stand: no journal can be taken back. The
table is opened again and its journal asked, so that a crash behind the point at which the journal
stands is no failure; else this table is as if all its users had dropped out of the round. Either
way :class:`TableFailed` says which table, and the next round begins with all of them.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from .._closing import Closing
from ..errors import BudgetSpent, ConfigError, ControllerError, Error, RoundError
from ..fl import Floats, RoundReport, RoundTerms, Spent
from ..model import Model
from .accounting import ModelSpent
from .hosts import HostFacts, Hosts, Link, TablePlace, ThreadHosts
from .ledger import Ledger, ModelRound
from .messages import TableTerms, model_pin, pack, to_spec, unpack
from .places import default_place, read_places, write_places

__all__ = ["ModelController", "ModelReport", "TableFailed"]

#: In a model's folder: its rounds.
LEDGER_FILE = "rounds.jsonl"


@dataclass(frozen=True)
class ModelReport:
    """What a committed round of a model did; none of it is secret.

    Attributes:
        number: rounds of the model that came so far, this one included.
        tables: the report of each table that committed; after a table was opened again, without
            times.
    """

    number: int
    tables: Mapping[str, RoundReport]

    @property
    def accesses(self) -> int:
        """Rows read and written back in all tables, dummies included."""
        return sum(report.accesses for report in self.tables.values())


class TableFailed(ControllerError):
    """A table's controller that failed in a round.

    Attributes:
        table: its name; of several the first.
        outcomes: of each table how its round ended: ``committed``, ``abandoned``, ``failed`` (its
            rows are as they were), or ``unknown`` (it could not be opened again to tell).
        report: of the tables that committed; None where the round was abandoned in all.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str = "",
        outcomes: Mapping[str, str] | None = None,
        report: ModelReport | None = None,
    ) -> None:
        super().__init__(message)
        self.table = table
        self.outcomes = dict(outcomes or {})
        self.report = report


@dataclass
class _Round:
    """The open round."""

    rounds: dict[str, int]
    number: int
    users: int
    spec: bytes
    requested: set[int] = field(default_factory=set)
    replies: dict[int, bytes] | None = None


class ModelController(Closing):
    """Controllers of a model's tables, as one.

    Made by :meth:`create` and :meth:`open`, or of ``places``, which may be on several machines.

    Args:
        places: where each table's controller is, in the order of the pin.
        hosts: what runs them; threads of this process by default.
        ledger: a file of the model's rounds, kept where this process runs; None for none: after a
            crash within the commits, only each table's journal then knows about its round.
        call_seconds: how long a table may take for one step of a round. One that takes longer has
            failed, and on Ray its process is ended.
        open_seconds: how long a table may take to open, which after a crash is more.
        start_seconds: how long a table may wait for a place to run, such as a machine of Ray's that
            has the processors and other resources that it asks for.

    Raises:
        ConfigError: no tables, two of one name.
        TableFailed: a controller that does not open.
    """

    def __init__(
        self,
        places: Sequence[TablePlace],
        *,
        hosts: Hosts | None = None,
        ledger: Path | str | None = None,
        call_seconds: float = 600.0,
        open_seconds: float = 3600.0,
        start_seconds: float = 300.0,
    ) -> None:
        self._start(places, hosts, ledger, call_seconds, open_seconds, start_seconds)
        try:
            self._open_tables(list(self._places))
            self._settle_last()
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        places: Sequence[TablePlace],
        hosts: Hosts | None,
        ledger: Path | str | None,
        call_seconds: float,
        open_seconds: float,
        start_seconds: float,
    ) -> None:
        if not places:
            raise ConfigError("a model has at least one table: give places")
        self._places = {place.name: place for place in places}
        if len(self._places) != len(places):
            raise ConfigError("two tables have one name: each controller's must be its own")
        self._hosts = ThreadHosts() if hosts is None else hosts
        self._call_seconds, self._open_seconds = call_seconds, open_seconds
        self._start_seconds = start_seconds
        self._facts: dict[str, HostFacts] = {}
        self._round: _Round | None = None
        self._down: set[str] = set()
        self._links: dict[str, Link] = {}
        self._ledger = Ledger(None if ledger is None else Path(ledger))
        for name, place in self._places.items():
            self._links[name] = self._hosts.start(place)

    @classmethod
    def create(
        cls,
        folder: Path | str,
        model: Model | Path | str,
        *,
        keys: Path | str | None = None,
        key_beside: bool = False,
        counters: Path | str | None = None,
        tables: Sequence[str] | None = None,
        hosts: Hosts | None = None,
        place: Callable[[TablePlace], TablePlace] | None = None,
        by_table: Mapping[str, Mapping[str, Any]] | None = None,
        call_seconds: float = 600.0,
        create_seconds: float = 86_400.0,
        start_seconds: float = 300.0,
        **settings: Any,
    ) -> Self:
        """Makes a controller for each table of a model, side by side, in a new folder.

        Args:
            folder: a new one; ``FOLDER/TABLE`` is each controller's by default. On several machines
                it, like the model, is on a disk that they share, or ``place`` says otherwise.
            model: the bundle that the rows start from.
            keys: a folder on another disk, where each table's key is made: ``KEYS/TABLE.key``.
            key_beside: without ``keys``, each key lies beside its controller, for trying out.
            counters: a folder for the root counters; beside the controllers by default.
            tables: which; all by default.
            hosts: what runs the controllers.
            place: given each table's place, returns the one to take: other paths, resources.
            by_table: settings of single tables, over ``settings``.
            call_seconds: as above.
            create_seconds: how long a table may take to be written.
            start_seconds: as above.
            settings: as of :meth:`hushtable.fl.Controller.create`: ``users``, ``slots``,
                ``epsilon``, ``aggregate``, ``clip``, ``epsilon_budget``, ``authority``...

        Raises:
            ConfigError: a folder that exists, no word of where keys are, settings that cannot be.
            TableFailed: a controller that could not be made. What was made of the others stays.
        """
        folder, bundle = Path(folder).absolute(), _opened(model)
        names = [table.name for table in bundle.tables] if tables is None else list(tables)
        for name in [*names, *(by_table or {})]:
            bundle.table_path(name)
        if unknown := [name for name in by_table or {} if name not in names]:
            raise ConfigError(f"there are settings of table {unknown[0]!r}, which is not trained")
        if folder.exists():
            raise ConfigError(f"{folder} exists: give a new folder, or open what is there")
        if keys is None and not key_beside:
            raise ConfigError(
                "say where the controllers' keys go, on another disk than the folder: --keys"
                " /elsewhere (keys=). To keep them beside it, for trying out, say --key-beside"
            )
        places = [default_place(folder, name, keys, counters) for name in names]
        if place is not None:
            places = [place(each) for each in places]
        folder.mkdir(parents=True)
        self = cls.__new__(cls)
        ledger = folder / LEDGER_FILE
        self._start(places, hosts, ledger, call_seconds, create_seconds, start_seconds)
        try:
            self._await_places(list(self._places))
            chosen = {name: {**settings, **(by_table or {}).get(name, {})} for name in self._places}
            arguments = {
                name: (str(bundle.table_path(name).resolve()), own) for name, own in chosen.items()
            }
            self._facts, failed = self._wait(self._call("create", arguments), create_seconds)
            if failed:
                raise self._failure("creating", failed)
            write_places(folder, places)
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def open(cls, folder: Path | str, *, hosts: Hosts | None = None, **seconds: float) -> Self:
        """Opens the controllers of a folder that :meth:`create` made, side by side.

        Raises:
            ConfigError: no such folder.
            TableFailed: a controller that does not open: ``hushtable train recover`` may help.
        """
        folder = Path(folder)
        return cls(read_places(folder), hosts=hosts, ledger=folder / LEDGER_FILE, **seconds)

    # --- what it is ---------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self._places)

    @property
    def facts(self) -> Mapping[str, HostFacts]:
        """What each table's controller says of itself, as of when it was opened."""
        return dict(self._facts)

    @property
    def users(self) -> int:
        """Users of a round, at most: of the table that takes fewest."""
        return min(int(facts.spec["users_max"]) for facts in self._facts.values())

    @property
    def pins(self) -> dict[str, str]:
        """What users know each table's controller by."""
        return {name: self._facts[name].pin for name in self._places}

    @property
    def pin(self) -> str:
        """What users know all of them by: ``modelpin1:`` and a hash of the tables' names and pins.

        Give it to users by a way that the operator cannot change.
        """
        return model_pin(self.pins)

    @property
    def last(self) -> ModelRound | None:
        """The last round that came as far as its commit, and how it ended in each table."""
        return self._ledger.last

    @property
    def spent(self) -> ModelSpent:
        """What the rounds have cost, by table and together."""
        tables: dict[str, Spent] = self._all("spent")
        return ModelSpent(tables, {name: facts.spec for name, facts in self._facts.items()})

    # --- a round ------------------------------------------------------------------------------

    def open_round(self, users: int | None = None) -> int:
        """Opens a round of ``users`` users in every table, or in none.

        Tables that failed before are opened again first.

        Raises:
            RoundError: a round that is open, too many users.
            BudgetSpent: a table's budget; its name is in the text.
            TableFailed: a table that cannot take part. No other has spent anything.
        """
        if self._round is not None:
            raise RoundError("a round is open: commit or abandon it first")
        count = self.users if users is None else users
        if not 1 <= count <= self.users:
            raise RoundError(f"a round has 1 to {self.users} users, not {count}")
        self._open_tables(sorted(self._down))
        rounds, failed = self._wait(self._call("open_round", dict.fromkeys(self._links, (count,))))
        # Whoever is told of the round's number learns nothing by it, and no other has it.
        number = secrets.randbits(63) | 1
        tables = [
            TableTerms(name, self._facts[name].pin, self._facts[name].terms, rounds[name])
            for name in self._places
            if name in rounds
        ]
        self._round = _Round(rounds, number, count, to_spec(tables))
        if failed:
            raise self._abandoned("opening the round", failed)
        return number

    def terms(self, user: int) -> RoundTerms:
        """What ``user`` must know to take part in the open round: of each table, in one."""
        current = self._current()
        if not 0 <= user < current.users:
            raise RoundError(f"user {user} is none of this round's {current.users}")
        return RoundTerms(current.spec, current.number, user)

    def request(self, user: int, sealed: bytes) -> None:
        """Takes a user's sealed requests of all tables.

        Raises:
            RoundError: one of them is refused: the user has no part in the round, but may send a
                good message. A table that had taken its part takes the same part again.
            TableFailed: a table that failed. The round is abandoned.
        """
        self._each("taking a request", "request", user, sealed)
        self._current().requested.add(user)

    def close_requests(self) -> int:
        """Takes no more requests and reads the rows of all tables, side by side; returns how many.

        Raises:
            TableFailed: a table that failed. The round is abandoned in all, and has cost those
                that had begun.
        """
        current = self._current()
        users = sorted(current.requested)
        found, failed = self._wait(
            self._call("close_requests", {n: (r, users) for n, r in current.rounds.items()})
        )
        if failed:
            raise self._abandoned("reading rows", failed)
        current.replies = {
            user: pack([found[name][1][user] for name in self._places]) for user in users
        }
        return sum(k for k, _ in found.values())

    def reply(self, user: int) -> bytes:
        """A user's rows of all tables, each sealed to that user."""
        replies = self._current().replies
        if replies is None:
            raise RoundError("the round has not begun: close its requests first")
        if user not in replies:
            raise RoundError(f"user {user} has made no request in this round, or it was refused")
        return replies[user]

    def upload(self, user: int, sealed: bytes) -> None:
        """Takes a user's sealed gradients of all tables.

        Raises:
            RoundError: one of them is refused. Those tables that took theirs count it: a table's
                mean is over who sent it a gradient.
            TableFailed: a table that failed. The round is abandoned.
        """
        self._each("taking gradients", "upload", user, sealed)

    def commit(self) -> ModelReport:
        """Updates the rows of all tables, side by side, by what came.

        Raises:
            TableFailed: tables that failed; what the others committed stands.
        """
        current = self._current()
        begun = self._ledger.begin(current.rounds)
        self._round = None
        reports, failed = self._wait(
            self._call("commit", {n: (r,) for n, r in current.rounds.items()})
        )
        outcomes = dict.fromkeys(reports, "committed")
        for name in failed:
            outcomes[name], own = self._ask_again(name, current.rounds[name])
            if own is not None:
                reports[name] = own
        # Where it cannot be written, the next start asks the journals, which know.
        with contextlib.suppress(ControllerError):
            self._ledger.end(outcomes)
        report = ModelReport(begun.number, {n: reports[n] for n in self._places if n in reports})
        if bad := [name for name in self._places if outcomes[name] != "committed"]:
            told = ", ".join(f"{name!r}: {outcomes[name]}, {_said(failed[name])}" for name in bad)
            raise TableFailed(
                f"round {begun.number} was not committed in {len(bad)} of {len(self._places)}"
                f" tables ({told}). Their rows are as before it, but for those of which that is"
                " unknown; the others' are updated. The next round opens them again",
                table=bad[0],
                outcomes=outcomes,
                report=report,
            )
        return report

    def abandon(self) -> None:
        """Ends the round, if one is open, and leaves all rows as they were."""
        current, self._round = self._round, None
        if current is None:
            return
        calls = self._call("abandon", {n: (r,) for n, r in current.rounds.items()})
        _, failed = self._wait(calls)
        self._down |= set(failed)

    # --- rows ---------------------------------------------------------------------------------

    def export(self, table: str) -> Floats:
        """All rows of a table, float32 [rows, dim]."""
        rows, failed = self._wait(self._call("export", {table: ()}), self._open_seconds)
        if failed:
            raise self._failure("exporting", failed)
        found: Floats = rows[table]
        return found

    def export_into(
        self, model: Model | Path | str, out: Path | str, *, dtype: str = "f32"
    ) -> Model:
        """Writes a model with the trained rows, of which all tables are exported side by side.

        Args:
            model: with the other tables, the features and the dense part.
            out: the new model's folder, on a disk that all hosts reach.
            dtype: how to store numbers.
        """
        from ._exporting import staged_model

        bundle = _opened(model)

        def write(folders: Mapping[str, Path]) -> None:
            calls = {n: (str(folder), dtype) for n, folder in folders.items()}
            _, failed = self._wait(self._call("export_bundle", calls), self._open_seconds)
            if failed:
                raise self._failure("exporting", failed)

        return staged_model(bundle, self.tables, Path(out), write)

    def close(self) -> None:
        """Ends all controllers in order."""
        self._round = None
        links = {name: link for name, link in self._links.items() if name not in self._down}
        self._wait(self._call("close", dict.fromkeys(links, ())))
        for link in self._links.values():
            link.close()
        self._hosts.close()

    def __repr__(self) -> str:
        return f"ModelController({len(self._places)} tables, {self.users} users)"

    # --- inside -------------------------------------------------------------------------------

    def _current(self) -> _Round:
        if self._round is None:
            raise RoundError("no round is open: open one first")
        return self._round

    def _call(self, method: str, arguments: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Begins a call of each table; a link that cannot even do that is a future too."""
        calls: dict[str, Any] = {}
        for name, own in arguments.items():
            try:
                calls[name] = self._links[name].call(method, *own)
            except Exception as error:
                calls[name] = Future()
                calls[name].set_exception(error)
        return calls

    def _wait(
        self, calls: Mapping[str, Future[Any]], seconds: float | None = None
    ) -> tuple[dict[str, Any], dict[str, Exception]]:
        """What came of each table's call. A host that is gone or too slow is marked as down."""
        found: dict[str, Any] = {}
        failed: dict[str, Exception] = {}
        limit = self._call_seconds if seconds is None else seconds
        until = time.monotonic() + limit
        for name, call in calls.items():
            try:
                found[name] = call.result(timeout=max(until - time.monotonic(), 0.0))
            except TimeoutError as error:
                if call.done():  # the host's own
                    failed[name] = error
                else:
                    failed[name] = ControllerError(f"it gave no answer within {limit:g} s")
                self._down.add(name)
            except Exception as error:
                failed[name] = error
                if isinstance(error, self._links[name].lost):
                    failed[name] = ControllerError(f"its process ended: {_said(error)}")
                if not isinstance(error, BudgetSpent | RoundError):
                    self._down.add(name)
        return found, failed

    def _all(self, method: str) -> dict[str, Any]:
        found, failed = self._wait(self._call(method, dict.fromkeys(self._links, ())))
        if failed:
            raise self._failure(f"asking for {method}", failed)
        return found

    def _each(self, doing: str, method: str, user: int, sealed: bytes) -> None:
        """Sends each table its part of a user's message."""
        current = self._current()
        if not 0 <= user < current.users:
            raise RoundError(f"user {user} is none of this round's {current.users}")
        parts = unpack(sealed, len(self._places))
        refused, failed = self._wait(
            self._call(
                method,
                {
                    name: (current.rounds[name], user, part)
                    for name, part in zip(self._places, parts, strict=True)
                },
            )
        )
        if failed:
            raise self._abandoned(doing, failed)
        if why := next((text for text in refused.values() if text is not None), None):
            raise RoundError(why)

    def _abandoned(self, doing: str, failed: Mapping[str, Exception]) -> Error:
        """Abandons the round where it is open: what to raise."""
        self.abandon()
        return self._failure(doing, failed, dict.fromkeys(self._places, "abandoned"))

    def _failure(
        self,
        doing: str,
        failed: Mapping[str, Exception],
        outcomes: Mapping[str, str] | None = None,
    ) -> Error:
        name, error = next(iter(failed.items()))
        text = f"table {name!r}, {doing}: {_said(error)}"
        if isinstance(error, BudgetSpent):
            return BudgetSpent(
                text,
                rounds=error.rounds,
                spent=error.spent,
                needed=error.needed,
                limit=error.limit,
            )
        if isinstance(error, ConfigError):
            return ConfigError(text)
        ended = "" if outcomes is None else ". The round is abandoned in all tables: no row changed"
        told = TableFailed(f"{text}{ended}", table=name, outcomes=outcomes)
        told.__cause__ = error
        return told

    def _open_tables(self, names: Sequence[str]) -> None:
        """Opens tables, anew those that failed."""
        for name in names:
            if name in self._down:
                self._links[name].restart()
        self._await_places(names)
        facts, failed = self._wait(
            self._call("open", {name: (name in self._down,) for name in names}), self._open_seconds
        )
        for name, own in facts.items():
            before = self._facts.get(name)
            if before is not None and before.pin != own.pin:
                failed[name] = ControllerError("another controller is in its folder by now")
                continue
            self._facts[name] = own
            self._down.discard(name)
        if failed:
            self._down |= set(failed)
            raise self._failure("opening", failed)

    def _await_places(self, names: Sequence[str]) -> None:
        """Waits until the tables' hosts run."""
        calls = self._call("ready", dict.fromkeys(names, ()))
        _, failed = self._wait(calls, self._start_seconds)
        if failed:
            self._down |= set(failed)
            place = self._places[next(iter(failed))]
            asks = {"CPU": place.cpus, "memory": place.memory_bytes, **place.resources}
            told = ", ".join(f"{amount:g} {what}" for what, amount in asks.items() if amount)
            raise self._failure(f"waiting for a place to run it that has {told} to spare", failed)

    def _ask_again(self, name: str, round: int) -> tuple[str, RoundReport | None]:
        """How a commit that failed has ended, by the table's journal."""
        try:
            self._down.add(name)
            self._open_tables([name])
            found, failed = self._wait(self._call("outcome", {name: (round,)}))
        except Error:
            return "unknown", None
        if failed:
            return "unknown", None
        ended: tuple[str, RoundReport | None] | None = found[name]
        # A round that the journal does not know of never began.
        return ("failed", None) if ended is None else ended

    def _settle_last(self) -> None:
        """Writes down how a round ended that a crash cut short among the tables' commits."""
        last = self._ledger.last
        if last is None or last.outcomes is not None or set(last.tables) != set(self._places):
            return
        found, failed = self._wait(
            self._call("outcome", {name: (round,) for name, round in last.tables.items()})
        )
        if failed:
            raise self._failure("asking how its last round ended", failed)
        self._ledger.end({n: "failed" if e is None else e[0] for n, e in found.items()})


def _opened(model: Model | Path | str) -> Model:
    return model if isinstance(model, Model) else Model.open(model)


def _said(error: BaseException, characters_max: int = 300) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= characters_max else text[: characters_max - 3] + "..."
