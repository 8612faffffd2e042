"""Training rounds behind a server: ``hushtable train serve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from .. import _native
from .._closing import Closing
from ..client import Tls, TlsConfig
from ..errors import RoundError
from .budget import Budget
from .controller import RoundReport
from .sealed import Credential, RoundTerms
from .session import Session

__all__ = ["BackupMade", "TrainInfo", "TrainingClient"]


@dataclass(frozen=True, slots=True)
class TrainInfo:
    """What a training server says of itself.

    Attributes:
        table: the table's name.
        rows: of the table.
        dim: numbers in a row.
        slots: values of a user, at most.
        users: of a round, at most.
        epsilon: of a round's number of accesses.
        mechanism: how that number is drawn.
        public_key: what users seal to, 32 bytes.
        authority: the public key in hex of whoever enrols users; None where everyone may take part.
        pin: of the controller that is announced. It proves nothing that comes with it.
        rounds: rounds committed.
        round: the open round; None where there is none.
        stage: ``requests``, ``beginning``, ``serving`` or ``finishing``; None without a round.
        round_users: places of the open round.
        requested: users whose requests were taken.
        uploaded: users whose uploads were taken.
        software: the server's.
    """

    table: str
    rows: int
    dim: int
    slots: int
    users: int
    epsilon: float
    mechanism: str
    public_key: bytes
    authority: str | None
    pin: str
    rounds: int
    round: int | None
    stage: str | None
    round_users: int
    requested: int
    uploaded: int
    software: str


@dataclass(frozen=True, slots=True)
class BackupMade:
    """A backup that a server wrote.

    Attributes:
        rounds: rounds committed.
        rounds_begun: rounds that ever began.
        bytes: of its files together.
    """

    rounds: int
    rounds_begun: int
    bytes: int


class TrainingClient(Closing):
    """A training server, made by :meth:`connect`.

    The operator's calls: :meth:`open_round`, :meth:`close_requests`, :meth:`finish`,
    :meth:`abandon`; a user's: :meth:`session`, :meth:`request`, :meth:`rows`, :meth:`upload`.
    Without a ``round`` they are about the one that this client opened last.
    """

    def __init__(
        self,
        native: _native.TrainClient,
        address: str,
        timeout: float,
        budget: Budget | None = None,
    ) -> None:
        self._native = native
        self._address = address
        self._timeout = timeout
        self._round: int | None = None
        self._budget = budget
        self._connected = self.info()
        if budget is not None:
            budget.check(self._connected.epsilon, self._connected.mechanism)

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        tls: Tls | None = None,
        pin: str | None = None,
        operator_token: str | None = None,
        trust_announced: bool = False,
        timeout: float = 600.0,
        connect_timeout: float = 5.0,
        insecure: bool = False,
        budget: Budget | None = None,
    ) -> Self:
        """Connects to ``hushtable train serve``, as the operator or as a user.

        Args:
            address: ``https://host:port``; ``http://`` only on this machine.
            tls: the authority's PEM file, True for the authorities that this machine trusts, or a
                :class:`~hushtable.TlsConfig`.
            pin: the controller's, ``pin1:...``, which ``hushtable train create``, ``train info``
                and ``train serve`` print, from somebody other than whoever runs the server. Users
                need it, wherever the server is: without it, :meth:`session` refuses.
            operator_token: what the operator's calls carry, where the server asks for it.
            trust_announced: without a pin, believe what the server announces at this connection.
                Whoever runs the server can then read the ids.
            timeout: seconds that :meth:`rows` and :meth:`finish` wait.
            connect_timeout: seconds that one connection may take.
            insecure: allow ``http://`` to other machines. What users seal stays sealed.
            budget: of the user: each :meth:`request` is booked before it is sent.

        Raises:
            ConfigError: also for a server whose rounds cost more than the budget books for them.
            ConfigError, TlsError, ServerUnavailable, ServerTimeout: as :func:`hushtable.connect`.
            ProtocolError: a server that trains nothing.
            PinMismatch: a server that announces another controller than the pinned one.
        """
        config = TlsConfig.of(tls)
        native = _native.TrainClient.connect(
            address,
            ca=None if config is None else config.authorities,
            certificate=None if config is None else config.identity,
            name=None if config is None else config.server_name,
            insecure=insecure,
            connect_seconds=connect_timeout,
            seconds=min(timeout, 60.0),
            operator_token=operator_token,
            pin=pin,
            trust_announced=trust_announced,
        )
        return cls(native, address, timeout, budget)

    def info(self) -> TrainInfo:
        """What is trained, and how far it is."""
        return TrainInfo(**self._native.info())

    @property
    def pin(self) -> str:
        """What users know the controller by.

        Raises:
            ConfigError: nobody vouches for it: no pin was given.
        """
        return self._native.pin

    @property
    def users(self) -> int:
        """Users of a round, at most."""
        return self._connected.users

    @property
    def slots(self) -> int:
        """Values of a user, at most."""
        return self._connected.slots

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self._connected.dim

    def open_round(
        self,
        users: int | None = None,
        *,
        users_min: int = 1,
        request_seconds: float | None = None,
        upload_seconds: float | None = None,
        finish_seconds: float | None = None,
    ) -> int:
        """Opens a round for ``users`` users, all by default: its number.

        Args:
            users: places of the round.
            users_min: users without which it does not begin.
            request_seconds: how long requests are taken; the server's own choice by default.
            upload_seconds: how long uploads are waited for; the server's own choice by default.
            finish_seconds: how long, from then on, the server waits for :meth:`finish`: a round
                that is not finished by then ends without an update. The server's own choice by
                default.

        Raises:
            RoundError: another round is open, or more users than the controller was created for.
            OperatorOnly: the server asks for the operator's token.
            ControllerError: rounds cannot be written at present; none was opened.
        """
        self._round = self._native.open_round(
            self.users if users is None else users,
            users_min=users_min,
            request_seconds=request_seconds,
            upload_seconds=upload_seconds,
            finish_seconds=finish_seconds,
        )
        return self._round

    def terms(self, user: int, round: int | None = None) -> RoundTerms:
        """What ``user`` is told of the round, as the server announced it: for relays, too."""
        return RoundTerms(self._native.terms, self._of(round), user)

    def session(
        self, user: int, round: int | None = None, *, credential: Credential | None = None
    ) -> Session:
        """A session of ``user`` with the pinned controller.

        Raises:
            ConfigError: as of :attr:`pin`; no credential where the controller's users are enrolled.
        """
        return Session(self.pin, self.terms(user, round), credential)

    def request(self, user: int, sealed: bytes, round: int | None = None) -> None:
        """Sends a user's sealed request, once it is booked.

        Raises:
            BudgetSpent: the user's budget does not allow it; nothing was sent.
            RoundError: as :meth:`Controller.request`.
        """
        if self._budget is not None:
            self._budget.charge()
        self._native.request(self._of(round), user, sealed)

    def close_requests(self, round: int | None = None) -> int:
        """Begins the round with the users that have come: their number."""
        return self._native.close_requests(self._of(round))

    def begin(self) -> int:
        """As :meth:`close_requests`."""
        return self.close_requests()

    def rows(self, user: int, round: int | None = None, timeout: float | None = None) -> bytes:
        """A user's sealed rows, once the round has begun.

        Raises:
            RoundPending: it has not begun within ``timeout`` seconds.
            RoundOver: it has ended.
            RoundError: the user's request was not taken.
        """
        return self._native.rows(self._of(round), user, self._seconds(timeout))

    def reply(self, user: int) -> bytes:
        """As :meth:`rows`."""
        return self.rows(user)

    def upload(self, user: int, sealed: bytes, round: int | None = None) -> None:
        """Sends a user's sealed gradients."""
        self._native.upload(self._of(round), user, sealed)

    def finish(
        self, round: int | None = None, *, now: bool = False, timeout: float | None = None
    ) -> RoundReport:
        """Updates the table by what was uploaded, durably.

        Waits for the users that asked and have not uploaded, until the deadline of
        :meth:`open_round`; not at all with ``now``. May be called again after a lost reply, and
        after a restart of the server: each round is applied once, and how it ended is kept with the
        table. (A report from before a restart has no times.)

        Raises:
            RoundPending: it still waits after ``timeout`` seconds.
            RoundOver: it was not committed, or nobody knows yet: ``outcome`` says which.
        """
        report = self._native.finish(self._of(round), now, self._seconds(timeout))
        return RoundReport(**report)

    def commit(self) -> RoundReport:
        """:meth:`finish`, now."""
        return self.finish(now=True)

    def abandon(self, round: int | None = None) -> None:
        """Ends the round and leaves the table as it was."""
        self._native.abandon(self._of(round))

    def backup(self, name: str, timeout: float | None = None) -> BackupMade:
        """Has the server write a backup, of the state between two rounds; rounds go on meanwhile.

        Args:
            name: of a new folder in the server's ``backup_dir``. Where there is a backup of that
                name, this says what it is of.
            timeout: seconds to wait for it; the connection's by default.

        Raises:
            OperatorOnly: without the operator's token.
            RoundPending: it is not written after ``timeout`` seconds: ask again.
            RoundError: a server that has no folder for backups, or no room in it.
        """
        return BackupMade(*self._native.backup(name, self._seconds(timeout)))

    def close(self) -> None:
        """Closes the connections."""
        self._native.close()

    def _of(self, round: int | None) -> int:
        if round is not None:
            return round
        if self._round is None:
            raise RoundError("which round? open one with this client, or give round=")
        return self._round

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def __repr__(self) -> str:
        return f"TrainingClient({self._address!r}, {self._connected.table!r})"
