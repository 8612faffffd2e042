"""What private features are worth and what hiding them costs: a run for each setting and seed."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hushtable.fl import PlainTable, TrainedTable

from . import model
from .ratings import HISTORY, SAMPLES, SLOTS, Behaviour, Floats
from .training import AGGREGATE, CLIENTS, DENSE, Progress, Totals, run

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What is hidden, and how well.

    Attributes:
        hidden: "nothing private is used", "values", or "values and their number".
        epsilon: of what is hidden, in one round.
        mechanism: how the number of rows that a round reads is drawn.
    """

    hidden: str
    epsilon: float
    mechanism: str = "shifted"

    @property
    def private(self) -> bool:
        """Whether the private past is used at all."""
        return self.hidden != PUBLIC

    @property
    def epsilon_of_value(self) -> float:
        """What the table gets: hiding how many of n slots are used is to hide n values at once."""
        return self.epsilon / SLOTS if self.hidden == NUMBER else self.epsilon

    @property
    def name(self) -> str:
        """For a person."""
        if not self.private:
            return "public features only"
        if math.isinf(self.epsilon):
            return "private too, no noise"
        return f"private too, {self.hidden} hidden, ε = {self.epsilon:g}, {self.mechanism}"


PUBLIC = "nothing"
VALUES = "values"
NUMBER = "values and their number"
#: hushtable's own, the paper's, and the one that hushtable had before.
MECHANISMS = ("shifted", "eq3", "geometric")
#: The first two are what the others are compared with.
SETTINGS = (
    Setting(PUBLIC, math.inf),
    Setting(VALUES, math.inf),
    *(
        Setting(hidden, epsilon, mechanism)
        for mechanism in MECHANISMS
        for hidden in (VALUES, NUMBER)
        for epsilon in (1.0, 0.1)
    ),
)
SEEDS = (1, 2, 3)
ROUNDS = 300
EVERY = 50


@dataclass(frozen=True)
class Outcome:
    """One run, judged where the validation samples liked it best.

    Attributes:
        seed: of the run.
        auc: on the test samples.
        validation_auc: on those that chose the round.
        rounds: the round chosen.
        totals: of all rounds.
        rounds_run: how many there were.
        seconds: that it took.
    """

    seed: int
    auc: float
    validation_auc: float
    rounds: int
    totals: Totals
    rounds_run: int
    seconds: float


class Kept:
    """Runs that are over, a line each in a file: a study that was cut short goes on from them.

    One file is for one data set and one recipe.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[tuple[str, int], Outcome] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in map(json.loads, lines):
            totals = Totals(**line["outcome"].pop("totals"))
            outcome = Outcome(totals=totals, **line["outcome"])
            self._found[line["setting"], outcome.seed] = outcome

    def get(self, setting: Setting, seed: int, rounds: int) -> Outcome | None:
        """The run, if it is over and had as many rounds."""
        found = self._found.get((setting.name, seed))
        return found if found is not None and found.rounds_run == rounds else None

    def add(self, setting: Setting, outcome: Outcome) -> None:
        """Writes a run that is over."""
        self._found[setting.name, outcome.seed] = outcome
        line = json.dumps({"setting": setting.name, "outcome": asdict(outcome)})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


#: Makes a table of these rows for users, with this setting's noise and this seed.
MakeTable = Callable[[Floats, int, Setting, int], TrainedTable]


def plain(rows: Floats, users: int, setting: Setting, seed: int) -> TrainedTable:
    """The table in plain memory, which loses the rows that the real one would."""
    return PlainTable(
        rows,
        users=users,
        slots=SLOTS,
        epsilon=setting.epsilon_of_value,
        mechanism=setting.mechanism,
        aggregate=AGGREGATE,
        seed=seed,
    )


def measure(
    ratings: Behaviour, setting: Setting, seed: int, *, rounds: int, every: int, make: MakeTable
) -> Outcome:
    """One run."""
    started = time.perf_counter()
    clients = min(CLIENTS, ratings.users)
    table = None
    if setting.private:
        rows = model.start_rows(ratings.rows, seed)
        table = make(rows, clients, setting, seed)
    validation, test = ratings.questions("validation"), ratings.questions("test")
    best: tuple[float, float, int] = (0.0, 0.0, 0)
    totals = Totals()

    def see(progress: Progress) -> None:
        nonlocal best, totals
        totals = progress.totals
        rows = None if table is None else table.export()
        found = model.judge(progress.weights, ratings.features, rows, validation)
        if found > best[0]:
            judged = model.judge(progress.weights, ratings.features, rows, test)
            best = found, judged, progress.rounds

    run(ratings, table, seed=seed, rounds=rounds, every=every, see=see)
    return Outcome(
        seed=seed,
        auc=best[1],
        validation_auc=best[0],
        rounds=best[2],
        totals=totals,
        rounds_run=rounds,
        seconds=time.perf_counter() - started,
    )


def study(
    ratings: Behaviour,
    *,
    say: Say,
    settings: Sequence[Setting] = SETTINGS,
    seeds: Sequence[int] = SEEDS,
    rounds: int = ROUNDS,
    every: int = EVERY,
    make: MakeTable = plain,
    kept: Kept | None = None,
) -> dict[str, Any]:
    """Every setting with every seed, as JSON.

    A run that ``kept`` has is taken from there, and others are added to it.

    ``settings`` starts with :data:`PUBLIC` and one without noise: the gain of the private features
    is between these two, and each other setting's share of it is taken seed by seed.
    """
    outcomes: dict[Setting, list[Outcome]] = {}
    for setting in settings:
        for seed in seeds:
            found = None if kept is None else kept.get(setting, seed, rounds)
            if found is None:
                found = measure(ratings, setting, seed, rounds=rounds, every=every, make=make)
                if kept is not None:
                    kept.add(setting, found)
            outcomes.setdefault(setting, []).append(found)
            say(
                f"  {setting.name}, seed {seed}: AUC {found.auc:.4f} after {found.rounds} rounds"
                f" ({found.seconds:.0f} s)"
            )
    low, high = (outcomes[setting] for setting in settings[:2])
    return {
        "recipe": {
            "users": ratings.users,
            "rows": ratings.rows,
            "row_bytes": 4 * model.DIM,
            "clients": min(CLIENTS, ratings.users),
            "slots": SLOTS,
            "history": HISTORY,
            "samples": SAMPLES,
            "rounds": rounds,
            "seeds": list(seeds),
            "aggregate": AGGREGATE,
            "dense": DENSE,
        },
        "settings": [
            _entry(setting, outcomes[setting], low, high, min(CLIENTS, ratings.users))
            for setting in settings
        ],
    }


def _entry(
    setting: Setting, found: list[Outcome], low: list[Outcome], high: list[Outcome], clients: int
) -> dict[str, Any]:
    aucs = [outcome.auc for outcome in found]
    kept = [
        (own.auc - without.auc) / (full.auc - without.auc)
        for own, without, full in zip(found, low, high, strict=True)
    ]
    entry: dict[str, Any] = {
        "name": setting.name,
        "hidden": setting.hidden,
        # JSON has no infinity.
        "epsilon": None if math.isinf(setting.epsilon) else setting.epsilon,
        "mechanism": setting.mechanism,
        "epsilon_of_value": None if math.isinf(setting.epsilon) else setting.epsilon_of_value,
        "auc_mean": statistics.fmean(aucs),
        "auc_std": statistics.stdev(aucs) if len(aucs) > 1 else 0.0,
        "gain_kept_mean": statistics.fmean(kept),
        "gain_kept_min": min(kept),
        "runs": [asdict(outcome) for outcome in found],
    }
    if setting.private:
        rounds = sum(outcome.rounds_run for outcome in found)
        union = sum(outcome.totals.union_rows for outcome in found)
        k = sum(outcome.totals.k for outcome in found)
        entry["accesses"] = {
            "requests_per_round": clients * SLOTS,
            "values_per_round": sum(outcome.totals.requests for outcome in found) / rounds,
            "union_per_round": union / rounds,
            "k_per_round": k / rounds,
            "reduced": 1 - k / (clients * SLOTS * rounds),
            "dummy": sum(outcome.totals.dummy_rows for outcome in found) / union,
            "lost": sum(outcome.totals.lost_rows for outcome in found) / union,
        }
    return entry
