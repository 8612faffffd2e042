"""Runs the files that take longest first, so that no worker is left alone with one at the end."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

#: Seconds a file, from the repository's root; `.ci/durations` writes it.
KEPT = Path(__file__).with_name("durations.json")


class OrderPlugin:
    """Files by what they last took; the tests of a file stay as they stand."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = json.loads(KEPT.read_text())
        files = [(path, list(tests)) for path, tests in itertools.groupby(items, _file)]
        # A new file goes first: what is not known may take long.
        files.sort(key=lambda file: kept.get(file[0], float("inf")), reverse=True)
        items[:] = itertools.chain.from_iterable(tests for _, tests in files)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
