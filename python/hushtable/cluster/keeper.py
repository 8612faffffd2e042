"""What keeps one server up: its copies of the model, its process, and what is known of it.

Nothing here knows Ray. An actor has one keeper, which runs on a thread of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _within
from .child import Child, Queue, child_environment, samples, whole_command
from .source import Source
from .spec import Cluster, TlsFiles, setting_flags
from .wanted import Report, Wanted, front_name, shard_name

__all__ = ["Keeper", "Role"]

_TICK_S = 0.2
_ASK_EVERY_S = 0.5
_PAUSE_S_LEAST, _PAUSE_S_MOST = 0.5, 30.0
#: A server that is up for so long has recovered: the next pause is short again.
_STEADY_S = 60.0
#: A server whose second port is silent for so long does not come back by itself.
_SILENT_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Role:
    """Which server this is: a shard's replica, or, without a shard, a front.

    Attributes:
        shard: its shard.
        index: its number among the shard's replicas, or among the fronts.
    """

    shard: int | None
    index: int

    @property
    def name(self) -> str:
        """The actor's name."""
        return front_name(self.index) if self.shard is None else shard_name(self.shard, self.index)


class _Pause:
    """The wait after a failure, longer with each."""

    def __init__(self) -> None:
        self._seconds, self._until = 0.0, 0.0

    def begin(self) -> None:
        self._seconds = min(max(2 * self._seconds, _PAUSE_S_LEAST), _PAUSE_S_MOST)
        self._until = time.monotonic() + self._seconds

    def end(self) -> None:
        self._seconds = 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until


class Keeper:
    """Fetches what its server needs, starts it, watches it and starts it again.

    It goes by what it was told last, and needs nobody to go on: not the coordinator, not Ray. Its
    thread starts the server, and never returns: ``PR_SET_PDEATHSIG`` ends a child with the thread
    that started it, so that this thread must live exactly as long as the process. A thread of a
    pool, on which Ray may run methods, does not; and an actor's main thread is in Ray's hands, and
    could not start a server again while nobody calls.

    Args:
        role: which server.
        record: what is wanted, where nothing newer is on the disk.
        node: Ray's id of the node.
        address: the node's IP address, where the server listens unless the cluster says otherwise.
    """

    def __init__(self, role: Role, record: Mapping[str, Any], node: str, address: str) -> None:
        self.role, self._node, self._address = role, node, address
        self._lock = threading.Lock()
        self._wanted = Wanted.of_record(record)
        cluster = Cluster.of_record(self._wanted.cluster)
        self._folder = _within.join(Path(cluster.folder), f"{cluster.side}-{role.name}")
        self._state, self._reason = "fetching", ""
        self._server: Child | None = None
        self._served: list[str] = []
        self._loaded: str | None = None
        self._held, self._taken, self._restarts = 0, 0.0, 0
        self._dropped = 0
        self._queue = Queue()
        self._queue_s: float | None = None
        self._fetch: Child | None = None
        self._fetching: Source | None = None
        self._fetch_reason = ""
        self._server_pause, self._fetch_pause = _Pause(), _Pause()
        self._asked_at = 0.0
        self._drain_by: float | None = None
        self._shards_text = ""
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    # What the actor's methods call; none of it waits.

    def start(self) -> None:
        """Begins to keep the server."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._recall()
        self._thread.start()

    def tell(self, record: Mapping[str, Any], text: str | None) -> None:
        """Takes what is wanted, unless it knows newer, and a front the servers of shards."""
        wanted = Wanted.of_record(record)
        with self._lock:
            if wanted.id == self._wanted.id and wanted.generation >= self._wanted.generation:
                self._wanted = wanted
            if text is not None:
                self._shards_text = text
            self._remember()

    def drain(self, seconds: float) -> None:
        """Has the server end what is under way, within ``seconds``, and keeps it down."""
        with self._lock:
            if self._drain_by is None:
                self._drain_by = time.monotonic() + seconds

    @property
    def wanted(self) -> Wanted:
        """What it goes by."""
        with self._lock:
            return self._wanted

    def report(self) -> Report:
        """How it is."""
        with self._lock:
            server, wanted = self._server, self._wanted
            ready = server.ready if server is not None and server.is_running else None
            return Report(
                name=self.role.name,
                state=self._state,
                generation=wanted.generation,
                node=self._node,
                address=self._address,
                url=None if ready is None else str(ready["url"]),
                metrics_url=None if ready is None else ready.get("metrics_url"),
                copies=tuple(v.version for v in wanted.versions if self._copy_of(v) is not None),
                versions=tuple(self._served) if ready else (),
                held=self._held if ready else 0,
                queue_s=self._queue_s if ready else None,
                restarts=self._restarts,
                pid=server.process.pid if server is not None and server.is_running else None,
                reason=self._reason,
                shards_text=self._shards_text,
            )

    # What its own thread does.

    def _run(self) -> None:
        while True:
            # Whatever goes wrong, this thread goes on: its end would be the server's.
            try:
                self._step()
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                with self._lock:
                    self._state, self._reason = "failing", f"{type(error).__name__}: {error}"
                time.sleep(1)
            time.sleep(_TICK_S)

    def _step(self) -> None:
        with self._lock:
            wanted, drain_by = self._wanted, self._drain_by
        if drain_by is not None:
            self._end(drain_by)
            return
        self._keep_copies(wanted)
        self._keep_server(wanted)
        self._say()

    def _end(self, drain_by: float) -> None:
        fetch, server = self._fetch, self._server
        if fetch is not None:
            fetch.kill()
            self._fetch = None
        if server is None or not server.is_running:
            self._set("stopped", "")
            return
        if self._state != "draining":
            self._set("draining", "")
            server.terminate()
        elif time.monotonic() > drain_by:
            server.kill()

    def _keep_copies(self, wanted: Wanted) -> None:
        self._renew_newest(wanted)
        if self._fetch is None:
            missing = [v for v in wanted.versions if self._copy_of(v) is None]
            if missing and self._fetch_pause.is_over:
                # What fronts announce before what they are to: a new replica helps at once. But a
                # source may no longer have it, and the newest must not wait behind that.
                self._fetching = missing[0] if not self._fetch_reason else missing[-1]
                self._fetch = Child(self._fetch_command(wanted, self._fetching), bound=True)
            return
        if self._fetch.is_running:
            if self._fetching not in wanted.versions:
                self._fetch.kill()
            return
        fetch, source, self._fetch = self._fetch, self._fetching, None
        assert source is not None
        if fetch.code == 0 and self._copy_of(source) is not None:
            self._fetch_reason = ""
            self._fetch_pause.end()
            self._forget_copies(wanted)
            return
        self._fetch_pause.begin()
        why = (
            f"`hushtable shard fetch {source.shown}` ended with {fetch.code}: {fetch.last_words()}"
        )
        if fetch.code == 0:
            why = (
                f"{source.shown} holds {Path(fetch.last_line).name}, not version "
                f"{source.version[:16]}: the source has changed"
            )
        self._fetch_reason = why

    def _keep_server(self, wanted: Wanted) -> None:
        server = self._server
        if server is None or not server.is_running:
            if server is not None:
                self._lose(server)
            bundle = next(filter(None, map(self._copy_of, wanted.versions)), None)
            # After its node was away the newest on the disk may be older than what is wanted: it is
            # what fronts may still announce.
            bundle = bundle or self._newest_copy()
            if bundle is None or not self._server_pause.is_over or not self._write_shards():
                return
            command = self._serve_command(wanted, bundle)
            with self._lock:
                self._served, self._taken, self._held = [], 0.0, 0
                self._dropped = 0
                self._queue, self._queue_s = Queue(), None
                self._server = Child(command, bound=True)
            return
        self._write_shards()
        if time.monotonic() - self._asked_at >= _ASK_EVERY_S:
            self._asked_at = time.monotonic()
            self._ask(server)

    def _lose(self, server: Child) -> None:
        if time.monotonic() - server.started_at > _STEADY_S:
            self._server_pause.end()
        self._server_pause.begin()
        why = f"the server ended with {server.code}: {server.last_words()}"
        with self._lock:
            self._server = None
            self._restarts += 1
            self._reason = why
            self._state = "failing"

    def _ask(self, server: Child) -> None:
        if server.ready is None:
            return
        status, text = server.asked("/readyz")
        if time.monotonic() - server.is_answering_at > _SILENT_S_MAX:
            server.kill()
            self._set("failing", f"nothing answered at its second port for {_SILENT_S_MAX:g} s")
            return
        _, metrics = server.asked("/metrics")
        found = samples(metrics)
        taken = found.get(("hushtable_reloads_total", '{outcome="taken"}'), 0.0)
        sums = {
            part: sum(
                value
                for (name, _), value in found.items()
                if name.startswith("hushtable_queue_") and name.endswith(part)
            )
            for part in ("_seconds_sum", "_seconds_count")
        }
        held = [value for (name, _), value in found.items() if name == "hushtable_table_versions"]
        newest = self._newest_copy()
        with self._lock:
            if not self._served:
                self._served = [str(server.ready.get("version"))]
                self._loaded = self._served[0]
            if taken > self._taken:
                self._taken = taken
                # What it says it loaded, or what it holds already and is the newest again.
                is_new = server.loaded not in (None, self._loaded)
                version = server.loaded if is_new else newest and self._version_of(newest)
                self._loaded = server.loaded
                if version:
                    self._served = [*(v for v in self._served if v != version), version]
            # A shard says in its log what it drops, other servers in their metrics how many they
            # hold; it was the oldest.
            count = int(max(held, default=0)) or len(self._served) - server.dropped + self._dropped
            self._dropped = server.dropped
            self._served = self._served[-max(count, 1) :]
            self._held = max(count, 1)
            if found:
                now = time.monotonic()
                self._queue.look(now, sums["_seconds_sum"], sums["_seconds_count"])
                self._queue_s = self._queue.mean_s()
            self._state = "ready" if status == 200 else "loading"
            self._reason = "" if status == 200 else f"/readyz: {text.strip()}"

    def _say(self) -> None:
        """Why it is not ready, where the server itself does not say so."""
        with self._lock:
            server = self._server
            if server is None:
                if self._fetch is not None or self._fetch_reason:
                    if self._state != "failing":
                        self._state = "fetching"
                    self._reason = self._fetch_reason or self._reason
                elif self.role.shard is None and not self._shards_text:
                    self._state, self._reason = "waiting", "no shard has a server yet"
            elif server.ready is None:
                self._state = "starting"
                self._reason = server.last_warning or self._reason
            elif self._state == "ready":
                missing = [v for v in self._wanted.versions if v.version not in self._served]
                if missing:
                    self._reason = self._fetch_reason or server.last_warning

    def _set(self, state: str, reason: str) -> None:
        with self._lock:
            self._state, self._reason = state, reason

    # Commands.

    def _fetch_command(self, wanted: Wanted, source: Source) -> list[str]:
        cluster = Cluster.of_record(wanted.cluster)
        what = ["--front"] if self.role.shard is None else ["--shard", str(self.role.shard)]
        command = whole_command(cluster.command, child_environment())
        of = [] if cluster.scheme == "pair" else ["--scheme", cluster.scheme]
        return [*command, "shard", "fetch", source.place, "-o", str(self._models), *of, *what]

    def _serve_command(self, wanted: Wanted, bundle: Path) -> list[str]:
        cluster = Cluster.of_record(wanted.cluster)
        part = cluster.shards if self.role.shard is not None else cluster.fronts
        host = part.host or self._address
        host = f"[{host}]" if ":" in host else host
        port = metrics_port = 0
        if self.role.shard is None:
            port, metrics_port = cluster.fronts.port, cluster.fronts.metrics_port
            what = ["--shards-file", str(self._shards_file)]
            if cluster.scheme == "onion":
                # Its clients need not bring theirs again after a restart.
                what += ["--keys-folder", str(self._folder / "keys")]
        else:
            what = ["--shard", str(self.role.shard)]
        return [
            *whole_command(cluster.command, child_environment()),
            *("serve", str(bundle), *_role_flags(cluster), *what, "--exit-with-parent"),
            *("--addr", f"{host}:{port}", "--metrics-addr", f"{host}:{metrics_port}"),
            *("--watch", str(self._models), "--json", "--log", "info", "--log-json"),
            *_tls_flags(part.tls),
            *setting_flags(part.settings, cluster.scheme),
        ]

    # Its folder.

    @property
    def _models(self) -> Path:
        return self._folder / "models"

    @property
    def _shards_file(self) -> Path:
        return self._folder / "shards.toml"

    def _copy_of(self, source: Source) -> Path | None:
        path = _within.join(self._models, f"{source.name}-{source.version[:16]}")
        return path if path.is_dir() else None

    def _copies(self) -> list[Path]:
        """Whole ones, the newest first; what is being fetched has a name with a dot."""
        with contextlib.suppress(OSError):
            found = [p for p in self._models.iterdir() if not p.name.startswith(".") and p.is_dir()]
            return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path), reverse=True)
        return []

    def _newest_copy(self) -> Path | None:
        return next(iter(self._copies()), None)

    def _renew_newest(self, wanted: Wanted) -> None:
        """A server takes the newest folder: what is wanted again must be that once more."""
        newest = self._copy_of(wanted.newest)
        if newest is not None and newest != self._newest_copy():
            os.utime(newest)

    def _version_of(self, copy: Path) -> str | None:
        short = copy.name.rpartition("-")[2]
        return next((v.version for v in self._wanted.versions if v.version[:16] == short), None)

    def _forget_copies(self, wanted: Wanted) -> None:
        """Removes copies that nobody wants, but for the last: fronts may still use it."""
        kept = {self._copy_of(source) for source in wanted.versions}
        for copy in [path for path in self._copies() if path not in kept][1:]:
            shutil.rmtree(copy, ignore_errors=True)

    def _write_shards(self) -> bool:
        """Writes a front's file of servers where it is new; False where it has none yet."""
        if self.role.shard is not None:
            return True
        with self._lock:
            text = self._shards_text
        if not text:
            return False
        with contextlib.suppress(OSError):
            if self._shards_file.read_text() == text:
                return True
        _write(self._shards_file, text)
        return True

    def _remember(self) -> None:
        """Keeps what it was told: an actor that starts again is told what the first one was."""
        _write(self._folder / "wanted.json", json.dumps(self._wanted.record()))

    def _recall(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = Wanted.of_record(json.loads((self._folder / "wanted.json").read_text()))
            if kept.id != self._wanted.id:
                raise ValueError("it is of a cluster that was taken down")
            if kept.generation > self._wanted.generation:
                self._wanted = kept
            self._shards_text = self._shards_file.read_text()


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    # Owner only, from the first byte on: a source's URL may hold a password.
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_text(text)
    beside.replace(path)


def _role_flags(cluster: Cluster) -> list[str]:
    if cluster.scheme == "pair":
        return ["--side", cluster.side]
    # How many shards there are, the fetched map says.
    return ["--scheme", cluster.scheme]


def _tls_flags(tls: TlsFiles | None) -> list[str]:
    if tls is None:
        return []
    flags = ["--tls-cert", tls.cert, "--tls-key", tls.key]
    return flags if tls.ca is None else [*flags, "--tls-client-ca", tls.ca]
