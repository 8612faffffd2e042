"""``HUSHTABLE_SHUFFLE=SEED`` runs the files in another order, and the tests of each file."""

from __future__ import annotations

import itertools
import os
import random

import pytest

VARIABLE = "HUSHTABLE_SHUFFLE"


class ShufflePlugin:
    """The same order from the same seed, in every worker of pytest-xdist too."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def pytest_report_header(self) -> str:
        return f"shuffled: {VARIABLE}={self._seed}"

    # First: pytest then puts those together that share a parametrised fixture of their file.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order = random.Random(self._seed)
        groups = itertools.groupby(items, key=lambda item: item.path)
        files = [list(tests) for _, tests in groups]
        order.shuffle(files)
        for tests in files:
            order.shuffle(tests)
        items[:] = itertools.chain.from_iterable(files)


def shuffle_of_environment() -> ShufflePlugin | None:
    seed = os.environ.get(VARIABLE, "")
    return ShufflePlugin(seed) if seed else None
