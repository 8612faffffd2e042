"""Flower's server: averages dense weights, and passes sealed bytes to the controller and back."""

from __future__ import annotations

from logging import INFO, getLogger

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam

import hushtable
from hushtable.fl import Controller
from hushtable.fl.flower import RowStrategy

from . import model, place
from .ratings import SLOTS, Floats
from .training import AGGREGATE, DENSE

app = ServerApp()
_log = getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run."""
    config = context.run_config
    ratings, seed = place.ratings(context), int(config["seed"])
    nodes, clients = len(list(grid.get_node_ids())), int(config["clients"])
    place.folder(context).mkdir(parents=True, exist_ok=True)
    controller = _create(context, model.start_rows(ratings.rows, seed), clients)
    place.write_pin(context, controller.pin)
    strategy = FedAdam(
        fraction_train=min(1.0, clients / max(nodes, 1)),
        min_train_nodes=clients,
        min_available_nodes=clients,
        fraction_evaluate=0.0,
        eta=DENSE["eta"],
        beta_1=DENSE["beta_1"],
        beta_2=DENSE["beta_2"],
        tau=DENSE["tau"],
    )
    start = model.start(ratings.features, seed)
    every = int(config["judge-every"])
    questions = ratings.questions("test")

    def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        # Only a simulation can: it has the users' data, and here the controller's rows too.
        if not every or not server_round or server_round % every:
            return None
        weights = dict(zip(arrays, arrays.to_numpy_ndarrays(), strict=True))
        auc = model.judge(weights, ratings.features, controller.export(), questions)
        _log.log(INFO, "AUC on test after %d rounds: %.4f", server_round, auc)
        return MetricRecord({"auc": auc})

    RowStrategy(strategy, controller).start(
        grid,
        ArrayRecord({name: Array(value) for name, value in start.items()}),
        num_rounds=int(config["rounds"]),
        evaluate_fn=judge,
    )
    if bundle := str(config["bundle"]):
        hushtable.Table.from_weight(controller.export(), name="histories").save(bundle)
        _log.log(INFO, "the table is in %s: hushtable serve %s", bundle, bundle)


def _create(context: Context, rows: Floats, clients: int) -> Controller:
    return Controller.create(
        place.folder(context) / "controller",
        key_beside=True,  # of an example: elsewhere, keep it on another disk
        table=rows,
        epsilon=float(context.run_config["epsilon"]),
        users=clients,
        slots=SLOTS,
        aggregate=AGGREGATE,
    )
