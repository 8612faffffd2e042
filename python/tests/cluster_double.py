"""A stand-in for the command ``hushtable``, for tests of what places and keeps servers.

It takes the lines of ``hushtable shard fetch`` and ``hushtable serve``, says what they say, and
dies, drains and changes versions as they do; of answers it has none. ``test_cluster_real.py`` has
the real command.

What it is told by: ``HUSHTABLE_TEST_CLUSTER``, a folder. A file ``hold-fetch`` or ``hold-load`` in
it has copies, or loads of next versions, wait for as long as it is there, and ``held-fetch`` or
``held-load`` is there once one waits; ``queue-seconds`` is the mean wait that servers say.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import threading
import time
import tomllib
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOLD = Path(os.environ.get("HUSHTABLE_TEST_CLUSTER", "/nonexistent"))


def flag(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def fetch(source: Path, out: Path) -> None:
    """Copies a whole bundle aside, and puts it in its place by a rename."""
    map_ = json.loads((source / "shards.json").read_text())
    while is_held("fetch"):
        time.sleep(0.05)
    name = f"{map_['name']}-{map_['model'][:16]}"
    out.mkdir(parents=True, exist_ok=True)
    if not (out / name).is_dir():
        shutil.copytree(source, out / f".{name}.part", dirs_exist_ok=True)
        (out / f".{name}.part").rename(out / name)
    print(out / name, flush=True)


def is_held(what: str) -> bool:
    """Whether it is to wait; that it does is said by a file, ``held-fetch`` or ``held-load``."""
    if not (TOLD / f"hold-{what}").exists():
        return False
    (TOLD / f"held-{what}").touch()
    return True


def version_of(bundle: Path) -> str:
    return str(json.loads((bundle / "shards.json").read_text())["model"])


class Server:
    """A server, of a shard or a front, that holds versions."""

    def __init__(self, bundle: Path) -> None:
        self.held = [version_of(bundle)]
        self.taken = 0
        self.phase = "loading"
        self.started_at = time.monotonic()
        self.keys, self.waited_s = 0, 0.0

    def metrics(self) -> str:
        told = TOLD / "queue-seconds"
        mean = float(told.read_text()) if told.exists() else 0.0
        keys = int(1000 * (time.monotonic() - self.started_at))
        self.waited_s += mean * (keys - self.keys)
        self.keys = keys
        return (
            f'hushtable_reloads_total{{outcome="taken"}} {self.taken}\n'
            f'hushtable_table_versions{{table="items"}} {len(self.held)}\n'
            f'hushtable_queue_seconds_sum{{table="items"}} {self.waited_s}\n'
            f'hushtable_queue_seconds_count{{table="items"}} {keys}\n'
            f'hushtable_stand_in{{held="{",".join(self.held)}"}} 1\n'
        )

    def look(self, watched: Path) -> None:
        """Takes the newest bundle in the folder; a front, once every shard has it."""
        found = [path for path in watched.glob("[!.]*") if path.is_dir()]
        newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None or (version := version_of(newest)) == self.held[-1]:
            return
        if version in self.held:  # the newest again
            self.held.remove(version)
        elif is_held("load") or not every_shard_holds(version):
            return
        else:
            log("INFO", "loaded the shard", model="clicks", version=version)
        # Of those before the last nobody asks for any more.
        self.held = [*self.held[-1:], version]
        self.taken += 1


def every_shard_holds(version: str) -> bool:
    """Asks a shard's servers as a front does: here by what stands beside their URLs."""
    path = flag("--shards-file")
    if path is None:
        return True
    shards = tomllib.loads(Path(path).read_text())["shard"]
    return all(any(holds(url, version) for url in shard["replicas"]) for shard in shards)


def holds(url: str, version: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=1) as got:
            return version in got.read().decode()
    except OSError:
        return False


def log(level: str, message: str, **fields: str) -> None:
    record = {"level": level, "fields": {"message": message, **fields}}
    print(json.dumps(record), file=sys.stderr, flush=True)


def serve(bundle: Path) -> None:
    assert "--exit-with-parent" in sys.argv
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    server, watched = Server(bundle), Path(flag("--watch") or "")
    while flag("--shards-file") and not every_shard_holds(server.held[0]):
        time.sleep(0.05)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = server.phase == "ready"
            status = 200 if ready or self.path != "/readyz" else 503
            self.send_response(status)
            self.end_headers()
            body = server.metrics() if self.path == "/metrics" else server.phase
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    host, _, port = (flag("--addr") or "").rpartition(":")
    # One port for both: whoever asks for metrics of a server's URL gets them.
    http = ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://{host}:{http.server_address[1]}"
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server.phase = "ready"
    ready = {"event": "ready", "url": url, "metrics_url": url, "version": server.held[0]}
    print(json.dumps({**ready, "side": flag("--side")}), flush=True)
    while not ended.wait(0.1):
        server.look(watched)
    server.phase = "draining"
    (TOLD / f"drained-{os.getpid()}").touch()
    time.sleep(0.1)
    print(json.dumps({"event": "stopped"}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:3] == ["shard", "fetch"]:
        fetch(Path(sys.argv[3]), Path(flag("-o") or ""))
    else:
        serve(Path(sys.argv[2]))
