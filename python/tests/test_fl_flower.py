"""Flower's strategies, mods and SecAgg+ around a controller: in this process, and simulated."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import COMMAND_HUNG_S

pytest.importorskip("flwr", reason="the extra hushtable[fl] is not installed")

from fl_double import DoubleController, DoubleSession, LocalGrid
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.common import ndarrays_to_parameters
from flwr.common.serde import recorddict_to_proto
from flwr.server import LegacyContext, ServerConfig
from flwr.server import strategy as legacy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAvg,
    Strategy,
)

import hushtable
from hushtable import fl
from hushtable.fl import DUMMY, PlainTable
from hushtable.fl.flower import (
    IDS_MESSAGE,
    ROWS_KEY,
    UPLOAD_RECORD,
    RowClient,
    RowsRefused,
    RowStrategy,
    TooManyClients,
    constant_errors,
)
from hushtable.fl.secagg import LegacyRowStrategy, close_fit, open_fit

NODES, SLOTS, DIM, ROWS = 6, 4, 2, 50


def values_of(node: int, server_round: int) -> np.ndarray:
    """What a node asks for: row 0 is everyone's."""
    return np.array([0, 10 + node, 20 + (node + server_round) % 5], np.uint32)


def gradients_of(node: int) -> np.ndarray:
    return np.full((SLOTS, DIM), 0.1 * node, np.float32)


def number_of(context: Context) -> int:
    """A node's number, from 1: in a simulation its id is random."""
    return int(context.node_config["partition-id"]) + 1


def make_table() -> PlainTable:
    rows = np.random.default_rng(5).normal(size=(ROWS, DIM)).astype(np.float32)
    return PlainTable(rows, users=NODES, slots=SLOTS)


class Halves:
    """What seals and opens: the double, or hushtable's own controller and session."""

    session: Any = DoubleSession
    folder: Path | None = None


def new_controller() -> Any:
    if Halves.folder is None:
        return DoubleController(make_table())
    return fl.Controller.create(
        Path(tempfile.mkdtemp(dir=Halves.folder)) / "controller",
        table=make_table().export(),
        users=NODES,
        slots=SLOTS,
        epsilon=math.inf,
        key_beside=True,
    )


def use_controller(folder: Path) -> None:
    Halves.session, Halves.folder = fl.Session, folder


NATIVE = hasattr(fl, "Controller")
native = pytest.mark.skipif(not NATIVE, reason="this native module has no controller")


@pytest.fixture(autouse=True, params=["double", pytest.param("controller", marks=native)])
def halves(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    if request.param == "controller":
        use_controller(tmp_path)
    yield
    Halves.session, Halves.folder = DoubleSession, None


def make_app(pin: str, mods: list[Any] | None = None) -> ClientApp:
    """Clients that add their number to the dense weights."""
    app = ClientApp()
    client = RowClient(
        app,
        values=lambda context, number: values_of(number_of(context), number),
        pin=lambda context: pin,
        sessions=Halves.session,
    )

    @app.train(mods=mods)
    def train(message: Message, context: Context) -> Message:
        got = client.open(message, context)
        assert got.found.tolist() == [True, True, True, False]
        assert got.rows.shape == (SLOTS, DIM)
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": arrayed(weights + number_of(context))}),
                "metrics": MetricRecord({"num-examples": 1, "loss": 0.5}),
                UPLOAD_RECORD: got.upload(gradients_of(number_of(context)), number_of(context)),
            }
        )
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        got = client.open(message, context)
        mean = float(got.rows[got.found].mean())
        content = RecordDict({"metrics": MetricRecord({"num-examples": 1, "mean": mean})})
        return Message(content, reply_to=message)

    return app


def arrayed(weights: np.ndarray) -> Any:
    from flwr.app import Array

    return Array(np.asarray(weights, np.float32))


def start_arrays() -> ArrayRecord:
    return ArrayRecord({"w": arrayed(np.zeros(3))})


def dense(**options: Any) -> FedAvg:
    return FedAvg(**{"fraction_evaluate": 0.0, "min_train_nodes": NODES, **options})


def expected_rows(rounds: int, absent: set[int] = frozenset(), begin: int = 1) -> np.ndarray:  # type: ignore[assignment]
    """What a plain table comes to when the nodes but ``absent`` train."""
    table = make_table()
    for number in range(begin, begin + rounds):
        asked = np.full((NODES, SLOTS), DUMMY, np.uint32)
        for node in range(1, NODES + 1):
            asked[node - 1, :3] = values_of(node, number)
        table.begin(asked)
        for node in range(1, NODES + 1):
            if node not in absent:
                table.add(node - 1, gradients_of(node), float(node))
        table.commit()
    return table.export()


def run(
    strategy: Strategy, mods: list[Any] | None = None, rounds: int = 2, **quiet: Any
) -> tuple[Any, Any, LocalGrid, RowStrategy]:
    controller = new_controller()
    grid = LocalGrid(make_app(controller.pin, mods), NODES)
    grid.silent = quiet.get("silent", grid.silent)
    wrapped = RowStrategy(strategy, controller, ids_timeout=5)
    result = wrapped.start(grid, start_arrays(), num_rounds=rounds, timeout=5)
    return result, controller, grid, wrapped


def test_rows_go_through_the_controller_and_dense_weights_through_flower() -> None:
    result, controller, _, wrapped = run(dense())
    np.testing.assert_allclose(controller.export(), expected_rows(2), rtol=1e-6)
    # Each round adds the mean of the nodes' numbers.
    np.testing.assert_allclose(result.arrays.to_numpy_ndarrays()[0], 2 * 3.5)
    assert wrapped.reports[1].accesses == 1 + NODES + 5
    assert result.train_metrics_clientapp[2]["loss"] == pytest.approx(0.5)


def test_flowers_server_sees_no_id_row_or_gradient() -> None:
    _, controller, grid, _ = run(dense(), rounds=1)
    rows = make_table().export()
    sizes: dict[tuple[str, str], set[int]] = {}
    for direction, node, message in grid.seen:
        ids = values_of(node, 1)
        secrets = [ids[1:].tobytes(), rows[ids].tobytes(), gradients_of(node)[:1].tobytes()]
        for record in message.content.config_records.values():
            for name, value in record.items():
                if isinstance(value, bytes):
                    assert not any(secret in value for secret in secrets), name
                    sizes.setdefault((direction, name), set()).add(len(value))
                else:
                    # Only what anyone may know: numbers of the round and the table's shape.
                    assert name in {"user", "server-round"}
    assert {name for _, name in sizes} >= {
        "hushtable.request",
        "hushtable.rows",
        "hushtable.upload",
    }
    # Sizes tell nothing: each kind of message has one.
    assert all(len(found) == 1 for found in sizes.values()), sizes
    assert controller.public_key not in [
        value
        for _, _, message in grid.seen
        for record in message.content.config_records.values()
        for value in record.values()
    ]


@pytest.mark.parametrize("kind", [IDS_MESSAGE, "train"])
def test_who_never_answers_counts_for_nothing_and_harms_nobody(kind: str) -> None:
    def silent(node: int, message: Message) -> bool:
        return node == 3 and message.metadata.message_type == kind

    result, controller, _, wrapped = run(dense(), silent=silent)
    np.testing.assert_allclose(controller.export(), expected_rows(2, {3}), rtol=1e-6)
    np.testing.assert_allclose(
        result.arrays.to_numpy_ndarrays()[0],
        2 * (sum(range(1, NODES + 1)) - 3) / (NODES - 1),
        rtol=1e-6,
    )
    assert wrapped.reports[2].uploaded == NODES - 1  # type: ignore[attr-defined]


def test_a_round_that_nobody_answers_leaves_the_rows() -> None:
    result, controller, _, _ = run(dense(), rounds=1, silent=lambda node, message: True)
    np.testing.assert_array_equal(controller.export(), make_table().export())
    assert len(result.arrays) == 0


def test_a_forged_upload_is_left_out_of_rows_and_dense_weights() -> None:
    def forge(message: Message, context: Context, call_next: Any) -> Message:
        reply = call_next(message, context)
        if context.node_id == 2:
            sealed = bytearray(reply.content[UPLOAD_RECORD]["hushtable.upload"])
            sealed[-1] ^= 1
            reply.content[UPLOAD_RECORD]["hushtable.upload"] = bytes(sealed)
        return reply

    result, controller, _, _ = run(dense(), mods=[forge], rounds=1)
    np.testing.assert_allclose(controller.export(), expected_rows(1, {2}), rtol=1e-6)
    np.testing.assert_allclose(result.arrays.to_numpy_ndarrays()[0], (21 - 2) / 5)


def test_requests_to_another_key_are_refused() -> None:
    controller = new_controller()
    stranger = new_controller()
    grid = LocalGrid(make_app(stranger.pin), NODES)
    RowStrategy(dense(), controller).start(grid, start_arrays(), num_rounds=1, timeout=5)
    np.testing.assert_array_equal(controller.export(), make_table().export())


def test_more_clients_than_users_are_refused() -> None:
    controller = new_controller()
    grid = LocalGrid(make_app(controller.pin), NODES + 1)
    with pytest.raises(TooManyClients, match="7 clients.*6 users") as caught:
        RowStrategy(dense(min_train_nodes=7), controller).start(grid, start_arrays(), num_rounds=1)
    assert (caught.value.clients, caught.value.users) == (7, 6)


def test_where_the_strategy_fails_the_rows_stay_and_the_next_round_runs() -> None:
    class Failing(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if server_round == 1:
                raise RuntimeError("no")
            return super().aggregate_train(server_round, replies)

    controller = new_controller()
    grid = LocalGrid(make_app(controller.pin), NODES)
    strategy = RowStrategy(Failing(fraction_evaluate=0.0, min_train_nodes=NODES), controller)

    def round_of(number: int) -> None:
        messages = strategy.configure_train(number, start_arrays(), ConfigRecord(), grid)
        strategy.aggregate_train(number, grid.send_and_receive(messages))

    with pytest.raises(RuntimeError, match="no"):
        round_of(1)
    np.testing.assert_array_equal(controller.export(), make_table().export())
    round_of(2)
    np.testing.assert_allclose(controller.export(), expected_rows(1, begin=2), rtol=1e-6)


def test_a_round_left_open_is_abandoned_by_the_next() -> None:
    controller = new_controller()
    grid = LocalGrid(make_app(controller.pin), NODES)
    strategy = RowStrategy(dense(), controller)
    strategy.configure_train(1, start_arrays(), ConfigRecord(), grid)
    strategy.start(grid, start_arrays(), num_rounds=1)
    np.testing.assert_allclose(controller.export(), expected_rows(1), rtol=1e-6)


def test_clients_that_evaluate_get_rows_and_change_none() -> None:
    strategy = FedAvg(fraction_train=0.0, min_evaluate_nodes=NODES)
    result, controller, _, _ = run(strategy, rounds=1)
    np.testing.assert_array_equal(controller.export(), make_table().export())
    rows = make_table().export()
    means = [rows[values_of(node, 1)].mean() for node in range(1, NODES + 1)]
    assert result.evaluate_metrics_clientapp[1]["mean"] == pytest.approx(np.mean(means))


def test_a_server_without_rows_is_named_as_the_cause() -> None:
    controller = new_controller()
    grid = LocalGrid(make_app(controller.pin), NODES)
    dense().start(grid, start_arrays(), num_rounds=1)
    errors = [message.error.reason for where, _, message in grid.seen if where == "from"]
    assert len(errors) == NODES
    assert all(RowsRefused.__name__ in error and "RowStrategy" in error for error in errors)


IDS_OF_ATTACKED = np.array([3, 77, 1234, 2048, 2049, 3999, 4000, 4998], np.uint32)


class Attacked:
    """One node, whose ids a lying server is after.

    Attributes:
        looked: how often its ids were looked at.
        refused: what it was told, on the device.
    """

    def __init__(self, controller: Any) -> None:
        self.looked = 0
        self.refused: list[Exception] = []
        self.ids = IDS_OF_ATTACKED
        app = ClientApp(mods=[constant_errors])
        client = RowClient(
            app,
            values=self.values,
            pin=lambda context: controller.pin,
            sessions=Halves.session,
            on_refused=self.refused.append,
        )

        @app.train()
        def train(message: Message, context: Context) -> Message:
            got = client.open(message, context)
            ids = self.values(context, 1)
            if not got.found[: len(ids)].all():
                raise RuntimeError(f"rows {ids} are lost")
            content = RecordDict({UPLOAD_RECORD: got.upload(0.1 * got.rows, 1)})
            return Message(content, reply_to=message)

        self.grid = LocalGrid(app, 1)

    def values(self, context: Context, server_round: int) -> np.ndarray:
        self.looked += 1
        return self.ids

    def ask(self, kind: str, *records: tuple[str, ConfigRecord]) -> Message:
        content = RecordDict(dict(records))
        message = Message(content, dst_node_id=1, message_type=kind)
        (reply,) = self.grid.send_and_receive([message])
        return reply


def wire_bytes(reply: Message) -> bytes:
    """All of a reply that the app decides, as it goes over the wire."""
    if reply.has_error():
        return repr((reply.error.code, reply.error.reason)).encode()
    return recorddict_to_proto(reply.content).SerializeToString(deterministic=True)


def attacked_controller(folder: Path) -> Any:
    rows = np.random.default_rng(5).normal(size=(5000, DIM)).astype(np.float32)
    options: dict[str, Any] = {"users": 2, "slots": 8, "epsilon": math.inf}
    if Halves.folder is None:
        return DoubleController(PlainTable(rows, users=2, slots=8))
    return fl.Controller.create(folder / "attacked", table=rows, key_beside=True, **options)


def test_a_lying_server_learns_nothing_from_replies_to_other_terms(tmp_path: Path) -> None:
    controller = attacked_controller(tmp_path)
    node = Attacked(controller)
    number = controller.open_round(1).to_bytes(8, "little")
    honest = json.loads(controller.terms(0).spec)

    def terms(**lies: Any) -> tuple[str, ConfigRecord]:
        spec = json.dumps({**honest, **lies}).encode()
        told = {"spec": spec, "round": number, "user": 0, "server-round": 1}
        return "hushtable.terms", ConfigRecord(told)

    lies: list[dict[str, Any]] = [{"rows": rows} for rows in (0, 1, 2**32, 2**64 - 1, -5, 0.5, "x")]
    # As they were asked for one id after the other, by halves and around each id.
    lies += [{"rows": int(id_) + step} for id_ in IDS_OF_ATTACKED for step in (-1, 0, 1)]
    lies += [{"rows": 5000 >> shift} for shift in range(1, 13)]
    lies += [{"slots": slots} for slots in (0, 1, 7, 9, 2**20, 2**33)]
    lies += [{"dim": dim} for dim in (0, 1, 3, 2**16, 10**9)]
    lies += [{"name": "other"}, {"name": ""}, {"more": 1}, {"users_max": 1}, {"aggregate": None}]
    lies += [{"fdp": {"epsilon": "inf"}}, {"authority": "00" * 32}, {"authority": 3}]
    replies = [node.ask(IDS_MESSAGE, terms(**lie)) for lie in lies]
    # What is no terms at all.
    (name, record), whole = terms(), controller.terms(0).spec
    good = {**record, "spec": whole}
    for broken in (
        {"spec": b""},
        {"spec": whole[:-1]},
        {"spec": whole + b" "},
        {"spec": whole.decode()},
        {"spec": 5},
        {"user": "one"},
        {"round": 3},
        {"server-round": "one"},
    ):
        replies.append(node.ask(IDS_MESSAGE, (name, ConfigRecord({**good, **broken}))))
    for missing in ("spec", "round", "user", "server-round"):
        kept = {key: value for key, value in good.items() if key != missing}
        replies.append(node.ask(IDS_MESSAGE, (name, ConfigRecord(kept))))
    replies.append(node.ask(IDS_MESSAGE))
    assert len(replies) > 70
    assert {wire_bytes(reply) for reply in replies} == {wire_bytes(replies[0])}
    # Decided before the ids were looked at.
    assert node.looked == 0
    assert len(node.refused) == len(replies)

    # The node's own mistakes get the same reply, under the right terms.
    honest_terms = (name, ConfigRecord(good))
    if Halves.folder is not None:
        for wrong in (np.array([3, 87654], np.uint32), np.arange(77), np.array(["a"]), None):
            node.ids = wrong  # type: ignore[assignment]
            assert wire_bytes(node.ask(IDS_MESSAGE, honest_terms)) == wire_bytes(replies[0])
        wrong_id, many = node.refused[-4:-2]
        assert isinstance(wrong_id, hushtable.IdOutOfRange)
        assert isinstance(many, hushtable.TooManyIds)
        for error in (wrong_id, many):
            assert error.__cause__ is None
            assert error.__context__ is None
            told = set(re.findall(r"[0-9]+", f"{error} {error!r} {error.args} {vars(error)}"))
            assert not told & {"3", "87654", "77"}
    node.ids = IDS_OF_ATTACKED
    sealed = node.ask(IDS_MESSAGE, honest_terms)
    assert wire_bytes(sealed) != wire_bytes(replies[0])
    controller.request(0, sealed.content["hushtable"]["hushtable.request"])


def test_a_lying_server_learns_nothing_from_replies_to_other_rows(tmp_path: Path) -> None:
    controller = attacked_controller(tmp_path)
    node = Attacked(controller)
    controller.open_round(2)
    told = controller.terms(0)
    number = told.round.to_bytes(8, "little")
    record = ConfigRecord({"spec": told.spec, "round": number, "user": 0, "server-round": 1})
    asked = node.ask(IDS_MESSAGE, ("hushtable.terms", record))
    controller.request(0, asked.content["hushtable"]["hushtable.request"])
    controller.close_requests()
    rows, state = controller.reply(0), node.grid._contexts[1].state
    kept = state["hushtable.session"]
    flipped = [bytes([*rows[:at], rows[at] ^ 1, *rows[at + 1 :]]) for at in range(0, len(rows), 7)]
    hostile: list[Any] = [b"", rows[:-1], rows + b"\0", bytes(len(rows)), *flipped, 3, "rows"]
    before, replies = node.looked, []
    for each in hostile:
        state["hushtable.session"] = kept
        replies.append(node.ask("train", ("config", ConfigRecord({ROWS_KEY: each}))))
        # The session is used up, whatever came.
        replies.append(node.ask("train", ("config", ConfigRecord({ROWS_KEY: rows}))))
    replies.append(node.ask("train"))
    # A session that does not open, and one that asked for other rows.
    state["hushtable.session"] = ConfigRecord({"session": b"broken"})
    replies.append(node.ask("train", ("config", ConfigRecord({ROWS_KEY: rows}))))
    assert node.looked == before
    node.ask(IDS_MESSAGE, ("hushtable.terms", record))
    replies.append(node.ask("train", ("config", ConfigRecord({ROWS_KEY: rows}))))
    assert {wire_bytes(reply) for reply in replies} == {wire_bytes(replies[0])}
    assert RowsRefused.__name__ in replies[0].error.reason
    state["hushtable.session"] = kept
    taken = node.ask("train", ("config", ConfigRecord({ROWS_KEY: rows})))
    assert not taken.has_error()
    controller.upload(0, taken.content[UPLOAD_RECORD]["hushtable.upload"])


def test_an_error_of_a_clients_own_functions_tells_nothing() -> None:
    app, looked = ClientApp(mods=[constant_errors]), []
    ids = IDS_OF_ATTACKED

    @app.train()
    def train(message: Message, context: Context) -> Message:
        looked.append(ids)
        if len(looked) == 2:
            raise KeyError(int(ids[3]))
        try:
            raise ValueError(f"ids {ids}")
        except ValueError as error:
            error.add_note(f"{ids}")
            raise RuntimeError(f"row {ids[0]}") from error

    context = Context(1, 1, {}, RecordDict(), {})
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    seen = set()
    for _ in range(2):
        with pytest.raises(RowsRefused) as caught:
            app(message, context)
        error = caught.value
        assert error.__cause__ is None
        assert error.__context__ is None
        assert not hasattr(error, "__notes__")
        frames = [
            frame.frame.f_locals for frame in caught.traceback if frame.path.name == "flower.py"
        ]
        assert frames
        assert not any(isinstance(value, Exception) for own in frames for value in own.values())
        seen.add(repr(error))
    assert len(looked) == 2
    assert len(seen) == 1


def test_adaptive_strategies_take_the_dense_part() -> None:
    options = {"eta": 0.5, "tau": 0.1, "fraction_evaluate": 0.0, "min_train_nodes": NODES}
    result, controller, _, _ = run(FedAdagrad(**options), rounds=1)
    np.testing.assert_allclose(controller.export(), expected_rows(1), rtol=1e-6)
    np.testing.assert_allclose(
        result.arrays.to_numpy_ndarrays()[0], 0.5 * 3.5 / (3.5 + 0.1), rtol=1e-5
    )


CLIP = 0.5


@pytest.mark.parametrize(
    ("wrapper", "mods"),
    [
        (DifferentialPrivacyServerSideFixedClipping, None),
        (DifferentialPrivacyClientSideFixedClipping, [fixedclipping_mod]),
        (DifferentialPrivacyClientSideAdaptiveClipping, [adaptiveclipping_mod]),
    ],
)
def test_flowers_differential_privacy_is_for_the_dense_part(wrapper: Any, mods: Any) -> None:
    adaptive = wrapper is DifferentialPrivacyClientSideAdaptiveClipping
    norm = {"initial_clipping_norm": CLIP} if adaptive else {"clipping_norm": CLIP}
    # Nearly no noise, so that clipping can be seen: updates are far longer than CLIP.
    private = wrapper(dense(), noise_multiplier=1e-6, num_sampled_clients=NODES, **norm)
    result, controller, _, _ = run(private, mods=mods, rounds=1)
    change = np.linalg.norm(result.arrays.to_numpy_ndarrays()[0])
    assert change == pytest.approx(CLIP, rel=1e-3)
    np.testing.assert_allclose(controller.export(), expected_rows(1), rtol=1e-6)


def make_masked_app(pin: str) -> ClientApp:
    """The same clients, whose dense weights SecAgg+ masks."""
    app = ClientApp()
    client = RowClient(
        app,
        values=lambda context, number: values_of(number_of(context), number),
        pin=lambda context: pin,
        sessions=Halves.session,
    )

    @app.train(mods=[secaggplus_mod])
    def train(message: Message, context: Context) -> Message:
        (weights,), got = open_fit(client, message, context)
        assert got.found.tolist() == [True, True, True, False]
        node = number_of(context)
        return close_fit(message, [weights + node], got, gradients_of(node), node)

    return app


@pytest.mark.parametrize("absent", [None, 3])
def test_secaggplus_hides_dense_updates_while_rows_go_to_the_controller(absent: int | None) -> None:
    controller = new_controller()
    grid = LocalGrid(make_masked_app(controller.pin), NODES)
    # Drops out after it has shared its keys: its mask has to be taken off without it.
    grid.silent = lambda node, message: (
        node == absent
        and message.content.config_records.get("secaggplus_configs", {}).get("stage")
        == "collect_masked_vectors"
    )
    inner = legacy.FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=NODES,
        min_available_clients=NODES,
        initial_parameters=ndarrays_to_parameters([np.zeros(3, np.float32)]),
    )
    strategy = LegacyRowStrategy(inner, controller, grid, ids_timeout=5)
    context = LegacyContext(Context(1, 0, {}, RecordDict(), {}), ServerConfig(2), strategy)
    secagg = SecAggPlusWorkflow(5, 3, max_weight=100.0, timeout=5)
    DefaultWorkflow(fit_workflow=secagg)(grid, context)

    here = [node for node in range(1, NODES + 1) if node != absent]
    expected = 2 * np.average(here, weights=here)
    (weights,) = context.state.array_records["parameters"].to_numpy_ndarrays()
    np.testing.assert_allclose(weights, expected, rtol=2e-3)
    away = set() if absent is None else {absent}
    np.testing.assert_allclose(controller.export(), expected_rows(2, away), rtol=1e-6)

    # What the server got of a node's dense weights is masked: of the size of the modulus.
    masked = [
        np.load(io.BytesIO(record["masked_params"][-1]), allow_pickle=False)
        for where, _, message in grid.seen
        if where == "from"
        for name, record in message.content.config_records.items()
        if name == "secaggplus_configs" and "masked_params" in record
    ]
    assert len(masked) == 2 * len(here)
    assert np.stack(masked).std() > 2**29
    for where, _, message in grid.seen:
        if where == "from":
            assert all(len(record) == 0 for record in message.content.array_records.values())


SIMULATION = """
import sys
from pathlib import Path
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
import numpy as np
import test_fl_flower as here
from hushtable.fl.flower import RowStrategy

if len(sys.argv) > 2:
    here.use_controller(Path(sys.argv[2]))
server = ServerApp()
controller = here.new_controller()
app = here.make_app(controller.pin)

@server.main()
def main(grid, context):
    strategy = RowStrategy(here.dense(min_available_nodes=here.NODES), controller)
    result = strategy.start(grid, here.start_arrays(), num_rounds=2)
    np.savez(sys.argv[1], rows=controller.export(), w=result.arrays.to_numpy_ndarrays()[0],
             uploads=[report.uploaded for report in strategy.reports.values()])

run_simulation(server, app, here.NODES, backend_config={"client_resources": {"num_cpus": 1}})
"""


@pytest.mark.rest
def test_a_simulation_trains_what_the_plain_table_would(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
    script, out = tmp_path / "simulation.py", tmp_path / "found.npz"
    script.write_text(SIMULATION)
    environment = os.environ | {"PYTHONPATH": path, "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, script, out, *([] if Halves.folder is None else [Halves.folder])],
        cwd=tmp_path,
        env=environment | {"FLWR_HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=COMMAND_HUNG_S,
    )
    assert out.exists(), done.stdout + done.stderr
    found = np.load(out)
    np.testing.assert_allclose(found["rows"], expected_rows(2), rtol=1e-6)
    np.testing.assert_allclose(found["w"], 2 * 3.5)
    assert found["uploads"].tolist() == [NODES, NODES]
