"""Rows through the controller while SecAgg+ hides each client's dense update.

Flower 1.41 has SecAgg+ for its legacy strategies only (``flwr.server.strategy``), as a workflow:

    @app.main()
    def main(grid, context):
        strategy = LegacyRowStrategy(FedAvg(...), controller, grid)
        legacy = LegacyContext(context, ServerConfig(num_rounds=10), strategy)
        DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=5, reconstruction_threshold=3))(
            grid, legacy
        )

On the client, ``@app.train(mods=[secaggplus_mod])`` takes and returns what
:func:`open_fit` and :func:`close_fit` translate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common.recorddict_compat import fitres_to_recorddict, recorddict_to_fitins
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from flwr.serverapp import Grid

from ._arrays import Floats
from .flower import ROWS_KEY, UPLOAD_KEY, PrivateRows, RowClient, RowTraffic
from .sealed import SealedController
from .table import Report

__all__ = ["LegacyRowStrategy", "close_fit", "open_fit"]

_Fitted: TypeAlias = tuple[ClientProxy, FitRes]
_Evaluated: TypeAlias = tuple[ClientProxy, EvaluateRes]


class LegacyRowStrategy(Strategy):
    """A legacy strategy for the dense weights, with embedding rows beside it.

    Clients are not asked to evaluate: their rows would need a round of their own.

    Args:
        strategy: for the dense weights.
        controller: in this process, or a connection to one.
        grid: as ``main`` got it; legacy strategies are given none.
        ids_timeout: seconds to wait for sealed ids.

    Attributes:
        reports: of the controller, by round.
    """

    def __init__(
        self,
        strategy: Strategy,
        controller: SealedController,
        grid: Grid,
        *,
        ids_timeout: float = 600.0,
    ) -> None:
        self.strategy = strategy
        self.traffic = RowTraffic(controller, timeout=ids_timeout)
        self.grid = grid
        self.reports: dict[int, Report] = {}

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """The wrapped strategy's."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """The wrapped strategy's instructions, each with its client's rows."""
        chosen = self.strategy.configure_fit(server_round, parameters, client_manager)
        if not chosen:
            return []
        rows = self.traffic.fetch(self.grid, [proxy.node_id for proxy, _ in chosen], server_round)
        return [
            (proxy, FitIns(given.parameters, {**given.config, ROWS_KEY: rows[proxy.node_id]}))
            for proxy, given in chosen
            if proxy.node_id in rows
        ]

    def aggregate_fit(
        self,
        server_round: int,
        results: list[_Fitted],
        failures: list[_Fitted | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Dense updates by the wrapped strategy, then the rows by the controller.

        SecAgg+ has added the dense updates up before: a client whose sealed gradients are refused
        counts in that sum all the same.
        """
        for proxy, result in results:
            sealed = result.metrics.pop(UPLOAD_KEY, None)
            if isinstance(sealed, bytes):
                self.traffic.take(proxy.node_id, sealed)
        try:
            aggregated = self.strategy.aggregate_fit(server_round, results, failures)
        except Exception:
            self.traffic.abandon()
            raise
        if report := self.traffic.commit():
            self.reports[server_round] = report
        return aggregated

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Nobody."""
        return []

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[_Evaluated],
        failures: list[_Evaluated | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Nothing."""
        return None, {}

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """The wrapped strategy's."""
        return self.strategy.evaluate(server_round, parameters)


def open_fit(
    client: RowClient, message: Message, context: Context
) -> tuple[list[npt.NDArray[np.float32]], PrivateRows]:
    """The dense weights, in the server's order, and the rows of a legacy train message."""
    rows = client.open(message, context)
    given = recorddict_to_fitins(message.content, keep_input=True)
    return parameters_to_ndarrays(given.parameters), rows


def close_fit(
    message: Message,
    weights: Sequence[npt.NDArray[np.float32]],
    rows: PrivateRows,
    gradients: Floats,
    samples: int,
) -> Message:
    """The reply to a legacy train message: dense weights for SecAgg+, and sealed row gradients."""
    upload = rows.upload(gradients, float(samples))[UPLOAD_KEY]
    assert isinstance(upload, bytes)
    result = FitRes(
        status=Status(Code.OK, ""),
        parameters=ndarrays_to_parameters(list(weights)),
        num_examples=samples,
        metrics={UPLOAD_KEY: upload},
    )
    return Message(fitres_to_recorddict(result, keep_input=True), reply_to=message)
