"""What both halves of the app must agree on: the data, and where the controller's pin is."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from flwr.app import Context

from hushtable import data

from . import synthetic
from .ratings import Ratings

_PIN_FILE = "controller.pin"


@cache
def load(name: str) -> Ratings:
    """All users' ratings: only a simulation has them in one place.

    Raises:
        ValueError: an unknown name.
        hushtable.data.DataError: the ratings could not be fetched or read.
    """
    if name == "synthetic":
        return Ratings.of(synthetic.ratings())
    if name == "ml-1m":
        return Ratings.of(data.load_movielens(data.fetch("ml-1m")))
    raise ValueError(f'ratings = "{name}" is unknown, expected "ml-1m" or "synthetic"')


def ratings(context: Context) -> Ratings:
    """The ratings that the run's settings name."""
    return load(str(context.run_config["ratings"]))


def folder(context: Context) -> Path:
    """Where the run's controller lives."""
    named = str(context.run_config["folder"])
    return Path(named) if named else Path(tempfile.gettempdir()) / f"fedrec-{context.run_id}"


def write_pin(context: Context, pin: str) -> None:
    """Publishes the controller's pin."""
    (folder(context) / _PIN_FILE).write_text(pin, encoding="utf-8")


def read_pin(context: Context) -> str:
    """The controller's pin.

    Out of a file, as one that came with the app would be: from Flower's server it must not come.
    """
    return (folder(context) / _PIN_FILE).read_text(encoding="utf-8")
