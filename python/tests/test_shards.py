"""Shards of a model: planned, fetched from folders and over HTTP, killed and damaged on the way."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_bags import lay_out
from test_cli import run, run_json
from waiting import COMMAND_HUNG_S

import hushtable
from hushtable import Model
from hushtable._fetch import copying
from hushtable._fetch import source as fetch_source
from hushtable.cli import main
from hushtable.shards import Fetched, fetch_shard, plan_shards, read_shards, verify_shard

ITEMS, USERS, FILMS = 20_000, 1_500, 3_000
SPEC = """
[tables.items]
key = "items.embedding.weight"

[tables.users]
key = "users.embedding.weight"
dtype = "int8"

[[feature]]
name = "items"

[[feature]]
name = "users"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tables, one of them int8, with a dense file and a map of three shards."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(5)
    weights = {
        "items.embedding.weight": rng.normal(size=(ITEMS, 8)).astype(np.float32),
        "users.embedding.weight": rng.normal(size=(USERS, 8)).astype(np.float32),
        "top.weight": rng.normal(size=(16, 9)).astype(np.float32),
    }
    np.savez(folder / "weights.npz", **weights)
    (folder / "spec.toml").write_text(SPEC)
    path = folder / "clicks"
    Model.build(folder / "weights.npz", path, spec=folder / "spec.toml")
    plan_shards(path, shards=3)
    return path


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(made, tmp_path / "source" / "clicks"))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK_BYTES", 16 << 10)
    monkeypatch.setattr(copying, "SYNC_BYTES", 32 << 10)
    monkeypatch.setattr(fetch_source, "WAITS_S", (0.01, 0.01))


def check_whole(source: Path, fetched: Path, shard: int | None) -> None:
    """That a copy has the rows of a shard, and is as the source is wherever it has bytes."""
    verify_shard(fetched, shard=shard)
    mine, theirs = Model.open(fetched), Model.open(source)
    assert mine.version == theirs.version
    assert read_shards(fetched) == read_shards(source)
    parts = () if shard is None else read_shards(source).shards[shard].parts
    for part in parts:
        ids = np.arange(part.first, part.end)
        np.testing.assert_array_equal(
            mine.table(part.table).rows(ids), theirs.table(part.table).rows(ids)
        )
    np.testing.assert_array_equal(mine.dense()["top.weight"], theirs.dense()["top.weight"])
    for file in (path for path in source.rglob("*") if path.is_file()):
        assert (fetched / file.relative_to(source)).stat().st_size == file.stat().st_size


def left_over(folder: Path) -> set[str]:
    """What is in a folder of fetched models beside models."""
    return {path.name for path in folder.iterdir() if path.name.startswith(".")} - {".parts"}


def test_a_plan_is_the_models_and_has_every_row_once(model: Path) -> None:
    version = Model.open(model).version
    planned = plan_shards(model, shards=4, replicas=3)
    assert planned == read_shards(model)
    assert (planned.name, planned.model, planned.replicas) == ("clicks", version, 3)
    assert Model.open(model).version == version
    assert hushtable.verify_model(model).ok
    for table, rows in (("items", ITEMS), ("users", USERS)):
        held = [p for shard in planned.shards for p in shard.parts if p.table == table]
        ends = [0, *(part.end for part in sorted(held, key=lambda part: part.first))]
        assert [part.first for part in sorted(held, key=lambda p: p.first)] == ends[:-1]
        assert ends[-1] == rows
    sizes = [shard.bytes for shard in planned.shards]
    assert max(sizes) < 1.2 * min(sizes)
    # As many as the memory takes: a server has a quarter of a GiB beside its rows.
    rows_bytes = sum(sizes)
    for versions, shards in ((1, 1), (2, 2), (4, 4)):
        memory = (256 << 20) + rows_bytes + 100_000
        found = plan_shards(model, memory_bytes=memory, versions=versions)
        assert len(found.shards) == shards


def test_numbers_that_make_no_map(model: Path, made: Path) -> None:
    for wrong in ({"shards": 0}, {"replicas": -1}, {"memory_bytes": 1 << 70}, {"versions": True}):
        with pytest.raises(hushtable.ConfigError, match="whole number"):
            plan_shards(model, **wrong)  # type: ignore[arg-type]
    with pytest.raises(hushtable.ShardMapError, match="must be 1 to"):
        plan_shards(model, shards=4_000)
    with pytest.raises(hushtable.ShardMapError, match="more memory"):
        plan_shards(model, memory_bytes=1 << 20)
    assert read_shards(model) == read_shards(made)
    with pytest.raises(hushtable.ShardMapError, match="no shard 3: the map has 3"):
        verify_shard(model, shard=3)
    (model / "shards.json").write_text(
        (model / "shards.json").read_text().replace('"end": ', '"end": 1')
    )
    with pytest.raises(hushtable.ShardMapError, match="checksum"):
        read_shards(model)
    (model / "shards.json").unlink()
    with pytest.raises(hushtable.ShardMapError, match="hushtable shard plan"):
        read_shards(model)


@pytest.mark.parametrize("shard", [None, 0, 1, 2])
def test_what_is_fetched_is_the_shards_part(
    made: Path, tmp_path: Path, shard: int | None, small_chunks: None
) -> None:
    told: list[tuple[int, int]] = []
    fetched = fetch_shard(made, tmp_path / "f", shard=shard, progress=lambda *now: told.append(now))
    version = Model.open(made).version
    part = "front" if shard is None else f"shard-{shard}"
    assert fetched.path == tmp_path / "f" / f"clicks-{version[:16]}"
    assert (fetched.name, fetched.version, fetched.part) == ("clicks", version, part)
    check_whole(made, fetched.path, shard)
    for other in {0, 1, 2} - {shard}:
        with pytest.raises(hushtable.DamagedTable, match="hash to version"):
            verify_shard(fetched.path, shard=other)
    assert told[-1][0] == told[-1][1] >= fetched.bytes
    assert all(before[0] <= after[0] for before, after in itertools.pairwise(told))
    rows = fetched.path / "tables" / "items" / "rows.safetensors"
    assert rows.stat().st_blocks * 512 < rows.stat().st_size * 0.6
    # Nothing is copied a second time, and no other part takes its place.
    again = fetch_shard(made, tmp_path / "f", shard=shard)
    assert again == Fetched(fetched.path, "clicks", version, part, fetched.bytes, 0)
    assert left_over(tmp_path / "f") == set()
    with pytest.raises(hushtable.PartExists, match=f"has {part}, not") as error:
        fetch_shard(made, tmp_path / "f", shard=0 if shard is None else None)
    assert (error.value.part, error.value.path) == (part, str(fetched.path))


def test_a_copy_that_was_brought_by_other_means_is_looked_at(model: Path, tmp_path: Path) -> None:
    fetched = fetch_shard(model, tmp_path / "a", shard=1)
    shutil.copytree(fetched.path, tmp_path / "b" / fetched.path.name)
    assert fetch_shard(model, tmp_path / "b", shard=1).copied_bytes == 0
    shutil.rmtree(tmp_path / "b" / ".parts")
    with pytest.raises(hushtable.PartExists, match="something else, not shard-0"):
        fetch_shard(model, tmp_path / "b", shard=0)
    # Of another map, the same number means other rows.
    plan_shards(model, shards=2)
    with pytest.raises(hushtable.PartExists, match="shard-1 of another map"):
        fetch_shard(model, tmp_path / "a", shard=1)


def test_layouts_and_patches_come_along(made: Path, tmp_path: Path) -> None:
    films = hushtable.Table.from_weight(np.arange(FILMS * 24).reshape(FILMS, 24), name="films")
    (tmp_path / "m").mkdir()
    model = Model.of_table(lay_out(films, tmp_path / "films"), tmp_path / "m" / "films")
    plan_shards(model.path, shards=2)
    fetched = fetch_shard(model.path, tmp_path / "f", shard=0)
    assert fetched.path.name.startswith("films-")
    # Bins have rows from all over the table.
    for shard in (0, 1, None):
        verify_shard(fetched.path, shard=shard)
    assert Model.open(fetched.path).table("films").layout == model.table("films").layout

    items = Model.open(made).table("items")
    ids = np.array([3, ITEMS - 1])
    patched = items.patch(ids, np.full((2, 8), 7.0, np.float32), tmp_path / "patched")
    model = Model.open(made).replace_table("items", patched, tmp_path / "m" / "clicks")
    plan_shards(model.path, shards=3)
    for shard in (0, 2):
        fetched = fetch_shard(model.path, tmp_path / f"f{shard}", shard=shard)
        check_whole(model.path, fetched.path, shard)


KILLS = """
import concurrent.futures, os, random, shutil, sys
from pathlib import Path
from hushtable._fetch import copying
from hushtable.shards import fetch_shard

copying.CHUNK_BYTES, copying.SYNC_BYTES = 16 << 10, 64 << 10
source, folder, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
KINDS = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.rmdir"}

class AtOnce(concurrent.futures.Executor):
    # Threads take turns as they like, and so do the calls that change files.
    def __init__(self, *_):
        pass

    def submit(self, call, *arguments):
        done = concurrent.futures.Future()
        try:
            done.set_result(call(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

def child(last, in_order=True):
    # Ends itself before the call of this number that changes files, or says how many there were.
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        if in_order:
            concurrent.futures.ThreadPoolExecutor = AtOnce
        seen = 0
        def step(*_):
            nonlocal seen
            seen += 1
            if seen == last:
                os.kill(os.getpid(), 9)
        for name in ("pwrite", "fsync"):
            call = getattr(os, name)
            setattr(os, name, lambda *a, call=call: (step(), call(*a))[1])
        sys.addaudithook(lambda event, _: event in KINDS and step())
        found = fetch_shard(source, folder, shard=1)
        os.write(write, f"{seen} {found.copied_bytes} {found.bytes}".encode())
        os._exit(0)
    os.close(write)
    status = os.waitpid(pid, 0)[1]
    with os.fdopen(read) as file:
        said = file.read()
    assert status in (0, 9), status
    return [int(word) for word in said.split()] if status == 0 else None

def whole():
    partial = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert partial == [".parts"], partial

steps, copied, size = child(0)
assert copied >= size
rng = random.Random(seed)
# Once at each of these points, then on to the end.
for last in [*rng.sample(range(1, steps - 16), 12), *range(steps - 16, steps + 1)]:
    shutil.rmtree(folder)
    assert child(last) is None, (last, steps)
    ended = child(0)
    assert ended[2] == size
    whole()
shutil.rmtree(folder)
assert child(steps + 1) is not None
# Again and again, by threads, a few steps later each time: it gets there.
shutil.rmtree(folder)
last, runs = 90, 0
while (ended := child(last, in_order=False)) is None:
    last, runs = last + rng.randrange(20), runs + 1
    assert runs < 200
assert runs > 2 and ended[1] < size / 2, (runs, ended)
whole()
print(steps, runs)
"""


def test_killed_anywhere_it_goes_on_and_is_right(made: Path, tmp_path: Path) -> None:
    seed = str(random.randrange(1 << 30))
    arguments = [sys.executable, "-c", KILLS, str(made), str(tmp_path / "f"), seed]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=COMMAND_HUNG_S)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    fetched = fetch_shard(made, tmp_path / "f", shard=1)
    assert fetched.copied_bytes == 0
    check_whole(made, fetched.path, 1)


class Stop(Exception):
    """Ends a fetch from within."""


def stop_after(count: int) -> Any:
    """A progress function that ends a fetch the ``count``th time that it is called."""
    calls = iter(range(count - 1))

    def progress(done: int, total: int) -> None:
        del done, total
        if next(calls, None) is None:
            raise Stop

    return progress


def test_what_the_disk_lost_meanwhile_is_copied_again(
    made: Path, tmp_path: Path, small_chunks: None
) -> None:
    with pytest.raises(Stop):
        fetch_shard(made, tmp_path, shard=0, progress=stop_after(25))
    (partial,) = tmp_path.glob(".*.shard-0.partial")
    rows = partial / "tables" / "items" / "rows.safetensors"
    content = bytearray(rows.read_bytes())
    content[4096 + 64 : 4096 + 96] = bytes(32)
    rows.write_bytes(content)
    fetched = fetch_shard(made, tmp_path, shard=0)
    check_whole(made, fetched.path, 0)
    assert 16 << 10 <= fetched.copied_bytes < fetched.bytes


def test_a_source_that_changes_is_refused_and_taken_anew(
    model: Path, tmp_path: Path, small_chunks: None
) -> None:
    table = model / "tables" / "items" / "rows.safetensors"

    def change(done: int, total: int) -> None:
        if 0 < done < total:
            os.utime(table, ns=(1, 1))

    with pytest.raises(hushtable.SourceChanged, match="begins anew"):
        fetch_shard(model, tmp_path / "f", shard=0, progress=change)
    fetched = fetch_shard(model, tmp_path / "f", shard=0)
    assert fetched.copied_bytes >= fetched.bytes
    # The next version is a copy of its own, beside the last.
    items = hushtable.Table.from_weight(np.ones((ITEMS, 8), np.float32), name="items")
    Model.open(model).replace_table("items", items)
    with pytest.raises(hushtable.FetchError, match=r"no map of shards.*shard plan"):
        fetch_shard(model, tmp_path / "f", shard=0)
    plan_shards(model, shards=3)
    later = fetch_shard(model, tmp_path / "f", shard=0)
    check_whole(model, later.path, 0)
    assert later.path != fetched.path
    verify_shard(fetched.path, shard=0)


def test_a_source_that_is_replaced_meanwhile(
    model: Path, tmp_path: Path, small_chunks: None
) -> None:
    smaller = hushtable.Table.from_weight(np.ones((ITEMS // 4, 8), np.float32), name="items")

    def replace(done: int, total: int) -> None:
        if done > total // 4 and (model / "shards.json").exists():
            Model.open(model).replace_table("items", smaller)

    with pytest.raises(hushtable.SourceChanged, match="begins anew"):
        fetch_shard(model, tmp_path / "f", shard=2, progress=replace)
    plan_shards(model, shards=2)
    check_whole(model, fetch_shard(model, tmp_path / "f", shard=1).path, 1)


def test_a_damaged_source_leaves_nothing(model: Path, tmp_path: Path) -> None:
    part = read_shards(model).shards[1].parts[0]
    path = model / "tables" / part.table / "rows.safetensors"
    row_bytes = 32
    with path.open("r+b") as file:
        file.seek(4096 + part.first * row_bytes)
        file.write(b"\x55")
    with pytest.raises(hushtable.DamagedTable, match="nothing of it was kept"):
        fetch_shard(model, tmp_path / "f", shard=1)
    assert left_over(tmp_path / "f") == set()
    # It is in no other shard.
    verify_shard(fetch_shard(model, tmp_path / "f", shard=0).path, shard=0)
    # The dense file is in all of them.
    with (model / "dense.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    with pytest.raises(hushtable.DamagedTable, match=r"dense.safetensors is not as it was built"):
        fetch_shard(model, tmp_path / "g", shard=None)
    (model / "tables" / "users" / "rows.tree").unlink()
    with pytest.raises(hushtable.FetchError, match=r"no tables/users/rows.tree"):
        fetch_shard(model, tmp_path / "g", shard=None)
    with pytest.raises(hushtable.FetchError, match=r"is no model"):
        fetch_shard(model / "tables", tmp_path / "g", shard=None)


def test_room_and_other_fetches(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # A disk that is nearly full, as the system would tell it.
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=100_000))
        with pytest.raises(hushtable.NoRoom, match="takes") as error:
            fetch_shard(made, tmp_path, shard=0)
        assert error.value.needed_bytes > error.value.free_bytes == 100_000
    (lock,) = (tmp_path / ".parts").glob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(hushtable.FetchError, match="another process fetches"):
            fetch_shard(made, tmp_path, shard=0)
    check_whole(made, fetch_shard(made, tmp_path, shard=0).path, 0)


class Files(SimpleHTTPRequestHandler):
    """Files with their ETags, by ranges; the first read of each may fail."""

    served: list[int]
    asked: set[tuple[str, str | None]]
    fails_first = False
    has_ranges = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        wanted = self.headers.get("Range")
        if with_body and self.fails_first and (self.path, wanted) not in self.asked:
            self.asked.add((self.path, wanted))
            self.send_error(503)
            return
        if wanted and self.has_ranges:
            first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            content = content[first : last + 1]
        else:
            self.send_response(200)
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.served.append(len(content))
            self.wfile.write(content)


@contextlib.contextmanager
def file_server(folder: Path, **settings: Any) -> Iterator[tuple[str, list[int]]]:
    """A server of a folder's files, and the bytes of each of its answers."""
    served: list[int] = []
    own = {"served": served, "asked": set(), **settings}
    handler = type("Served", (Files,), own)
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: handler(*arguments, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_over_http(model: Path, tmp_path: Path, small_chunks: None) -> None:
    with file_server(model.parent, fails_first=True) as (url, served):
        with pytest.raises(Stop):
            fetch_shard(f"{url}/clicks", tmp_path / "f", shard=2, progress=stop_after(22))
        before = sum(served)
        fetched = fetch_shard(f"{url}/clicks/", tmp_path / "f", shard=2)
        check_whole(model, fetched.path, 2)
        # Some was copied before; all of it once, but for the two files that say what to copy.
        first = sum((model / name).stat().st_size for name in ("model.json", "shards.json"))
        assert 0 < fetched.copied_bytes == sum(served) - before - first < fetched.bytes
        changed = model / "tables" / "users" / "rows.safetensors"
        with pytest.raises(hushtable.SourceChanged, match="changed while"):
            fetch_shard(
                f"{url}/clicks",
                tmp_path / "g",
                shard=0,
                progress=lambda *_: os.utime(changed, ns=(1, 1)),
            )
        with pytest.raises(hushtable.FetchError, match="is no model"):
            fetch_shard(f"{url}/other", tmp_path / "g", shard=0)
    with (
        file_server(model.parent, has_ranges=False) as (url, _),
        pytest.raises(hushtable.FetchError, match="in one piece alone"),
    ):
        fetch_shard(f"{url}/clicks", tmp_path / "h", shard=0)
    with pytest.raises(hushtable.FetchError, match=r"cannot read model.json from http") as error:
        fetch_shard(url.replace("//", "//me:secret@") + "/clicks", tmp_path / "h", shard=0)
    assert "secret" not in str(error.value)


def test_what_fsspec_opens(made: Path, tmp_path: Path) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    files.put(str(made), "/models/clicks", recursive=True)
    fetched = fetch_shard("memory://models/clicks", tmp_path, shard=1)
    check_whole(made, fetched.path, 1)
    with pytest.raises(hushtable.ConfigError, match="cannot be opened by fsspec"):
        fetch_shard("nonsense://models/clicks", tmp_path, shard=1)
    code = "import sys, hushtable.shards; print('fsspec' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_the_command(model: Path, tmp_path: Path) -> None:
    planned = run_json("shard", "plan", model, "--memory", "257MiB", "--replicas", 3)
    assert planned["replicas"] == 3
    assert planned == run_json("shard", "show", model)
    last = len(planned["shards"]) - 1
    done = run("shard", "fetch", model, "-o", tmp_path / "f", "--shard", last)
    assert (done.returncode, done.stderr) == (0, "")
    path = Path(done.stdout.splitlines()[-1])
    assert path.parent == tmp_path / "f"
    check_whole(model, path, last)
    front = run_json("shard", "fetch", model, "-o", tmp_path / "g", "--front")
    assert (front["part"], Path(front["path"]).name) == ("front", path.name)
    assert front["copied_bytes"] >= front["bytes"]


BAD: list[tuple[list[str], str, str]] = [
    (["plan", "MODEL", "--shards", "0"], "UsageError", "shards"),
    (["plan", "MODEL", "--memory", "much"], "UsageError", "much"),
    (["plan", "MODEL", "--memory", "1MiB"], "ShardMapError", "more memory"),
    (["show", "OUT"], "ModelError", "not a model bundle"),
    (["fetch", "MODEL", "-o", "OUT"], "ConfigError", "--shard K, or --front"),
    (["fetch", "MODEL", "-o", "OUT", "--shard", "9"], "ShardMapError", "no shard 9"),
    (["fetch", "/nowhere", "-o", "OUT", "--front"], "FetchError", "no model"),
    (["fetch", "MODEL", "-o", "/dev/null/f", "--front"], "FetchError", "cannot write"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), BAD)
def test_bad_input_is_one_line(
    made: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    kind: str,
    text: str,
) -> None:
    names = {"MODEL": str(made), "OUT": str(tmp_path)}
    with pytest.raises(SystemExit) as exit_:
        main(["shard", *(names.get(word, word) for word in arguments), "--json"])
    assert exit_.value.code == 2
    out, err = capfd.readouterr()
    error = json.loads(out)["error"]
    assert (err, error["type"], error["exit_code"]) == ("", kind, 2)
    assert text in error["message"]


@pytest.mark.parametrize("command", ["plan", "show", "fetch"])
def test_help_has_examples(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["shard", command, "--help"])
    assert exit_.value.code == 0
    out = capfd.readouterr().out
    assert "$ hushtable shard" in out
    assert "--json" in out
