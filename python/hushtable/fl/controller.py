"""The controller of federated training, in this process.

A :class:`Controller` keeps a table in an oblivious memory on disk and runs rounds over it. With
:meth:`Controller.open_round` its users' messages are sealed end to end, each by a
:class:`~hushtable.fl.Session`, so that whoever carries them sees sizes alone.
:meth:`hushtable.fl.TrainingClient.connect` does the same with a controller behind ``hushtable train
serve``.

    controller = Controller.create(
        "films", rows=9000, dim=16, users=100, slots=100, key="/elsewhere/films.key"
    )
    controller.begin(ids)                      # uint32 [users, slots]
    rows, found = controller.rows(user)        # of each user, then what it learnt:
    controller.add(user, before - after, weight)
    controller.commit()
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from .._closing import Closing
from .._fdp import DEFAULT, Mechanism
from ..errors import ConfigError, RoundError
from ..table import Table as Bundle
from ._arrays import DUMMY, Flags, Floats, Ids, as_floats, as_ids
from .clip import Clip, clip_spec
from .sealed import RoundTerms

__all__ = [
    "Aggregate",
    "Controller",
    "RoundReport",
    "Spent",
    "aggregate_spec",
    "fdp_spec",
    "place",
]

Progress = Callable[[int, int], None]
_PathLike = str | os.PathLike[str]

#: ``pre(gradients, weights)``: of one user, float32 [slots, dim] and [slots] (0 where a slot's row
#: is not the table's); returns both as they are to be added up.
Pre = Callable[[Floats, Floats], tuple[Floats, Floats]]
#: ``post(rows, state, sums, weights, round)``: rows float32 [n, dim], their state uint8 [n, bytes],
#: the sums of gradients [n, dim] and of weights [n]; returns rows and state updated.
Post = Callable[
    [Floats, npt.NDArray[np.uint8], Floats, Floats, int], tuple[Floats, npt.NDArray[np.uint8]]
]


@dataclass(frozen=True)
class Aggregate:
    """Pre and Post as Python functions on batches; the built-in ones where not given.

    They see the rows that a round accessed, dummies among them (weight 0), in an order that says
    nothing. The functions' time must not depend on values either: it would tell of them.

    Attributes:
        pre: changes each user's gradients before they are added up.
        post: changes rows by the sums, when the round is committed. Where the controller was
            created with a built-in aggregate that keeps state in a row (``fed_adam``,
            ``fed_adagrad``), this function may use those bytes. ``dp_fed_avg`` and ``lazy_dp`` keep
            there how much noise a row has had: leave these bytes as they are.
    """

    pre: Pre | None = None
    post: Post | None = None


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a committed round did; none of it is secret.

    Attributes:
        round: its number: that of :meth:`Controller.open_round` where messages are sealed,
            elsewhere the number of rounds committed before it, plus 1.
        rounds: rounds committed, this one included.
        users: places of users.
        requested: users that asked for rows; all of them where ids are given in the clear.
        uploaded: users that uploaded.
        requests: users x slots.
        accesses: k, rows read and written back, dummies included.
        read_bytes: read from the tree's file.
        written_bytes: written to it.
        journal_bytes: written to the journal.
        steps_us: microseconds of each step, by name.
        refused: users of whom something was refused, by number, and why: one of ``failed``,
            ``order``, ``repeated``, ``not_opened``, ``enrolment``, ``ids``, ``seated``,
            ``not_finite``, ``weight``. Of several reasons, that which proves most: the last two
            were found in what the holder of the place had sealed, the others may have been sent
            under its number by anybody.
    """

    round: int
    rounds: int
    users: int
    requested: int
    uploaded: int
    requests: int
    accesses: int
    read_bytes: int
    written_bytes: int
    journal_bytes: int
    steps_us: dict[str, int]
    refused: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a controller's rounds have cost: an upper bound of what they have cost any one user.

    Attributes:
        rounds: rounds that ever began, committed or not.
        epsilon: the sum of the rounds' epsilons; with a delta, what
            :mod:`~hushtable.fl.accountant` calls zcdp, where that is less.
        budget: the most that ``epsilon`` may come to; None for no bound.
        delta: the delta that ``epsilon`` and ``budget`` hold with.
        rounds_left: rounds that may still begin; None where there is no end to them.
    """

    rounds: int
    epsilon: float
    budget: float | None
    delta: float
    rounds_left: int | None


def place(
    folder: _PathLike,
    key: _PathLike | None = None,
    counter: _PathLike | None = None,
    *,
    key_beside: bool = False,
) -> tuple[Path, Path, str]:
    """Where a controller's folder, key and root counter are: the counter beside it by default.

    The counter is a file's path or an ``etcd://`` URL, which a ``Path`` would make another of.

    Raises:
        ConfigError: no word of where the key is.
    """
    folder = Path(folder)
    beside = folder.with_name(folder.name + ".key")
    if key is None and not key_beside:
        raise ConfigError(
            "say where the controller's key is, on another disk than its folder: "
            f"--key /elsewhere/{beside.name} (key=). Whoever copies a disk, or gets hold of its "
            "backup, that has both can read every row and every request. To keep it in "
            f"{beside} all the same, for trying out, say --key-beside (key_beside=True)"
        )
    return (
        folder,
        beside if key is None else Path(key),
        os.fspath(folder.with_name(folder.name + ".counter") if counter is None else counter),
    )


#: Short names of settings, as in ``fed_adagrad:lr=0.1``.
_SETTINGS = {"lr": "learning_rate", "noise": "noise_multiplier"}


def aggregate_spec(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """An aggregate from ``NAME[:SETTING=NUMBER[,...]]``, as ``fed_adagrad:lr=0.1``.

    Raises:
        ConfigError: a setting that is no number. Names and settings that no aggregate has are
            refused where the controller is created.
    """
    if not isinstance(text, str):
        return dict(text)
    name, _, settings = text.partition(":")
    spec: dict[str, Any] = {"name": name.strip()}
    for part in filter(None, (part.strip() for part in settings.split(","))):
        setting, equals, value = part.partition("=")
        setting = _SETTINGS.get(setting.strip(), setting.strip())
        if setting == "clip_per" and equals:
            spec[setting] = value.strip()
            continue
        try:
            spec[setting] = float(value)
        except ValueError:
            raise ConfigError(
                f"aggregate {text!r}: {part!r} is no SETTING=NUMBER; write it as "
                "fed_adagrad:lr=0.1 or dp_fed_avg:clip=1,noise=1.1,users=100"
            ) from None
    return spec


def fdp_spec(epsilon: float, mechanism: str, values: int, requests: int) -> dict[str, Any]:
    """``fdp`` of a controller.json, for rounds of at most ``requests`` requests.

    Raises:
        ConfigError: a mechanism or a number of values that cannot be.
    """
    if values < 1:
        raise ConfigError(f"values is {values}, but must be 1 or more")
    # Whatever else is wrong with epsilon is for who makes the mechanism to say.
    each = epsilon / values if epsilon > 0 else 0.0
    spec: dict[str, Any] = {
        "epsilon": "inf" if math.isinf(epsilon) else float(epsilon),
        "mechanism": Mechanism.parse(mechanism).spec(each, max(requests, 1)),
    }
    if values > 1:
        spec["protects"] = {"count": {"values": values}}
    return spec


class Controller(Closing):
    """A table behind an oblivious memory, in this process.

    Made by :meth:`create` and :meth:`open`. Calls come one at a time: from several threads they
    wait for each other, without the interpreter's lock.
    """

    def __init__(self, native: _native.Controller, folder: Path) -> None:
        self._native = native
        self._folder = folder
        self._spec: dict[str, Any] = json.loads(native.spec)
        self._report: RoundReport | None = None

    @classmethod
    def create(
        cls,
        folder: _PathLike,
        *,
        table: Bundle | Floats | None = None,
        rows: int | None = None,
        dim: int | None = None,
        init: float = 0.0,
        users: int,
        slots: int,
        epsilon: float = 1.0,
        mechanism: str = DEFAULT,
        values: int = 1,
        epsilon_budget: float | None = None,
        budget_delta: float = 0.0,
        aggregate: str | Mapping[str, Any] = "fed_avg",
        clip: str | Clip | Mapping[str, Any] | None = "default",
        authority: str | None = None,
        name: str | None = None,
        key: _PathLike | None = None,
        key_beside: bool = False,
        counter: _PathLike | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> Controller:
        """Makes a controller in a new folder.

        Args:
            folder: a new one; ``FOLDER.counter`` is written beside it.
            table: the rows to start from: a bundle, or float32 [rows, dim]; None for ``rows`` rows
                of ``dim`` numbers.
            rows: without a table.
            dim: without a table.
            init: without a table, rows start uniform between -init and init.
            users: of a round, at most.
            slots: values of a user in a round; fewer are padded.
            epsilon: how much one value may show in one round. 0 reads as many rows as there are
                requests, ``math.inf`` exactly the rows that are asked for.
            mechanism: how the number of rows is drawn. ``shifted``, the default, reads so many rows
                more that no round loses over a tenth of its rows in the mean;
                ``shifted:loss=0.02`` or ``shifted:by=200,least=100`` says how many. ``geometric``
                has the least noise about the rows asked for; ``eq3`` is the paper's, with ``y``
                its weights: ``eq3:y=square,low=25,high=100``, ``eq3:y=power,exponent=5``,
                ``eq3:y=delta,at=100``. It cannot be changed later. ``hushtable train expect``
                tells what each costs.
            values: of one user that ``epsilon`` is for: one, or all that she may have, which hides
                how many they are; each is then hidden at epsilon / values.
            epsilon_budget: the most that the epsilons of all rounds may come to, abandoned rounds
                and rounds that were cut short included; no round begins past it. None for no bound.
                It cannot be changed later.
            budget_delta: 0 adds up the rounds' epsilons; more than 0 composes the rounds by
                concentrated differential privacy, where that gives less.
            aggregate: what becomes of gradients: ``fed_avg``, ``fed_adam``, ``fed_adagrad``, or,
                clipped and noised, ``dp_fed_avg`` or ``lazy_dp``, or ``eana``, which shows which
                rows were trained; with settings as ``fed_adagrad:lr=0.1``.
            clip: how much of one user's upload counts, so that none can undo what the others
                learnt: a :class:`Clip`, or settings as ``norm=2,value=0.5,weight=100``. By default
                ``Clip()``, but none where the aggregate clips by itself (``dp_fed_avg``, ``eana``,
                ``lazy_dp``). None for no clip, where all users are trusted. It cannot be changed
                later.
            authority: the public key, in hex, of whoever enrols the users that may take part; None
                lets everyone take part who can reach the controller.
            name: the table's; the bundle's own, or the folder's, by default.
            key: the file of the key that the folder is sealed under; made where there is none. It
                belongs on another disk: whoever has both can read every row and every request.
            key_beside: take a key that lies beside the folder, or in it, all the same; without
                ``key``, ``FOLDER.key``.
            counter: where the root counter is: a new file, or ``etcd://HOST:PORT/KEY`` or
                ``etcds://HOST:PORT[,HOST:PORT]/KEY?ca=FILE[&cert=FILE&key=FILE]``. An old copy of
                the folder is found out by it, so it should be where nobody who can write to the
                folder can put it back.
            progress: called with (rows written, rows).
            settings: the others of ``controller.json``: ``fdp`` (over ``epsilon``, ``mechanism``
                and ``values``), ``loss`` (which rows are lost: ``random``, ``least_requested``,
                ``recently_read`` or ``highest_ids``), ``default_row``, ``cached_levels``,
                ``window_bytes_max``, ``overflow_bits``.

        Raises:
            ConfigError: settings that cannot be; a folder or counter that exists; no key, one
                beside the folder without ``key_beside``, or one that others may read.
            TableError: a table with numbers that are not finite.
            ControllerError: a full disk, a file that cannot be written.
        """
        folder, key, counter = place(folder, key, counter, key_beside=key_beside)
        bundle = table if isinstance(table, Bundle) else None
        numbers = None
        if bundle is not None:
            rows, dim = bundle.info.rows, bundle.info.dim
            name = bundle.info.name if name is None else name
        elif table is not None:
            numbers = as_floats(table, "table")
            rows, dim = numbers.shape
        elif rows is None or dim is None:
            raise ConfigError("which rows? give table=, or rows= and dim=")
        fdp = fdp_spec(epsilon, mechanism, values, users * slots)
        spec = {
            "name": folder.name if name is None else name,
            "rows": rows,
            "dim": dim,
            "users_max": users,
            "slots": slots,
            "aggregate": aggregate_spec(aggregate),
            **settings,
            "fdp": {**fdp, **settings.get("fdp", {})},
        }
        if epsilon_budget is not None:
            spec["budget"] = {"epsilon": float(epsilon_budget), "delta": float(budget_delta)}
        clip = clip_spec(clip, spec["aggregate"])
        if clip is not None:
            spec["clip"] = clip
        if authority is not None:
            spec["authority"] = authority
        native = _native.Controller.create(
            folder,
            key,
            counter,
            json.dumps(spec),
            key_beside=key_beside,
            table=None if bundle is None else bundle._native,
            values=numbers,
            init=init,
            progress=progress,
        )
        return cls(native, folder)

    @classmethod
    def open(
        cls,
        folder: _PathLike,
        *,
        key: _PathLike | None = None,
        key_beside: bool = False,
        counter: _PathLike | None = None,
        progress: Progress | None = None,
    ) -> Controller:
        """Opens a controller as of its last committed round, whatever ended it.

        A round that was cut short is ended first, without effect on the table.

        Raises:
            ConfigError: a key file that cannot be read, that others may read too, or that lies
                beside the folder without ``key_beside``.
            ControllerError: no controller, another key, files that were changed or are an older
                copy, a folder or counter in use, a counter that cannot be reached.
        """
        folder, key, counter = place(folder, key, counter, key_beside=key_beside)
        native = _native.Controller.open(
            folder, key, counter, key_beside=key_beside, progress=progress
        )
        return cls(native, folder)

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self._spec["name"])

    @property
    def table_rows(self) -> int:
        """Rows of the table."""
        return int(self._spec["rows"])

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return int(self._spec["dim"])

    @property
    def users(self) -> int:
        """Users of a round, at most."""
        return int(self._spec["users_max"])

    @property
    def slots(self) -> int:
        """Values of a user, at most."""
        return int(self._spec["slots"])

    @property
    def spec(self) -> dict[str, Any]:
        """What it was created as: ``controller.json``."""
        return dict(self._spec)

    @property
    def facts(self) -> dict[str, int]:
        """The tree, in numbers: levels, buckets, payload_bytes, state_bytes."""
        return self._native.facts()

    @property
    def rounds(self) -> int:
        """Rounds committed."""
        return self._native.rounds

    @property
    def spent(self) -> Spent:
        """What the rounds have cost."""
        return Spent(**self._native.spent())

    @property
    def public_key(self) -> bytes:
        """What users seal to, 32 bytes."""
        return self._native.public_key

    @property
    def pin(self) -> str:
        """What users know the controller by: ``pin1:``, its public key, and the hash of its terms.

        Give it to users by a way that the operator cannot change.
        """
        return self._native.pin

    @property
    def report(self) -> RoundReport | None:
        """Of the last commit here."""
        return self._report

    def set_aggregate(self, aggregate: Aggregate) -> None:
        """Updates rows by Python functions from now on."""
        self._native.set_aggregate(aggregate.pre, aggregate.post)

    def begin(self, requests: Ids | None = None) -> int:
        """Reads the rows of a round.

        Args:
            requests: uint32 [users, slots] ids, :data:`DUMMY` in empty slots; None to
                begin the sealed round that :meth:`open_round` opened, with whoever has come.

        Returns:
            k, how many rows were read: those asked for with noise, 1 to users x slots.

        Raises:
            RoundError: a round that is open, too many users, another shape, an id that is no row.
            BudgetSpent: the round would cost more than is left; it has not begun.
            ControllerError: the disk, or changed files: open the controller again.
        """
        if requests is None:
            return self.close_requests()
        ids = as_ids(requests)
        if ids.ndim != 2:
            raise RoundError(f"ids are {ids.shape}, but must be [users, slots]")
        wrong = (ids >= self.table_rows) & (ids != DUMMY)
        if wrong.any():
            raise RoundError(
                f"id {int(ids[wrong][0])} is no row of this table: ids run from 0 to "
                f"{self.table_rows - 1}, empty slots hold {DUMMY}"
            )
        return self._native.begin(ids)[1]

    def rows(self, user: int) -> tuple[Floats, Flags]:
        """A user's rows: float32 [slots, dim], and bool [slots].

        False where a slot is empty or its row was lost to the noise; the row is then the default
        one, and what is added to it counts for nothing.
        """
        return self._native.rows(user)

    def add(self, user: int, gradients: Floats, weight: float = 1.0) -> None:
        """Takes a user's gradients, once: float32 [slots, dim], rows before less rows after.

        What the controller's :class:`Clip` leaves of them counts.

        Raises:
            RoundError: no round, no such user, a second upload, another shape, a number that is not
                finite. Nothing of this user was added then; the others are not concerned.
        """
        self._native.add(user, as_floats(gradients, "gradients"), weight)

    def commit(self) -> RoundReport:
        """Updates the rows by what was added; durable when it returns.

        Raises:
            RoundError: no round is open, or a Python aggregate failed: the round is then still
                open.
            ControllerError: the disk or the counter. The round was not committed, unless the text
                says that it is not known: open the controller again, which tells
                (:attr:`rounds`, :meth:`outcome`).
        """
        self._report = RoundReport(**self._native.commit())
        return self._report

    def abandon(self) -> None:
        """Ends the round and leaves the rows as they were."""
        self._native.abandon()

    def export(self, progress: Progress | None = None) -> Floats:
        """All rows, float32 [rows, dim]; noise that they are owed is added first."""
        return self._native.export(progress=progress)

    def export_bundle(
        self, out: _PathLike, *, dtype: str = "f32", progress: Progress | None = None
    ) -> Bundle:
        """Writes all rows as a bundle, which ``hushtable serve`` serves."""
        self._native.export_bundle(Path(out), dtype=dtype, progress=progress)
        return Bundle.open(Path(out))

    def open_round(self, users: int | None = None) -> int:
        """Opens a round that takes sealed requests of ``users`` users, all by default.

        Returns its number, which is random: no other round has it.
        """
        return self._native.open_round(self.users if users is None else users)

    def outcome(self, round: int) -> tuple[str, RoundReport | None] | None:
        """How a sealed round has ended, as the journal has it.

        For whoever lost the answer of :meth:`commit`, or got an error that says that the outcome is
        not known: open the controller again and ask. The last 256 rounds are kept.

        Returns:
            ``committed`` with the report (without times, if from before this controller was
            opened), ``abandoned`` or ``failed`` (the table is as it was) without one; None for a
            round that never began, that is open, or that is long over.
        """
        ended = self._native.outcome(round)
        if ended is None:
            return None
        word, report = ended
        return word, None if report is None else RoundReport(**report)

    def terms(self, user: int) -> RoundTerms:
        """What ``user`` must know to take part in the open sealed round."""
        current = self._native.sealed_round()
        if current is None:
            raise RoundError("no round is open: open one first")
        if not 0 <= user < current[1]:
            raise RoundError(f"user {user} is none of this round's {current[1]}")
        return RoundTerms(self._native.terms, current[0], user)

    def request(self, user: int, sealed: bytes) -> None:
        """Takes a user's sealed request.

        Raises:
            RoundError: one that is refused (one text for whatever is wrong with it), a number that
                is taken, an enrolled user that has another. The round's other users are not
                concerned, and this one may send another.
        """
        self._native.request(user, sealed)

    def close_requests(self) -> int:
        """Takes no more requests and reads the rows; returns k."""
        return self._native.close_requests()

    def reply(self, user: int) -> bytes:
        """A user's rows, sealed to that user."""
        return self._native.reply(user)

    def upload(self, user: int, sealed: bytes) -> None:
        """Takes a user's sealed gradients."""
        self._native.upload(user, sealed)

    def close(self) -> None:
        """Ends it in order. Opening it again is quicker then."""
        self._native.close()

    def __repr__(self) -> str:
        size = f"{self.table_rows} x {self.dim}"
        return f"Controller({self.name!r}, {size}, {self.users} users x {self.slots} slots)"
