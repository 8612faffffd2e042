"""A model of three tables and rounds over it, for tests of training at scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hushtable import Model
from hushtable.fl import Floats
from hushtable.scale import ModelController, ModelSession

USERS, SLOTS = 4, 5
SHAPES = {"items": (60, 8), "shops": (20, 4), "tags": (100, 2)}
#: Of a controller: no rows are lost, so that a round's result follows from what is asked.
SETTINGS: dict[str, Any] = {
    "users": USERS,
    "slots": SLOTS,
    "epsilon": 0,
    "aggregate": "fed_adagrad:lr=0.1",
}
SPEC = "".join(
    f'[[feature]]\nname = "{name}"\nmax_ids = {SLOTS}\n[tables.{name}]\nkey = "{name}.weight"\n'
    for name in SHAPES
)


def build_model(folder: Path) -> Path:
    """A model's bundle."""
    random = np.random.default_rng(7)
    weights = {
        f"{name}.weight": random.normal(size=shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }
    np.savez(folder / "checkpoint.npz", **weights, dense=np.ones(3, np.float32))
    (folder / "spec.toml").write_text(SPEC)
    Model.build(folder / "checkpoint.npz", folder / "model", spec=folder / "spec.toml")
    return folder / "model"


def ids_of(round: int, user: int, table: str) -> np.ndarray:
    """What a user asks for; of the last table, a user in two nothing."""
    rows = SHAPES[table][0]
    if table == "tags" and user % 2:
        return np.zeros(0, np.uint32)
    random = np.random.default_rng([round, user, rows])
    return np.unique(random.integers(0, rows, SLOTS - user % 2)).astype(np.uint32)


def gradients_of(round: int, user: int, table: str) -> Floats:
    """What a user learnt."""
    rows, dim = SHAPES[table]
    random = np.random.default_rng([round, user, rows, 1])
    found: Floats = (0.1 * random.normal(size=(SLOTS, dim))).astype(np.float32)
    return found


def ask(controller: ModelController, round: int) -> dict[int, ModelSession]:
    """Opens a round and has all users ask."""
    controller.open_round(USERS)
    sessions = {}
    for user in range(USERS):
        sessions[user] = ModelSession(controller.pin, controller.terms(user))
        ids = {name: ids_of(round, user, name) for name in SHAPES}
        controller.request(user, sessions[user].request(ids))
    return sessions


def serve(
    controller: ModelController, sessions: dict[int, ModelSession], round: int
) -> dict[int, Any]:
    """Reads the rows and has all users upload: what each got."""
    controller.close_requests()
    got = {}
    for user, session in sessions.items():
        got[user] = session.rows(controller.reply(user))
        gradients = {name: gradients_of(round, user, name) for name in SHAPES}
        controller.upload(user, session.upload(gradients, 1.0 + user))
    return got


def train(controller: ModelController, rounds: int = 2, first: int = 1) -> list[Any]:
    """Rounds of all users: the reports."""
    reports = []
    for round in range(first, first + rounds):
        serve(controller, ask(controller, round), round)
        reports.append(controller.commit())
    return reports
