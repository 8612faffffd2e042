"""One user's device: its ratings stay here, and which films they are of does not show."""

from __future__ import annotations

from typing import cast

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from hushtable.fl import DUMMY, Ids, Session
from hushtable.fl.flower import UPLOAD_RECORD, RowClient, constant_errors

from . import model, place
from .ratings import Lesson

app = ClientApp(mods=[constant_errors])


def _user(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _lesson(context: Context, server_round: int) -> Lesson:
    """The same for each message of a round."""
    seed = int(context.run_config["seed"])
    random = np.random.default_rng([seed, 4, server_round, _user(context)])
    return place.ratings(context).lesson(_user(context), random)


def _values(context: Context, server_round: int) -> Ids:
    ids = _lesson(context, server_round).ids
    real: Ids = ids[ids != DUMMY]
    return real


client = RowClient(app, values=_values, pin=place.read_pin, sessions=Session)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round: rows and dense weights in, what was learned out."""
    server_round = cast(int, message.content.config_records["config"]["server-round"])
    got, lesson = client.open(message, context), _lesson(context, server_round)
    arrays = message.content.array_records["arrays"]
    names, given = list(arrays), arrays.to_numpy_ndarrays()
    weights = dict(zip(names, map(jax.numpy.asarray, given), strict=True))
    key = model.keys(int(context.run_config["seed"]), server_round * 10_007 + _user(context), 1)[0]
    features = jax.numpy.asarray(place.ratings(context).features)
    update = model.train(weights, features, model.task(lesson, got.rows, got.found), key)
    samples = int(lesson.real.sum())
    after = {name: Array(np.asarray(weights[name] - update.dense[name])) for name in names}
    content = RecordDict(
        {
            "arrays": ArrayRecord(after),
            "metrics": MetricRecord({"num-examples": samples, "loss": float(update.loss)}),
            UPLOAD_RECORD: got.upload(np.asarray(update.rows), samples),
        }
    )
    return Message(content, reply_to=message)
