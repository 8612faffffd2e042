"""Serving tables: in this process, or as a child process of its own."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar

from . import _native, errors
from ._machine import wheel_folders
from ._ports import AUTO, chosen, said_of_ports
from ._settings import checked, nested
from ._types import LayoutInfo, ModelInfo, OnionInfo, TableInfo
from .errors import ConfigError, Error, ServerUnavailable

if TYPE_CHECKING:
    from .table import Progress

__all__ = [
    "Certificates",
    "Scheme",
    "ServerProcess",
    "ServerTls",
    "Serving",
    "Side",
    "make_certificates",
    "serve",
]

Side = Literal["left", "right"]
#: One of a ``pair`` of servers that do not collude, or one by homomorphic encryption: ``onion``.
Scheme = Literal["pair", "onion"]


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A server's PEM files.

    Attributes:
        certificate: its certificate, followed by its chain.
        key: the certificate's private key.
        client_ca: the authority that clients' certificates must come from; None lets all in.
    """

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]
    client_ca: str | os.PathLike[str] | None = None


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files that :func:`make_certificates` wrote.

    ``server`` is what :func:`serve` and :class:`ServerProcess` take as ``tls``, ``ca`` what
    :func:`~hushtable.connect` does.
    """

    ca: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path
    shard_certificate: Path | None = None
    shard_key: Path | None = None
    front_certificate: Path | None = None
    front_key: Path | None = None
    peer_certificate: Path | None = None
    peer_key: Path | None = None

    @property
    def server(self) -> ServerTls:
        """Certificate and key of a server."""
        return ServerTls(self.certificate, self.key)

    @property
    def shard(self) -> ServerTls:
        """Certificate and key of a shard, which lets fronts of its side in alone.

        Raises:
            ConfigError: certificates that were made for no side.
        """
        if self.shard_certificate is None or self.shard_key is None:
            raise ConfigError("these certificates are of no side's shards: name the side")
        return ServerTls(self.shard_certificate, self.shard_key, self.ca)

    @property
    def peer(self) -> ServerTls:
        """Certificate and key of the right server of predictions on shares, which left knows.

        Raises:
            ConfigError: certificates that were made for neither left nor right.
        """
        if self.peer_certificate is None or self.peer_key is None:
            raise ConfigError("these certificates are neither left's nor right's: name the side")
        return ServerTls(self.peer_certificate, self.peer_key)


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that is ready: what its one readiness line says.

    Attributes:
        side: ``left`` or ``right``; None for a single server.
        table: the table's name; of several, the first one's; without one, the first model's.
        version: its version, in hex.
        url: where lookups are answered.
        metrics_url: the page of metrics, beside which ``/livez`` and ``/readyz`` are; None where
            there is none.
        layout: how whole inferences are answered, and what one costs; None without a layout.
        scheme: ``pair`` or ``onion``.
        onion: what a lookup from a single server costs; None for one of two.
        engine: what answers lookups, processors or a GPU; None for a single server.
        tables: the tables of its table bundles; those of models are in ``models``.
        models: its models.
        shard: which shard of the model it is a server of; None of a server of all of it.
        is_front: whether it holds no rows, and asks the servers of the model's shards.
    """

    side: str | None
    table: str
    version: str
    url: str
    metrics_url: str | None
    layout: LayoutInfo | None = None
    scheme: str = "pair"
    onion: OnionInfo | None = None
    engine: str | None = None
    tables: tuple[TableInfo, ...] = ()
    models: tuple[ModelInfo, ...] = ()
    shard: int | None = None
    is_front: bool = False

    @property
    def name(self) -> str:
        """Which server this is, for people."""
        if self.shard is not None:
            return f"shard {self.shard} of the {_name(self.side)}"
        return f"front of the {_name(self.side)}" if self.is_front else _name(self.side)


def make_certificates(
    folder: str | os.PathLike[str],
    names: Iterable[str] = ("localhost", "127.0.0.1", "::1"),
    *,
    side: Side | Literal["single"] | None = None,
) -> Certificates:
    """Makes a local authority and certificates for servers that have none.

    For runs on one machine, demos and tests. The authority's own key is not kept, so that nothing
    more can be issued. ``folder`` gets ``ca.pem``, ``server.pem`` and ``server.key`` for all of
    ``names``, and ``client.pem`` and ``client.key`` for servers that ask for one. With a ``side``
    it also gets what that side's shards and its fronts show each other, or those of servers that
    are asked alone where it is ``single``: ``shard.pem``, ``shard.key``, ``front.pem`` and
    ``front.key``. ``peer.pem`` and ``peer.key`` are how left and right know each other where they
    predict on shares: left shows its own to right as a client (``peer_cert``, ``peer_key``), right
    serves with its own (``tls``). Certificates are valid for a year.

    Raises:
        ConfigError: a name that no certificate can hold.
    """
    issued = _native.make_certificates(list(names), side)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def pair(name: str) -> tuple[Path, Path]:
        return folder / f"{name}.pem", folder / f"{name}.key"

    of_side: tuple[Path, ...] = () if side is None else (*pair("shard"), *pair("front"))
    if side in ("left", "right"):
        of_side = (*of_side, *pair("peer"))
    files = Certificates(folder / "ca.pem", *pair("server"), *pair("client"), *of_side)
    files.ca.write_text(issued.ca)
    for pems, certificate_path, key_path in (
        (issued.server, files.certificate, files.key),
        (issued.client, files.client_certificate, files.client_key),
        (issued.shard, files.shard_certificate, files.shard_key),
        (issued.front, files.front_certificate, files.front_key),
        (issued.peer, files.peer_certificate, files.peer_key),
    ):
        if pems is None or certificate_path is None or key_path is None:
            continue
        certificate_path.write_text(pems.certificate)
        # Owner only, from the first byte on.
        key_path.unlink(missing_ok=True)
        key_path.touch(mode=0o600, exist_ok=False)
        key_path.write_text(pems.key)
    return files


def serve(
    bundle: str | os.PathLike[str],
    side: Side | None = None,
    *,
    scheme: Scheme = "pair",
    device: str | None = None,
    addr: str = AUTO,
    metrics_addr: str | None = AUTO,
    tls: ServerTls | None = None,
    on_ready: Callable[[Serving], None] | None = None,
    on_prepared: Progress | None = None,
    **options: Any,
) -> None:
    """Serves a bundle until SIGTERM or Ctrl-C, then answers what is under way and returns.

    On SIGHUP it sees what its bundles and its certificate's files hold now, and serves that too.

    Called in another thread than the main one it cannot see signals: it then runs until the
    process ends. :class:`ServerProcess` is the way to have a server beside a program.

    With ``scheme="onion"`` the server is asked alone. It answers from a prepared file
    (:meth:`hushtable.Table.prepare`), which it makes at the start where there is none that fits:
    seconds a GB of table. Stopped meanwhile, it goes on from there at the next start.

    Args:
        bundle: the folder of a table or of a model. More of them are ``tables=[...]``.
        side: ``"left"`` or ``"right"``, with ``scheme="pair"``. Both servers hold the same bundle.
        scheme: ``"pair"``, or ``"onion"`` for a single server.
        device: what answers a server of two: ``"auto"``, the first GPU where there is one that can
            and processors otherwise; ``"cpu"``; ``"cuda"`` or ``"cuda:1"``, that GPU or an error.
        addr: ``ip:port`` or ``name:port`` to listen on, port 0 for any. One that other machines
            reach is refused without ``tls``, unless ``insecure=True``. ``"auto"`` is
            ``127.0.0.1:4000``, and right's ``127.0.0.1:5000``.
        metrics_addr: the same of metrics and probes (plain HTTP); None for none. ``"auto"`` is
            ``127.0.0.1:4001``, and right's ``127.0.0.1:5001``.
        tls: certificate and key.
        on_ready: called once the table is loaded and lookups are answered.
        on_prepared: called with (bytes of the table prepared, bytes of the table), several times a
            second, while a single server prepares.
        options: the other settings of ``hushtable serve --help-all``, with underscores:
            ``threads``, ``window_us``, ``queue_keys_max``, ...; of a single server ``parameters``,
            ``prepared``, ``mapped``, ``keys_folder``, ``keys_memory_bytes_max``,
            ``queue_queries_max``, ...

    Raises:
        ConfigError: an option that cannot work, an address without TLS.
        TableError: a bundle that cannot be served.
        PreparedError: a prepared file that cannot be made or read.
        Error: a port that is taken.
    """
    settings = _settings(bundle, side, scheme, device, addr, metrics_addr, tls, options)
    with said_of_ports(settings):
        server = _native.Server(scheme, _spec(settings))
    held: _native.HeldFacts = server.facts
    layout = None if held.layout is None else LayoutInfo.of_facts(held.layout)
    onion = None if held.onion is None else OnionInfo.of_facts(held.onion)
    tables, models = held.tables, tuple(map(ModelInfo.of_facts, held.models))
    first = tables[0] if tables else models[0]
    protocol = "https" if tls else "http"
    serving = Serving(
        side=side,
        table=first.name,
        version=first.version,
        url=f"{protocol}://{server.addr}",
        metrics_url=server.metrics_addr and f"http://{server.metrics_addr}/metrics",
        layout=layout,
        scheme=scheme,
        onion=onion,
        tables=tuple(map(TableInfo.of_facts, tables)),
        models=models,
        shard=settings.get("shard"),
        is_front=settings.get("shards_file") is not None,
    )

    def tell() -> None:
        if on_ready is not None:
            on_ready(dataclasses.replace(serving, engine=server.engine))

    run_until_stopped(server, tell, on_prepared)


def run_until_stopped(
    server: _native.Server,
    on_ready: Callable[[], None] | None,
    on_progress: Progress | None,
) -> None:
    """Waits for a server's end, which signals and the parent's end bring about."""
    parent = os.environ.get(_PARENT)
    with _stopped_by_signals(server):
        while True:
            if parent is not None and str(os.getppid()) != parent:
                server.stop()
            news = server.wait(_SIGNALS_EVERY_SECONDS)
            if on_progress is not None and server.progress[1] > 0 and news is None:
                on_progress(*server.progress)
            if news == "ready":
                on_progress = None
                if on_ready is not None:
                    on_ready()
            elif news == "stopped":
                return


_SIGNALS_EVERY_SECONDS = 0.1
#: The process that a :class:`ServerProcess` belongs to: with it gone, its servers stop.
_PARENT = "HUSHTABLE_PARENT_PROCESS"


@contextlib.contextmanager
def _stopped_by_signals(server: _native.Server) -> Iterator[None]:
    """Within, SIGTERM and SIGINT stop the server; a second one of them ends the process.

    SIGHUP has it see what its bundles and its certificate's files hold now.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    stopping = (signal.SIGTERM, signal.SIGINT)
    caught = [number for number in stopping if before[number] != signal.SIG_IGN]

    def stop(number: int, frame: object) -> None:
        server.stop()
        for number in caught:
            signal.signal(number, signal.SIG_DFL)

    def reload(number: int, frame: object) -> None:
        server.reload()

    for number in caught:
        signal.signal(number, stop)
    # Also where it was ignored: it ends nothing, so that nobody needs to be kept from it.
    signal.signal(signal.SIGHUP, reload)
    try:
        yield
    finally:
        server.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _settings(
    bundle: str | os.PathLike[str],
    side: str | None,
    scheme: str,
    device: str | None,
    addr: str,
    metrics_addr: str | None,
    tls: ServerTls | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """All settings by name, as a config file has them."""
    if scheme not in ("pair", "onion"):
        raise ConfigError(f"scheme must be pair or onion, not {scheme!r}")
    if scheme == "onion" and side is not None:
        raise ConfigError("a single server has no side: leave side out")
    if scheme == "pair" and side not in ("left", "right"):
        raise ConfigError(f"side must be left or right, not {side!r}")
    if scheme == "onion" and device not in (None, "auto", "cpu"):
        raise ConfigError(f"a single server answers by processors: leave out device {device!r}")
    given: dict[str, Any] = {
        "table": bundle,
        "addr": chosen("addr", addr, side),
        "metrics_addr": chosen("metrics_addr", metrics_addr, side),
        **{name: value for name, value in options.items() if value is not None},
    }
    if side is not None:
        given["side"] = side
    if device is not None and scheme == "pair":
        given["device"] = device
    if tls is not None:
        given |= tls_settings(tls)
    settings = checked("onion" if scheme == "onion" else "pair", given)
    if "keys_folder_bytes_max" in settings and settings.get("keys_folder") is None:
        raise ConfigError("keys_folder_bytes_max bounds keys_folder: give keys_folder too")
    return {"scheme": scheme, **nested(settings)}


def tls_settings(tls: ServerTls) -> dict[str, Any]:
    """A server's PEM files by the names of their settings."""
    return {"tls.cert": tls.certificate, "tls.key": tls.key, "tls.client_ca": tls.client_ca}


def _spec(settings: Mapping[str, Any]) -> str:
    """What the native server reads: the settings, with what depends on this machine."""
    spec = {name: value for name, value in settings.items() if name != "scheme"}
    if settings["scheme"] == "onion":
        # Imported here, as it imports numpy: a server of two starts without.
        from .table import PARAMETERS, prepared_path

        beside = prepared_path(spec["table"], spec.get("parameters", PARAMETERS))
        # A model's tables are prepared in its own folder.
        is_model = (Path(spec["table"]) / "model.json").is_file() or Path(spec["table"]).is_file()
        prepared = spec.get("prepared") or ("none" if is_model else str(beside))
        spec["prepared"] = None if prepared == "none" else prepared
    else:
        folders = [*spec.get("nvrtc_folders", ()), *map(str, wheel_folders())]
        spec["nvrtc_folders"] = folders
    return json.dumps(spec)


def _name(side: str | None) -> str:
    return "single server" if side is None else f"{side} server"


def _is_setting(variable: str) -> bool:
    return variable.startswith("HUSHTABLE_") and variable not in _OF_THE_MACHINE


#: Variables that say what this machine is or where things are on it, for children too.
_OF_THE_MACHINE = ("HUSHTABLE_ISA", "HUSHTABLE_LOG", "HUSHTABLE_NVRTC")


class _Ready(Protocol):
    """What any server says when it is ready."""

    @property
    def url(self) -> str: ...
    @property
    def metrics_url(self) -> str | None: ...


Ready = TypeVar("Ready", bound=_Ready)


class ChildServer(abc.ABC, Generic[Ready]):
    """A server as a child process, of whatever kind: its start, what it says, its end.

    Kinds are made by :meth:`_prepare`; :meth:`_read_ready` reads what their one line says.
    """

    #: The command below ``hushtable``.
    _command: tuple[str, ...] = ("serve",)

    def _prepare(
        self,
        settings: Mapping[str, Any],
        name: str,
        cpus: Iterable[int] | None,
        env: Mapping[str, str] | None,
        start_seconds: float,
    ) -> None:
        self._settings = settings
        self._name = name
        self._cpus = None if cpus is None else set(cpus)
        # What the parent's own server or lookups are told by variables is not for this one.
        kept = {k: v for k, v in os.environ.items() if not _is_setting(k)}
        self._env = {**kept, **(env or {}), _PARENT: str(os.getpid())}
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[str] | None = None
        self._serving: Ready | None = None
        self._said: deque[str] = deque(maxlen=50)
        self._error: Error | None = None

    @abc.abstractmethod
    def _read_ready(self, record: Mapping[str, Any]) -> Ready:
        """What a server of this kind printed as JSON when it was ready."""

    @property
    def serving(self) -> Ready:
        """What the server said when it was ready."""
        if self._serving is None:
            raise Error("the server is not started: use it in a with block, or call start()")
        return self._serving

    @property
    def url(self) -> str:
        """Where lookups are answered."""
        return self.serving.url

    @property
    def metrics_url(self) -> str | None:
        """The page of metrics, beside which ``/livez`` and ``/readyz`` are."""
        return self.serving.metrics_url

    @property
    def process(self) -> subprocess.Popen[str]:
        """The child process."""
        if self._process is None:
            raise Error("the server is not started: use it in a with block, or call start()")
        return self._process

    def start(self) -> Self:
        """Starts the server and waits until it is ready."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="hushtable-") as file:
            json.dump(self._settings, file)
            file.flush()
            command = [sys.executable, "-m", "hushtable", *self._command]
            command += ["--config", file.name, "--json"]
            with _affinity(self._cpus):  # a child inherits it
                self._process = subprocess.Popen(
                    command,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            try:
                self._serving = self._await_ready(self._process)
            except BaseException:
                self.kill()
                raise
        return self

    def _await_ready(self, process: subprocess.Popen[str]) -> Ready:
        ready: deque[Ready] = deque(maxlen=1)
        changed = threading.Event()

        def read(stream: IO[str], is_output: bool) -> None:
            # To the end: a server whose pipe is full would stand still.
            with stream:
                for line in stream:
                    record = _parse(line) if is_output else None
                    if record is not None and record.get("event") == "ready":
                        ready.append(self._read_ready(record))
                    elif record is not None and "error" in record:
                        self._error = _revive(record["error"])
                    else:
                        self._said.append(line.rstrip())
                    changed.set()
            changed.set()

        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=read, args=(stream, is_output), daemon=True)
            for stream, is_output in ((process.stdout, True), (process.stderr, False))
        ]
        for reader in self._readers:
            reader.start()
        deadline = time.monotonic() + self._start_seconds
        while not ready:
            left = deadline - time.monotonic()
            if process.poll() is not None:
                for reader in self._readers:
                    reader.join(timeout=5)
                if self._error is not None:
                    raise self._error
                if not ready:
                    raise ServerUnavailable(
                        f"the {self._name} ended with code {process.returncode} "
                        f"before it was ready: {self._last_words()}"
                    )
            elif left <= 0:
                raise ServerUnavailable(
                    f"the {self._name} was not ready after {self._start_seconds:g} s: "
                    f"{self._last_words()}"
                )
            else:
                changed.wait(min(left, 0.05))
                changed.clear()
        return ready[0]

    def _last_words(self) -> str:
        return " / ".join(self._said) or "it said nothing"

    def stop(self, seconds: float = 15.0) -> int:
        """Sends SIGTERM and waits; kills it after ``seconds``. Returns its exit code."""
        process = self.process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._join()
        return process.returncode

    def kill(self) -> None:
        """Sends SIGKILL: the server answers nothing more."""
        self.process.kill()
        self.process.wait()
        self._join()

    def _join(self) -> None:
        for reader in getattr(self, "_readers", ()):
            reader.join(timeout=5)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "not started" if self._serving is None else str(self._serving)
        return f"ServerProcess({state})"


class ServerProcess(ChildServer[Serving]):
    """A real server as a child process: ``python -m hushtable serve`` on a free port.

        with ServerProcess(bundle, "left", tls=certificates.server) as left: ...
        with ServerProcess(bundle, scheme="onion", tls=certificates.server) as server: ...

    The block starts once the server is ready; at its end the server gets SIGTERM, answers what is
    under way, and is waited for.

    Args:
        bundle: the table's folder.
        side: ``"left"`` or ``"right"``; none for a single server.
        scheme: ``"pair"``, or ``"onion"`` for a single server.
        device: what answers a server of two: ``"auto"`` (a GPU where there is one), ``"cpu"``,
            ``"cuda"`` or ``"cuda:1"``.
        tls: certificate and key; without, plain HTTP on this machine only.
        cpus: the processors it may run on; all by default.
        env: variables to set for it, e.g. ``{"HUSHTABLE_ISA": "avx2"}``.
        start_seconds: how long it may take to be ready; a single server may have to prepare the
            table first.
        options: as for :func:`serve`.

    Attributes:
        url: where lookups are answered.
        metrics_url: the page of metrics.
        serving: all of its readiness line.

    Raises:
        Error: the server did not become ready: the typed error that it ended with, or a
            :class:`ServerUnavailable` with what it said.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        side: Side | None = None,
        *,
        scheme: Scheme = "pair",
        device: str | None = None,
        tls: ServerTls | None = None,
        cpus: Iterable[int] | None = None,
        env: Mapping[str, str] | None = None,
        start_seconds: float = 60.0,
        **options: Any,
    ) -> None:
        addr = options.pop("addr", "127.0.0.1:0")
        metrics_addr = options.pop("metrics_addr", "127.0.0.1:0")
        settings = _settings(bundle, side, scheme, device, addr, metrics_addr, tls, options)
        self._prepare(settings, _name(side), cpus, env, start_seconds)

    def _read_ready(self, record: Mapping[str, Any]) -> Serving:
        return _serving(record)


def _serving(record: Mapping[str, Any]) -> Serving:
    """What a child printed as JSON when it was ready."""
    layout = record["layout"] and LayoutInfo.of_record(record["layout"])
    onion = record["onion"] and OnionInfo(**record["onion"])
    tables = tuple(TableInfo(**table) for table in record["tables"])
    models = tuple(ModelInfo.of_record(model) for model in record["models"])
    fields = {field.name: record[field.name] for field in dataclasses.fields(Serving)}
    parts = {"layout": layout, "onion": onion, "tables": tables, "models": models}
    return Serving(**{**fields, **parts})


def _revive(record: Mapping[str, Any]) -> Error:
    """The error that a child printed as JSON."""
    kind = getattr(errors, str(record.get("type")), None)
    kind = kind if isinstance(kind, type) and issubclass(kind, Error) else Error
    return kind(str(record.get("message")))


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


@contextlib.contextmanager
def _affinity(cpus: set[int] | None) -> Iterator[None]:
    """Within, this thread runs on ``cpus`` alone."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise ConfigError(f"cpus {sorted(cpus)} cannot be used: {error}") from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
