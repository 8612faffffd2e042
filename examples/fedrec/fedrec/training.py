"""Federated rounds without a network: the study's, and the pieces that the Flower app shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from hushtable.fl import DUMMY, TrainedTable

from . import model
from .ratings import SLOTS, Behaviour, Floats

#: Clients of a round.
CLIENTS = 100
#: How the private rows are updated.
AGGREGATE = {"name": "fed_adagrad", "learning_rate": 0.05, "tau": 1e-5}
#: How the dense weights are, as Flower's FedAdam takes it.
DENSE = {"eta": 0.01, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-5}


@dataclass
class DenseAdam:
    """What ``flwr.serverapp.strategy.FedAdam`` does, on arrays."""

    means: dict[str, Floats] = field(default_factory=dict)
    squares: dict[str, Floats] = field(default_factory=dict)

    def step(self, weights: dict[str, Floats], update: model.Weights, number: int) -> None:
        """Changes ``weights`` by the clients' mean update of round ``number``, from 1."""
        beta1, beta2 = DENSE["beta_1"], DENSE["beta_2"]
        rate = DENSE["eta"] * np.sqrt(1 - beta2 ** (number + 1)) / (1 - beta1 ** (number + 1))
        for name, given in update.items():
            slope = np.asarray(given)
            mean = self.means.setdefault(name, np.zeros_like(slope))
            square = self.squares.setdefault(name, np.zeros_like(slope))
            mean += (1 - beta1) * (slope - mean)
            square += (1 - beta2) * (slope**2 - square)
            step = np.float32(rate) * mean / (np.sqrt(square) + np.float32(DENSE["tau"]))
            weights[name] = (weights[name] - step).astype(np.float32)


def draw_users(users: int, clients: int, seed: int) -> Iterator[list[int]]:
    """The clients of each round: everyone once before anyone twice."""
    random = np.random.default_rng([seed, 2])
    waiting: list[int] = []
    while True:
        if len(waiting) < clients:
            # Those left over come first, and a user twice in a round is not possible.
            fresh = [user for user in random.permutation(users).tolist() if user not in waiting]
            waiting = fresh + waiting
        yield [waiting.pop() for _ in range(clients)]


@dataclass(frozen=True)
class Totals:
    """Sums over a run's rounds.

    Attributes:
        requests: values that clients asked for, dummies not counted.
        union_rows: distinct rows asked for.
        k: rows read.
        lost_rows: asked for and not read.
        dummy_rows: read and not asked for.
    """

    requests: int = 0
    union_rows: int = 0
    k: int = 0
    lost_rows: int = 0
    dummy_rows: int = 0


@dataclass(frozen=True)
class Progress:
    """A run after some rounds.

    Attributes:
        rounds: how many.
        weights: the dense weights.
        totals: so far.
        loss: the clients' mean loss in the last round.
    """

    rounds: int
    weights: dict[str, Floats]
    totals: Totals
    loss: float


def run(
    ratings: Behaviour,
    table: TrainedTable | None,
    *,
    seed: int,
    rounds: int,
    every: int,
    see: Callable[[Progress], None],
) -> None:
    """Trains for ``rounds`` rounds and calls ``see`` after each ``every`` of them.

    Clients, samples and dropout are the same for all runs with one seed, whatever the table does.

    Args:
        ratings: all clients' data.
        table: the private table; None to train without the private past.
        seed: of everything drawn here.
        rounds: how many.
        every: rounds between two calls of ``see``.
        see: is given how far it is.
    """
    weights, adam, totals = model.start(ratings.features, seed), DenseAdam(), Totals()
    features = jnp.asarray(ratings.features)
    clients = min(CLIENTS if table is None else table.users, ratings.users)
    random = np.random.default_rng([seed, 3])
    drawn = draw_users(ratings.users, clients, seed)
    for number in range(1, rounds + 1):
        lessons = [ratings.lesson(user, random) for user in next(drawn)]
        rows = np.zeros((clients, SLOTS, model.DIM), np.float32)
        found = np.zeros((clients, SLOTS), np.bool_)
        if table is not None:
            requests = np.full((table.users, SLOTS), DUMMY, np.uint32)
            requests[:clients] = [lesson.ids for lesson in lessons]
            k = table.begin(requests)
            for client in range(clients):
                rows[client], found[client] = table.rows(client)
        tasks = model.tasks(lessons, rows, found)
        keys = model.keys(seed, number, clients)
        update = model.train_all(jax.tree.map(jnp.asarray, weights), features, tasks, keys)
        adam.step(weights, update.dense, number)
        if table is not None:
            gradients = np.asarray(update.rows)
            for client, lesson in enumerate(lessons):
                table.add(client, gradients[client], float(lesson.real.sum()))
            table.commit()
            totals = _add(totals, requests, k)
        if number % every == 0 or number == rounds:
            see(Progress(number, dict(weights), totals, float(update.loss.mean())))


def _add(totals: Totals, requests: np.ndarray, k: int) -> Totals:
    real = requests[requests != DUMMY]
    union = len(np.unique(real))
    return Totals(
        requests=totals.requests + len(real),
        union_rows=totals.union_rows + union,
        k=totals.k + k,
        lost_rows=totals.lost_rows + max(0, union - k),
        dummy_rows=totals.dummy_rows + max(0, k - union),
    )
