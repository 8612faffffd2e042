"""Backups, and controllers that do not open: real folders, and a real server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json
from test_train import DIM, ROWS, SLOTS, USERS, Serving

from hushtable import errors, fl
from hushtable.fl import Controller


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    with Controller.create(
        tmp_path / "films",
        table=rows,
        users=USERS,
        slots=SLOTS,
        epsilon=0.5,
        epsilon_budget=50.0,
        aggregate="fed_adagrad:lr=0.1",
        cached_levels=2,
        key=key_of(tmp_path),
    ) as controller:
        train(controller, 3)
    return tmp_path / "films"


def key_of(tmp_path: Path) -> Path:
    keys = tmp_path / "keys"
    keys.mkdir(exist_ok=True)
    return keys / "films.key"


def train(controller: Controller, rounds: int) -> None:
    random = np.random.default_rng(controller.rounds)
    for _ in range(rounds):
        controller.begin(random.integers(ROWS, size=(USERS, SLOTS)).astype(np.uint32))
        for user in range(USERS):
            controller.add(user, random.normal(size=(SLOTS, DIM)).astype(np.float32), 1.0)
        controller.commit()


def opened(folder: Path) -> Controller:
    return Controller.open(folder, key=key_of(folder.parent))


def table(folder: Path) -> np.ndarray:
    with opened(folder) as controller:
        return controller.export()


def cli(name: str, folder: Path, *more: Any, expected: int = 0) -> dict[str, Any]:
    """The last line of a command's JSON."""
    found = run("train", name, "--key", str(key_of(folder.parent)), "--json", *map(str, more))
    assert bool(found.returncode) == bool(expected), found.stderr + found.stdout
    told = json.loads(found.stdout)
    return {"stderr": told["error"]["message"]} if "error" in told else told


def flip(path: Path, at: int, length: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    for place in range(at, at + length):
        raw[place] ^= 0xFF
    path.write_bytes(raw)


def test_a_backup_is_restored_with_its_pin_and_its_budget(folder: Path) -> None:
    before, pin = table(folder), None
    dest = folder.parent / "backups" / "one"
    dest.parent.mkdir()
    made = cli("backup", folder, folder, dest)
    assert (made["rounds"], made["rounds_begun"], made["table"]) == (3, 3, "films")
    assert sorted(path.name for path in dest.iterdir()) == [
        "backup.json", "controller.json", "journal", "tree",
    ]  # fmt: skip
    assert cli("backup", folder, "--verify", dest)["rounds"] == 3
    with opened(folder) as controller:
        pin = controller.pin
        train(controller, 2)
    # What is there is not written over.
    refused = cli("restore", folder, dest, folder, "--yes", "--rounds-begun", 5, expected=1)
    assert "exists already" in refused["stderr"]
    away = folder.parent / "lost"
    folder.rename(away)
    counter = folder.with_name("films.counter")
    old_counter = counter.rename(folder.parent / "old.counter")
    # Rounds that nobody charges.
    refused = cli("restore", folder, dest, folder, "--yes", expected=1)
    assert "--rounds-begun" in refused["stderr"] and not folder.exists()
    # Nobody to ask.
    refused = cli("restore", folder, dest, folder, "--old-counter", old_counter, expected=1)
    assert "--yes" in refused["stderr"] and "undone" in refused["stderr"]
    done = cli("restore", folder, dest, folder, "--old-counter", old_counter, "--yes")
    assert done["counter_rounds"] == 5 and done["report"]["rounds"] == 3
    with opened(folder) as controller:
        assert (controller.rounds, controller.spent.rounds, controller.pin) == (3, 5, pin)
        assert np.array_equal(controller.export(), before)
        train(controller, 1)
    flip(dest / "tree", 5000)
    refused = cli("backup", folder, "--verify", dest, expected=1)
    assert "is not what was backed up" in refused["stderr"]


def test_a_rolled_back_folder_is_gone_on_from(folder: Path) -> None:
    before = table(folder)
    old = folder.parent / "old"
    shutil.copytree(folder, old)
    with opened(folder) as controller:
        train(controller, 2)
    shutil.rmtree(folder)
    old.rename(folder)
    with pytest.raises(errors.ControllerError, match="train recover"):
        opened(folder)
    found = cli("recover", folder, folder, expected=1)
    assert (found["remedy"], found["counter_rounds"]) == ("accept-rollback", 5)
    refused = cli("recover", folder, folder, "--new-counter", "--yes", expected=1)
    assert "does not fit" in refused["stderr"]
    cli("recover", folder, folder, "--accept-rollback", "--yes")
    with opened(folder) as controller:
        assert (controller.rounds, controller.spent.rounds) == (3, 5)
        assert np.array_equal(controller.export(), before)
    kept = {path.name for path in folder.parent.iterdir()}
    assert {"films.before-recovery", "films.counter.before-recovery"} <= kept
    assert not any(name.endswith(".recovered") for name in kept)
    assert cli("recover", folder, folder)["remedy"] is None
    # What was kept is not written over by the next one.
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "films.before-recovery", folder)
    (folder.parent / "films.counter").unlink()
    refused = cli(
        "recover", folder, folder, "--accept-rollback", "--yes", "--rounds-begun", 6, expected=1
    )
    assert "move it away" in refused["stderr"]


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_lost_counter_is_made_anew(folder: Path, damage: str) -> None:
    before = table(folder)
    counter = folder.with_name("films.counter")
    if damage == "missing":
        counter.unlink()
    else:
        flip(counter, 0, counter.stat().st_size)
    with pytest.raises(errors.ControllerError, match="train recover"):
        opened(folder)
    found = run("train", "recover", "--key", str(key_of(folder.parent)), str(folder))
    assert found.returncode == 1
    assert "--new-counter" in found.stdout and "--accept-rollback" in found.stdout
    cli("recover", folder, folder, "--new-counter", "--yes")
    with opened(folder) as controller:
        assert (controller.rounds, controller.spent.rounds) == (3, 3)
        assert np.array_equal(controller.export(), before)
        train(controller, 1)


def test_readable_rows_are_salvaged_and_the_others_listed(folder: Path) -> None:
    before = table(folder)
    # A stretch of a disk, with both copies of some buckets.
    flip(folder / "tree", 8192, 6 * 4096)
    with pytest.raises(errors.ControllerError, match="train recover"):
        opened(folder)
    found = cli("recover", folder, folder, expected=1)
    assert found["remedy"] == "salvage" and found["report"]["unreadable_buckets"] > 0
    done = cli("recover", folder, folder, "--salvage", "--yes")
    listed = Path(done["lost_rows"])
    assert listed.stat().st_mode & 0o777 == 0o600
    rows = json.loads(listed.read_text())
    lost, uncertain = rows["lost"], rows["uncertain"]
    assert 0 < len(lost) < ROWS / 2
    after = table(folder)
    assert not after[lost].any()
    kept = np.setdiff1d(np.arange(ROWS), lost + uncertain)
    wrong = (after[kept] != before[kept]).any(axis=1).sum()
    assert wrong <= done["report"]["older_max"]


def test_a_server_is_backed_up_while_it_serves(folder: Path) -> None:
    backups = folder.parent / "backups"
    backups.mkdir()
    token = folder.parent / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    options = ["--key", str(key_of(folder.parent)), "--backup-dir", str(backups)]
    with Serving(folder, *options, "--operator-token-file", str(token)) as server:
        url = server.ready["url"]
        client = fl.TrainingClient.connect(url, operator_token=token.read_text())
        with fl.TrainingClient.connect(url) as stranger, pytest.raises(errors.OperatorOnly):
            stranger.backup("one")
        with pytest.raises(errors.RoundError, match="letters"):
            client.backup("../one")
        round = client.open_round(1)
        made = client.backup("one")
        assert (made.rounds, made.rounds_begun) == (3, 3)
        client.abandon(round)
        assert client.backup("one") == made
        found = run_json("train", "backup", "--url", url, "--operator-token-file", token, "two")
        assert found["rounds"] == 3
        client.close()
        server.stop()
    for name in ("one", "two"):
        fl.verify_backup(backups / name, key=key_of(folder.parent))
