"""Diagnoses held-out heart patients from findings that the server cannot read. See README.md."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import hushtable
from hushtable import infer
from hushtable.data import DataError, fetch, load_heart
from hushtable.nn.encrypted import score

from . import judging, served

#: How far an encrypted logit may be from the clear one: what plans are made for.
ERROR_MAX = 2.0**-10


@dataclass(frozen=True)
class Judgement:
    """What came of a fold's patients.

    Attributes:
        patients: who were asked for, one query each.
        clear_right: of them diagnosed rightly by the model in the clear.
        encrypted_right: by the encrypted one.
        differing: diagnoses that are not the same.
        error_max: the largest difference between an encrypted logit and the clear one.
        ms: milliseconds of each query, from findings to logit.
        server_ms: what the server computed of them.
        key_bytes: uploaded once.
        query_bytes: of a query.
        answer_bytes: of an answer.
    """

    patients: int
    clear_right: int
    encrypted_right: int
    differing: int
    error_max: float
    ms: list[float]
    server_ms: list[float]
    key_bytes: int
    query_bytes: int
    answer_bytes: int


def judge(fold: judging.Fold, client: infer.CkksClient, most: int | None) -> Judgement:
    """Asks for one patient after the other, encrypted, and compares with the model in the clear."""
    patients = len(fold.ill) if most is None else min(most, len(fold.ill))
    clear = fold.logits()[:patients].astype(np.float64)
    client.upload()
    logits, ms, server_ms = np.empty(patients), [], []
    for at in range(patients):
        began = time.perf_counter()
        found = client.predict(fold.dense[at : at + 1], fold.indices[at : at + 1])
        ms.append(1e3 * (time.perf_counter() - began))
        if found.stats is not None:
            server_ms.append(1e3 * found.stats.answer_seconds)
        logits[at] = found.logits[0]
    ill = fold.ill[:patients]
    return Judgement(
        patients=patients,
        clear_right=round(score(clear, ill).accuracy * patients),
        encrypted_right=round(score(logits, ill).accuracy * patients),
        differing=int(((logits > 0) != (clear > 0)).sum()),
        error_max=float(np.abs(logits - clear).max()),
        ms=ms,
        server_ms=server_ms,
        key_bytes=client.info.key_bytes,
        query_bytes=client.info.query_bytes,
        answer_bytes=client.info.answer_bytes,
    )


def run(
    folds: list[judging.Fold], folder: Path, say: Callable[[str], None], most: int | None = None
) -> list[Judgement]:
    """Serves each fold's model from a process of its own, and judges it.

    Args:
        folds: models with their held-out patients.
        folder: for bundles, plans and certificates.
        say: called with lines for a person to read.
        most: patients of a fold at most; all of them if not given.
    """
    certificates = hushtable.make_certificates(folder / "certificates")
    judged = []
    for fold in folds:
        bundle = served.build(fold.folder, folder)
        with (
            infer.ServerProcess(bundle, tls=certificates.server, threads=1) as server,
            hushtable.connect(server=server.url, scheme="ckks", tls=certificates.ca) as client,
        ):
            judged.append(judge(fold, client, most))
        found = judged[-1]
        say(
            f"{fold.folder.name}: {found.patients} patients, right in the clear"
            f" {found.clear_right}, encrypted {found.encrypted_right}; error at most"
            f" {found.error_max:.1e}; {statistics.median(found.ms):.0f} ms a query"
        )
    return judged


def main() -> int:
    """Runs the demo; the exit code is 1 where an encrypted logit is not the clear one."""
    parser = argparse.ArgumentParser(prog="python -m examples.heart", description=__doc__)
    parser.add_argument("--folds", type=int, default=5, help="models, each with its patients (5)")
    parser.add_argument("--patients", type=int, help="of a fold at most; by default all")
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    if chosen.folds < 1 or (chosen.patients is not None and chosen.patients < 1):
        parser.error("--folds and --patients must be at least 1")

    def say(line: str) -> None:
        print(line, file=sys.stderr if chosen.json else sys.stdout, flush=True)

    try:
        heart = load_heart(fetch("heart", say=say))
        folds = list(judging.folds(heart))[: chosen.folds]
        with tempfile.TemporaryDirectory(prefix="hushtable-heart-") as folder:
            judged = run(folds, Path(folder), say, chosen.patients)
    except (hushtable.Error, DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    patients = sum(one.patients for one in judged)
    clear = sum(one.clear_right for one in judged) / patients
    encrypted = sum(one.encrypted_right for one in judged) / patients
    largest = max(one.error_max for one in judged)
    median = statistics.median(ms for one in judged for ms in one.ms)
    if chosen.json:
        print(json.dumps({"folds": [asdict(one) for one in judged]}))
    first = judged[0]
    say(f"accuracy over {patients} patients: {clear:.1%} in the clear, {encrypted:.1%} encrypted")
    say(
        f"a query takes {median:.0f} ms (median), {first.query_bytes:,} bytes up and"
        f" {first.answer_bytes:,} down; keys of {first.key_bytes:,} bytes go up once"
    )
    if largest > ERROR_MAX:
        print(f"error: a logit is {largest:.1e} off, over {ERROR_MAX:.1e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
