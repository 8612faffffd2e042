"""Budgets of privacy: the controller's, in its sealed state, and a user's own, in a file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json
from test_train import Serving
from waiting import COMMAND_HUNG_S, HUNG_S

import hushtable
from hushtable.fl import Budget, Controller, Session, TrainingClient
from hushtable.fl.accountant import Accountant

SLOTS = 3


def create(folder: Path, **options: float) -> Controller:
    return Controller.create(
        folder,
        rows=200,
        dim=4,
        users=2,
        slots=SLOTS,
        epsilon=0.5,
        cached_levels=1,
        key_beside=True,
        **options,
    )


def ids(*rows: int) -> np.ndarray:
    wanted = np.full((2, SLOTS), hushtable.fl.DUMMY, np.uint32)
    wanted[0, : len(rows)] = rows
    return wanted


def test_a_controller_begins_no_round_past_its_budget(tmp_path: Path) -> None:
    with create(tmp_path / "films", epsilon_budget=1.5) as controller:
        controller.begin(ids(3, 4))
        controller.commit()
        controller.begin(ids(3))
        controller.abandon()
    with Controller.open(tmp_path / "films", key_beside=True) as controller:
        spent = controller.spent
        assert (spent.rounds, spent.epsilon, spent.budget, spent.rounds_left) == (2, 1.0, 1.5, 1)
        # A sealed round that nobody comes to begins all the same.
        controller.open_round(1)
        controller.close_requests()
        controller.commit()
        for refused in (controller.open_round, lambda: controller.begin(ids(3))):
            with pytest.raises(hushtable.BudgetSpent, match="leaves 0") as info:
                refused()
            assert (info.value.rounds, info.value.spent) == (3, 1.5)
            assert (info.value.needed, info.value.limit) == (2.0, 1.5)
        assert controller.rounds == 2
        assert controller.export().shape == (200, 4)
    with pytest.raises(hushtable.ConfigError, match="budget"):
        Controller.create(
            tmp_path / "none",
            rows=9,
            dim=1,
            users=1,
            slots=1,
            epsilon=np.inf,
            epsilon_budget=5,
            key_beside=True,
        )


def test_the_controller_adds_rounds_up_as_the_accountant_does(tmp_path: Path) -> None:
    with create(tmp_path / "films", epsilon_budget=3.0, budget_delta=1e-5) as controller:
        accountant = Accountant(0.5, delta=1e-5, limit=3.0, composition="zcdp")
        rounds = 0
        while True:
            try:
                accountant.spend("ann")
            except hushtable.BudgetSpent:
                break
            rounds += 1
            controller.begin(ids(1))
            controller.abandon()
            assert controller.spent.epsilon == pytest.approx(accountant.epsilon("ann"))
        assert controller.spent.rounds_left == 0
        assert rounds >= 6


def test_the_command_line_shows_what_is_spent(tmp_path: Path) -> None:
    folder = tmp_path / "films"
    options = ["--rows", "50", "--dim", "2", "--users", "2", "--slots", "3", "--epsilon", "0.25"]
    run("train", "create", "--key-beside", *options, "--epsilon-budget", "1", folder)
    with Controller.open(folder, key_beside=True) as controller:
        controller.begin(ids(1))
        controller.commit()
    assert run_json("train", "info", "--key-beside", folder)["spent"] == {
        "rounds": 1,
        "epsilon": 0.25,
        "budget": 1.0,
        "delta": 0.0,
        "rounds_left": 3,
    }
    text = run("train", "info", "--key-beside", folder).stdout
    assert "0.25 by 1 rounds begun, 0.75 left of 1 (3 rounds)" in text
    # The help is in a box.
    text = " ".join(run("train", "create", "--help").stdout.replace("│", " ").split())
    assert "eana, whose noise leaves visible which rows were trained" in text


def test_a_users_budget_outlives_its_processes(tmp_path: Path) -> None:
    path = tmp_path / "films.budget"
    budget = Budget(path, limit=1.0, epsilon=0.25)
    budget.charge()
    again = Budget(path, limit=1.0, epsilon=0.25)
    again.charge()
    assert (budget.spent, budget.left, budget.rounds) == (0.5, 0.5, 2)
    budget.charge()
    again.charge()
    with pytest.raises(hushtable.BudgetSpent, match=r"leaves 0: one more would make it 1\.25"):
        budget.charge()
    assert Budget(path, limit=1.0, epsilon=0.25).left == 0
    # The user may raise the limit, and no other setting by mistake.
    Budget(path, limit=1.25, epsilon=0.25).charge()
    with pytest.raises(hushtable.ConfigError, match="epsilon_per_value"):
        Budget(path, limit=9.0, epsilon=0.1)
    # A file that says nothing is not one that says nothing was lost.
    for damage in ("", "{}", path.read_text()[:-9], "\x00" * 40):
        path.write_text(damage)
        with pytest.raises(hushtable.ConfigError, match="holds no budget"):
            Budget(path, limit=1.0, epsilon=0.25)
        with pytest.raises(hushtable.ConfigError, match="holds no budget"):
            budget.charge()
    with pytest.raises(hushtable.ConfigError, match="cannot be written"):
        Budget(tmp_path / "nowhere" / "b", limit=1.0, epsilon=0.25)


_CHARGES = """
import sys
from hushtable.fl import Budget
budget = Budget(sys.argv[1], limit=1e6, epsilon=1.0)
for _ in range(int(sys.argv[2])):
    budget.charge()
    print("sent", flush=True)
"""


def charging(path: Path, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CHARGES, str(path), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_was_sent_was_booked_though_the_process_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "films.budget"
    sent = 0
    for rounds in (1, 3, 6):
        child = charging(path, 10_000)
        assert child.stdout is not None
        for _ in range(rounds):
            assert child.stdout.readline() == "sent\n"
        child.send_signal(signal.SIGKILL)
        sent += rounds + len(child.stdout.read().split())
        child.wait(timeout=HUNG_S)
        child.stdout.close()
    booked = Budget(path, limit=1e6, epsilon=1.0).rounds
    # The one under way may have been booked and not sent, never the other way.
    assert sent <= booked <= sent + 3


def test_processes_that_share_a_budget_lose_no_booking(tmp_path: Path) -> None:
    path = tmp_path / "films.budget"
    children = [charging(path, 25) for _ in range(2)]
    for child in children:
        assert child.wait(timeout=COMMAND_HUNG_S) == 0
        assert child.stdout is not None
        child.stdout.close()
    assert Budget(path, limit=1e6, epsilon=1.0).rounds == 50


def test_a_request_that_the_budget_refuses_is_not_sent(tmp_path: Path) -> None:
    create(tmp_path / "films").close()
    budget = Budget(tmp_path / "ann.budget", limit=0.5, epsilon=0.5)
    with (
        Serving(tmp_path / "films") as server,
        TrainingClient.connect(server.ready["url"]) as operator,
    ):
        # Rounds that cost more than is booked for them are refused before anything is sent.
        for wrong in (
            Budget(tmp_path / "low", limit=9.0, epsilon=0.4),
            Budget(tmp_path / "mechanism", limit=9.0, epsilon=0.5, mechanism="exponential"),
        ):
            with pytest.raises(hushtable.ConfigError, match="this budget books"):
                TrainingClient.connect(server.ready["url"], budget=wrong)
        with TrainingClient.connect(
            server.ready["url"], pin=server.ready["pin"], budget=budget
        ) as ann:
            for requested in (1, 0):
                number = operator.open_round(1)
                sealed = ann.session(0, number).request([7])
                if requested:
                    ann.request(0, sealed, number)
                else:
                    with pytest.raises(hushtable.BudgetSpent, match="Sit the round out"):
                        ann.request(0, sealed, number)
                assert operator.info().requested == requested
                operator.abandon(number)


def test_a_served_controllers_budget_is_told_as_such(tmp_path: Path) -> None:
    create(tmp_path / "films", epsilon_budget=0.5).close()
    with (
        Serving(tmp_path / "films") as server,
        TrainingClient.connect(server.ready["url"], pin=server.ready["pin"]) as operator,
    ):
        operator.open_round(1)
        sealed = operator.session(0).request([7])
        operator.request(0, sealed)
        operator.rows(0)
        operator.abandon()
        with pytest.raises(hushtable.BudgetSpent, match="leaves 0") as info:
            operator.open_round(1)
        assert info.value.rounds == 1
    spec = json.loads((tmp_path / "films" / "controller.json").read_text())
    assert spec["budget"] == {"epsilon": 0.5, "delta": 0.0}


def test_a_flower_node_answers_no_request_past_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="needs the extra fl")
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.supercore.task_identity import TaskIdentity

    from hushtable.fl import flower

    # Flower sets it in the processes that it starts for a node.
    for name, number in (("_task_id", 1), ("_run_id", 1), ("_node_id", 5)):
        monkeypatch.setattr(TaskIdentity, name, number)
    reasons: list[Exception] = []

    def node(folder: Path, **settings: Any) -> ClientApp:
        app = ClientApp()
        flower.RowClient(
            app,
            values=lambda context, number: np.array([7], np.uint32),
            pin=lambda context: controller.pin,
            sessions=Session,
            budget=lambda context: Budget(folder / str(context.node_id), **settings),
            on_refused=reasons.append,
        )
        return app

    app = node(tmp_path, limit=0.5, epsilon=0.5)
    context = Context(1, 5, {}, RecordDict(), {})
    with create(tmp_path / "films") as controller:
        controller.open_round(1)
        record = flower._to_record(controller.terms(0), 1)
        content = RecordDict({flower._TERMS_RECORD: record})
        question = Message(content, dst_node_id=5, message_type=flower.IDS_MESSAGE)
        # Rounds that cost more than is booked for them are refused, and not booked.
        for name, wrong in (
            ("low", {"epsilon": 0.4}),
            ("mechanism", {"epsilon": 0.5, "mechanism": "exponential"}),
        ):
            (tmp_path / name).mkdir()
            refused = node(tmp_path / name, limit=9.0, **wrong)(question, context)
            assert dict(refused.content["hushtable"]) == {flower._REFUSED_KEY: True}
            assert isinstance(reasons.pop(), hushtable.ConfigError)
            assert Budget(tmp_path / name / "5", limit=9.0, **wrong).rounds == 0
        sealed = app(question, context).content["hushtable"][flower._REQUEST_KEY]
        controller.request(0, sealed)
        # The server is told that the node takes no part, and not why.
        refused = app(question, context).content["hushtable"]
        assert dict(refused) == {flower._REFUSED_KEY: True}
        assert [type(reason) for reason in reasons] == [hushtable.BudgetSpent]
    assert Budget(tmp_path / "5", limit=0.5, epsilon=0.5).rounds == 1
