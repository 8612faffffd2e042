"""``hushtable demo --small``: real servers, the table that is installed along, what they saw."""

from __future__ import annotations

import json
import runpy
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks

from hushtable import Table
from hushtable.cli import demo
from hushtable.data import cache_folder
from hushtable.errors import Error

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = resources.files("hushtable.cli") / "demo_words" / "words.npz"


def _held() -> tuple[list[str], Any]:
    with SHIPPED.open("rb") as file, np.load(file, allow_pickle=False) as held:
        words = [word.decode() for word in held["words"]]
        return words, held["steps"].astype(np.float32) * held["scales"]


def _demo(*words: str) -> dict[str, Any]:
    done = forks.run("demo", "--small", "--json", *words)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def test_words_come_back_and_servers_see_the_same_of_any() -> None:
    words, vectors = _held()
    one, three = _demo("Disease"), _demo()
    for record in (one, three):
        assert record["rows_equal_the_table"] is True
        for found in record["words"]:
            assert words[found["id"]] == found["word"]
            # It is served by 8 bits a number too, in steps of its own.
            step = np.abs(vectors[found["id"]]).max() / 127
            assert np.abs(np.array(found["row"]) - vectors[found["id"]]).max() <= step
        assert record["table"]["rows"] == len(words) == len(vectors)
        left, right = record["servers"]
        assert (left["side"], right["side"]) == ("left", "right")
        assert left["process"] != right["process"]
        for server in (left, right):
            assert server["keys"] == demo.MAX_IDS
            assert not Path(f"/proc/{server['process']}").exists(), "a server is left"
    assert [found["word"] for found in three["words"]] == list(demo.WORDS)
    seen = ("keys", "bytes_received", "bytes_sent")
    assert [[server[name] for name in seen] for server in one["servers"]] == [
        [server[name] for name in seen] for server in three["servers"]
    ]


def test_text_says_what_each_server_saw() -> None:
    done = forks.run("demo", "--small", "lawyer")
    assert done.returncode == 0, done.stderr
    assert "lawyer" in done.stdout and "bit for bit" in done.stdout
    assert "left saw" in done.stdout and "right saw" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["frobnicate"], "'frobnicate' is not among the 1,024 words"),
        (["money"] * 9, "9 words are too many"),
    ],
)
def test_words_that_cannot_be_looked_up_are_refused(words: list[str], says: str) -> None:
    done = forks.run("demo", "--small", *words)
    assert done.returncode == 2
    assert says in done.stderr


def test_rows_that_are_not_the_tables_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Table.rows
    monkeypatch.setattr(Table, "rows", lambda self, ids: rows(self, ids) + 1)
    with pytest.raises(Error, match="not the table's"):
        demo.demo(["money"], small=True)


def test_the_shipped_words_are_those_of_glove(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not (cache_folder() / "glove-6b-50d" / "glove_6B_50d_emb.npy").exists():
        pytest.skip("GloVe is not in the cache: .ci/demo_words fetches it")
    maker = runpy.run_path(str(ROOT / ".ci" / "demo_words"))
    made = tmp_path / "words.npz"
    monkeypatch.setitem(maker["main"].__globals__, "OUT", made)
    maker["main"]()
    with np.load(made) as again, SHIPPED.open("rb") as file, np.load(file) as held:
        assert sorted(again) == sorted(held)
        for name in held:
            assert np.array_equal(again[name], held[name]), name
