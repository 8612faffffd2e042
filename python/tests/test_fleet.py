"""Sides of several servers: clients go on to the next where one drains or is gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from command_line import forks
from conftest import Deployment
from waiting import held_port

import hushtable
from hushtable.nn import PrivateEmbedding

NEVER_ASKED = "http://127.0.0.1:9"


@pytest.fixture
def stack() -> object:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def gone(stack: ExitStack) -> str:
    """Nobody answers there."""
    return f"http://127.0.0.1:{stack.enter_context(held_port())}"


def start(
    stack: ExitStack, bundle: Path, side: str, addr: str = "127.0.0.1:0"
) -> hushtable.ServerProcess:
    return stack.enter_context(hushtable.ServerProcess(bundle, side, threads=1, addr=addr))


def test_lookups_go_on_at_the_next_server(
    stack: ExitStack, bundle: Path, weight: np.ndarray
) -> None:
    first = stack.enter_context(ExitStack())
    # Where the first one was, nobody is once it has ended.
    addr = f"127.0.0.1:{stack.enter_context(held_port())}"
    left, right = start(first, bundle, "left", addr), start(stack, bundle, "right")
    others = [start(stack, bundle, "left")]
    lefts = [left.url, *(server.url for server in others)]
    with hushtable.connect(
        lefts, [right.url], options=hushtable.ClientOptions(max_ids=4)
    ) as client:
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
    stack: ExitStack, gone: str, bundle: Path, weight: np.ndarray
) -> None:
    left, right = start(stack, bundle, "left"), start(stack, bundle, "right")
    with hushtable.connect([gone, left.url], right.url) as client:
        np.testing.assert_array_equal(client.lookup([7]), weight[[7]])

    async def look_up() -> np.ndarray:
        async with await hushtable.connect_async([gone, left.url], (right.url,)) as client:
            return await client.lookup([7])

    np.testing.assert_array_equal(asyncio.run(look_up()), weight[[7]])
    urls = ("--left", gone, "--left", left.url, "--right", right.url)
    done = forks.run("lookup", "7", "--json", *urls)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout)["rows"], weight[[7]], rtol=1e-6)


def test_a_server_of_the_other_side_in_a_list(
    stack: ExitStack, bundle: Path, deployment: Deployment
) -> None:
    first = stack.enter_context(ExitStack())
    addr = f"127.0.0.1:{stack.enter_context(held_port())}"
    left, right = start(first, bundle, "left", addr), start(stack, bundle, "right")
    wrong = start(stack, bundle, "right")
    with hushtable.connect([left.url, wrong.url], right.url) as client:
        client.lookup([7])
        first.close()
        with pytest.raises(hushtable.SwappedServers, match="both say they are the right server"):
            client.lookup([7])


@pytest.mark.parametrize("left", [[], [1], [NEVER_ASKED, None]])
def test_what_is_no_list_of_urls(left: object) -> None:
    with pytest.raises(hushtable.ConfigError, match="a URL, or a list of one or more"):
        hushtable.connect(left, NEVER_ASKED)  # type: ignore[arg-type]


def test_one_url_in_both_lists() -> None:
    with pytest.raises(hushtable.ConfigError, match="given as left and as right"):
        hushtable.connect([NEVER_ASKED, "http://127.0.0.1:10"], NEVER_ASKED)


def test_a_single_server_of_a_list(stack: ExitStack, bundle: Path, weight: np.ndarray) -> None:
    first = stack.enter_context(ExitStack())
    addr = f"127.0.0.1:{stack.enter_context(held_port())}"
    one, two = (
        of.enter_context(hushtable.ServerProcess(bundle, scheme="onion", threads=1, addr=where))
        for of, where in ((first, addr), (stack, "127.0.0.1:0"))
    )
    with hushtable.connect(server=[one.url, two.url]) as client:
        np.testing.assert_array_equal(client.lookup([7], max_ids=1), weight[[7]])
        first.close()
        np.testing.assert_array_equal(client.lookup([8], max_ids=1), weight[[8]])
