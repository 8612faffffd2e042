"""Training rounds: a real controller in this process, and behind a real server's TLS."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json
from waiting import HUNG_S, held_port

import hushtable
from hushtable import _native, fl
from hushtable.fl import DUMMY, Aggregate, Controller, Session
from hushtable.fl.controller import aggregate_spec

ROWS, DIM, USERS, SLOTS = 500, 8, 4, 5


@pytest.fixture
def start() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture
def controller(start: np.ndarray, tmp_path: Path) -> Iterator[Controller]:
    with create(tmp_path / "films", start) as controller:
        yield controller


def create(folder: Path, weight: np.ndarray, **options: Any) -> Controller:
    shape = {"users": USERS, "slots": SLOTS, "cached_levels": 2}
    options = {"epsilon": np.inf, **shape, "key_beside": "key" not in options, **options}
    options.setdefault("clip", None)  # what is sent here is large, to be seen
    return Controller.create(folder, table=weight, **options)


def requests(*users: list[int]) -> np.ndarray:
    ids = np.full((len(users), SLOTS), DUMMY, np.uint32)
    for row, own in zip(ids, users, strict=True):
        row[: len(own)] = own
    return ids


def fed_avg(weight: np.ndarray, ids: np.ndarray, sent: dict[int, tuple[np.ndarray, float]]) -> None:
    """The weighted mean of what was sent for each row, taken off it."""
    sums, weights = np.zeros_like(weight), np.zeros(len(weight))
    for user, (gradients, n) in sent.items():
        for row, gradient in zip(ids[user], gradients, strict=True):
            if row != DUMMY:
                sums[row] += np.float32(n) * gradient
                weights[row] += n
    told = weights > 0
    weight[told] -= sums[told] / weights[told, None].astype(np.float32)


def test_rounds_are_those_of_a_plain_table(controller: Controller, start: np.ndarray) -> None:
    random = np.random.default_rng(5)
    for number in range(3):
        ids = random.integers(ROWS, size=(USERS, SLOTS)).astype(np.uint32)
        ids[:, :2] = 7  # shared, and twice in each user's slots
        ids[0, 4] = DUMMY
        k = controller.begin(ids)
        assert k == len(np.unique(ids[ids != DUMMY]))
        sent = {}
        for user in (2, 0, 3):  # user 1 drops out
            rows, found = controller.rows(user)
            assert np.array_equal(found, ids[user] != DUMMY)
            assert np.array_equal(rows[found], start[ids[user][found]])
            sent[user] = (random.normal(size=(SLOTS, DIM)).astype(np.float32), 1.0 + user)
            controller.add(user, *sent[user])
        report = controller.commit()
        fed_avg(start, ids, sent)
        assert (report.rounds, report.users, report.uploaded) == (number + 1, USERS, 3)
        assert (report.requests, report.accesses) == (USERS * SLOTS, k)
        assert report.steps_us.keys() >= {"union", "read", "evict", "write", "journal"}
        assert controller.report == report
        np.testing.assert_allclose(controller.export(), start, rtol=1e-5, atol=1e-5)
    assert controller.rounds == 3


def test_a_rounds_report_has_one_set_of_names() -> None:
    root = Path(__file__).parents[2]
    proto = (root / "proto/hushtable/v1/train.proto").read_text(encoding="utf-8")
    rust = (root / "crates/oram/src/round/report.rs").read_text(encoding="utf-8")
    message = proto.split("message FinishReply {")[1].split("}")[0]
    struct = rust.split("pub struct RoundReport {")[1].split("}")[0]
    names = {field.name for field in dataclasses.fields(fl.RoundReport)}
    assert set(re.findall(r"(\w+) = \d+;", message)) == names
    assert set(re.findall(r"pub (\w+):", struct)) == names


def test_sealed_rounds_do_the_same(controller: Controller, start: np.ndarray) -> None:
    ids = requests([1, 2], [2, 499], [])
    number = controller.open_round(3)
    terms = controller.terms(1)
    assert json.loads(terms.spec) == controller.spec
    assert (terms.round, terms.user) == (number, 1)
    sessions = [Session(controller.pin, controller.terms(user)) for user in range(3)]
    for user, session in enumerate(sessions):
        controller.request(user, session.request(ids[user][ids[user] != DUMMY]))
    assert controller.begin() == 3
    gradients = np.ones((2, DIM), np.float32)
    for user in (0, 1):
        kept = Session.from_bytes(sessions[user].to_bytes())  # another process of the user's
        assert kept.terms == controller.terms(user)
        rows, found = kept.rows(controller.reply(user))
        assert found.tolist() == [True, True, False, False, False]
        assert np.array_equal(rows[:2], start[ids[user][:2]])
        controller.upload(user, kept.upload(gradients, 2.0))
    assert controller.commit().uploaded == 2
    start[[1, 2, 499]] -= 1
    np.testing.assert_allclose(controller.export(), start, rtol=1e-6)
    assert controller.open_round() != number
    controller.abandon()


def test_how_a_round_ended_is_known_after_opening_again(tmp_path: Path) -> None:
    place = tmp_path / "films"
    made = Controller.create(place, rows=30, dim=2, users=2, slots=2, key_beside=True)
    with made as controller:
        numbers = []
        for commits in (True, False):
            numbers.append(controller.open_round(1))
            assert controller.outcome(numbers[-1]) is None
            session = Session(controller.pin, controller.terms(0))
            controller.request(0, session.request(np.array([3], np.uint32)))
            controller.begin()
            session.rows(controller.reply(0))
            controller.upload(0, session.upload(np.ones((1, 2), np.float32)))
            if commits:
                report = controller.commit()
            else:
                controller.abandon()
    with Controller.open(place, key_beside=True) as controller:
        outcome, kept = controller.outcome(numbers[0]) or ("", None)
        assert outcome == "committed"
        assert kept is not None
        assert (kept.round, kept.rounds, kept.uploaded) == (numbers[0], 1, 1)
        assert (kept.accesses, kept.steps_us) == (report.accesses, {})
        assert controller.outcome(numbers[1]) == ("abandoned", None)
        assert controller.outcome(1) is None


def test_what_does_not_fit_a_round_is_refused_and_harms_nobody(
    controller: Controller, start: np.ndarray
) -> None:
    gradients = np.ones((SLOTS, DIM), np.float32)
    with pytest.raises(hushtable.RoundError, match="begin a round first"):
        controller.rows(0)
    with pytest.raises(hushtable.RoundError, match=r"id 500 is no row"):
        controller.begin(requests([ROWS]))
    with pytest.raises(hushtable.RoundError, match="created for 1 to 4"):
        controller.begin(requests(*[[1]] * 5))
    with pytest.raises(hushtable.RoundError, match="must be"):
        controller.begin(np.zeros((2, SLOTS + 1), np.uint32))
    with pytest.raises(hushtable.BadIds, match="integers"):
        controller.begin(np.zeros((2, SLOTS), np.float32))  # type: ignore[arg-type]
    with pytest.raises(hushtable.RoundError, match="0 to"):
        controller.begin(np.full((1, SLOTS), -1))
    controller.begin(requests([1], [2]))
    with pytest.raises(hushtable.RoundError, match="commit or abandon"):
        controller.begin(requests([1]))
    with pytest.raises(hushtable.RoundError, match="commit or abandon"):
        controller.export()
    with pytest.raises(hushtable.RoundError, match="users are numbered"):
        controller.rows(2)
    for bad in (np.nan, np.inf):
        wrong = gradients.copy()
        wrong[1, 1] = bad
        with pytest.raises(hushtable.RoundError, match="finite"):
            controller.add(0, wrong)
    with pytest.raises(hushtable.RoundError, match="must be"):
        controller.add(0, gradients[:2])
    with pytest.raises(hushtable.RoundError, match="weight"):
        controller.add(0, gradients, -1.0)
    controller.add(1, gradients)
    with pytest.raises(hushtable.RoundError, match="already"):
        controller.add(1, gradients)
    controller.commit()
    start[2] -= 1
    np.testing.assert_allclose(controller.export(), start, rtol=1e-6)
    controller.close()
    with pytest.raises(hushtable.ConfigError, match="closed"):
        controller.begin(requests([1]))


def test_sealed_messages_that_do_not_fit_are_refused(controller: Controller) -> None:
    with pytest.raises(hushtable.RoundError, match="open one first"):
        controller.request(0, b"")
    controller.open_round(2)
    with pytest.raises(hushtable.RoundError, match="open"):
        controller.begin(requests([1]))
    session = Session(controller.pin, controller.terms(0))
    with pytest.raises(hushtable.TooManyIds) as many:
        session.request(np.arange(SLOTS + 3))
    with pytest.raises(hushtable.IdOutOfRange) as wrong:
        session.request(np.array([1, 87654]))
    # Typed, but with neither the id nor how many there were.
    assert (many.value.ids, many.value.max_ids) == (0, SLOTS)
    assert (wrong.value.id, wrong.value.rows) == (-1, ROWS)
    assert str(SLOTS + 3) not in str(many.value)
    assert "87654" not in str(wrong.value)
    sealed = session.request(np.array([3]))
    with pytest.raises(hushtable.RoundError, match="made its request"):
        session.request(np.array([3]))
    texts = set()
    for bad in (sealed, sealed[:-1], b"", bytes(len(sealed))):  # the first of another user's place
        with pytest.raises(hushtable.RoundError, match="is refused") as refused:
            controller.request(1, bad)
        texts.add(str(refused.value))
    assert len(texts) == 1
    with pytest.raises(hushtable.RoundError, match="users 0 to 1"):
        controller.request(2, sealed)
    controller.request(0, sealed)
    controller.request(0, sealed)  # as networks repeat it
    with pytest.raises(hushtable.RoundError, match="has not begun"):
        controller.upload(0, b"")
    assert controller.begin() == 1
    with pytest.raises(hushtable.RoundError, match="no request"):
        controller.reply(1)
    with pytest.raises(hushtable.RoundError, match="is refused"):
        session.rows(bytes(len(controller.reply(0))))
    with pytest.raises(hushtable.RoundError, match="NaN"):
        session.upload(np.full((1, DIM), np.nan, np.float32))
    controller.abandon()
    # What an earlier round's relay kept is of no use in the next.
    controller.open_round(2)
    with pytest.raises(hushtable.RoundError, match="is refused"):
        controller.request(0, sealed)
    with pytest.raises(hushtable.ConfigError, match="pin1:"):
        Session("00" * 31, controller.terms(0))
    with pytest.raises(hushtable.RoundError, match="kept session"):
        Session.from_bytes(b"else")


def test_python_functions_aggregate_batches(controller: Controller, start: np.ndarray) -> None:
    seen: list[tuple[Any, ...]] = []

    def pre(gradients: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.clip(gradients, -1, 1), np.minimum(weights, 1)

    def post(
        rows: np.ndarray, state: np.ndarray, sums: np.ndarray, weights: np.ndarray, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        seen.append((rows.shape, state.shape, number))
        return np.where(weights[:, None] > 0, rows - 10 * sums, rows), state

    controller.set_aggregate(Aggregate(pre, post))
    k = controller.begin(requests([1, 2], [2]))
    controller.add(0, np.full((SLOTS, DIM), 5, np.float32), 9.0)
    controller.add(1, np.full((SLOTS, DIM), -0.5, np.float32))
    controller.commit()
    assert seen == [((k, DIM), (k, 0), 1)]
    start[1] -= 10
    start[2] -= 5
    np.testing.assert_allclose(controller.export(), start, rtol=1e-5)

    def fail(*_: object) -> Any:
        raise RuntimeError("out of ideas")

    def reenter(*_: object) -> Any:
        return controller.rows(0)

    for wrong, text in (
        (fail, "out of ideas"),
        (reenter, "its own aggregate"),
        (lambda rows, state, *_: (rows[:1], state), "contiguous"),
        (lambda rows, state, *_: (rows * np.nan, state), "NaN"),
        (lambda rows, *_: rows.astype(np.float64), "tuple"),
    ):
        controller.set_aggregate(Aggregate(post=wrong))
        controller.begin(requests([1, 2]))
        with pytest.raises(hushtable.RoundError, match=text):
            controller.commit()
        controller.abandon()
        np.testing.assert_allclose(controller.export(), start, rtol=1e-5)


def test_rows_keep_state_between_rounds(start: np.ndarray, tmp_path: Path) -> None:
    squares = np.zeros((ROWS, DIM), np.float32)
    with create(tmp_path / "t", start, aggregate="fed_adagrad:lr=0.1,tau=0.01") as controller:
        assert controller.facts["state_bytes"] == 4 * DIM
        for gradient in (0.5, 2.0):
            controller.begin(requests([8]))
            controller.add(0, np.full((SLOTS, DIM), gradient, np.float32))
            controller.commit()
            squares[8] += gradient**2
            start[8] -= 0.1 * gradient / (np.sqrt(squares[8]) + 0.01)
        np.testing.assert_allclose(controller.export(), start, rtol=1e-5)
    with pytest.raises(hushtable.ConfigError, match="tau"):
        create(tmp_path / "u", start, aggregate="fed_adagrad:lr=0.1,tau=-1")


def test_a_controller_opens_as_of_its_last_commit(start: np.ndarray, tmp_path: Path) -> None:
    folder = tmp_path / "films"
    with create(folder, start) as controller:
        controller.begin(requests([1]))
        controller.add(0, np.ones((SLOTS, DIM), np.float32))
        controller.commit()
        public_key = controller.public_key
        controller.begin(requests([3], [4]))
        controller.add(0, np.ones((SLOTS, DIM), np.float32))
        # A round is open at the end: it did not happen.
    start[1] -= 1
    with Controller.open(folder, key_beside=True) as controller:
        assert (controller.rounds, controller.public_key) == (1, public_key)
        np.testing.assert_allclose(controller.export(), start, rtol=1e-6)
        with pytest.raises(hushtable.ControllerError, match=r"in use|lock"):
            Controller.open(folder, key_beside=True)
    with pytest.raises(hushtable.ConfigError, match="exists already"):
        create(folder, start)
    other = tmp_path / "other.key"
    other.write_bytes(bytes(32))
    other.chmod(0o640)
    with pytest.raises(hushtable.ConfigError, match=r"mode 640\): run `chmod 600 .*other.key`"):
        Controller.open(folder, key=other, key_beside=True)
    other.chmod(0o600)
    with pytest.raises(hushtable.ControllerError):
        Controller.open(folder, key=other, key_beside=True)
    other.write_bytes(bytes(31))
    with pytest.raises(hushtable.ConfigError, match="31 bytes"):
        Controller.open(folder, key=other, key_beside=True)
    assert (tmp_path / "films.key").stat().st_mode & 0o777 == 0o600


def test_a_key_beside_its_folder_takes_a_word(
    start: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    disk.mkdir()
    elsewhere.mkdir()
    folder, beside = disk / "films", disk / "films.key"
    with pytest.raises(hushtable.ConfigError, match=r"/elsewhere/films.key .*--key-beside"):
        create(folder, start, key_beside=False)
    monkeypatch.chdir(disk)
    for key in (beside, "films.key", folder / "key", "../disk/films.key"):
        with pytest.raises(hushtable.ConfigError, match="lies beside its folder") as caught:
            create(folder, start, key=key)
        assert "--key-beside" in str(caught.value)
    assert [path.name for path in disk.iterdir()] == []
    create(folder, start, key="../elsewhere/films.key").close()
    Controller.open(folder, key=elsewhere / "films.key").close()
    # Where the bytes lie is what counts, not the name that leads there.
    beside.symlink_to(elsewhere / "films.key")
    Controller.open(folder, key=beside).close()
    beside.unlink()
    (elsewhere / "films.key").rename(beside)
    (elsewhere / "way.key").symlink_to(beside)
    for key in (beside, elsewhere / "way.key"):
        with pytest.raises(hushtable.ConfigError, match="lies beside its folder"):
            Controller.open(folder, key=key)
    done = run("train", "info", folder, "--key", beside)
    assert done.returncode in (1, 2)
    assert "--key-beside" in done.stderr
    assert run_json("train", "info", folder, "--key-beside")["key"] == str(beside)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"users": 0}, "product"),
        ({"slots": 1 << 22}, "slots"),
        ({"epsilon": -1.0}, "epsilon|ε"),
        ({"aggregate": "fed_best"}, "fed_best"),
        ({"aggregate": "fed_avg:lr=fast"}, "SETTING=NUMBER"),
        ({"aggregate": "fed_avg:lr=-1"}, "learning_rate"),
        ({"aggregate": "fed_avg:rate=1"}, "rate"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    options: dict[str, Any], text: str, start: np.ndarray, tmp_path: Path
) -> None:
    with pytest.raises(hushtable.ConfigError, match=text):
        create(tmp_path / "films", start, **options)
    assert not (tmp_path / "films").exists()
    assert not (tmp_path / "films.key").exists()


def test_tables_with_no_numbers_are_refused(start: np.ndarray, tmp_path: Path) -> None:
    start[77, 3] = np.nan
    with pytest.raises(hushtable.TableError, match="row 77"):
        create(tmp_path / "films", start)
    with pytest.raises(hushtable.ConfigError, match="which rows"):
        Controller.create(tmp_path / "t", users=1, slots=1, key_beside=True)


def test_aggregates_are_written_short() -> None:
    assert aggregate_spec("fed_adagrad:lr=0.1") == {"name": "fed_adagrad", "learning_rate": 0.1}
    assert aggregate_spec("eana:clip=1,noise=2,clip_per=user") == {
        "name": "eana",
        "clip": 1.0,
        "noise_multiplier": 2.0,
        "clip_per": "user",
    }


class Serving:
    """``hushtable train serve`` as a child process."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "hushtable", "train", "serve", str(folder)]
        command += ["--key-beside", "--port", "0", "--json", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "ready" in line, line + self.process.communicate()[1]
        self.ready = json.loads(line)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        out, error = self.process.communicate(timeout=HUNG_S)
        assert self.process.returncode == 0, (out, error)


def test_a_table_is_trained_served_and_looked_up(
    bundle: Path, certificates: hushtable.Certificates, tmp_path: Path
) -> None:
    expected = hushtable.Table.open(bundle).rows(np.arange(hushtable.Table.open(bundle).info.rows))
    folder, token = tmp_path / "films", tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    made = run_json("train", "create", "--key-beside", "--table", bundle, "--users", 3,
                    "--slots", 4, "--epsilon", "inf", "--aggregate", "fed_avg:lr=0.5", "--no-clip",
                    folder)  # fmt: skip
    assert (made["rounds"], made["spec"]["rows"]) == (0, len(expected))
    server = Serving(
        folder, "--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key),
        "--operator-token-file", str(token),
    )  # fmt: skip
    assert server.ready["pin"] == made["pin"]
    url, ca = server.ready["url"], certificates.ca

    def take_part(round_: int, user: int, ids: list[int]) -> None:
        with fl.TrainingClient.connect(url, tls=ca, pin=made["pin"]) as client:
            session = client.session(user, round_)
            client.request(user, session.request(np.array(ids)), round_)
            rows, found = session.rows(client.rows(user, round_))
            assert found[: len(ids)].all()
            np.testing.assert_allclose(rows[: len(ids)], expected[ids], rtol=1e-5, atol=1e-6)
            gradients = np.full((len(ids), rows.shape[1]), user + 1, np.float32)
            client.upload(user, session.upload(gradients), round_)

    with fl.TrainingClient.connect(url, tls=ca, operator_token="0123456789abcdef") as operator:
        about = operator.info()
        assert (about.table, about.rows, about.users, about.slots) == ("films", len(expected), 3, 4)
        assert (about.public_key.hex(), about.pin) == (made["public_key"], made["pin"])
        for number, asked in enumerate(([[1, 2], [2, 2999]], [[2], [5, 6, 7]])):
            round_ = operator.open_round(2)
            users = [
                threading.Thread(target=take_part, args=(round_, user, ids))
                for user, ids in enumerate(asked)
            ]
            for user in users:
                user.start()
            report = operator.finish()
            for user in users:
                user.join()
            assert (report.rounds, report.uploaded) == (number + 1, 2)
            assert (report.round, report.users, report.requested) == (round_, 2, 2)
            assert report.journal_bytes > 0
            sums, weights = np.zeros_like(expected), np.zeros(len(expected))
            for user_number, ids in enumerate(asked):
                sums[ids] += user_number + 1
                weights[ids] += 1
            told = weights > 0
            expected[told] -= 0.5 * sums[told] / weights[told, None].astype(np.float32)
        assert operator.info().round is None
        with pytest.raises(hushtable.RoundOver) as caught:
            operator.rows(0)
        assert caught.value.outcome == "committed"
        with (
            fl.TrainingClient.connect(url, tls=ca) as stranger,
            pytest.raises(hushtable.OperatorOnly),
        ):
            stranger.open_round()
        operator.open_round(3)
        with pytest.raises(hushtable.RoundError, match="3 there is room for"):
            operator.open_round(4)
        with pytest.raises(hushtable.RoundPending):
            operator.rows(0, timeout=0.001)
    server.stop()

    trained = tmp_path / "trained"
    exported = run_json("train", "export", "--key-beside", folder, "-o", trained)
    assert (exported["rounds"], exported["rows"]) == (2, len(expected))
    assert exported["version"] != hushtable.Table.open(bundle).info.version
    tls = certificates.server
    with (
        hushtable.ServerProcess(trained, "left", tls=tls, threads=1) as left,
        hushtable.ServerProcess(trained, "right", tls=tls, threads=1) as right,
        hushtable.connect(left.url, right.url, tls=ca) as client,
    ):
        rows = client.lookup([1, 2, 2999, 5, 6, 7, 100])
    np.testing.assert_allclose(rows, expected[[1, 2, 2999, 5, 6, 7, 100]], rtol=1e-5, atol=1e-6)


def test_an_operator_is_not_a_user(
    certificates: hushtable.Certificates, start: np.ndarray, tmp_path: Path
) -> None:
    def key(name: str) -> str:
        return str(run_json("train", "key", tmp_path / name)["public_key"])

    authority, alice, bob, mallory = (
        key(name) for name in ("authority", "alice", "bob", "mallory")
    )
    assert run_json("train", "key", "--show", tmp_path / "alice")["public_key"] == alice
    assert (tmp_path / "alice").stat().st_mode & 0o777 == 0o600
    assert run("train", "key", tmp_path / "alice").returncode == 1  # not over another
    made = run_json("train", "create", "--key-beside", "--rows", 64, "--dim", 4, "--users", 3,
                    "--slots", 2, "--epsilon", "inf", "--authority", authority,
                    tmp_path / "films")  # fmt: skip
    assert made["spec"]["authority"] == authority
    pin = made["pin"]

    def tickets(secret: str, *users: str) -> list[str]:
        enrolled = run_json("train", "enroll", "--authority-key", tmp_path / secret, "--pin", pin,
                            *users)  # fmt: skip
        return [enrolled["tickets"][user] for user in users]

    of_alice, of_bob = tickets("authority", alice, bob)
    of_mallory = tickets("mallory", mallory)[0]  # by an authority of its own

    # With TLS, but users that anyone may be.
    create(tmp_path / "open", start).close()
    tls = ["--tls-cert", certificates.certificate, "--tls-key", certificates.key]
    refused = run("train", "serve", tmp_path / "open", "--key-beside", "--addr", "0.0.0.0:0", *tls)
    assert refused.returncode in (1, 2)
    assert "--authority" in refused.stderr
    assert "Traceback" not in refused.stderr
    # With users that are known, and an operator that anyone may be.
    refused = run("train", "serve", tmp_path / "films", "--key-beside", "--addr", "0.0.0.0:0", *tls)
    assert refused.returncode in (1, 2)
    assert "operator_token_file" in refused.stderr
    assert "Traceback" not in refused.stderr

    def credential(name: str, ticket: str) -> fl.Credential:
        (tmp_path / "ticket").write_text(ticket + "\n")
        return fl.Credential.read(tmp_path / name, tmp_path / "ticket")

    with Serving(tmp_path / "films", *map(str, tls)) as server:
        assert server.ready["pin"] == pin
        other = pin[:-1] + ("0" if pin[-1] != "0" else "1")
        with pytest.raises(hushtable.PinMismatch):
            fl.TrainingClient.connect(server.ready["url"], tls=certificates.ca, pin=other)
        with fl.TrainingClient.connect(server.ready["url"], tls=certificates.ca, pin=pin) as client:
            assert client.info().authority == authority
            number = client.open_round(3)
            with pytest.raises(hushtable.ConfigError, match="enrolled"):
                client.session(0)
            texts = set()
            for name, ticket in (("mallory", of_mallory), ("mallory", of_alice)):
                session = client.session(0, credential=credential(name, ticket))
                with pytest.raises(hushtable.RoundError, match="refused") as caught:
                    client.request(0, session.request(np.array([1])))
                texts.add(str(caught.value))
            own = credential("alice", of_alice)
            assert str(list(own.key)) not in repr(own)
            assert own.key.hex() not in repr(own)
            session = client.session(0, credential=own)
            sealed = session.request(np.array([5, 9]))
            with pytest.raises(hushtable.RoundError, match="refused") as caught:
                client.request(1, sealed)  # replayed elsewhere, before and after
            client.request(0, sealed)
            with pytest.raises(hushtable.RoundError, match="refused"):
                client.request(1, sealed)
            assert texts == {str(caught.value)}
            again = client.session(1, credential=own)
            with pytest.raises(hushtable.RoundError, match="has a place"):
                client.request(1, again.request(np.array([5])))
            second = client.session(1, credential=credential("bob", of_bob))
            client.request(1, second.request(np.array([5])))
            assert client.close_requests() == 2
            _, found = session.rows(client.rows(0))
            assert found.tolist() == [True, True]
            client.upload(0, session.upload(np.ones((2, 4), np.float32)))
            assert client.finish(now=True).uploaded == 1
            assert client.open_round(1) != number
            with pytest.raises(hushtable.RoundError, match="refused"):
                client.request(0, sealed)  # replayed in the next round
            client.abandon()
        server.stop()


def test_the_vectors_are_those_of_an_implementation_of_its_own() -> None:
    pytest.importorskip("cryptography", reason="the extra hushtable[fl] is not installed")
    from reference import train

    assert json.loads(train.VECTORS.read_text(encoding="utf-8")) == train.vectors()


def test_a_killed_server_loses_the_open_round_and_nothing_else(
    start: np.ndarray, tmp_path: Path
) -> None:
    with held_port() as port:
        _killed_in_a_round(start, tmp_path / "films", port)


def _killed_in_a_round(start: np.ndarray, folder: Path, port: int) -> None:
    create(folder, start).close()
    server = Serving(folder, "--port", str(port))
    # On this machine too: whoever takes the port first may answer there.
    missing = pytest.raises(hushtable.ConfigError, match=r"give its pin \(pin=\)")
    with fl.TrainingClient.connect(server.ready["url"]) as unpinned, missing:
        unpinned.session(0, 1)
    with fl.TrainingClient.connect(server.ready["url"], trust_announced=True) as trusting:
        assert trusting.pin == server.ready["pin"]
    with fl.TrainingClient.connect(server.ready["url"], pin=server.ready["pin"]) as client:
        client.open_round(1)
        session = client.session(0)
        client.request(0, session.request(np.array([9])))
        session.rows(client.rows(0))
        client.upload(0, session.upload(np.ones((1, DIM), np.float32)))
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.communicate()
        with pytest.raises(hushtable.ServerUnavailable):
            client.finish(timeout=HUNG_S)
    with Controller.open(folder, key_beside=True) as controller:
        assert controller.rounds == 0
        np.testing.assert_array_equal(controller.export(), start)


def test_the_command_says_what_is_wrong(start: np.ndarray, tmp_path: Path) -> None:
    for arguments, text in (
        (["create", tmp_path / "a", "--key-beside"], "which rows"),
        (["create", tmp_path / "a", "--rows", 10, "--dim", 4], r"--key /elsewhere/a\.key \(key=\)"),
        (["create", tmp_path / "a", "--rows", 10, "--dim", 4, "--epsilon", "lots"], "epsilon"),
        (["create", tmp_path / "a", "--table", tmp_path, "--rows", 10], "its own rows"),
        (["info", tmp_path / "none", "--key-beside"], "none holds no controller"),
        (["serve", tmp_path / "none"], "train create"),
    ):
        done = run("train", *arguments)
        assert done.returncode in (1, 2), done
        assert re.search(text, done.stderr), done.stderr
        assert "Traceback" not in done.stderr
    made = run_json("train", "create", "--key-beside", tmp_path / "t", "--rows", 64, "--dim", 4,
                    "--init", 0.5, "--users", 2, "--slots", 3)  # fmt: skip
    info = run_json("train", "info", "--key-beside", tmp_path / "t")
    assert info["spec"] == made["spec"]
    assert info["spec"]["fdp"]["epsilon"] == 1
    with Controller.open(tmp_path / "t", key_beside=True) as controller:
        rows = controller.export()
    assert 0.3 < np.abs(rows).max() <= 0.5


def test_a_port_takes_the_place_of_the_one_in_an_address(start: np.ndarray, tmp_path: Path) -> None:
    folder = tmp_path / "films"
    create(folder, start).close()
    with Serving(folder, "--addr", "localhost:1") as server:
        # The helper gives --port 0: any, for the metrics too, and not the address's 1.
        for url in (server.ready["url"], server.ready["metrics_url"]):
            assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]{4,5}(/metrics)?", url), url
        assert server.ready["url"] != server.ready["metrics_url"]


def test_how_rows_are_drawn_is_told_before_and_kept_after(tmp_path: Path) -> None:
    shape = ("--rows", 64, "--dim", 4, "--users", 20, "--slots", 50)
    for option, mechanism in (
        ([], {"shifted": {"by": 1, "least": 1}}),
        (["--mechanism", "geometric"], "geometric"),
        (["--mechanism", "shifted:by=9,least=4"], {"shifted": {"by": 9, "least": 4}}),
        (["--mechanism", "eq3"], {"exponential": {"shape": "uniform"}}),
        (
            ["--mechanism", "eq3:y=pow,exponent=5"],
            {"exponential": {"shape": {"power": {"exponent": 5.0}}}},
        ),
    ):
        name = "t" + "".join(option).replace("/", "")
        made = run_json("train", "create", "--key-beside", tmp_path / name, *shape, *option)
        assert made["spec"]["fdp"]["mechanism"] == mechanism
        assert made["spec"]["fdp"]["protects"] == "value"
        info = run_json("train", "info", "--key-beside", tmp_path / name)
        assert info["spec"]["fdp"] == made["spec"]["fdp"]
    hidden = run_json("train", "create", "--key-beside", tmp_path / "all", *shape, "--values", 50,
                      "--loss", "recently-read")  # fmt: skip
    assert hidden["spec"]["fdp"]["protects"] == {"count": {"values": 50}}
    # 1 / epsilon of one value, rounded up; the spec's own epsilon is that of all 50.
    assert hidden["spec"]["fdp"]["mechanism"]["shifted"]["least"] == 50
    assert hidden["spec"]["fdp"]["epsilon"] == 1
    assert hidden["spec"]["loss"] == "recently_read"
    with Controller.open(tmp_path / "all", key_beside=True) as controller:
        ids = np.full((20, 50), fl.DUMMY, np.uint32)
        ids[0, :30] = np.arange(30)
        # No round of it reads fewer.
        assert controller.begin(ids) >= 50
        assert controller.rows(0)[1].sum() == 30
    shown = run("train", "info", "--key-beside", tmp_path / "all").stdout
    assert "1.0 for 50 values together, shifted" in shown


def test_a_controller_that_exists_keeps_its_mechanism(tmp_path: Path) -> None:
    """Of a spec that names none, as those were before there was a choice."""
    settings = {"rows": 64, "dim": 4, "users": 2, "slots": 3, "key_beside": True}
    fdp = {"epsilon": 1.0}
    native = _native.Controller.create(
        tmp_path / "old",
        tmp_path / "old.key",
        str(tmp_path / "old.counter"),
        json.dumps({"name": "old", "rows": 64, "dim": 4, "users_max": 2, "slots": 3, "fdp": fdp,
                    "aggregate": {"name": "fed_avg", "learning_rate": 1.0}}),
        key_beside=True, table=None, values=None, init=0.0, progress=None,
    )  # fmt: skip
    native.close()
    with Controller.open(tmp_path / "old", key_beside=True) as controller:
        assert controller.spec["fdp"]["mechanism"] == "geometric"
    with Controller.create(tmp_path / "new", **settings) as controller:  # type: ignore[arg-type]
        assert "shifted" in controller.spec["fdp"]["mechanism"]


def test_mechanisms_are_compared_before_a_controller_is_made() -> None:
    shape = ("--requests", 1000, "--union", 100, "--values", 50, "--json")
    done = run("train", "expect", *shape)
    assert done.returncode == 0, done.stderr
    found = {each["mechanism"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert list(found) == ["shifted", "geometric", "eq3"]
    assert found["shifted"]["lost"] < 0.1 < found["geometric"]["lost"]
    assert found["shifted"]["dummy"] < found["eq3"]["dummy"]
    assert found["shifted"]["spent"] == 1 > found["eq3"]["spent"] > 0.5
    for arguments, text in (
        (["--union", 2000, "--requests", 1000], "union is 2000"),
        (["--mechanism", "laplace"], "must be one of geometric, shifted, eq3"),
        (["--mechanism", "shifted:least=0,by=2"], "least"),
        (["--epsilon", "-1"], "epsilon is -1"),
        (["--values", 0], "values is 0"),
    ):
        done = run("train", "expect", *arguments)
        assert done.returncode in (1, 2), done
        assert text in done.stderr, done.stderr


def test_the_audit_log_is_checked_by_the_controllers_key(start: np.ndarray, tmp_path: Path) -> None:
    folder, log = tmp_path / "films", tmp_path / "audit.jsonl"
    create(folder, start).close()
    for _ in range(2):
        with Serving(folder, "--audit-log", str(log)) as server:
            with fl.TrainingClient.connect(server.ready["url"], pin=server.ready["pin"]) as client:
                round_ = client.open_round(2)
                with pytest.raises(hushtable.RoundError, match="refused"):
                    client.request(1, bytes(50))
                client.abandon()
            server.stop()
    key = ["--key", tmp_path / "films.key"]
    found = run_json("train", "audit", log, *key)
    text = log.read_text()
    assert (found["lines"], found["torn_bytes"], found["bytes"]) == (10, 0, len(text))
    assert found["events"] == {"opened": 2, "over": 2, "refused": 2, "started": 2, "stopped": 2}
    assert (found["outcomes"], found["refused"]) == ({"abandoned": 2}, {"not_opened": 2})
    last = json.loads(text.splitlines()[-1])
    assert found["end"] == f"10:{last['hash']}"
    assert str(round_) in text
    printed = run("train", "audit", log, *key).stdout
    assert found["end"] in printed.replace("\n", "")
    run_json("train", "audit", log, *key, "--expect", found["end"])

    # Cut off at the end, changed in the middle, and another's.
    (tmp_path / "cut").write_text("".join(text.splitlines(keepends=True)[:-1]))
    run_json("train", "audit", tmp_path / "cut", *key)
    (tmp_path / "changed").write_text(text.replace("not_opened", "not_finite", 1))
    run_json("train", "key", tmp_path / "other.key")
    for arguments, words in (
        ([tmp_path / "cut", *key, "--expect", found["end"]], "cut off"),
        ([tmp_path / "changed", *key], "line 3 of the audit log"),
        ([log, "--key", tmp_path / "other.key"], "line 1 of the audit log"),
    ):
        done = run("train", "audit", *arguments)
        assert done.returncode in (1, 2)
        assert words in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


def test_the_benchmarks_report_a_whole_round(tmp_path: Path) -> None:
    arguments = ["bench", "oram", "--rows", 3000, "--requests", 200, "--slots", 20, "--rounds", 2]
    arguments += ["--cached-levels", 1]
    record = run_json(*arguments, "--folder", tmp_path)
    assert (record["bench"], record["unit"]) == ("oram", "us/request")
    assert record["value"] > 0
    assert record["of_floor"] > 0
    assert record["steps"].keys() >= {"union", "read", "write", "other"}
    assert 1 <= record["k"] <= 200
    assert 1 <= record["k_union"] <= 200
    assert record["written_bytes_per_request"] > 0
    again = run_json(*arguments, "--folder", tmp_path)  # the file that was built is used
    assert again["detail"]["file_bytes"] == record["detail"]["file_bytes"]
    path = run_json(*arguments, "--oram", "path")
    assert path["read_bytes_per_request"] == path["written_bytes_per_request"] > 0
    assert path["steps"].keys() >= {"union", "position", "take", "buffer", "put"}
    assert 1 <= path["k_union"] <= 200
    # Two paths for each of the k rows that the same mechanism drew, and nothing else.
    pages = path["written_bytes_per_request"] * 200 / 4096
    assert pages == pytest.approx(2 * path["k"] * path["detail"]["path_pages"])
    union = run_json("bench", "union", "--requests", 3000, "--rows", 1000)
    assert (union["bench"], union["unit"]) == ("union", "s")
    assert union["detail"]["scan_s"] > 0
    for wrong in (["--requests", 201], ["--row-bytes", 6], ["--oram", "ring"], ["--bucket-kib", 5]):
        assert run(*arguments, *wrong).returncode == 2
