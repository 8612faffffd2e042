"""Flower apps whose embedding rows go through the controller, and dense weights as ever.

Needs ``pip install 'hushtable[fl]'``. A round has one message more than Flower's own:

1. ``query.ids``: each client seals the ids of the rows that it needs to the controller;
2. ``train``: each gets its sealed rows beside the dense weights, and returns its sealed row
   gradients beside the dense ones.

On the server, :class:`RowStrategy` wraps any strategy. On a client, :class:`RowClient` opens and
seals. Flower's own server only ever holds sealed bytes. For SecAgg+, see
:mod:`hushtable.fl.secagg`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING, getLogger
from typing import Any, TypeVar

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ._arrays import Flags, Floats, Ids
from .budget import Budget
from .sealed import Credential, RoundTerms, SealedController, SealedSession, Sessions
from .table import Report

__all__ = [
    "IDS_MESSAGE",
    "ROWS_KEY",
    "UPLOAD_KEY",
    "UPLOAD_RECORD",
    "NoRows",
    "PrivateRows",
    "RowClient",
    "RowStrategy",
    "RowTraffic",
    "RowsRefused",
    "TooManyClients",
    "constant_errors",
]

_log = getLogger("flwr")

#: The type of the message that asks for sealed ids.
IDS_MESSAGE = f"{MessageType.QUERY}.ids"
#: In a config record of a train message: the sealed rows.
ROWS_KEY = "hushtable.rows"
#: The config record of a train reply, and in it the sealed gradients.
UPLOAD_RECORD = "hushtable"
UPLOAD_KEY = "hushtable.upload"
_TERMS_RECORD = "hushtable.terms"
_REQUEST_KEY = "hushtable.request"
_REFUSED_KEY = "hushtable.refused"
_SESSION_RECORD = "hushtable.session"
_ROUND_KEY = "server-round"
_ROUND_BYTES = 8


class TooManyClients(ValueError):
    """A strategy chose more clients than a round has users.

    Attributes:
        clients: how many it chose.
        users: how many a round has.
    """

    def __init__(self, *, clients: int, users: int) -> None:
        super().__init__(
            f"the strategy chose {clients} clients, a round of the controller has {users} users:"
            f" lower the strategy's fraction, or create the controller with users={clients}"
        )
        self.clients = clients
        self.users = users


class NoRows(ValueError):
    """A message without rows came to a client that needs them; ``on_refused`` is told."""


class RowsRefused(ValueError):
    """All that a server learns of what a client could not do: the same for every cause."""

    def __init__(self) -> None:
        super().__init__(
            "this client takes no part: the rows are missing (wrap the server's strategy in"
            " RowStrategy), or something failed that only the client is told"
        )


class RowTraffic:
    """Rows of one controller to Flower's nodes and back, a round at a time.

    Args:
        controller: in this process, or a connection to one.
        timeout: seconds to wait for sealed ids; who has not answered by then sits the round out.
    """

    def __init__(self, controller: SealedController, *, timeout: float = 600.0) -> None:
        self.controller = controller
        self.timeout = timeout
        self._user_of: dict[int, int] = {}
        self._open = False

    def fetch(self, grid: Grid, nodes: list[int], server_round: int) -> dict[int, bytes]:
        """Opens a round: asks the nodes for ids, and has their rows read.

        Args:
            grid: to reach them.
            nodes: their ids, each once.
            server_round: Flower's number of the round.

        Returns:
            the sealed rows of each node that answered. The others' slots stay empty: the
            controller reads as if they were there and asked for nothing.

        Raises:
            TooManyClients: more nodes than a round has users.
        """
        if len(nodes) > self.controller.users:
            raise TooManyClients(clients=len(nodes), users=self.controller.users)
        # A round is still open where something after it failed.
        self.abandon()
        self.controller.open_round(len(nodes))
        self._open = True
        self._user_of = {node: user for user, node in enumerate(nodes)}
        messages = [
            Message(
                RecordDict({_TERMS_RECORD: _to_record(self.controller.terms(user), server_round)}),
                dst_node_id=node,
                message_type=IDS_MESSAGE,
                group_id=str(server_round),
            )
            for node, user in self._user_of.items()
        ]
        answered = []
        for reply in grid.send_and_receive(messages, timeout=self.timeout):
            node = reply.metadata.src_node_id
            if sealed := _sealed(reply, _REQUEST_KEY):
                try:
                    self.controller.request(self._user_of[node], sealed)
                except ValueError as error:
                    _log.log(WARNING, "rows: node %d sits this round out: %s", node, error)
                else:
                    answered.append(node)
        k = self.controller.close_requests()
        _log.log(INFO, "rows: %d of %d clients asked, %d rows read", len(answered), len(nodes), k)
        return {node: self.controller.reply(self._user_of[node]) for node in answered}

    def take(self, node: int, sealed: bytes) -> bool:
        """Passes a node's sealed gradients on; False where the controller refused them."""
        try:
            self.controller.upload(self._user_of[node], sealed)
        except (KeyError, ValueError) as error:
            _log.log(WARNING, "rows: the gradients of node %d are left out: %s", node, error)
            return False
        return True

    def commit(self) -> Report | None:
        """Updates the rows by what came; None where no round is open."""
        if not self._open:
            return None
        report = self.controller.commit()
        self._open = False
        return report

    def abandon(self) -> None:
        """Ends the round, if one is open; the rows stay as they were."""
        if self._open:
            self._open = False
            self.controller.abandon()


class RowStrategy(Strategy):
    """Any Flower strategy for the dense weights, with embedding rows beside it.

    Wrap it around the others: ``RowStrategy(DifferentialPrivacyServerSideFixedClipping(FedAvg(...),
    ...), controller)``. Where the strategy asks clients to evaluate, these get rows too, by a round
    that is abandoned: it spends as much privacy as one that trains.

    Args:
        strategy: for the dense weights.
        controller: in this process, or a connection to one.
        ids_timeout: seconds to wait for sealed ids.

    Attributes:
        reports: of the controller, by round.
    """

    def __init__(
        self, strategy: Strategy, controller: SealedController, *, ids_timeout: float = 600.0
    ) -> None:
        self.strategy = strategy
        self.traffic = RowTraffic(controller, timeout=ids_timeout)
        self.reports: dict[int, Report] = {}

    def summary(self) -> None:
        """Logs the wrapped strategy's settings."""
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages, each with its client's rows.

        Raises:
            TooManyClients: the strategy chose more clients than a round has users.
        """
        messages = self.strategy.configure_train(server_round, arrays, config, grid)
        return self._with_rows(server_round, list(messages), grid)

    def _with_rows(self, server_round: int, messages: list[Message], grid: Grid) -> list[Message]:
        if not messages:
            return []
        nodes = [message.metadata.dst_node_id for message in messages]
        rows = self.traffic.fetch(grid, nodes, server_round)
        return [
            _with_sealed(message, rows[node])
            for message, node in zip(messages, nodes, strict=True)
            if node in rows
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Dense updates by the wrapped strategy, then the rows by the controller.

        A client that did not reply, or with an error, counts for neither. Where the wrapped
        strategy fails, the rows stay as they were.
        """
        kept = []
        for reply in replies:
            sealed = _sealed(reply, UPLOAD_KEY)
            if sealed is None or self.traffic.take(reply.metadata.src_node_id, sealed):
                reply_content = reply.content if reply.has_content() else RecordDict()
                reply_content.pop(UPLOAD_RECORD, None)
                kept.append(reply)
        try:
            aggregated = self.strategy.aggregate_train(server_round, kept)
        except Exception:
            self.traffic.abandon()
            raise
        if report := self.traffic.commit():
            self.reports[server_round] = report
        return aggregated

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages, each with its client's rows."""
        messages = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        found = self._with_rows(server_round, list(messages), grid)
        self.traffic.abandon()
        return found

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's."""
        return self.strategy.aggregate_evaluate(server_round, replies)


#: Told, on this device alone, why it takes no part. What it does with it must stay there.
Refused = Callable[[Exception], None]


def _ignore(error: Exception) -> None:
    _log.log(WARNING, "rows: a check failed here; RowClient(on_refused=...) is told which")


@dataclass(frozen=True)
class PrivateRows:
    """What a client got in one round.

    Attributes:
        rows: float32 [slots, dim], in the order of the ids asked for.
        found: bool [slots], False where a slot is empty or its row was lost to the noise; what is
            in its place then is not the table's.
        session: what seals the gradients.
        on_refused: told why nothing was sealed.
    """

    rows: Floats = field(repr=False)
    found: Flags = field(repr=False)
    session: SealedSession
    on_refused: Refused = _ignore

    def upload(self, gradients: Floats, weight: float) -> ConfigRecord:
        """What to put into the reply, under :data:`UPLOAD_RECORD`.

        Args:
            gradients: float32 [slots, dim], the rows before local training minus those after.
            weight: how much they count, usually the number of samples.

        Raises:
            RowsRefused: whatever is wrong with them; ``on_refused`` is told.
        """
        sealed = _attempt(lambda: self.session.upload(gradients, weight), self.on_refused)
        if sealed is None:
            raise RowsRefused
        return ConfigRecord({UPLOAD_KEY: sealed})


class RowClient:
    """A client's half: answers ``query.ids`` of an app and opens the rows that follow.

    The server of the app may be hostile. So it gets one answer, :class:`RowsRefused` or a record
    without a request, whatever is wrong with what it sent or with the node's own ids. ``values`` is
    not called before the terms were held against the pin. What was wrong stays on this device:
    ``on_refused`` is told. Put :func:`constant_errors` around the app, so that errors of its own
    functions tell nothing either.

    Args:
        app: gets a function for ``query.ids``.
        values: given the node's context and Flower's round, the ids of the rows that it needs: at
            most as many as there are slots, no two the same.
        pin: given the context, the controller's pin. It must not come from Flower's server, which
            could send its own: ship it with the app, or read it from the node's config.
        sessions: what seals and opens: :class:`hushtable.fl.Session`.
        credential: given the context, what the node takes part by, where users are enrolled.
        budget: given the context, what the node's user may still lose. Each answer to
            ``query.ids`` is booked before it is made, whether the round trains or evaluates. Once
            it is spent, or where the controller's rounds cost more than it books, the node takes
            no part.
        on_refused: told why this node takes no part; by default a line without the reason is
            logged.
    """

    def __init__(
        self,
        app: ClientApp,
        *,
        values: Callable[[Context, int], Ids],
        pin: Callable[[Context], str],
        sessions: Sessions,
        credential: Callable[[Context], Credential | None] = lambda context: None,
        budget: Callable[[Context], Budget] | None = None,
        on_refused: Refused = _ignore,
    ) -> None:
        self._sessions = sessions
        self._budget = budget
        self._values = values
        self._pin = pin
        self._credential = credential
        self._on_refused = on_refused
        app.query("ids")(self._answer)

    def _answer(self, message: Message, context: Context) -> Message:
        sealed = _attempt(lambda: self._seal(message, context), self._on_refused)
        if sealed is None:
            context.state.pop(_SESSION_RECORD, None)
            record = ConfigRecord({_REFUSED_KEY: True})
        else:
            request, session = sealed
            # The next message may come to another process: only the context goes along.
            context.state[_SESSION_RECORD] = ConfigRecord({"session": session})
            record = ConfigRecord({_REQUEST_KEY: request})
        return Message(RecordDict({"hushtable": record}), reply_to=message)

    def _seal(self, message: Message, context: Context) -> tuple[bytes, bytes]:
        terms, server_round = _from_record(message.content.config_records[_TERMS_RECORD])
        # Holds the terms against the pin: nothing of the user's is looked at before.
        session = self._sessions(self._pin(context), terms, self._credential(context))
        if self._budget is not None:
            budget = self._budget(context)
            budget.check_terms(terms.spec)
            budget.charge()
        request = session.request(self._values(context, server_round))
        return request, session.to_bytes()

    def open(self, message: Message, context: Context) -> PrivateRows:
        """The rows that came with a train or evaluate message; once for each.

        Raises:
            RowsRefused: the message has none for this node, or not the pinned controller's.
        """
        kept = context.state.pop(_SESSION_RECORD, None)
        opened = _attempt(lambda: self._opened(message, kept), self._on_refused)
        if opened is None:
            raise RowsRefused
        return opened

    def _opened(self, message: Message, kept: object) -> PrivateRows:
        sealed = _sealed(message, ROWS_KEY)
        if sealed is None or not isinstance(kept, ConfigRecord):
            raise NoRows(
                "the message has no rows for this node: wrap the server's strategy in RowStrategy"
            )
        session = self._sessions.from_bytes(_bytes(kept["session"]))
        rows, found = session.rows(sealed)
        return PrivateRows(rows, found, session, self._on_refused)


def constant_errors(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod that makes one error of all that an app's functions raise: ``ClientApp(mods=[...])``.

    Flower returns the text of what a client raises to its server, and a text may hold ids, counts
    or rows. The error itself is logged where the app runs if the variable
    ``HUSHTABLE_SHOW_CLIENT_ERRORS`` is set, for use while developing.
    """
    reply = _attempt(lambda: call_next(message, context), _show)
    if reply is None:
        raise RowsRefused
    return reply


def _show(error: Exception) -> None:
    if os.environ.get("HUSHTABLE_SHOW_CLIENT_ERRORS"):
        _log.error("a client's function failed", exc_info=error)


_T = TypeVar("_T")


def _attempt(work: Callable[[], _T], on_refused: Refused) -> _T | None:
    """What ``work`` makes; None where it raised, which ``on_refused`` is told.

    What was raised is forgotten here, so that nothing raised later carries it along as its context
    or in a frame of its traceback.
    """
    try:
        return work()
    except Exception as error:
        failure = error
    with contextlib.suppress(Exception):
        on_refused(failure)
    return None


def _to_record(terms: RoundTerms, server_round: int) -> ConfigRecord:
    # Flower's whole numbers are signed: the round does not fit.
    number = terms.round.to_bytes(_ROUND_BYTES, "little")
    return ConfigRecord(
        {"spec": terms.spec, "round": number, "user": terms.user, _ROUND_KEY: server_round}
    )


def _from_record(record: Mapping[str, Any]) -> tuple[RoundTerms, int]:
    number = int.from_bytes(_bytes(record["round"]), "little")
    terms = RoundTerms(_bytes(record["spec"]), number, int(record["user"]))
    return terms, int(record[_ROUND_KEY])


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes in a message, found {type(value).__name__}")
    return value


def _sealed(message: Message, key: str) -> bytes | None:
    """The bytes under ``key`` in any config record of a message; None for an error reply."""
    if not message.has_content():
        return None
    for record in message.content.config_records.values():
        if isinstance(value := record.get(key), bytes):
            return value
    return None


def _with_sealed(message: Message, rows: bytes) -> Message:
    """A copy of a strategy's message with rows in it.

    They go into the config record that is there: Flower's mods for differential privacy refuse
    messages that have two. Strategies give all clients one content, so it is copied.
    """
    name = next(iter(message.content.config_records), "config")
    config = ConfigRecord({**message.content.config_records.get(name, {}), ROWS_KEY: rows})
    records = {**message.content, name: config}
    metadata = message.metadata
    return Message(
        RecordDict(records),
        dst_node_id=metadata.dst_node_id,
        message_type=metadata.message_type,
        ttl=metadata.ttl,
        group_id=metadata.group_id,
    )
