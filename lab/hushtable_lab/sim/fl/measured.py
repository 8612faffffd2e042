"""Measured times of rounds, and how they carry over to another table, K or design.

A run is a line of ``hushtable bench oram --json``. Its time a request is divided among steps, each
of which grows by one *law*:

=========== ======================================= =========================================
law         grows with                              steps
=========== ======================================= =========================================
``read``    pages read from the SSD a request       named ...read..., ...fetch...
``write``   pages written to the SSD a request      named ...write..., sync, commit, journal
``path``    pages of the k paths (k/K times L),     open, find, evict, seal, vtree, rest and
            whether or not each is read apart       whatever works on what was fetched
``row``     rows accessed (k/K)                     position, insert, drain, update
``request`` requests (1)                            all others: union, sample, serve, add
=========== ======================================= =========================================

``read`` and ``write`` are the SSD's time. That SSD time is in proportion to pages is what was
measured: of the artifact, 195 us for 5 pages of Path ORAM+, 214 and 287 us for 15 and 18 of the RAW
ORAM, 101 for 6.8 at k/K = 0.45. That the rest is, is exact for what scans the paths, and leaves out
a logarithm of K and of the rows elsewhere. Steps beyond the laws' names say theirs in ``laws``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hushtable.errors import ConfigError

from .counts import FEDORA, HUSHTABLE, PATH_PLUS, Design, Pages
from .geometry import BUCKET_BYTES, BUCKET_KIB, Tree

__all__ = ["LAWS", "PUBLISHED", "Run", "RunTime", "Times", "read_runs"]

LAWS = ("read", "write", "path", "row", "request")
#: Times that come with the package.
PUBLISHED = ("artifact", "paper")
_BYTES_MAX = 16 << 20
_RUNS_MAX = 10_000
_LAW_BY_NAME = (
    ("read", ("read", "fetch")),
    ("write", ("write", "sync", "commit", "journal", "checkpoint")),
    ("path", ("open", "decrypt", "find", "evict", "seal", "encrypt", "vtree", "path", "rest")),
    ("row", ("position", "insert", "drain", "update", "apply", "row")),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured round.

    Attributes:
        engine: ``fedora`` for the published system, else ``hushtable``.
        oram: ``raw`` or ``path``.
        rows, row_bytes, requests, k: of the table and round.
        us: microseconds a request.
        steps: microseconds a request, by step; they add up to ``us``.
        laws: the law of each step.
        read_bytes, written_bytes: counted, a request; None where not given.
        is_paired: of a tree of hushtable's as they were made before there were rings.
    """

    engine: str
    oram: str
    rows: int
    row_bytes: int
    requests: int
    k: float
    us: float
    steps: Mapping[str, float]
    laws: Mapping[str, str]
    read_bytes: float | None
    written_bytes: float | None
    is_paired: bool = False
    bucket_kib: int = 4

    @property
    def design(self) -> Design:
        """What was measured."""
        if self.oram == "path":
            return PATH_PLUS
        if self.engine == "fedora":
            return FEDORA
        return dataclasses.replace(HUSHTABLE, is_paired=self.is_paired, bucket_kib=self.bucket_kib)

    def is_of(self, design: Design) -> bool:
        """Whether that is the design, or an earlier form of it, however k is drawn."""
        own = dataclasses.replace(
            self.design,
            is_paired=design.is_paired,
            bucket_kib=design.bucket_kib,
            mechanism=design.mechanism,
            chunk=design.chunk,
        )
        return own == design

    def counted(self) -> Pages:
        """Pages a round moved: those counted, else those of the model."""
        design = self.design
        model = design.pages(design.tree(self.rows, self.row_bytes), self.requests, self.k)

        def of(counted: float | None, modelled: float) -> float:
            return modelled if counted is None else counted * self.requests / BUCKET_BYTES

        return Pages(of(self.read_bytes, model.read), of(self.written_bytes, model.written))


@dataclass(frozen=True, slots=True)
class RunTime:
    """Seconds of a round, of which the SSD is busy for some."""

    seconds: float
    ssd_seconds: float


@dataclass(frozen=True, slots=True)
class Times:
    """Measured runs that a round's time is carried over from.

    Attributes:
        shipped: of the published system.
        own: measured by the user, or of hushtable; they go first.
    """

    shipped: Sequence[Run]
    own: Sequence[Run] = ()

    @classmethod
    def load(cls, published: str = "artifact", measured: Sequence[Path] = ()) -> Times:
        """Shipped times, and those of files.

        Raises:
            ConfigError: ``published`` is unknown, or a file cannot be used.
        """
        if published not in PUBLISHED:
            raise ConfigError(
                f"published is {published!r}, but must be one of {', '.join(PUBLISHED)}"
            )
        folder = resources.files(__package__) / "times"
        shipped = _runs((folder / f"{published}.json").read_text(encoding="utf-8"), published)
        own = [run for path in measured for run in read_runs(path)]
        ours = folder / "hushtable.json"
        if not own and ours.is_file():
            own = _runs(ours.read_text(encoding="utf-8"), "hushtable")
        return cls(shipped, own)

    def reference(self, design: Design, tree: Tree, requests: float, k: float) -> Run:
        """The run that a round's time is carried over from: of the same design where there is one,
        else of the same kind of ORAM; then the nearest by rows, row bytes, K and k/K."""
        groups: list[list[Run]] = []
        for is_same in (True, False):
            for runs in (self.own, self.shipped):
                groups.append(
                    [r for r in runs if r.oram == design.oram and (not is_same or r.is_of(design))]
                )
        candidates = next((group for group in groups if group), None)
        if candidates is None:
            raise ConfigError(f"no measured run is of a {design.oram} ORAM")

        def distance(run: Run) -> float:
            shares = abs(math.log(run.k / run.requests) - math.log(k / requests))
            return (
                abs(math.log(run.rows / tree.rows))
                + abs(math.log(run.row_bytes / tree.row_bytes))
                + abs(math.log(run.requests / requests)) / 4
                + 2 * shares
            )

        return min(candidates, key=distance)

    def round_time(self, design: Design, tree: Tree, requests: float, k: float) -> RunTime:
        """Seconds of a round of ``requests`` that accesses ``k`` rows."""
        run = self.reference(design, tree, requests, k)
        then, now = run.counted(), design.pages(tree, requests, k)
        tree_then = run.design.tree(run.rows, run.row_bytes)
        share_then, share_now = run.k / run.requests, k / requests
        factors = {
            "read": (now.read / requests) / (then.read / run.requests),
            "write": (now.written / requests) / (then.written / run.requests),
            "path": share_now * tree.path_pages / (share_then * tree_then.path_pages),
            "row": share_now / share_then,
            "request": 1.0,
        }
        by_law = dict.fromkeys(LAWS, 0.0)
        for step, us in run.steps.items():
            by_law[run.laws[step]] += us * factors[run.laws[step]]
        seconds = sum(by_law.values()) * requests / 1e6
        return RunTime(seconds, (by_law["read"] + by_law["write"]) * requests / 1e6)


def read_runs(path: Path) -> list[Run]:
    """The runs of a file that ``hushtable bench oram --json`` printed.

    One run, several lines, a JSON list, or an object with a list ``runs``.

    Raises:
        ConfigError: it cannot be read, or a run lacks or has wrong fields; which is said.
    """
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigError(f"{path} is over {_BYTES_MAX >> 20} MiB: not a file of measured runs")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return _runs(text, str(path))


def _runs(text: str, name: str) -> list[Run]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigError(
                f"{name} is not JSON, which `hushtable bench oram --json` prints: {error}"
            ) from error
    except RecursionError as error:
        raise ConfigError(f"{name} is nested too deep") from error
    if isinstance(found, dict):
        found = found.get("runs", [found])
    if not isinstance(found, list) or not 1 <= len(found) <= _RUNS_MAX:
        raise ConfigError(
            f"{name} must hold 1 to {_RUNS_MAX} runs of `hushtable bench oram --json`"
        )
    return [_run(record, f"{name}, run {index + 1}") for index, record in enumerate(found)]


def _run(record: Any, where: str) -> Run:
    if not isinstance(record, dict) or record.get("bench") != "oram":
        raise ConfigError(f'{where} is not of `hushtable bench oram --json`: "bench" is not "oram"')
    if record.get("unit", "us/request") != "us/request":
        raise ConfigError(f'{where}: "unit" is {record["unit"]!r}, but must be "us/request"')
    # Benchmarks print what is theirs alone under "detail".
    detail = record.get("detail") or {}
    params = record.get("params")
    if not isinstance(detail, dict) or not isinstance(params, dict):
        raise ConfigError(f'{where}: "params" and "detail" must be objects')
    fields = {**detail, **record}
    oram = params.get("oram", "raw")
    if oram not in ("raw", "path"):
        raise ConfigError(f'{where}: "oram" is {oram!r}, but must be "raw" or "path"')
    rows, row_bytes, requests = (
        _number(params, field, where) for field in ("rows", "row_bytes", "requests")
    )
    us = _number(fields, "value", where)
    k = _number(fields, "k", where) if fields.get("k") is not None else requests
    if k > requests:
        raise ConfigError(f'{where}: "k" is {k:g}, more than the {requests:g} requests')
    steps = fields.get("steps") or {"whole": us}
    if not isinstance(steps, dict):
        raise ConfigError(f'{where}: "steps" must be an object of microseconds a request')
    times = {str(step): _number(steps, step, where, least=0.0) for step in steps}
    total = sum(times.values())
    if total < us:
        times["unnamed"] = times.get("unnamed", 0.0) + us - total
    elif total > us:
        # Steps that overlap: what each adds to the round is in proportion.
        times = {step: time * us / total for step, time in times.items()}
    given = fields.get("laws") or {}
    if not isinstance(given, dict) or any(law not in LAWS for law in given.values()):
        raise ConfigError(f'{where}: "laws" must map steps to {", ".join(LAWS)}')
    bucket_kib = params.get("bucket_kib", 4)
    if oram == "raw" and bucket_kib not in BUCKET_KIB:
        raise ConfigError(f'{where}: "bucket_kib" is {bucket_kib!r}, but must be 4, 8 or 16')
    counted = [
        _number(fields, field, where, least=0.0) or None if fields.get(field) is not None else None
        for field in ("read_bytes_per_request", "written_bytes_per_request")
    ]
    return Run(
        engine=str(fields.get("engine", "hushtable")),
        oram=oram,
        rows=int(rows),
        row_bytes=int(row_bytes),
        requests=int(requests),
        k=k,
        us=us,
        steps=times,
        laws={step: given.get(step) or _law_of(step) for step in times},
        read_bytes=counted[0],
        written_bytes=counted[1],
        # Benchmarks say the size of a bucket since there are rings.
        is_paired=oram == "raw" and "bucket_kib" not in params,
        bucket_kib=bucket_kib if oram == "raw" else 4,
    )


def _number(fields: Mapping[str, Any], name: str, where: str, least: float = 1e-9) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e18:
        raise ConfigError(f'{where}: "{name}" is {value!r}, but must be a positive number')
    return float(value)


def _law_of(step: str) -> str:
    name = step.lower()
    if name == "whole":
        return "read"  # nothing else is known; then the SSD is taken to be busy throughout
    for law, words in _LAW_BY_NAME:
        if any(word in name for word in words):
            return law
    return "request"
