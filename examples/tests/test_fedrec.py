"""Federated recommendations, on ratings made up here."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.fedrec import __main__
from examples.fedrec.fedrec import model, report, study, synthetic, training
from examples.fedrec.fedrec.displays import Displays
from examples.fedrec.fedrec.ratings import HISTORY, SAMPLES, SLOTS, Lesson, Ratings
from examples.histories.taobao import load_taobao

import hushtable
from hushtable import fl
from hushtable.fl import DUMMY

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    return Ratings.of(synthetic.ratings())


@pytest.fixture(scope="module")
def long() -> Ratings:
    """Users with far more ratings than a lesson has samples."""
    found = synthetic.ratings(users=12, films=400)
    random = np.random.default_rng(1)
    item = np.concatenate([random.permutation(400)[:300] for _ in found.users])
    return Ratings.of(
        replace(
            found,
            user=np.repeat(np.arange(12), 300).astype(np.int32),
            item=item.astype(np.int32),
            rating=random.integers(1, 6, 3600).astype(np.float32),
            time=np.tile(np.arange(300), 12).astype(np.int64),
        )
    )


@pytest.mark.parametrize("which", ["ratings", "long"])
def test_a_lesson_has_each_samples_past_and_nothing_later(
    which: str, request: pytest.FixtureRequest
) -> None:
    found: Ratings = request.getfixturevalue(which)
    random = np.random.default_rng(0)
    for user in range(found.users):
        own = found.value[found.starts[user] : found.starts[user + 1]].tolist()
        lesson = found.lesson(user, random)
        asked = lesson.ids[lesson.ids != DUMMY].tolist()
        assert len(asked) == len(set(asked)) <= SLOTS
        # Those to validate and test with are not touched.
        assert set(asked) <= set(own[: found.learned[user]])
        assert lesson.real.sum() == min(SAMPLES, found.learned[user])
        for sample in np.flatnonzero(lesson.real):
            value = 2 * int(lesson.films[sample]) + int(lesson.clicks[sample])
            place = own.index(value)
            assert place < found.learned[user]
            past = lesson.ids[lesson.seen[sample] > 0].tolist()
            assert past == own[max(0, place - HISTORY) : place]
        assert not lesson.seen[lesson.real == 0].any()


def test_questions_are_of_the_later_ratings_with_all_that_came_before(ratings: Ratings) -> None:
    seen = 0
    for part, low, high in (("validation", 0.8, 0.9), ("test", 0.9, 1.0)):
        questions, number = ratings.questions(part), 0
        for user in range(ratings.users):
            start, end = ratings.starts[user], ratings.starts[user + 1]
            count = end - start
            for place in range(int(count * low), int(count * high)):
                past = questions.past[number]
                expected = ratings.value[start : start + place][::-1][:HISTORY]
                assert past[past < ratings.rows].tolist() == expected.tolist()
                assert questions.films[number] == ratings.film[start + place]
                assert questions.clicks[number] == ratings.liked[start + place]
                number += 1
        assert len(questions.films) == number
        seen += number
    assert seen + ratings.learned.sum() == len(ratings.film)


def test_auc_is_the_chance_that_a_click_scores_higher() -> None:
    random = np.random.default_rng(2)
    scores = random.integers(0, 6, 80).astype(np.float32)
    clicks = random.random(80) < 0.4
    pairs = [(yes > no) + 0.5 * (yes == no) for yes in scores[clicks] for no in scores[~clicks]]
    assert model.auc(scores, clicks) == pytest.approx(np.mean(pairs))
    with pytest.raises(ValueError, match="clicks and non-clicks"):
        model.auc(scores, np.ones(80, np.bool_))


def lessons_with_rows(ratings: Ratings) -> tuple[list[Lesson], np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    lessons = [ratings.lesson(user, random) for user in range(5)]
    rows = random.normal(size=(5, SLOTS, model.DIM)).astype(np.float32)
    found = np.stack([lesson.ids != DUMMY for lesson in lessons])
    found[2, :7] = False
    return lessons, rows, found


def test_clients_at_once_learn_what_they_learn_alone(ratings: Ratings) -> None:
    lessons, rows, found = lessons_with_rows(ratings)
    weights = jax.tree.map(jnp.asarray, model.start(ratings.features, 3))
    features = jnp.asarray(ratings.features)
    tasks = [model.task(*each) for each in zip(lessons, rows, found, strict=True)]
    keys = model.keys(1, 1, 5)
    alone = [model.train(weights, features, task, keys[n]) for n, task in enumerate(tasks)]
    stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *tasks)
    together = model.train_all(weights, features, stacked, keys)
    samples = np.array([lesson.real.sum() for lesson in lessons])
    assert len(set(samples.tolist())) > 1
    for name, update in together.dense.items():
        mean = np.average([np.asarray(one.dense[name]) for one in alone], 0, samples)
        np.testing.assert_allclose(update, mean, atol=2e-6)
    for number, one in enumerate(alone):
        np.testing.assert_allclose(together.rows[number], one.rows, atol=2e-6)
        np.testing.assert_allclose(together.loss[number], one.loss, rtol=1e-5)
        # What was not found is not learned from.
        assert not np.asarray(one.rows)[~found[number]].any()
        assert np.asarray(one.rows)[found[number]].any()


def test_the_studys_dense_step_is_flowers_fedadam() -> None:
    pytest.importorskip("flwr", reason="the extra hushtable[fl] is not installed")
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAdam

    random = np.random.default_rng(3)
    weights = {"w": random.normal(size=(4, 3)).astype(np.float32)}
    theirs, flower = dict(weights), FedAdam(**training.DENSE)  # type: ignore[arg-type]
    ours = training.DenseAdam()
    for number in (1, 2, 3):
        update = random.normal(size=(4, 3)).astype(np.float32)
        flower.current_arrays = ArrayRecord({"w": Array(theirs["w"])}).to_numpy_ndarrays()
        flower.current_arrays = {"w": theirs["w"]}
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": Array(theirs["w"] - update)}),
                "metrics": MetricRecord({"num-examples": 1}),
            }
        )
        reply = Message.__new__(Message)
        reply.__dict__.update({"_content": content, "_error": None})
        arrays, _ = flower.aggregate_train(number, [reply])
        assert arrays is not None
        theirs["w"] = arrays["w"].numpy().astype(np.float32)
        ours.step(weights, {"w": jnp.asarray(update)}, number)
    np.testing.assert_allclose(weights["w"], theirs["w"], rtol=1e-4)


def test_nobody_takes_part_twice_before_all_have_once() -> None:
    drawn = [user for users in islice(training.draw_users(25, 10, 1), 10) for user in users]
    for number in range(10):
        assert len(set(drawn[10 * number : 10 * number + 10])) == 10
    assert len(set(drawn[:20])) == 20
    assert set(drawn[:30]) == set(range(25))


def test_private_features_gain_and_epsilon_one_keeps_it(ratings: Ratings, tmp_path: Path) -> None:
    lines: list[str] = []
    document = study.study(
        ratings,
        say=lines.append,
        settings=(
            *study.SETTINGS[:3],
            study.Setting(study.NUMBER, 0.05, "geometric"),
            study.Setting(study.NUMBER, 0.05),
        ),
        seeds=(1,),
        rounds=40,
        every=40,
    )
    assert len(lines) == 5
    public, exact, one, harsh, shifted = document["settings"]
    # Taste is in the past alone: without it there is nothing to know.
    assert public["auc_mean"] < 0.6 < 0.8 < exact["auc_mean"]
    assert one["gain_kept_mean"] > 0.95
    assert exact["accesses"]["lost"] == exact["accesses"]["dummy"] == 0
    assert 0 < one["accesses"]["lost"] < 0.02
    # All 160 rows are asked for in each round, and the noise is far larger.
    assert harsh["epsilon_of_value"] == pytest.approx(0.0005)
    assert harsh["accesses"]["lost"] > 0.2
    # A round of the shifted mechanism reads 2,000 rows or more, and so all of them.
    assert shifted["accesses"]["lost"] == 0
    assert shifted["accesses"]["k_per_round"] >= 2000
    # JSON as it is defined has no NaN and no infinity.
    json.dumps(document, allow_nan=False)
    assert len(report.lines(document)) == 6
    report.draw(document, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_runs_with_one_seed_see_the_same_clients(ratings: Ratings) -> None:
    asked: dict[float, list[int]] = {}
    for epsilon in (math.inf, 0.05):
        setting = study.Setting(study.VALUES, epsilon)
        table = study.plain(model.start_rows(ratings.rows, 1), 100, setting, 1)
        own = asked.setdefault(epsilon, [])
        training.run(
            ratings,
            table,
            seed=1,
            rounds=3,
            every=1,
            see=lambda progress, own=own: own.append(progress.totals.requests),  # type: ignore[misc]
        )
    assert asked[math.inf] == asked[0.05]


def test_the_command_writes_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "plot.svg"
    options = ["--quick", "--synthetic", "--rounds", "2", "--out", str(out), "--plot", str(plot)]
    monkeypatch.setattr(sys, "argv", ["fedrec", *options])
    assert __main__.main() == 0
    document = json.loads(out.read_text())
    assert [entry["hidden"] for entry in document["settings"]] == ["nothing", "values", "values"]
    assert document["recipe"]["rounds"] == 2
    assert plot.exists()
    assert "of the gain" in capsys.readouterr().out


def test_a_study_that_was_cut_short_goes_on(ratings: Ratings, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    made: list[study.Setting] = []

    def make(rows: Any, users: int, setting: study.Setting, seed: int) -> Any:
        made.append(setting)
        return study.plain(rows, users, setting, seed)

    def run(settings: Any, rounds: int = 2) -> dict[str, Any]:
        return study.study(
            ratings,
            say=lambda line: None,
            settings=settings,
            seeds=(1,),
            rounds=rounds,
            every=2,
            make=make,
            kept=study.Kept(path),
        )

    run(study.SETTINGS[:2])
    assert len(made) == 1  # nothing private has no table
    document = run(study.SETTINGS[:3])
    assert made[1:] == [study.SETTINGS[2]]
    assert [len(entry["runs"]) for entry in document["settings"]] == [1, 1, 1]
    # Another number of rounds is another run.
    run(study.SETTINGS[:3], rounds=3)
    assert len(made) == 4


def write_taobao(folder: Path, *, users: int = 30, adverts: int = 12) -> Path:
    """Users of two tastes: who looks at even categories clicks on even advertisements."""
    random = np.random.default_rng(3)
    shown, log = ["user,time_stamp,adgroup_id,pid,nonclk,clk"], ["user,time_stamp,btag,cate,brand"]
    for user in range(users):
        for step in range(90):
            category = 2 * int(random.integers(0, 9)) + user % 2
            log.append(f"{user},{1000 + 10 * step},pv,{category},{category}")
        for step in range(40):
            advert = int(random.integers(0, adverts))
            click = int(advert % 2 == user % 2)
            shown.append(f"{user},{1200 + 15 * step},{advert},p,{1 - click},{click}")
    profile = "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,"
    profile += "shopping_level,occupation,new_user_class_level "
    (folder / "raw_sample.csv").write_text("\n".join(shown) + "\n")
    (folder / "behavior_log.csv").write_text("\n".join(log) + "\n")
    (folder / "user_profile.csv").write_text(profile + "\n0,0,5,2,2,,3,0,\n")
    return folder


def test_a_display_has_the_past_before_it(tmp_path: Path) -> None:
    found = load_taobao(write_taobao(tmp_path))
    displays = Displays.of(found)
    assert (displays.users, displays.rows) == (30, 18)
    assert displays.learned.tolist() == [32] * 30
    random = np.random.default_rng(1)
    for user in (0, 17):
        lesson = displays.lesson(user, random)
        real = lesson.ids[lesson.ids != fl.DUMMY]
        assert len(set(real.tolist())) == len(real)
        assert lesson.real.sum() == 32
        mine = found.user == user
        order = np.argsort(found.time[mine])
        begin, end = found.events.starts[user : user + 2]
        for sample, moment in enumerate(found.time[mine][order][:32]):
            before = begin + np.searchsorted(found.event_time[begin:end], moment)
            expected = set(found.events.item[max(begin, before - HISTORY) : before].tolist())
            assert set(lesson.ids[lesson.seen[sample] > 0].tolist()) == expected
        assert lesson.films[:32].tolist() == found.adgroup[mine][order][:32].tolist()
    for part, count in (("validation", 4), ("test", 4)):
        questions = displays.questions(part)
        assert questions.past.shape == (30 * count, HISTORY)
        assert questions.past.max() <= displays.rows


def test_of_more_items_than_slots_the_latest_are_asked_for(tmp_path: Path) -> None:
    displays = Displays.of(load_taobao(write_taobao(tmp_path)))
    many = replace(displays, item=np.arange(len(displays.item)) % 5000, rows=5000)
    lesson = many.lesson(0, np.random.default_rng(1))
    asked = lesson.ids[lesson.ids != fl.DUMMY]
    last = int(many.past[31])
    assert len(asked) <= SLOTS
    assert set(asked.tolist()) == set(range(last - len(asked), last))


def test_published_files_are_studied_as_ours_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up = synthetic.ratings(users=40)
    films = "\n".join(
        f'{film},"{title}",{"|".join(genres)}'
        for film, (title, genres) in enumerate(zip(made_up.titles, made_up.genres, strict=True))
    )
    rated = zip(made_up.user, made_up.item, made_up.rating, made_up.time, strict=True)
    lines = "\n".join(f"{user},{film},{stars},{when}" for user, film, stars, when in rated)
    (tmp_path / "movies.csv").write_text(f"movieId,title,genres\n{films}\n")
    (tmp_path / "ratings.csv").write_text(f"userId,movieId,rating,timestamp\n{lines}\n")
    (tmp_path / "taobao").mkdir()
    write_taobao(tmp_path / "taobao")
    for folder, name, rows in ((tmp_path, "ml-20m", 160), (tmp_path / "taobao", "taobao", 18)):
        out = tmp_path / f"{name}.json"
        options = ["--quick", "--rounds", "20", "--data", str(folder), "--out", str(out)]
        monkeypatch.setattr(sys, "argv", ["fedrec", *options])
        assert __main__.main() == 0
        document = json.loads(out.read_text())
        assert (document["data"], document["recipe"]["rows"]) == (name, rows)
        public, private, _hidden = document["settings"]
        # Taste is in the past alone.
        assert private["auc_mean"] > public["auc_mean"] + 0.05
    monkeypatch.setattr(sys, "argv", ["fedrec", "--data", str(tmp_path / "none")])
    assert __main__.main() == 1
    assert "MovieLens-20M" in capsys.readouterr().err


def test_trained_rows_are_served_and_looked_up(ratings: Ratings, tmp_path: Path) -> None:
    start = model.start_rows(ratings.rows, 1)
    table = study.plain(start, 100, study.Setting(study.VALUES, 1.0), 1)
    training.run(ratings, table, seed=1, rounds=2, every=2, see=lambda progress: None)
    trained = table.export()
    ids = [3, 17, 90]
    assert not np.allclose(trained[ids], start[ids])
    bundle = tmp_path / "histories"
    hushtable.Table.from_weight(trained, name="histories").save(bundle)
    certificates = hushtable.make_certificates(tmp_path / "certificates")
    tls = certificates.server
    with (
        hushtable.ServerProcess(bundle, "left", tls=tls, threads=1) as left,
        hushtable.ServerProcess(bundle, "right", tls=tls, threads=1) as right,
        hushtable.connect(left.url, right.url, tls=certificates.ca) as client,
    ):
        np.testing.assert_array_equal(client.lookup(ids), trained[ids])


native = pytest.mark.skipif(
    not hasattr(fl, "Controller"), reason="this native module has no controller"
)


@native
def test_the_controller_trains_what_the_plain_table_does(ratings: Ratings, tmp_path: Path) -> None:
    start = model.start_rows(ratings.rows, 1)
    plain = study.plain(start, 100, study.Setting(study.VALUES, math.inf), 1)
    controller = fl.Controller.create(  # type: ignore[attr-defined, unused-ignore]
        tmp_path / "controller",
        key_beside=True,
        table=start,
        users=100,
        slots=SLOTS,
        epsilon=math.inf,
        aggregate=training.AGGREGATE,
    )
    for table in (plain, controller):
        training.run(ratings, table, seed=1, rounds=5, every=5, see=lambda progress: None)
    np.testing.assert_allclose(controller.export(), plain.export(), atol=1e-5)
    assert np.abs(plain.export() - start).max() > 0.05


def app_settings(folder: Path) -> dict[str, Any]:
    return {
        "ratings": "synthetic",
        "rounds": 40,
        "clients": 20,
        "epsilon": 1.0,
        "seed": 1,
        "folder": str(folder / "run"),
        "judge-every": 40,
        "bundle": str(folder / "bundle"),
    }


def test_the_flower_app_trains_and_leaves_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("flwr", reason="the extra hushtable[fl] is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "python" / "tests"))
    from fl_double import DoubleController, DoubleSession, LocalGrid
    from flwr.app import Context, RecordDict

    monkeypatch.setattr(fl, "Controller", DoubleController, raising=False)
    monkeypatch.setattr(fl, "Session", DoubleSession, raising=False)
    from examples.fedrec.fedrec import client_app, server_app

    settings = app_settings(tmp_path)
    grid = LocalGrid(client_app.app, 120, settings)
    with caplog.at_level("INFO", logger="flwr"):
        server_app.app(grid, Context(1, 0, {}, RecordDict(), settings))
    losses = [line for line in caplog.messages if "Aggregated MetricRecord: {'loss'" in line]
    assert len(losses) == 40
    aucs = [float(line.split()[-1]) for line in caplog.messages if "AUC on test" in line]
    # Only private rows that are trained tell who likes what: 0.5 without them.
    assert len(aucs) == 1 and aucs[0] > 0.65
    table = hushtable.Table.open(tmp_path / "bundle")
    assert (table.info.rows, table.info.row_bytes) == (160, 64)


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Ports that nobody else is given: a server that is told one may listen at it all the same."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                each.setsockopt(socket.SOL_SOCKET, option, 1)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def superlink(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A SuperLink of this test's own: the one that ``flwr run`` starts would outlive it."""
    with held_ports(2) as ports, _superlink(folder, environment, *ports):
        yield


@contextlib.contextmanager
def _superlink(
    folder: Path, environment: dict[str, str], control: int, port: int
) -> Iterator[None]:
    folder.mkdir()
    (folder / "config.toml").write_text(
        f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n', encoding="utf-8"
    )
    command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    command += ["--control-api-address", f"127.0.0.1:{control}", "--host", "127.0.0.1"]
    with (
        (folder / "superlink.log").open("wb") as log,
        subprocess.Popen(
            [*command, "--port", str(port)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            by = time.monotonic() + 300
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert time.monotonic() < by, (folder / "superlink.log").read_text()
                assert process.poll() is None, (folder / "superlink.log").read_text()
                time.sleep(0.1)
            yield
        finally:
            # Its own session: what it has started goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.rest
@native
def test_flwr_run_trains_through_the_controller(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="the extra hushtable[fl] is not installed")
    settings = {**app_settings(tmp_path), "rounds": 3, "clients": 4}
    quoted = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
    home = tmp_path / "flwr"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        # What the app needs is here: nothing is fetched.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = ["flwr", "run", str(ROOT / "examples" / "fedrec"), "here", "--stream", "-c", quoted]
    with superlink(home, environment):
        done = subprocess.run(
            [*command, "--federation-config", "num-supernodes=8"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.stdout.count("rows: 4 of 4 clients asked") == 3, done.stdout + done.stderr
    trained = hushtable.Table.open(tmp_path / "bundle")
    ids = np.arange(160)
    moved = (trained.rows(ids) != model.start_rows(160, 1)).any(axis=1)
    assert moved.sum() > 20
