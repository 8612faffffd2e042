"""Sides of several servers: clients go on to the next where one drains or is gone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from conftest import Deployment

import hushtable
from hushtable.nn import PrivateEmbedding

#: Nobody listens there.
GONE = "http://127.0.0.1:9"


@pytest.fixture
def stack() -> object:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, bundle: Path, side: str) -> hushtable.ServerProcess:
    return stack.enter_context(hushtable.ServerProcess(bundle, side, threads=1))


def test_lookups_go_on_at_the_next_server(
    stack: ExitStack, bundle: Path, weight: np.ndarray
) -> None:
    first = stack.enter_context(ExitStack())
    left, right = start(first, bundle, "left"), start(stack, bundle, "right")
    others = [start(stack, bundle, "left")]
    lefts = [left.url, *(server.url for server in others)]
    with hushtable.connect(lefts, [right.url], max_ids=4) as client:
        layer = PrivateEmbedding(client)
        np.testing.assert_array_equal(client.lookup([7]), weight[[7]])
        first.close()  # SIGTERM, and its end
        np.testing.assert_array_equal(client.lookup([8]), weight[[8]])
        assert client.last_stats.retries > 0
        np.testing.assert_array_equal(client.lookup([9]), weight[[9]])
        assert client.last_stats.retries == 0
        np.testing.assert_array_equal(np.asarray(layer([3])), weight[[3]])
        assert " or " in repr(client)


def test_a_client_connects_to_the_first_that_answers(
    stack: ExitStack, bundle: Path, weight: np.ndarray
) -> None:
    left, right = start(stack, bundle, "left"), start(stack, bundle, "right")
    with hushtable.connect([GONE, left.url], right.url) as client:
        np.testing.assert_array_equal(client.lookup([7]), weight[[7]])

    async def look_up() -> np.ndarray:
        async with await hushtable.connect_async([GONE, left.url], (right.url,)) as client:
            return await client.lookup([7])

    np.testing.assert_array_equal(asyncio.run(look_up()), weight[[7]])
    command = [sys.executable, "-m", "hushtable", "lookup", "7", "--json"]
    command += ["--left", GONE, "--left", left.url, "--right", right.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    np.testing.assert_allclose(json.loads(done.stdout)["rows"], weight[[7]], rtol=1e-6)


def test_a_server_of_the_other_side_in_a_list(
    stack: ExitStack, bundle: Path, deployment: Deployment
) -> None:
    first = stack.enter_context(ExitStack())
    left, right = start(first, bundle, "left"), start(stack, bundle, "right")
    wrong = start(stack, bundle, "right")
    with hushtable.connect([left.url, wrong.url], right.url) as client:
        client.lookup([7])
        first.close()
        with pytest.raises(hushtable.SwappedServers, match="both say they are the right server"):
            client.lookup([7])


@pytest.mark.parametrize("left", [[], [1], [GONE, None]])
def test_what_is_no_list_of_urls(left: object) -> None:
    with pytest.raises(hushtable.ConfigError, match="a URL, or a list of one or more"):
        hushtable.connect(left, GONE)  # type: ignore[arg-type]


def test_one_url_in_both_lists() -> None:
    with pytest.raises(hushtable.ConfigError, match="given as left and as right"):
        hushtable.connect([GONE, "http://127.0.0.1:10"], GONE)


def test_a_single_server_of_a_list(stack: ExitStack, bundle: Path, weight: np.ndarray) -> None:
    first = stack.enter_context(ExitStack())
    one, two = (
        of.enter_context(hushtable.ServerProcess(bundle, scheme="onion", threads=1))
        for of in (first, stack)
    )
    with hushtable.connect(server=[one.url, two.url]) as client:
        np.testing.assert_array_equal(client.lookup([7], max_ids=1), weight[[7]])
        first.close()
        np.testing.assert_array_equal(client.lookup([8], max_ids=1), weight[[8]])
