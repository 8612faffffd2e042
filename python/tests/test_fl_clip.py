"""What one user can do to a row: uploads at the ends of what numbers can be."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json

from hushtable import ConfigError, RoundError
from hushtable.fl import DUMMY, Clip, Controller, PlainTable, Session
from hushtable.fl.clip import VALUE_MAX, WEIGHT_MAX, clip_spec

ROWS, DIM, SLOTS, USERS = 60, 4, 3, 4
HUGE = np.float32(3e38)


@pytest.fixture
def start() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)


def make(folder: Path, start: np.ndarray, **options: Any) -> Controller:
    shape = {"users": USERS, "slots": SLOTS, "cached_levels": 2, "key_beside": True}
    options = {"epsilon": np.inf, **shape, **options}
    return Controller.create(folder, table=start, **options)


def asked() -> np.ndarray:
    ids = np.full((USERS, SLOTS), DUMMY, np.uint32)
    ids[:, 0] = 7
    ids[1, 1] = ids[2, 2] = 9
    return ids


@pytest.mark.parametrize("aggregate", ["fed_avg", "fed_adagrad", "fed_adam"])
@pytest.mark.parametrize("clip", ["default", None, Clip(norm=0.7, value=0.3, weight=3.0)])
def test_the_plain_table_clips_as_the_controller_does(
    tmp_path: Path, start: np.ndarray, aggregate: str, clip: str | Clip | None
) -> None:
    options: dict[str, Any] = {"users": USERS, "slots": SLOTS, "clip": clip}
    plain = PlainTable(start, aggregate={"name": aggregate}, **options)
    random = np.random.default_rng(3)
    with make(tmp_path / "t", start, aggregate=aggregate, **options) as controller:
        for attack, weight in ((0.1, 1.0), (HUGE, 1.0), (-HUGE, 20.0), (HUGE, WEIGHT_MAX)):
            ids = asked()
            assert controller.begin(ids) == plain.begin(ids) == 2
            for user in range(USERS):
                gradients = 0.3 * random.normal(size=(SLOTS, DIM)).astype(np.float32)
                if user == 3:
                    gradients[:] = attack
                sent = (gradients, weight if user == 3 else float(user))
                controller.add(user, *sent)
                plain.add(user, *sent)
            controller.commit()
            plain.commit()
            rows = controller.export()
            assert np.isfinite(rows).all()
            np.testing.assert_allclose(rows, plain.export(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 20.0])
def test_one_user_cannot_undo_a_row_by_the_defaults(
    tmp_path: Path, start: np.ndarray, weight: float
) -> None:
    with make(tmp_path / "t", start) as controller:
        number = controller.open_round(USERS)
        sessions = []
        for user in range(USERS):
            terms = controller.terms(user)
            session = Session(controller.pin, terms)
            controller.request(user, session.request(np.array([7], np.uint32)))
            sessions.append(session)
        controller.begin()
        for user, session in enumerate(sessions):
            session.rows(controller.reply(user))
            gradients = np.full((1, DIM), HUGE if user == 3 else 0.1, np.float32)
            controller.upload(user, session.upload(gradients, weight if user == 3 else 20.0))
        report = controller.commit()
        assert (report.round, report.uploaded, report.refused) == (number, USERS, {})
        moved = start[7] - controller.export()[7]
    # Of four users, three who sent 0.1 and one who counts as 0.5.
    expected = (3 * 20 * 0.1 + weight * 0.5) / (3 * 20 + weight)
    np.testing.assert_allclose(moved, expected, rtol=1e-4)


def test_who_was_refused_is_told_to_the_operator_alone(tmp_path: Path, start: np.ndarray) -> None:
    with make(tmp_path / "t", start) as controller:
        controller.open_round(USERS)
        sessions = [Session(controller.pin, controller.terms(user)) for user in range(2)]
        for user, session in enumerate(sessions):
            controller.request(user, session.request(np.array([7], np.uint32)))
        with pytest.raises(RoundError) as request:
            controller.request(2, b"rubbish")
        controller.begin()
        for user, session in enumerate(sessions):
            session.rows(controller.reply(user))
        good = sessions[0].upload(np.full((1, DIM), 0.1, np.float32), 1.0)
        with pytest.raises(RoundError) as upload:
            controller.upload(1, good)
        assert "not_opened" not in str(request.value) + str(upload.value)
        controller.upload(0, good)
        report = controller.commit()
        assert report.refused == {1: "not_opened", 2: "not_opened"}
        np.testing.assert_allclose(start[7] - controller.export()[7], 0.1, rtol=1e-4)


def test_old_controllers_have_no_clip(tmp_path: Path, start: np.ndarray) -> None:
    with make(tmp_path / "old", start, clip=None) as controller:
        assert "clip" not in json.loads((tmp_path / "old" / "controller.json").read_text())
        assert "clip" not in controller.spec
    for aggregate, clips in (("fed_avg", True), ("dp_fed_avg:clip=1,noise=1,users=4", False)):
        folder = tmp_path / aggregate[:6]
        with make(folder, start, aggregate=aggregate) as controller:
            assert ("clip" in controller.spec) == clips
    assert clip_spec("default", {"name": "fed_avg"}) == dataclasses.asdict(Clip())


def test_settings_of_a_clip() -> None:
    fed_avg = {"name": "fed_avg"}
    assert clip_spec("norm=3, weight=7", fed_avg) == {"norm": 3.0, "value": 0.5, "weight": 7.0}
    assert clip_spec({"value": 1}, fed_avg) == {"norm": 2.0, "value": 1, "weight": 100.0}
    assert clip_spec(Clip(value=VALUE_MAX), {"name": "eana"}) is not None
    for wrong, what in [
        ("norm=0", "norm is 0"),
        ("norm=nan", "norm is nan"),
        ("value=1e10", "at most 4294967296"),
        ("weight=2e7", "at most 16777216"),
        ("norms=1", "no setting norms"),
        ("norm", "norm=2,value=0.5,weight=100"),
    ]:
        with pytest.raises(ConfigError, match=what):
            clip_spec(wrong, fed_avg)


def test_create_clips_unless_told_not_to(tmp_path: Path) -> None:
    table = ("--key-beside", "--rows", 64, "--dim", 4, "--users", 3, "--slots", 2)
    made = run_json("train", "create", *table, tmp_path / "a")
    assert made["spec"]["clip"] == {"norm": 2.0, "value": 0.5, "weight": 100.0}
    made = run_json("train", "create", *table, "--clip", "norm=9,weight=5", tmp_path / "b")
    assert made["spec"]["clip"] == {"norm": 9.0, "value": 0.5, "weight": 5.0}
    told = run("train", "info", "--key-beside", tmp_path / "b").stdout
    assert "norm 9, value 0.5, weight 5" in told
    assert "clip" not in run_json("train", "create", *table, "--no-clip", tmp_path / "c")["spec"]
    assert "one user can undo a row" in run("train", "info", "--key-beside", tmp_path / "c").stdout
    both = run("train", "create", *table, "--no-clip", "--clip", "norm=1", tmp_path / "d")
    assert both.returncode == 2
    assert "give one of them" in both.stderr
