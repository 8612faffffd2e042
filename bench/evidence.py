"""Writes docs/evidence.md and bench/papers/*.json from what is kept in bench/results.

    .venv/bin/python bench/evidence.py [--measure [RUN ...]] [--list]

bench/evidence/PAPER.toml names every table and figure of a paper: what it shows, the command that
repeats it, the paper's numbers, and where in bench/results ours are. bench/evidence/runs.toml names
the commands that make those results, with their minutes. ``--measure`` first runs those that
``make evidence`` runs, or the ones named. No number of ours is written by hand: each is read from
the newest file of its result.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
ENTRIES = ROOT / "bench" / "evidence"
RESULTS = ROOT / "bench" / "results"
PAPERS = ROOT / "bench" / "papers"
NAMES = ("gpu-pir", "fedora", "ive", "he-lrm", "private-inference")
#: How a number came about.
KINDS = {
    "measured": "a clock or a data set on the machine of its file",
    "counted": "exact, the same on every machine",
    "predicted": "a model says so, from inputs",
    "fitted": "a model's constant was chosen with this number in sight",
    "input": "given to a model, not found by it",
}
#: A cell prints this many numbers one by one; of more it prints how far they lie apart.
LISTED = 4
_DATED = re.compile(r"-(\d{4}-\d\d-\d\d)\.json$")
_STEP = re.compile(r"\.?([\w-]+)|\[(\d+)\]|\[([^\]=]+=[^\]]*)\]")


class EvidenceError(Exception):
    """What is wrong with an entry, and where."""


@dataclass(frozen=True)
class Value:
    """One number of a table or figure: ours, and the paper's where its text has one."""

    name: str
    unit: str
    ours: float
    #: A number, both ends of a range, or None.
    paper: float | tuple[float, float] | None
    kind: str
    #: The result that it was read from.
    result: str
    remark: str = ""

    def ratio(self) -> float | None:
        """Ours over the paper's; over the nearer end of a range, 1 within it."""
        if self.paper is None:
            return None
        low, high = self.paper if isinstance(self.paper, tuple) else (self.paper, self.paper)
        nearest = min(max(self.ours, low), high)
        return self.ours / nearest if nearest else None


@dataclass(frozen=True)
class Entry:
    """A table or figure of a paper, or a part of one."""

    where: str
    shows: str
    command: str
    why: str
    #: What stands in the paper's cell besides numbers, and why ours is empty.
    paper_says: str
    absent: str
    values: tuple[Value, ...]
    plots: tuple[str, ...]
    #: Whether the numbers are those of a simulator's check.
    is_checked: bool = False


@dataclass(frozen=True)
class Run:
    """A command that makes a result."""

    result: str
    command: str
    minutes: float
    #: Whether ``make evidence`` runs it.
    is_made: bool


def newest(result: str) -> Path | None:
    """The newest file of a result; None where none is kept."""
    files = [
        path
        for path in RESULTS.glob(f"{result}-*.json")
        if _DATED.search(path.name) and _DATED.sub("", path.name) == result
    ]
    return max(files, key=lambda path: path.name, default=None)


def read(pointer: str) -> tuple[float, str]:
    """The number that ``RESULT: steps`` points at, and the result.

    Steps are keys (``.value``), places (``[0]``) and choices (``[params.rows=16384;threads=1]``) of
    the one element of a list whose fields are these.
    """
    result, colon, steps = pointer.partition(":")
    path = newest(result.strip())
    if not colon or path is None:
        raise EvidenceError(f"{pointer}: bench/results has no {result.strip()}-DATE.json")
    at = json.loads(path.read_text(encoding="utf-8"))
    position, steps = 0, steps.strip()
    while position < len(steps):
        step = _STEP.match(steps, position)
        if step is None:
            raise EvidenceError(f"{pointer}: {steps[position:]!r} is no key, place or choice")
        position = step.end()
        key, place, choice = step.groups()
        try:
            at = _chosen(at, choice) if choice else at[int(place) if place else key]
        except (KeyError, IndexError, TypeError) as error:
            many = f": {error.args[0]}" if choice else ""
            raise EvidenceError(f"{pointer}: {path.name} has no {step[0]}{many}") from error
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise EvidenceError(f"{pointer}: {path.name} has {at!r} there, not a number")
    return float(at), result.strip()


def _chosen(among: Any, choice: str) -> Any:
    wanted = [part.split("=", 1) for part in choice.split(";")]

    def fits(one: Any) -> bool:
        return all(_field(one, key.strip()) == text.strip() for key, text in wanted)

    found = [one for one in among if fits(one)]
    if len(found) != 1:
        raise KeyError(f"{len(found)} are [{choice}]")
    return found[0]


def _field(one: Any, key: str) -> str | None:
    for part in key.split("."):
        if not isinstance(one, dict) or part not in one:
            return None
        one = one[part]
    return one if isinstance(one, str) else json.dumps(one)


def load(paper: str) -> tuple[dict[str, Any], list[Entry]]:
    """A paper's own facts and its entries, with every number read."""
    document = tomllib.loads((ENTRIES / f"{paper}.toml").read_text(encoding="utf-8"))
    entries = [_entry(paper, raw) for raw in document["entry"]]
    # Parts of a figure stand together, where its first stands.
    order = list(dict.fromkeys(_figure(one.where) for one in entries))
    return document["paper"], sorted(entries, key=lambda one: order.index(_figure(one.where)))


def _figure(where: str) -> str:
    """ "Figure 13" of "Figure 13a, CPU"."""
    return re.sub(r"(\d)[a-z]$", r"\1", where.partition(",")[0])


def _entry(paper: str, raw: dict[str, Any]) -> Entry:
    known = {"where", "shows", "command", "why", "paper_says", "absent", "value", "plots", "check"}
    unknown = set(raw) - known - {"kind"}
    if unknown:
        raise EvidenceError(f"{paper}, {raw.get('where')}: no entry has {sorted(unknown)}")
    where, values = raw["where"], []
    for one in raw.get("value", []):
        try:
            values.append(_value(one, raw.get("kind", "measured")))
        except (EvidenceError, KeyError) as error:
            raise EvidenceError(f"{paper}, {where}, {one.get('name')}: {error}") from error
    if "check" in raw:
        values += checked(raw["check"], where)
    return Entry(
        where=where,
        shows=raw["shows"],
        command=raw.get("command", ""),
        why=raw.get("why", ""),
        paper_says=raw.get("paper_says", ""),
        absent=raw.get("absent", ""),
        values=tuple(values),
        plots=tuple(raw.get("plots", [])),
        is_checked="check" in raw,
    )


def _value(raw: dict[str, Any], kind: str) -> Value:
    unknown = set(raw) - {
        "name",
        "unit",
        "paper",
        "ours",
        "over",
        "inverse",
        "scale",
        "kind",
        "remark",
    }
    if unknown:
        raise EvidenceError(f"no value has {sorted(unknown)}")
    ours, result = read(raw["ours"])
    if "over" in raw:
        ours /= read(raw["over"])[0]
    if raw.get("inverse", False):
        ours = 1 / ours
    paper = raw.get("paper")
    kind = raw.get("kind", kind)
    if kind not in KINDS:
        raise EvidenceError(f"kind is {kind!r}, but must be one of {', '.join(KINDS)}")
    return Value(
        name=raw["name"],
        unit=raw.get("unit", ""),
        ours=ours * raw.get("scale", 1),
        paper=tuple(paper) if isinstance(paper, list) else paper,
        kind=kind,
        result=result,
        remark=raw.get("remark", ""),
    )


def checked(check: str, where: str) -> list[Value]:
    """What a simulator's check compares of one table or figure."""
    path = newest(check)
    if path is None:
        raise EvidenceError(f"bench/results has no {check}-DATE.json")
    record = json.loads(path.read_text(encoding="utf-8"))["results"][0]
    values = []
    for one in record["detail"]["comparisons"]:
        if not _is_of(where, one["source"]):
            continue
        remarks = [] if one["is_within"] else ["off"]
        if not one["is_fitted"]:
            remarks.append(f"within {100 * one['tolerance']:.3g} % wanted")
        remarks += [one["note"]] if one["note"] else []
        kind = "fitted" if one["is_fitted"] else "predicted"
        name = f"{_part(where, one['source'])}{one['name']}"
        numbers = (one["ours"], one["paper"])
        values.append(Value(name, one["unit"], *numbers, kind, check, "; ".join(remarks)))
    return values


def _is_of(where: str, source: str) -> bool:
    """Whether "Figure 13a, artifact" is of "Figure 13", and "section 4.2" of "Text"."""
    wanted = "[Ss]ection" if where == "Text" else rf"{re.escape(where)}[a-z]?(?![\w.])"
    return re.match(wanted, source) is not None


def _part(where: str, source: str) -> str:
    rest = source if where == "Text" else source.removeprefix(where).strip(", ")
    return f"{rest}: " if rest else ""


def runs() -> list[Run]:
    """The commands that make the results."""
    document = tomllib.loads((ENTRIES / "runs.toml").read_text(encoding="utf-8"))
    return [
        Run(raw["result"], raw["command"], float(raw["minutes"]), raw.get("made", False))
        for raw in document["run"]
    ]


def summary(entries: Sequence[Entry]) -> list[str]:
    """A row for each table and figure."""
    lines = [
        "| table or figure | what it shows | repeat it by | ours | the paper's | why they differ |",
        "|---|---|---|---|---|---|",
    ]
    for one in entries:
        plots = "".join(f" [{Path(plot).stem}]({plot})" for plot in one.plots)
        command = f"`{one.command}`" if one.command else ""
        ours, paper = cells(one)
        lines.append(
            f"| {one.where} | {one.shows}{plots} | {command} | {ours} | {paper} | {one.why} |"
        )
    return lines


def cells(entry: Entry) -> tuple[str, str]:
    """Ours and the paper's of one entry."""
    values = entry.values
    if not values:
        return entry.absent, entry.paper_says
    if len(values) <= LISTED:
        ours = "; ".join(f"{_named(one)}{shown(one.ours, one.unit)}{_mark(one)}" for one in values)
        papers = dict.fromkeys(_paper(one) for one in values if one.paper is not None)
        return _joined(ours, entry.absent), _joined("; ".join(papers), entry.paper_says)
    compared = [one for one in values if one.ratio() is not None]
    if not compared:
        return _joined(f"{len(values)} numbers, below", entry.absent), entry.paper_says
    if entry.is_checked:
        ours, paper = _check_cells(values)
        return _joined(ours, entry.absent), _joined(paper, entry.paper_says)
    ratios = sorted(ratio for one in compared if (ratio := one.ratio()) is not None)
    spread = f"{times(ratios[0])} to {times(ratios[-1])} times the paper's"
    return _joined(f"{len(values)} numbers, below: {spread}", entry.absent), entry.paper_says


def _check_cells(values: Sequence[Value]) -> tuple[str, str]:
    predicted = [one for one in values if one.kind != "fitted"]
    within = sum(not one.remark.startswith("off") for one in predicted)
    fitted = len(values) - len(predicted)
    used = f", {fitted} more fitted" if fitted else ""

    def distance(one: Value) -> float:
        return abs((one.ratio() or 1.0) - 1.0)

    furthest = max(predicted or values, key=distance)
    return (
        f"{within} of {len(predicted)} numbers within their tolerance{used}; furthest:"
        f" {_named(furthest)}{shown(furthest.ours, furthest.unit)}",
        _paper(furthest),
    )


def every_number(entries: Sequence[Entry]) -> list[str]:
    """All numbers of a paper, one row each."""
    lines = [
        "",
        "Every number:",
        "",
        "| where | what | ours | the paper's | ours over it | how | from | |",
        "|---|---|--:|--:|--:|---|---|---|",
    ]
    for entry in entries:
        for one in entry.values:
            ratio = one.ratio()
            lines.append(
                f"| {entry.where} | {one.name} | {shown(one.ours, one.unit)} | {_paper(one)}"
                f" | {'' if ratio is None else times(ratio)} | {one.kind} | {one.result}"
                f" | {one.remark} |"
            )
    return lines if len(lines) > 5 else []


def costs(every: Sequence[Run]) -> list[str]:
    """What each result took, and on what."""
    lines = [
        "| result | made by | minutes | `make evidence` runs it | kept of | processor |",
        "|---|---|--:|---|---|---|",
    ]
    for run in every:
        path = newest(run.result)
        date, cpu = ("not run yet", "") if path is None else _of(path)
        name = run.result if path is None else f"[{run.result}](../bench/results/{path.name})"
        made = "yes" if run.is_made else "no"
        lines.append(f"| {name} | `{run.command}` | {run.minutes:g} | {made} | {date} | {cpu} |")
    total = sum(run.minutes for run in every if run.is_made)
    return [*lines, "", f"`make evidence` takes about {total:.0f} minutes."]


def _of(path: Path) -> tuple[str, str]:
    dated = _DATED.search(path.name)
    machine = json.loads(path.read_text(encoding="utf-8")).get("machine", {})
    facts = machine if isinstance(machine, dict) else {}
    cpu = facts.get("cpu") or facts.get("processor") or facts.get("doctor", {}).get("cpu", "")
    return dated[1] if dated else "", cpu if isinstance(cpu, str) else cpu.get("model", "")


def shown(value: float, unit: str) -> str:
    """A number with three or four digits, and its unit."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def times(ratio: float) -> str:
    """A ratio with three digits."""
    return f"{ratio:,.0f}" if abs(ratio) >= 100 else f"{ratio:.3g}"


def _named(one: Value) -> str:
    return f"{one.name}: " if one.name else ""


def _paper(one: Value) -> str:
    if one.paper is None:
        return ""
    if isinstance(one.paper, tuple):
        return f"{shown(one.paper[0], '')} to {shown(one.paper[1], one.unit)}"
    return shown(one.paper, one.unit)


def _mark(one: Value) -> str:
    off = " (off)" if one.remark.startswith("off") else ""
    return f" ({one.kind})" if one.kind in ("fitted", "input") else off


def _joined(first: str, second: str) -> str:
    return "; ".join(part for part in (first, second) if part)


def render(text: str, papers: dict[str, list[Entry]], every: Sequence[Run]) -> str:
    """The page with its marked parts written anew."""
    parts = {name: [*summary(entries), *every_number(entries)] for name, entries in papers.items()}
    parts["costs"] = costs(every)
    parts["kinds"] = [f"- **{kind}**: {means}." for kind, means in KINDS.items()]
    for name, lines in parts.items():
        begin = f"<!-- {name}: begin (bench/evidence.py) -->"
        end = f"<!-- {name}: end -->"
        before, mark, rest = text.partition(begin)
        _, closing, after = rest.partition(end)
        if not mark or not closing:
            raise EvidenceError(f"the page has no {begin} ... {end}")
        text = before + "\n".join([begin, "", *lines, "", end]) + after
    return text


def document(facts: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """What bench/papers/PAPER.json holds."""
    return facts | {
        "entries": [
            {
                "where": one.where,
                "shows": one.shows,
                "command": one.command or None,
                "ours": one.absent or None,
                "paper": one.paper_says or None,
                "why": one.why,
                "plots": list(one.plots),
                "values": [
                    {
                        "name": value.name,
                        "unit": value.unit,
                        "ours": value.ours,
                        "paper": value.paper,
                        "ratio": value.ratio(),
                        "kind": value.kind,
                        "result": value.result,
                        "remark": value.remark,
                    }
                    for value in one.values
                ],
            }
            for one in entries
        ]
    }


def drawings() -> list[str]:
    """The commands that draw the page's plots, from what is kept."""
    document = tomllib.loads((ENTRIES / "runs.toml").read_text(encoding="utf-8"))
    return [raw["command"] for raw in document.get("plot", [])]


def measure(chosen: Sequence[Run], say: Callable[[str], None]) -> None:
    """Runs commands one after the other; keeps what they print, with the machine."""
    for run in chosen:
        say(f"$ {run.command}    (about {run.minutes:g} min)")
        words = shlex.split(run.command)
        if words[0] == "python":
            subprocess.run([sys.executable, *words[1:]], check=True, cwd=ROOT)
            continue
        printed = _printed(*words[1:]) if words[0] == "hushtable" else _output(words)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        facts = {"date": today, "platform": platform.platform()}
        facts |= {"doctor": json.loads(_printed("doctor", "--json"))}
        found = [json.loads(line) for line in _documents(printed)]
        # A document may hold the records of several.
        records = [record for one in found for record in _records(one)]
        out = RESULTS / f"{run.result}-{today}.json"
        out.write_text(json.dumps({"machine": facts, "results": records}, indent=2) + "\n")
        say(f"wrote {out}")


def _say(line: str) -> None:
    print(line, flush=True)


def _printed(*words: str) -> str:
    return _output([sys.executable, "-m", "hushtable", *words])


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def _records(document: Any) -> list[Any]:
    if isinstance(document, list):
        return document
    kept = document.get("results") if isinstance(document, dict) else None
    return kept if isinstance(kept, list) else [document]


def _documents(printed: str) -> list[str]:
    """One JSON document, or one a line."""
    try:
        json.loads(printed)
    except json.JSONDecodeError:
        return [line for line in printed.splitlines() if line.strip()]
    return [printed]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = runs()
    names = [run.result for run in known]
    parser.add_argument("--measure", nargs="*", metavar="RUN", help="run these first: see --list")
    parser.add_argument("--list", action="store_true", help="list the runs and what they take")
    options = parser.parse_args()
    if options.list:
        print("\n".join(costs(known)))
        return 0
    if options.measure is not None:
        unknown = sorted(set(options.measure) - set(names))
        if unknown:
            parser.error(f"no run is named {', '.join(unknown)}; there are {', '.join(names)}")
        wanted = options.measure or [run.result for run in known if run.is_made]
        measure([run for run in known if run.result in wanted], _say)
        for command in drawings():
            _say(f"$ {command}")
            words = shlex.split(command)
            plain = words[1:] if words[0] == "python" else ["-m", *words]
            subprocess.run([sys.executable, *plain], check=True, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        loaded = {name: load(name) for name in NAMES}
        papers = {name: entries for name, (_, entries) in loaded.items()}
        page = render(PAGE.read_text(encoding="utf-8"), papers, known)
    except EvidenceError as error:
        print(f"evidence: {error}", file=sys.stderr)
        return 1
    PAGE.write_text(page, encoding="utf-8")
    for name, (facts, entries) in loaded.items():
        out = PAPERS / f"{name}.json"
        # What a program reads of the paper besides stands in the same file, and stays.
        kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        text = json.dumps(kept | document(facts, entries), indent=1, ensure_ascii=False) + "\n"
        out.write_text(text, encoding="utf-8")
        print(f"{PAGE.name}: {sum(len(one.values) for one in entries)} numbers of {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
