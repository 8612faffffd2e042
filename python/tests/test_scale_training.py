"""A controller a table, in rounds of all of them: what comes of it, and of what goes wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks
from scale_rounds import (
    SETTINGS,
    SHAPES,
    SLOTS,
    USERS,
    ask,
    build_model,
    gradients_of,
    ids_of,
    serve,
    train,
)

from hushtable import BudgetSpent, ConfigError, Model, PinMismatch, RoundError, fl
from hushtable.errors import ControllerError
from hushtable.fl import Credential, RoundTerms, Session
from hushtable.fl.accountant import Accountant
from hushtable.scale import (
    ModelAccountant,
    ModelBudget,
    ModelController,
    ModelSession,
    TableFailed,
    ThreadHosts,
    model_pin,
)
from hushtable.scale.ledger import Ledger
from hushtable.scale.messages import from_spec, pack, to_spec, unpack


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def create(tmp_path: Path, model: Path, **options: Any) -> ModelController:
    folder = tmp_path / f"clicks{len(list(tmp_path.iterdir()))}"
    return ModelController.create(folder, model, key_beside=True, **{**SETTINGS, **options})


def rows_of(controller: ModelController) -> dict[str, bytes]:
    return {name: controller.export(name).tobytes() for name in SHAPES}


class Faults:
    """Hosts whose connections break: once for each (table, method), before or after the call."""

    def __init__(self, *faults: tuple[str, str, str]) -> None:
        self._hosts = ThreadHosts()
        self.faults = list(faults)

    def start(self, place: Any) -> Any:
        return _Breaking(self, place.name, self._hosts.start(place))

    def close(self) -> None:
        self._hosts.close()


class _Breaking:
    lost = (ConnectionError,)

    def __init__(self, faults: Faults, name: str, link: Any) -> None:
        self._faults, self._name, self._link = faults, name, link
        self.restart, self.close = link.restart, link.close

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        broken: Future[Any] = Future()
        for when in ("before", "after", "silent"):
            fault = (self._name, method, when)
            if fault in self._faults.faults:
                self._faults.faults.remove(fault)
                if when == "silent":
                    return broken
                if when == "after":
                    self._link.call(method, *arguments).result()
                broken.set_exception(ConnectionError("it is gone"))
                return broken
        call: Future[Any] = self._link.call(method, *arguments)
        return call


def one_after_the_other(tmp_path: Path, model: Path, rounds: int) -> tuple[dict[str, bytes], Any]:
    """The same rounds by single controllers, each table's after the other's."""
    rows, got = {}, {}
    for name in SHAPES:
        with fl.Controller.create(
            tmp_path / f"single-{name}",
            table=Model.open(model).table(name),
            key_beside=True,
            **SETTINGS,
        ) as controller:
            for round in range(1, rounds + 1):
                controller.open_round(USERS)
                sessions = [Session(controller.pin, controller.terms(u)) for u in range(USERS)]
                for user, session in enumerate(sessions):
                    controller.request(user, session.request(ids_of(round, user, name)))
                controller.close_requests()
                for user, session in enumerate(sessions):
                    got[round, user, name] = session.rows(controller.reply(user))
                    gradients = gradients_of(round, user, name)
                    controller.upload(user, session.upload(gradients, 1.0 + user))
                controller.commit()
            rows[name] = controller.export().tobytes()
    return rows, got


@pytest.mark.parametrize("workers", [None, 1])
def test_side_by_side_is_one_after_the_other(
    tmp_path: Path, model: Path, workers: int | None
) -> None:
    expected, expected_got = one_after_the_other(tmp_path, model, 2)
    with create(tmp_path, model, hosts=ThreadHosts(workers)) as controller:
        for round in (1, 2):
            got = serve(controller, ask(controller, round), round)
            for user, (rows, found) in got.items():
                for name in SHAPES:
                    alone_rows, alone_found = expected_got[round, user, name]
                    assert rows[name].tobytes() == alone_rows.tobytes()
                    assert found[name].tolist() == alone_found.tolist()
            report = controller.commit()
            assert report.number == round
            assert report.accesses == 3 * USERS * SLOTS
        assert rows_of(controller) == expected
    with ModelController.open(controller_folder(tmp_path)) as again:
        assert rows_of(again) == expected
        assert again.pin == controller.pin
        assert again.last is not None and again.last.number == 2
        train(again, 1, first=3)


def controller_folder(tmp_path: Path) -> Path:
    (folder,) = (path for path in tmp_path.iterdir() if (path / "controllers.json").exists())
    return folder


def test_trained_tables_become_a_model(tmp_path: Path, model: Path) -> None:
    with create(tmp_path, model, tables=["items", "tags"]) as controller:
        controller.open_round(1)
        session = ModelSession(controller.pin, controller.terms(0))
        controller.request(0, session.request({"tags": [3]}))
        controller.close_requests()
        session.rows(controller.reply(0))
        controller.upload(0, session.upload({"tags": np.full((1, 2), 0.25, np.float32)}))
        controller.commit()
        trained = controller.export("tags")
        made = controller.export_into(model, tmp_path / "out" / "model")
    before = Model.open(model)
    assert np.array_equal(made.table("tags").rows(np.arange(100)), trained)
    assert (trained[3] != before.table("tags").rows([3])[0]).all()
    for name in ("items", "shops"):  # nobody trained them
        assert made.table(name).info.version == before.table(name).info.version
    assert made.table("tags").info.version != before.table("tags").info.version
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]


def test_all_users_send_messages_of_one_size(tmp_path: Path, model: Path) -> None:
    with create(tmp_path, model) as controller:
        controller.open_round(2)
        one, other = (ModelSession(controller.pin, controller.terms(u)) for u in (0, 1))
        full = one.request({name: np.arange(SLOTS) for name in SHAPES})
        empty = other.request({})
        assert len(full) == len(empty)
        controller.request(0, full)
        controller.request(1, empty)
        controller.close_requests()
        assert len(controller.reply(0)) == len(controller.reply(1))
        assert not any(found.any() for found in other.rows(controller.reply(1))[1].values())
        one = ModelSession.from_bytes(one.to_bytes())
        one.rows(controller.reply(0))
        gradients = {name: gradients_of(1, 0, name) for name in SHAPES}
        assert len(one.upload(gradients)) == len(other.upload({}))


def test_a_refused_part_leaves_the_user_out_and_may_be_sent_again(
    tmp_path: Path, model: Path
) -> None:
    with create(tmp_path, model) as controller:
        sessions = {}
        controller.open_round(2)
        for user in (0, 1):
            sessions[user] = ModelSession(controller.pin, controller.terms(user))
        good = sessions[0].request({"items": [1, 2], "tags": [9]})
        parts = unpack(good, 3)
        bad = pack([parts[0], parts[1], parts[2][:-1] + bytes([parts[2][-1] ^ 1])])
        with pytest.raises(RoundError, match="the sealed request is refused"):
            controller.request(0, bad)
        # Of one text with a message that is another table's.
        with pytest.raises(RoundError, match="the sealed request is refused"):
            controller.request(1, pack([parts[1], parts[0], parts[2]]))
        for cut in (b"", good[:-1], good + b"\0", pack(parts[:2]), b"\xff" * len(good)):
            with pytest.raises(RoundError, match="does not have 3 parts"):
                controller.request(1, cut)
        controller.request(0, good)
        controller.close_requests()
        sessions[0].rows(controller.reply(0))
        with pytest.raises(RoundError, match="user 1 has made no request"):
            controller.reply(1)
        controller.upload(0, sessions[0].upload({"items": np.ones((2, 8), np.float32)}))
        reports = controller.commit().tables
        assert {report.uploaded for report in reports.values()} == {1}
        with pytest.raises(RoundError, match="no round is open"):
            controller.reply(0)


def test_terms_of_other_controllers_are_refused(tmp_path: Path, model: Path) -> None:
    with create(tmp_path, model) as controller, create(tmp_path, model) as other:
        controller.open_round(1)
        other.open_round(1)
        terms, pin = controller.terms(0), controller.pin
        ModelSession(pin, terms)
        tables = from_spec(terms.spec)
        spec = to_spec(tables)
        assert spec == terms.spec
        foreign = from_spec(other.terms(0).spec)
        first, second, third = tables
        renamed = [
            type(first)(a.name, b.pin, b.spec, b.round)
            for a, b in zip(tables, [second, first, third], strict=True)
        ]
        for wrong in (
            [first, second],
            [*tables, foreign[0]],
            [second, first, third],
            [foreign[0], second, third],
            [first, first, third],
            renamed,
        ):
            with pytest.raises(PinMismatch, match="other controllers"):
                ModelSession(pin, RoundTerms(to_spec(wrong), 1, 0))
        # The pin's, but with another table's terms: its own session refuses them.
        swapped = type(first)(first.name, first.pin, second.spec, first.round)
        with pytest.raises(PinMismatch):
            ModelSession(pin, RoundTerms(to_spec([swapped, second, third]), 1, 0))
        for text in (b"", b"\0" * 4, b"\xff" * 40, spec[:-1], spec + b"\0", b"\1\0\0\0" + spec):
            with pytest.raises(RoundError):
                ModelSession(pin, RoundTerms(text, 1, 0))
        with pytest.raises(ConfigError, match="modelpin1:"):
            ModelSession(controller.pins["items"], terms)
        with pytest.raises(RoundError, match="no table 'cart'"):
            ModelSession(pin, terms).request({"cart": [1]})
    assert model_pin({"a": "bc"}) != model_pin({"ab": "c"}) != model_pin({"a": "b", "c": ""})


def test_enrolled_users_show_a_ticket_for_each_table(tmp_path: Path, model: Path) -> None:
    from hushtable import _native

    authority = _native.create_key(tmp_path / "authority.key")
    user = _native.create_key(tmp_path / "alice.key")
    with create(tmp_path, model, authority=authority) as controller:
        tickets = {
            name: _native.enroll(tmp_path / "authority.key", pin, user)
            for name, pin in controller.pins.items()
        }
        cards = {n: Credential.read(tmp_path / "alice.key", t) for n, t in tickets.items()}
        controller.open_round(1)
        with pytest.raises(ConfigError):
            ModelSession(controller.pin, controller.terms(0))
        session = ModelSession(controller.pin, controller.terms(0), cards)
        controller.request(0, session.request({"items": [4]}))
        controller.close_requests()
        assert session.rows(controller.reply(0))[1]["items"][0]


@pytest.mark.parametrize(("method", "begun"), [("request", 0), ("close_requests", 1)])
def test_a_table_that_fails_before_the_commit_ends_the_round_in_all(
    tmp_path: Path, model: Path, method: str, begun: int
) -> None:
    hosts = Faults(("shops", method, "before"))
    with create(tmp_path, model, hosts=hosts, epsilon=math.inf) as controller:
        before = rows_of(controller)
        with pytest.raises(TableFailed, match=r"table 'shops'.*its process ended") as caught:
            train(controller, 1)
        assert caught.value.table == "shops"
        assert set(caught.value.outcomes.values()) == {"abandoned"}
        assert caught.value.report is None
        assert "no row changed" in str(caught.value)
        controller.abandon()  # nothing is open any more
        # The next round opens the table again, and all are where they would have been without it.
        (report,) = train(controller, 1)
        assert set(report.tables) == set(SHAPES)
        assert report.number == 1
        spent = controller.spent.tables
        assert spent["items"].rounds == 1 + begun  # what had begun is spent
        after = rows_of(controller)
        assert all(before[name] != after[name] for name in SHAPES)
    with create(tmp_path, model, epsilon=math.inf) as undisturbed:
        train(undisturbed, 1)
        assert rows_of(undisturbed) == after


def test_a_table_that_fails_to_commit_leaves_the_others_round_committed(
    tmp_path: Path, model: Path
) -> None:
    with create(tmp_path, model, hosts=Faults(("shops", "commit", "before"))) as controller:
        before = rows_of(controller)
        with pytest.raises(TableFailed, match="not committed in 1 of 3 tables") as caught:
            train(controller, 1)
        error = caught.value
        assert error.table == "shops"
        assert error.outcomes.pop("shops") in ("abandoned", "failed")
        assert error.outcomes == {"items": "committed", "tags": "committed"}
        assert error.report is not None and set(error.report.tables) == {"items", "tags"}
        assert controller.last is not None and controller.last.number == 1
        after = rows_of(controller)
        assert before["shops"] == after["shops"]
        assert before["items"] != after["items"]
        (report,) = train(controller, 1, first=2)
        assert report.number == 2 and set(report.tables) == set(SHAPES)


def test_a_commit_whose_answer_is_lost_is_a_commit(tmp_path: Path, model: Path) -> None:
    with create(tmp_path, model) as undisturbed:
        train(undisturbed, 1)
        expected = rows_of(undisturbed)
    with create(tmp_path, model, hosts=Faults(("tags", "commit", "after"))) as controller:
        (report,) = train(controller, 1)
        assert set(report.tables) == set(SHAPES)
        assert report.tables["tags"].uploaded == USERS  # as the journal has it
        assert rows_of(controller) == expected


def test_a_table_that_gives_no_answer_has_failed(tmp_path: Path, model: Path) -> None:
    hosts = Faults(("items", "close_requests", "silent"))
    with create(tmp_path, model, hosts=hosts, call_seconds=123.0) as controller:
        assert controller._call_seconds == 123.0
        sessions = ask(controller, 1)
        # Long enough for what does answer, up to here and from here on.
        controller._call_seconds = 1.0
        started = time.monotonic()
        with pytest.raises(TableFailed, match="no answer within 1 s"):
            serve(controller, sessions, 1)
        assert time.monotonic() - started < 60
        assert hosts.faults == []
        controller._call_seconds = 123.0
        train(controller, 1)


def test_a_spent_budget_of_one_table_spends_nothing_of_the_others(
    tmp_path: Path, model: Path
) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "epsilon_budget": 10.0}
    by_table = {"tags": {"epsilon_budget": 1.0}}
    with create(tmp_path, model, by_table=by_table, **options) as controller:
        assert controller.spent.rounds_left == 1
        train(controller, 1)
        with pytest.raises(BudgetSpent, match=r"table 'tags', opening the round"):
            controller.open_round()
        assert controller.spent.tables["items"].rounds == 1
        assert controller.spent.epsilon == pytest.approx(3.0)
        with pytest.raises(RoundError, match="no round is open"):
            controller.terms(0)


def test_what_is_asked_wrongly_is_refused(tmp_path: Path, model: Path) -> None:
    with create(tmp_path, model) as controller:
        for users in (0, USERS + 1):
            with pytest.raises(RoundError, match=f"1 to {USERS} users"):
                controller.open_round(users)
        controller.open_round(1)
        with pytest.raises(RoundError, match="a round is open"):
            controller.open_round(1)
        with pytest.raises(RoundError, match="user 1 is none"):
            controller.terms(1)
        folder = controller_folder(tmp_path)
        with pytest.raises(TableFailed, match="in use"):
            ModelController(list(controller._places.values()))
    with pytest.raises(ConfigError, match="exists"):
        ModelController.create(folder, model, key_beside=True, **SETTINGS)
    with pytest.raises(ConfigError, match="--keys"):
        ModelController.create(tmp_path / "new", model, **SETTINGS)
    with pytest.raises(ConfigError, match="holds no controllers"):
        ModelController.open(tmp_path)
    with pytest.raises(ConfigError, match="table 'items', creating"):
        create(tmp_path, model, slots=0)
    with pytest.raises(ConfigError, match="at least one table"):
        ModelController([])


def test_the_ledger_knows_what_a_crash_cut_short(tmp_path: Path, model: Path) -> None:
    with create(tmp_path, model) as controller:
        train(controller, 2)
        folder, rounds = controller_folder(tmp_path), controller.last
    assert rounds is not None
    path = folder / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    # Cut before the outcomes were written, and in the middle of a line that followed.
    path.write_bytes(b"".join(lines[:-1]) + b'{"round": 3, "tab')
    with ModelController.open(folder) as again:
        assert again.last == rounds
        assert again.last.outcomes == dict.fromkeys(SHAPES, "committed")
        train(again, 1, first=3)
        assert again.last is not None and again.last.number == 3
    # A round that began in no table, as one whose process ended before its commits.
    ledger = Ledger(path)
    ledger.begin(dict.fromkeys(SHAPES, 12345))
    with ModelController.open(folder) as again:
        assert again.last is not None
        assert again.last.outcomes == dict.fromkeys(SHAPES, "failed")
    path.write_text("nonsense\n")
    with pytest.raises(ControllerError, match="no ledger"):
        ModelController.open(folder)


def test_a_killed_process_leaves_all_tables_of_a_committed_round(
    tmp_path: Path, model: Path
) -> None:
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from scale_rounds import SETTINGS, ask, serve, train
from hushtable.scale import ModelController
model = ModelController.create({str(tmp_path / "clicks")!r}, {str(model)!r}, key_beside=True,
                               **SETTINGS)
train(model, 1)
serve(model, ask(model, 2), 2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=600)
    assert done.returncode == -9
    with create(tmp_path, model) as undisturbed:
        train(undisturbed, 1)
        expected = rows_of(undisturbed)
    with ModelController.open(tmp_path / "clicks") as again:
        assert rows_of(again) == expected
        assert {spent.rounds for spent in again.spent.tables.values()} == {2}
        (report,) = train(again, 1, first=2)
        assert report.number == 2


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[dict[str, Any]]:
    """Specs of tables at different epsilons, one of which hides three values together."""
    by_table = {"shops": {"epsilon": 0.5}, "tags": {"epsilon": 2.0, "values": 3}}
    folder = tmp_path_factory.mktemp("specs")
    with create(folder, model, epsilon=1.0, by_table=by_table) as controller:
        yield {name: facts.spec for name, facts in controller.facts.items()}


def test_a_users_losses_to_all_tables_add_up(specs: dict[str, Any]) -> None:
    basic = ModelAccountant(specs, composition="basic")
    assert basic.round_epsilon == pytest.approx(3.5)
    for _ in range(4):
        basic.spend("ann")
    assert basic.epsilon("ann") == pytest.approx(14.0)
    assert basic.by_table("ann") == pytest.approx({"items": 4, "shops": 2, "tags": 8})
    assert basic.epsilon("bob") == 0
    # Three tables at one epsilon are three rounds of one table.
    same = dict.fromkeys(("a", "b", "c"), specs["items"])
    for composition in ("basic", "zcdp"):
        three = ModelAccountant(same, composition=composition)  # type: ignore[arg-type]
        one = Accountant(1.0, composition=composition)  # type: ignore[arg-type]
        for _ in range(20):
            three.spend("ann")
        for _ in range(60):
            one.spend("ann")
        assert three.epsilon("ann") == pytest.approx(one.epsilon("ann"), rel=1e-12)
    # Composed by zCDP: rho of each table's, over rounds and tables.
    zcdp = ModelAccountant(specs)
    for _ in range(200):
        zcdp.spend("ann")
    rho = 200 * sum(e * math.tanh(e / 2) for e in (1.0, 0.5, 2.0))
    expected = rho + 2 * math.sqrt(rho * math.log(1e6))
    assert zcdp.epsilon("ann") == pytest.approx(expected)
    assert zcdp.epsilon("ann") < zcdp.epsilon("ann", composition="basic") == 700


def test_a_limit_over_all_tables_books_all_or_nothing(specs: dict[str, Any]) -> None:
    books = ModelAccountant(specs, composition="basic", limit=7.0)
    books.spend("ann")
    books.spend("ann")
    with pytest.raises(BudgetSpent, match="3 tables") as caught:
        books.spend("ann")
    assert (caught.value.spent, caught.value.needed, caught.value.rounds) == (7.0, 10.5, 2)
    assert books.epsilon("ann") == 7.0
    assert books.by_table("ann") == {"items": 2.0, "shops": 1.0, "tags": 4.0}
    none = ModelAccountant(specs, limit=0.1)
    with pytest.raises(BudgetSpent):
        none.spend("bob")
    assert none.epsilon("bob") == 0 and set(none.by_table("bob").values()) == {0.0}
    with pytest.raises(ConfigError):
        ModelAccountant({})


def test_controllers_spend_what_an_accountant_books(
    tmp_path: Path, model: Path, specs: dict[str, Any]
) -> None:
    by_table = {"shops": {"epsilon": 0.5}, "tags": {"epsilon": 2.0, "values": 3}}
    with create(tmp_path, model, epsilon=1.0, by_table=by_table) as controller:
        train(controller, 3)
        spent = controller.spent
        assert spent.epsilon == pytest.approx(10.5)
        books = ModelAccountant(specs)
        for _ in range(3):
            books.spend("ann")
        assert spent.composed(1e-6) == pytest.approx(books.epsilon("ann"))
        assert spent.composed(1e-6, "basic") == pytest.approx(10.5)


def test_a_users_budget_is_held_against_the_sum(
    tmp_path: Path, model: Path, specs: dict[str, Any]
) -> None:
    budget = ModelBudget(tmp_path / "ann.budget", limit=7.0, epsilon=3.5)
    with create(tmp_path, model, epsilon=1.0) as controller:
        controller.open_round(1)
        terms = controller.terms(0)
        budget.check_terms(terms.spec)  # 3.0 in sum
        with pytest.raises(ConfigError, match="rounds cost epsilon 3"):
            ModelBudget(tmp_path / "low.budget", limit=9, epsilon=2.9).check_terms(terms.spec)
    budget.charge()
    budget.charge()
    with pytest.raises(BudgetSpent):
        budget.charge()


def test_the_command_makes_tells_and_exports(tmp_path: Path, model: Path) -> None:
    def run(*arguments: object) -> dict[str, Any]:
        done = forks.run("train", "model", *arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    folder = tmp_path / "clicks"
    made = run(
        "create", model, folder, "--keys", tmp_path / "keys", "--slots", SLOTS, "--users", USERS,
        "--table-slots", "tags=2", "--epsilon-budget", "6", "--table", "items", "--table", "tags",
    )  # fmt: skip
    assert list(made["tables"]) == ["items", "tags"]
    assert made["tables"]["tags"]["spec"]["slots"] == 2
    assert made["rounds_left"] == 3  # an equal part of the budget each
    with ModelController.open(folder) as controller:
        controller.open_round(1)
        session = ModelSession(controller.pin, controller.terms(0))
        controller.request(0, session.request({"items": [1]}))
        controller.close_requests()
        controller.commit()
    told = run("info", folder)
    assert told["pin"] == made["pin"]
    assert told["spent"]["epsilon"] == 2
    assert told["round"]["outcomes"] == {"items": "committed", "tags": "committed"}
    out = run("export", folder, "--model", model, "-o", tmp_path / "trained")
    assert out["version"] == Model.open(tmp_path / "trained").version
