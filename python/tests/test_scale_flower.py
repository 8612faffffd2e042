"""A Flower app whose rows are in three tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra hushtable[fl] is not installed")

from fl_double import LocalGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from scale_rounds import SETTINGS, SHAPES, SLOTS, USERS, build_model, gradients_of, ids_of, train
from test_scale_training import Faults, rows_of

from hushtable import BudgetSpent
from hushtable.fl.flower import UPLOAD_RECORD
from hushtable.scale import ModelBudget, ModelController, TableFailed
from hushtable.scale.flower import ModelRowClient, ModelRowStrategy


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def create(folder: Path, model: Path, **options: Any) -> ModelController:
    return ModelController.create(folder, model, key_beside=True, **{**SETTINGS, **options})


def make_app(pin: str, told: list[Exception], **options: Any) -> ClientApp:
    """Clients that learn what users of the other tests learn, and add 1 to the dense weights."""
    app = ClientApp()

    def user_of(context: Context) -> int:
        return int(context.node_config["partition-id"])

    client = ModelRowClient(
        app,
        values=lambda context, round: {n: ids_of(round, user_of(context), n) for n in SHAPES},
        pin=lambda context: pin,
        on_refused=told.append,
        **options,
    )

    @app.train()
    def learn(message: Message, context: Context) -> Message:
        got = client.open(message, context)
        user, round = user_of(context), int(message.content["config"]["server-round"])
        for name, (_, dim) in SHAPES.items():
            assert got.rows[name].shape == (SLOTS, dim)
            assert got.found[name].sum() <= len(ids_of(round, user, name))
        gradients = {name: gradients_of(round, user, name) for name in SHAPES}
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": Array(weights + np.float32(1))}),
                "metrics": MetricRecord({"num-examples": 1}),
                UPLOAD_RECORD: got.upload(gradients, 1.0 + user),
            }
        )
        return Message(content, reply_to=message)

    return app


def run(
    controller: ModelController, rounds: int, told: list[Exception], **options: Any
) -> tuple[ModelRowStrategy, Any]:
    app_options = {key: options.pop(key) for key in ("budget",) if key in options}
    grid = LocalGrid(make_app(controller.pin, told, **app_options), USERS)
    dense = FedAvg(fraction_evaluate=0.0, min_train_nodes=USERS, min_available_nodes=USERS)
    strategy = ModelRowStrategy(dense, controller, ids_timeout=5, **options)
    start = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    result = strategy.start(grid, start, num_rounds=rounds, timeout=5)
    trained = result.arrays.to_numpy_ndarrays()
    return strategy, trained[0] if trained else None


def test_one_flower_round_trains_all_tables(tmp_path: Path, model: Path) -> None:
    with create(tmp_path / "direct", model) as controller:
        train(controller, 2)
        expected = {name: controller.export(name) for name in SHAPES}
    told: list[Exception] = []
    with create(tmp_path / "flower", model) as controller:
        strategy, dense = run(controller, 2, told)
        assert not told
        for name in SHAPES:  # Flower's nodes come in another order each time, and so do sums
            np.testing.assert_allclose(controller.export(name), expected[name], rtol=1e-5)
        assert dense.tolist() == [2.0] * 3
        assert strategy.reports[2].accesses == 3 * USERS * SLOTS
        assert set(strategy.reports[1].tables) == set(SHAPES)  # type: ignore[attr-defined]


def test_a_tables_failure_ends_training_or_is_outlived(tmp_path: Path, model: Path) -> None:
    told: list[Exception] = []
    faults = (("tags", "close_requests", "before"), ("items", "commit", "before"))
    with (
        create(tmp_path / "one", model, hosts=Faults(*faults)) as controller,
        pytest.raises(TableFailed, match="table 'tags'"),
    ):
        run(controller, 3, told)
    with create(tmp_path / "two", model, hosts=Faults(*faults)) as controller:
        strategy, dense = run(controller, 4, told, table_failures_max=2)
        assert set(strategy.failures) == {1, 2}
        assert strategy.failures[1].report is None  # abandoned in all: trains nothing
        assert set(strategy.reports[2].tables) == {"shops", "tags"}  # type: ignore[attr-defined]
        assert 1 not in strategy.reports and {3, 4} <= set(strategy.reports)
        assert dense.tolist() == [3.0] * 3  # of the first round nothing, of the second all
        assert controller.last is not None and controller.last.number == 3
    with create(
        tmp_path / "three", model, hosts=Faults(("tags", "upload", "before"))
    ) as controller:
        before = rows_of(controller)
        strategy, dense = run(controller, 1, told, table_failures_max=1)
        assert set(strategy.failures) == {1} and not strategy.reports and dense is None
        assert rows_of(controller) == before
    assert not told


def test_a_nodes_budget_and_pin(tmp_path: Path, model: Path) -> None:
    told: list[Exception] = []
    with create(tmp_path / "c", model, epsilon=1.0) as controller:

        def budget(context: Context) -> ModelBudget:
            path = tmp_path / f"{context.node_config['partition-id']}.budget"
            return ModelBudget(path, limit=3.5, epsilon=3.0)

        strategy, _ = run(controller, 2, told, budget=budget)
        assert len(told) == USERS and all(isinstance(e, BudgetSpent) for e in told)
        uploaded = [
            {r.uploaded for r in strategy.reports[i].tables.values()}  # type: ignore[attr-defined]
            for i in strategy.reports
        ]
        assert uploaded[0] == {USERS}
        with create(tmp_path / "other", model) as other:
            told.clear()
            grid = LocalGrid(make_app(controller.pin, told), USERS)
            traffic = ModelRowStrategy(FedAvg(), other, ids_timeout=5).traffic
            assert traffic.fetch(grid, [1, 2], 1) == {}
            assert {type(error).__name__ for error in told} == {"PinMismatch"}
            traffic.abandon()
