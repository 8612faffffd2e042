"""Measures what models for encrypted inference lose, for docs/encrypted-models.md.

    python bench/encrypted_models.py [--write-only | --plans | --degrees] [--impressions 100000]
        [--seeds 3]
    python bench/encrypted_models.py --data DIR --out FILE [--seeds 1]

Trains Criteo's model on made-up impressions with the Kaggle log's cardinalities, for each threshold
and each activation, plans each of these models for encryption, keeps what it found in bench/results
and the plot in docs/plots, and writes the tables of the page; those of the heart patients come from
examples/heart/models/results.json. With ``--degrees`` it trains ReLU's polynomials alone, with
``--plans`` it plans alone, and keeps that beside what is kept. It needs torch and matplotlib; with
``--plans`` or ``--write-only``, which takes the results that are kept, no torch.

With ``--data`` it trains on the real log, ``train.txt`` in that folder, streamed, and writes what
it found to ``--out`` alone: the page says nothing of a log that may not be passed on.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import platform
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from examples.dlrm import criteo  # noqa: E402

from hushtable.data import CRITEO_KAGGLE_ROWS  # noqa: E402
from hushtable.nn.encrypted import (  # noqa: E402
    Activation,
    Compression,
    Description,
    Preprocess,
    compression,
)

PAGE = ROOT / "docs" / "encrypted-models.md"
PLOT = ROOT / "docs" / "plots" / "encrypted-models.svg"
RESULTS = ROOT / "bench" / "results"
HEART = ROOT / "examples" / "heart" / "models" / "results.json"

THRESHOLDS = (500, 5_000, 50_000, 500_000, 5_000_000)
#: ReLU's one polynomial, trained in: its degrees, and the range that its inputs are held in.
DEGREES = (31, 63, 127)
HELD = 5.0


@dataclass(frozen=True)
class Setting:
    """What a model is trained with.

    Attributes:
        activation: of every layer that has one.
        degree: of ReLU's one polynomial.
        held: the range that an activation's inputs are held in.
        gain: what the first weights are multiplied by.
    """

    activation: Activation
    degree: int | None = None
    held: float | None = None
    gain: float = 1.0

    def describe(self, rows: tuple[int, ...], threshold: int) -> Description:
        """The model of tables of ``rows`` rows, those above ``threshold`` cut into digits."""
        return criteo.describe(rows, self.activation, threshold, self.degree)


#: Five squares in a row grow without a range and a gain.
SETTINGS = {
    "ReLU": Setting("relu"),
    "ReLU by degree 63": Setting("relu", degree=63, held=HELD),
    "SiLU": Setting("silu", held=6.0),
    "square": Setting("square", held=1.0, gain=0.5),
    "polynomial of degree 2": Setting("polynomial", held=4.0),
}
#: Impressions a step.
BATCH = 256
#: Deviations from the mean that a dense input is clipped to, by the client.
BOUND = 3.0
#: Plans of the largest threshold take minutes each.
PLANNED_AT = THRESHOLDS[:-1]
#: What is kept of a plan.
PLANNED = (
    "bootstraps",
    "levels",
    "degree",
    "key_bytes",
    "key_memory_bytes",
    "map_memory_bytes",
    "query_bytes",
    "predicted_ms",
)
#: Activations are compared at the first of these, thresholds with the first activation.
COMPARED_AT = 500
SLOTS = (32_768, 16_384, 8_192)


class Log:
    """Impressions in the order of the log, as days are: made up, or streamed from a file.

    Attributes:
        rows: of each categorical column.
        learning: the training part, or what yields an epoch's batches of it.
        held: the validation and the test part.
        impressions: of all parts.
    """

    def __init__(
        self, rows: tuple[int, ...], learning: Any, held: tuple[Any, Any], impressions: int
    ) -> None:
        from hushtable.nn.encrypted import Recipe

        self.rows, self.learning, self.held, self.impressions = rows, learning, held, impressions
        self.recipe = Recipe(epochs=3, batch=BATCH, rate=1e-3, penalty=10.0, patience=1)

    @classmethod
    def read(cls, folder: Path) -> Log:
        """The real log, ``train.txt`` in ``folder``: six days, half of the seventh, and half."""
        from examples.dlrm.encrypted import Parts

        from hushtable.data.criteo import Criteo

        log = Criteo(folder / "train.txt")
        parts = Parts.read(log, BATCH)
        return cls(parts.rows, parts.learning, (parts.validation, parts.test), log.count())

    @classmethod
    def make(cls, impressions: int) -> Log:
        """Made-up impressions: eight tenths, one, and one."""
        from hushtable.nn.encrypted import Samples

        log = criteo.make(impressions, CRITEO_KAGGLE_ROWS)
        ends = (impressions * 8 // 10, impressions * 9 // 10)
        mean, deviation = log.dense[: ends[0]].mean(0), log.dense[: ends[0]].std(0)
        constants = Preprocess(tuple(map(float, mean)), tuple(map(float, deviation)), BOUND)
        every = Samples(constants.standardise(log.dense), log.ids, log.clicked)
        learning, *held = (
            every.take(slice(*both)) for both in zip((0, *ends), (*ends, impressions), strict=True)
        )
        return cls(CRITEO_KAGGLE_ROWS, learning, (held[0], held[1]), impressions)

    def fit(self, setting: Setting, threshold: int, seeds: int) -> dict[str, Any]:
        """What models of these seeds are found to be on the last part."""
        import torch

        from hushtable.nn.encrypted import DLRM, train

        description = setting.describe(self.rows, threshold)
        scores, ranges = [], []
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = DLRM(description, range=setting.held, gain=setting.gain)
            report = train(model, self.learning, *self.held, recipe=self.recipe)
            assert report.test is not None
            scores.append(report.test)
            # Of all parts: training has reset it, and judged the test part last.
            ranges.append(max(one.largest for one in model.activations))
        return {
            "range": setting.held,
            "largest": max(ranges),
            "auc": float(np.mean([one.auc for one in scores])),
            "auc_sd": float(np.std([one.auc for one in scores])),
            "log_loss": float(np.mean([one.log_loss for one in scores])),
            "log_loss_sd": float(np.std([one.log_loss for one in scores])),
            "auc_by_seed": [round(one.auc, 6) for one in scores],
        }


def study(log: Log, seeds: int) -> dict[str, Any]:
    """Trains every setting; what the file of results holds."""
    import torch

    torch.set_num_threads(1)
    lines, began = [], time.perf_counter()
    for name, threshold in itertools.product(SETTINGS, THRESHOLDS):
        found = log.fit(SETTINGS[name], threshold, seeds)
        lines.append({"activation": name, "threshold": threshold, **found})
        print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
    return {
        "impressions": log.impressions,
        "seeds": seeds,
        "clicked": float(log.held[1].labels.mean()),
        "recipe": asdict(log.recipe),
        "torch": torch.__version__,
        "machine": platform.platform(),
        "seconds": round(time.perf_counter() - began, 1),
        "settings": lines,
    }


def study_degrees(log: Log, seeds: int) -> dict[str, Any]:
    """ReLU's one polynomial of each degree, and ReLU in the clear, of equal seeds."""
    import torch

    torch.set_num_threads(1)
    lines = []
    for degree in (None, *DEGREES):
        setting = Setting("relu", degree, None if degree is None else HELD)
        found = log.fit(setting, COMPARED_AT, seeds)
        lines.append({"degree": degree, "threshold": COMPARED_AT, **found})
        print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
    return {
        "impressions": log.impressions,
        "seeds": seeds,
        "recipe": asdict(log.recipe),
        "torch": torch.__version__,
        "machine": platform.platform(),
        "settings": lines,
    }


def study_real(folder: Path, out: Path, seeds: int, *, is_all: bool) -> int:
    """Trains on the real log and writes what was found; the exit status."""
    from hushtable.errors import Error

    try:
        log = Log.read(folder)
    except (Error, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    document = study(log, seeds) if is_all else {}
    document["degrees"] = study_degrees(log, seeds)
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{out}: written")
    return 0


def study_plans() -> dict[str, Any]:
    """What each setting's model takes on encrypted features, by the planner and its cost table."""
    from hushtable.infer import plan

    lines, machine = [], ""
    for name, threshold in itertools.product(SETTINGS, PLANNED_AT):
        found = plan(SETTINGS[name].describe(CRITEO_KAGGLE_ROWS, threshold).to_toml())
        kept = {key: getattr(found, key) for key in PLANNED}
        lines.append({"activation": name, "threshold": threshold, **kept})
        print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
        by = re.search(r"^predicted .* ms of one thread \((.*)\), a rounding is", found.text, re.M)
        assert by is not None, found.text
        machine = by[1]
    return {"machine": machine, "settings": lines}


def compressions() -> list[Compression]:
    """Criteo's tables at each threshold."""
    return [compression(CRITEO_KAGGLE_ROWS, threshold) for threshold in THRESHOLDS]


def table_of_sizes() -> list[str]:
    """Appendix C of the paper, and what it takes here."""
    heads = " | ".join(f"ciphertexts of {slots:,}" for slots in SLOTS)
    lines = [
        f"| threshold | rows kept = slots | ratio | {heads} | tables, float32 |",
        "|--:|--:|--:|" + "--:|" * (len(SLOTS) + 1),
    ]
    for found in compressions():
        counts = " | ".join(str(found.ciphertexts(slots)) for slots in SLOTS)
        ratio = f"{found.ratio:,.0f}" if found.ratio >= 100 else f"{found.ratio:.1f}"
        size = f"{found.table_bytes / 1e6:,.2f} MB"
        lines.append(f"| {found.threshold:,} | {found.slots:,} | {ratio}x | {counts} | {size} |")
    whole = compressions()[0]
    lines += ["", f"Whole, the {whole.rows:,} rows take {whole.whole_bytes / 1e9:.2f} GB."]
    return lines


def table_of_patients() -> list[str]:
    """One line an activation, from the committed results."""
    document = json.loads(HEART.read_text(encoding="utf-8"))
    lines = ["| activation | range | accuracy | AUC | log loss |", "|---|--:|--:|--:|--:|"]
    for one in document["settings"]:
        held = "none" if one["range"] is None else f"{one['range']:g}"
        accuracy = f"{one['accuracy']:.1%} ± {one['accuracy_sd']:.1%}"
        lines.append(
            f"| {one['name']} | {held} | {accuracy} | {one['auc']:.3f} | {one['log_loss']:.3f} |"
        )
    models = document["folds"] * document["seeds"]
    lines += [
        "",
        f"Mean and standard deviation over {models} held-out fifths of 60 or 61 patients.",
    ]
    return lines


def table_of_clicks(document: dict[str, Any]) -> list[str]:
    """One line a setting: how good its models are, and what one takes under encryption."""
    lines = [
        "| activation | threshold | AUC | less than ReLU's | log loss | largest input | bootstraps"
        " | keys | query | time |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    trained, planned = document["settings"], document["plans"]["settings"]
    plans = {(one["activation"], one["threshold"]): one for one in planned}
    clear = {one["threshold"]: one["auc_by_seed"] for one in trained if one["activation"] == "ReLU"}
    for one in trained:
        name, threshold = one["activation"], one["threshold"]
        less = takes = ""
        if name != "ReLU":
            differences = np.array(clear[threshold]) - np.array(one["auc_by_seed"])
            less = f"{differences.mean():+.4f} ± {differences.std():.4f}"
        if plan := plans.get((name, threshold)):
            takes = (
                f"{plan['bootstraps']} | {plan['key_bytes'] / 1e6:,.0f} MB"
                f" | {plan['query_bytes'] / 1e6:.1f} MB | {plan['predicted_ms'] / 1e3:.2f} s"
            )
        lines.append(
            f"| {name} | {threshold:,} | {one['auc']:.4f} | {less} | {one['log_loss']:.4f}"
            f" | {one['largest']:.1f} | {takes or '| | |'} |"
        )
    seeds = "One seed" if document["seeds"] == 1 else f"Mean of {document['seeds']} seeds"
    lines += [
        "",
        f"{document['impressions']:,} made-up impressions, of which the last tenth is judged;"
        f" {document['clicked']:.1%} of it are clicks. {seeds}; differences are of equal seeds, and"
        " their deviation. ReLU is trained in the clear and computed as the composite of degrees"
        " 15, 15 and 27. Bootstraps, keys and bytes are those of `hushtable infer plan`; times are"
        " predictions of its cost table, for one thread of"
        f" {document['plans']['machine']}. Models of the largest threshold were not planned.",
    ]
    return lines


def table_of_degrees(document: dict[str, Any]) -> list[str]:
    """One line a degree: how far from the clear ReLU's AUC its models are, seed by seed."""
    lines = [
        "| degree | levels | largest error | AUC | less than ReLU's | by seed | largest input |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    settings = document["settings"]
    clear = np.array(settings[0]["auc_by_seed"])
    for one in settings:
        degree, areas = one["degree"], np.array(one["auc_by_seed"])
        name, levels, error, less, by_seed = "ReLU, in the clear", "", "", "", ""
        if degree is not None:
            name, levels = str(degree), str(degree.bit_length())
            # Bernstein's constant, of the even degree below.
            error = f"{0.2802 * one['range'] / (2 * (degree - 1)):.3f}"
            less = f"{np.mean(clear - areas):+.4f}"
            by_seed = ", ".join(f"{value:+.4f}" for value in clear - areas)
        lines.append(
            f"| {name} | {levels} | {error} | {one['auc']:.4f} | {less} | {by_seed}"
            f" | {one['largest']:.1f} |"
        )
    lines += [
        "",
        f"{document['impressions']:,} made-up impressions, threshold {COMPARED_AT},"
        f" {document['seeds']} seeds, range {HELD:g}.",
    ]
    return lines


def write_page(document: dict[str, Any]) -> None:
    """Replaces what stands between the marks of the page."""
    tables = {
        "sizes": table_of_sizes(),
        "patients": table_of_patients(),
        "degrees": table_of_degrees(document["degrees"]),
        "clicks": table_of_clicks(document),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in tables.items():
        begin = f"<!-- {name}: begin (bench/encrypted_models.py) -->"
        end = f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{PAGE} has no {begin} ... {end}")
        text = before + "\n".join([begin, *lines, end]) + after
    PAGE.write_text(text, encoding="utf-8")


def draw(document: dict[str, Any], path: Path) -> None:
    """AUC over the slots that a query takes, and each activation's."""
    import matplotlib

    matplotlib.use("svg")
    # Equal figures are then equal files.
    matplotlib.rcParams["svg.hashsalt"] = "hushtable"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    by_threshold = [one for one in document["settings"] if one["activation"] == "ReLU"]
    slots = [compression(CRITEO_KAGGLE_ROWS, one["threshold"]).slots for one in by_threshold]
    areas, spread = ([one[key] for one in by_threshold] for key in ("auc", "auc_sd"))
    left.errorbar(slots, areas, yerr=spread, marker="o", capsize=3)
    for x, y, one in zip(slots, areas, by_threshold, strict=True):
        text = f"{one['threshold']:,}"
        left.annotate(text, (x, y), textcoords="offset points", xytext=(-8, 3), ha="right")
    left.set(xscale="log", xlim=(1e2, 1e7), ylabel="AUC", title="ReLU, by threshold")
    left.set(xlabel="slots of a query")
    at = [one for one in document["settings"] if one["threshold"] == COMPARED_AT]
    names = [one["activation"].replace(" of ", "\nof ") for one in at]
    areas, spread = ([one[key] for one in at] for key in ("auc", "auc_sd"))
    right.errorbar(names, areas, yerr=spread, marker="o", linestyle="none", capsize=3)
    left.margins(y=0.1)
    right.margins(x=0.2)
    right.set(title=f"threshold {COMPARED_AT:,}, by activation")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-only", action="store_true", help="train nothing")
    parser.add_argument("--degrees", action="store_true", help="train ReLU's polynomials alone")
    parser.add_argument("--plans", action="store_true", help="train nothing, plan each model")
    parser.add_argument("--impressions", type=int, default=100_000, help="to make up")
    parser.add_argument("--seeds", type=int, default=3, help="of each setting")
    parser.add_argument("--data", type=Path, help="a folder with the real log, train.txt")
    parser.add_argument("--out", type=Path, help="where what --data gives goes, as JSON")
    options = parser.parse_args()
    if options.impressions < 1_000 or options.seeds < 1:
        parser.error("--impressions must be at least 1,000 and --seeds at least 1")
    if options.data is not None:
        if options.out is None or options.write_only:
            parser.error("--data needs --out, a file, and trains: it goes without --write-only")
        return study_real(options.data, options.out, options.seeds, is_all=not options.degrees)
    kept = sorted(RESULTS.glob("encrypted-models-*.json"))
    if (options.plans or options.degrees) and not kept:
        parser.error("--plans and --degrees add to results, and none are kept: go without them")
    document = json.loads(kept[-1].read_text(encoding="utf-8")) if kept else {}
    if not (options.write_only and kept):
        if not options.plans:
            log = Log.make(options.impressions)
            if not options.degrees:
                document |= study(log, options.seeds)
            document["degrees"] = study_degrees(log, options.seeds)
        if not options.degrees:
            document["plans"] = study_plans()
        path = RESULTS / f"encrypted-models-{datetime.date.today().isoformat()}.json"
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    draw(document, PLOT)
    write_page(document)
    print(f"{PAGE.relative_to(ROOT)}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
