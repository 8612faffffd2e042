"""Flower apps whose rows are in several tables, each with a controller of its own.

Needs ``pip install 'hushtable[fl]'``. A round is that of :mod:`hushtable.fl.flower`, with the same
messages: the sealed bytes in them have a part for each table. On the server,
:class:`ModelRowStrategy` wraps any strategy around a :class:`~hushtable.scale.ModelController`; on
a client, :class:`ModelRowClient` takes ids, and gives rows, by table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import WARNING, getLogger
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ..fl import Credential, Flags, Floats, Ids
from ..fl.flower import PrivateRows, Refused, RowClient, RowStrategy, RowTraffic, _ignore
from ..fl.sealed import Sessions
from ..fl.table import Report
from .accounting import ModelBudget
from .messages import ModelSession
from .training import ModelController, TableFailed

__all__ = ["ModelRowClient", "ModelRowStrategy", "PrivateModelRows"]

_log = getLogger("flwr")


class _Traffic(RowTraffic):
    """Traffic that may outlive a table's failure."""

    def __init__(
        self, controller: ModelController, timeout: float, tell: Callable[[TableFailed], None]
    ) -> None:
        super().__init__(controller, timeout=timeout)
        self._tell = tell

    def take(self, node: int, sealed: bytes) -> bool:
        try:
            return super().take(node, sealed)
        except TableFailed as error:
            self._open = False
            self._tell(error)
            return False

    def commit(self) -> Report | None:
        try:
            return super().commit()
        except TableFailed as error:
            self._open = False
            self._tell(error)
            return error.report


class ModelRowStrategy(RowStrategy):
    """Any Flower strategy for the dense weights, with the rows of a model's tables beside it.

    Args:
        strategy: for the dense weights.
        controller: of all tables.
        ids_timeout: seconds to wait for sealed ids.
        table_failures_max: rounds in which a table may fail before training ends with its
            :class:`~hushtable.scale.TableFailed`. Up to then, a round that is abandoned trains
            nothing, of the dense weights neither; where a table failed as it committed, the other
            tables and the dense weights go on.

    Attributes:
        reports: of the controller, by round.
        failures: of tables, by round.
    """

    def __init__(
        self,
        strategy: Strategy,
        controller: ModelController,
        *,
        ids_timeout: float = 600.0,
        table_failures_max: int = 0,
    ) -> None:
        super().__init__(strategy, controller, ids_timeout=ids_timeout)
        self.traffic = _Traffic(controller, ids_timeout, self._told)
        self.failures: dict[int, TableFailed] = {}
        self._failures_max = table_failures_max
        self._server_round = 0

    def _told(self, error: TableFailed) -> None:
        self.failures[self._server_round] = error
        if len(self.failures) > self._failures_max:
            raise error
        _log.log(WARNING, "rows: round %d: %s", self._server_round, error)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages, each with its client's rows; none where a table failed.

        Raises:
            TooManyClients: the strategy chose more clients than a round has users.
            TableFailed: one more than ``table_failures_max``.
        """
        self._server_round = server_round
        return super().configure_train(server_round, arrays, config, grid)

    def _with_rows(self, server_round: int, messages: list[Message], grid: Grid) -> list[Message]:
        try:
            return super()._with_rows(server_round, messages, grid)
        except TableFailed as error:
            self.traffic.abandon()
            self._told(error)
            return []


@dataclass(frozen=True)
class PrivateModelRows:
    """What a client got in one round, by table.

    Attributes:
        rows: float32 [slots, dim] each, in the order of the ids asked for.
        found: bool [slots] each, False where a slot is empty or its row was lost to the noise.
    """

    rows: Mapping[str, Floats]
    found: Mapping[str, Flags]
    _inner: PrivateRows

    def upload(self, gradients: Mapping[str, Floats], weight: float) -> ConfigRecord:
        """What to put into the reply, under :data:`hushtable.fl.flower.UPLOAD_RECORD`.

        Args:
            gradients: float32 [slots, dim] by table, the rows before local training minus those
                after; zeros for tables that are left out.
            weight: how much they count, usually the number of samples.

        Raises:
            RowsRefused: whatever is wrong with them; ``on_refused`` is told.
        """
        # The sealing half takes them by table; what is between only passes them on.
        return self._inner.upload(cast(Any, gradients), weight)


class ModelRowClient:
    """A client's half: :class:`hushtable.fl.flower.RowClient`, for the tables of a model.

    Args:
        app: gets a function for ``query.ids``.
        values: given the node's context and Flower's round, the ids of the rows that it needs, by
            table: at most as many as the table has slots, no two the same. Tables that are left out
            are asked for nothing, which looks the same.
        pin: given the context, the model's pin, which must not come from Flower's server.
        credentials: given the context, what the node takes part by, by table, where users are
            enrolled.
        budget: given the context, what the node's user may still lose.
        on_refused: told, on this device, why this node takes no part.
    """

    def __init__(
        self,
        app: ClientApp,
        *,
        values: Callable[[Context, int], Mapping[str, Ids]],
        pin: Callable[[Context], str],
        credentials: Callable[[Context], Mapping[str, Credential] | None] = lambda context: None,
        budget: Callable[[Context], ModelBudget] | None = None,
        on_refused: Refused = _ignore,
    ) -> None:
        self._client = RowClient(
            app,
            # Ids and credentials go from these functions to the session untouched.
            values=cast(Any, values),
            pin=pin,
            sessions=cast(Sessions, ModelSession),
            credential=cast(Any, credentials),
            budget=budget,
            on_refused=on_refused,
        )

    def open(self, message: Message, context: Context) -> PrivateModelRows:
        """The rows that came with a train or evaluate message; once for each.

        Raises:
            RowsRefused: the message has none for this node, or not the pinned controllers'.
        """
        inner = self._client.open(message, context)
        return PrivateModelRows(cast(Any, inner.rows), cast(Any, inner.found), inner)
