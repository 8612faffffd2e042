"""The same predictions twice: rows in the clear, and rows looked up in private."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from examples.movielens.model import auc
from examples.movielens.servers import Mismatch

import hushtable
from hushtable.nn import KeyedRows, ModelSource, PrivateEmbeddingBagCollection

from . import model
from .criteo import Floats, Log
from .training import Trained

#: Samples of one call of the layer.
CALL = 32


@dataclass(frozen=True)
class Judgement:
    """What came of it.

    Attributes:
        impressions: judged.
        real: of them real ones.
        clear_auc: of predictions in the clear.
        private_auc: of private ones.
        real_auc: of private ones, on real impressions alone; None where there are none.
        differing: predictions that are not the same bits in both; always 0, or :class:`Mismatch`.
        ms: median milliseconds of one inference alone, from its ids to its rows.
        bytes_up: bytes that one inference sends, to both servers together.
        bytes_down: bytes that it receives.
    """

    impressions: int
    real: int
    clear_auc: float
    private_auc: float
    real_auc: float | None
    differing: int
    ms: float
    bytes_up: int
    bytes_down: int


def collection(source: ModelSource) -> PrivateEmbeddingBagCollection:
    """All of the model's tables as one layer."""
    return PrivateEmbeddingBagCollection(source)


def look_up(layer: PrivateEmbeddingBagCollection, log: Log) -> Floats:
    """The impressions' rows, float32 [impressions, 26, DIM]."""
    parts = []
    for first in range(0, len(log), CALL):
        ids = log.ids[first : first + CALL]
        offsets = np.arange(len(ids) + 1)
        bags = {f"emb_l.{column}": (ids[:, column], offsets) for column in range(ids.shape[1])}
        rows: KeyedRows = layer(bags)
        values = [np.asarray(rows[name]) for name in bags]
        parts.append(np.stack(values, axis=1))
    return np.concatenate(parts)


def judge(
    trained: Trained, device: model.Dense, test: Log, client: hushtable.ModelClient, *, timed: int
) -> Judgement:
    """Predicts in the clear and in private, and compares.

    Args:
        trained: the model in the clear.
        device: the dense part as the bundle has it.
        test: impressions to judge on.
        client: of both servers.
        timed: inferences to time one by one.

    Raises:
        Mismatch: a private prediction that is not the clear one to the last bit.
    """
    clear = model.predict(trained.dense, test, model.gather(trained.tables, test.ids))
    layer = collection(client)
    private = model.predict(device, test, look_up(layer, test))
    differing = int((clear.view(np.uint32) != private.view(np.uint32)).sum())
    if differing:
        raise Mismatch(
            f"{differing} of {len(test)} private predictions are not the clear model's: run "
            "`hushtable model verify` on the bundle, and please report it"
        )
    times = []
    for place in range(min(timed, len(test))):
        one = test.take(np.array([place]))
        started = time.perf_counter()
        look_up(layer, one)
        times.append(time.perf_counter() - started)
    stats = client.last_stats
    assert stats is not None
    real = test.is_real
    return Judgement(
        impressions=len(test),
        real=int(real.sum()),
        clear_auc=auc(clear, test.clicked),
        private_auc=auc(private, test.clicked),
        real_auc=auc(private[real], test.clicked[real]) if real.any() else None,
        differing=differing,
        ms=float(np.median(times)) * 1e3,
        bytes_up=stats.bytes_up,
        bytes_down=stats.bytes_down,
    )
