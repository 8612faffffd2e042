"""docs/evidence.md names every table and figure of the papers, and shows what results hold."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence.md"
#: By a word of each paper's heading: what it numbers. The papers are not in the repository.
NUMBERED = {
    "GPU-PIR": ([*range(1, 16)], ["I", "II", "III", "IV", "V"]),
    "FEDORA": ([*range(1, 11)], ["1"]),
    "IVE": ([*range(1, 15)], ["I", "II", "III", "IV"]),
    "HE-LRM": ([*range(1, 11)], ["1"]),
    "private inference": ([*range(1, 15)], ["1"]),
}
COLUMNS = ["table or figure", "what it shows", "repeat it by", "ours", "the paper's"]


def load(path: str) -> ModuleType:
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(f"evidence_{name}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


commands, evidence = load("docs/commands.py"), load("bench/evidence.py")


def rows(page: str, paper: str) -> list[list[str]]:
    """The cells of a paper's table, without its head."""
    sections = [part for part in page.split("\n## ") if paper in part.partition("\n")[0]]
    assert len(sections) == 1, paper
    # Not the table of every number, which is apart.
    summary = sections[0].partition("\nEvery number:")[0]
    lines = [line for line in summary.splitlines() if re.match(r"\| (Figure|Table) ", line)]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def unnamed(page: str, paper: str) -> list[str]:
    """What a paper numbers and the page does not name."""
    figures, tables = NUMBERED[paper]
    wanted = [f"Figure {one}" for one in figures] + [f"Table {one}" for one in tables]
    named = {row[0].partition(",")[0] for row in rows(page, paper)}
    return [one for one in wanted if one not in named]


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_table_and_figure_is_named(paper: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert unnamed(page, paper) == []
    figures, tables = NUMBERED[paper]
    known = {f"Figure {one}" for one in figures} | {f"Table {one}" for one in tables}
    for row in rows(page, paper):
        what = re.sub(r"(\d)[a-z]$", r"\1", row[0].partition(",")[0])
        assert what in known, f"{paper} has no {what}"


def test_one_that_is_left_out_is_found() -> None:
    page = PAGE.read_text(encoding="utf-8").replace("| Figure 10 |", "| Figure ten |", 1)
    assert unnamed(page, "GPU-PIR") == ["Figure 10"]


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_row_says_what_is_repeated_or_why_it_is_not(paper: str) -> None:
    for row in rows(PAGE.read_text(encoding="utf-8"), paper):
        assert len(row) == len(COLUMNS) + 1, row
        _, shows, command, ours, _, why = row
        assert shows, row
        # With a command there is a result, or why there is none. Without one there is a reason.
        assert ours if command else ours or "nothing is measured" in why, row


def shown(page: str) -> list[str]:
    """The commands in the page's tables."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    found = re.findall(r"`((?:hushtable|python|make) [^`]+)`", "\n".join(lines))
    return list(dict.fromkeys(found))


def test_every_command_would_be_taken() -> None:
    found = shown(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 20
    assert [reason for line in found if (reason := defect(line)) is not None] == []


def defect(line: str) -> str | None:
    """Why a command would not be taken; None for one that would."""
    for words in commands.simple_commands(line):
        if words[0] == "python":
            wanted = words[2].replace(".", "/") + "/__main__.py" if words[1] == "-m" else words[1]
            if not (ROOT / wanted).is_file():
                return f"{line}: there is no {wanted}"
            source = (ROOT / wanted).read_text(encoding="utf-8")
            unknown = [
                word for word in words if word.startswith("--") and f'"{word}"' not in source
            ]
            if unknown:
                return f"{line}: {wanted} has no {unknown[0]}"
        elif (reason := commands.defect(words)) is not None:
            return f"{line}: {reason}"
    return None


@pytest.mark.parametrize(
    "line",
    [
        "hushtable sim accelerator --figures 7",
        "hushtable simulate inference",
        "python -m examples.nonesuch",
        "python bench/evidence.py --wrong",
        "make nonsense",
    ],
)
def test_a_command_that_would_not_be_taken_is_found(line: str) -> None:
    assert defect(line) is not None


def test_every_file_that_the_page_names_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page)
    quoted = re.findall(r"`((?:bench|docs|examples|python)/[\w./-]+)`", page)
    assert len(linked) > 10
    missing = [name for name in linked if not (PAGE.parent / name).exists()]
    missing += [name for name in quoted if not (ROOT / name).exists()]
    assert missing == []


def headings(page: Path) -> set[str]:
    """Where links within a page may lead, as GitHub names headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in found}


def test_every_link_into_a_page_leads_somewhere() -> None:
    links = re.findall(r"\]\(([\w./-]+\.md)#([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links
    for name, anchor in links:
        assert anchor in headings(PAGE.parent / name), f"{name}#{anchor}"


def entries() -> dict[str, list[Any]]:
    return {name: evidence.load(name)[1] for name in evidence.NAMES}


def test_the_page_shows_what_the_results_hold() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert evidence.render(page, entries(), evidence.runs()) == page, "run bench/evidence.py"


def test_a_number_that_no_result_holds_is_found() -> None:
    page = PAGE.read_text(encoding="utf-8")
    number = next(one for one in entries()["gpu-pir"] if one.values).values[0]
    shown = evidence.shown(number.ours, number.unit)
    changed = page.replace(shown, evidence.shown(number.ours * 2, number.unit), 1)
    assert changed != page
    assert evidence.render(changed, entries(), evidence.runs()) != changed


@pytest.mark.parametrize("paper", evidence.NAMES)
def test_programs_read_the_same(paper: str) -> None:
    kept = json.loads((evidence.PAPERS / f"{paper}.json").read_text(encoding="utf-8"))
    document = evidence.document(*evidence.load(paper))
    assert kept | json.loads(json.dumps(document)) == kept, "run bench/evidence.py"


@pytest.mark.parametrize("paper", evidence.NAMES)
def test_no_number_of_ours_is_written_by_hand(paper: str) -> None:
    for one in evidence.load(paper)[1]:
        # A size or a paper's number may stand there; a figure of a clock may not.
        for text in (one.absent, one.why if one.values else ""):
            measured = re.findall(r"\d[\d,.]* (?:ms|us|queries/s|inferences/s|GB/s)\b", text)
            assert measured == [], f"{paper}, {one.where}: {measured}"


def test_every_result_has_a_run_that_makes_it() -> None:
    made = {run.result for run in evidence.runs()}
    used = {value.result for paper in entries().values() for one in paper for value in one.values}
    assert used <= made


def test_what_make_evidence_runs_takes_less_than_half_an_hour() -> None:
    chosen = [run for run in evidence.runs() if run.is_made]
    assert chosen
    assert sum(run.minutes for run in chosen) < 30


def test_every_run_would_be_taken() -> None:
    lines = [run.command for run in evidence.runs()] + evidence.drawings()
    assert [reason for line in lines if (reason := defect(line)) is not None] == []


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path)
    results = [
        {"params": {"rows": 4, "name": "a, b"}, "threads": 1, "value": 2.0},
        {"params": {"rows": 4, "name": "c"}, "threads": 2, "value": 3},
    ]
    for date in ("2026-01-01", "2026-01-02"):
        document = {"date": date, "results": results if date.endswith("2") else []}
        (tmp_path / f"bins-{date}.json").write_text(json.dumps(document))
    (tmp_path / "bins-large-2026-01-03.json").write_text("{}")
    return tmp_path


@pytest.mark.usefixtures("kept")
def test_a_pointer_reads_the_one_number_that_it_names() -> None:
    assert evidence.read("bins: results[0].value") == (2.0, "bins")
    assert evidence.read("bins: results[params.rows=4;threads=2].value") == (3.0, "bins")
    assert evidence.read("bins: results[params.name=a, b].value") == (2.0, "bins")


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("pointer", "said"),
    [
        ("bins: results[params.rows=4].value", "2 are"),
        ("bins: results[params.rows=5].value", "0 are"),
        ("bins: results[2].value", r"has no \[2\]"),
        ("bins: results[0].params", "not a number"),
        ("bins: results[0].nonesuch", "has no .nonesuch"),
        ("none: results", "has no none-DATE.json"),
        ("bins: results[", "no key, place or choice"),
    ],
)
def test_a_pointer_that_reads_nothing_is_refused(pointer: str, said: str) -> None:
    with pytest.raises(evidence.EvidenceError, match=said):
        evidence.read(pointer)


@pytest.mark.usefixtures("kept")
def test_a_value_is_of_a_known_kind() -> None:
    raw = {"name": "a", "ours": "bins: results[0].value", "kind": "guessed"}
    with pytest.raises(evidence.EvidenceError, match="guessed"):
        evidence._value(raw, "measured")
    with pytest.raises(evidence.EvidenceError, match="typo"):
        evidence._value({"name": "a", "ours": raw["ours"], "typo": 1}, "measured")


@pytest.mark.parametrize(
    ("ours", "paper", "ratio"),
    [(2.0, 4.0, 0.5), (2.0, (1.0, 4.0), 1.0), (8.0, (1.0, 4.0), 2.0), (2.0, None, None)],
)
def test_ratios_are_over_the_papers_nearer_end(ours: float, paper: Any, ratio: Any) -> None:
    assert evidence.Value("", "", ours, paper, "measured", "bins").ratio() == ratio


def comparison(source: str, **changed: Any) -> dict[str, Any]:
    return {
        "source": source,
        "name": "QPS, 2 GB",
        "unit": "QPS",
        "ours": 4400.0,
        "paper": 4261.0,
        "error": 4400 / 4261 - 1,
        "tolerance": 0.05,
        "is_within": True,
        "is_fitted": False,
        "note": "",
        **changed,
    }


def check_cells(kept: Path, where: str, *found: dict[str, Any]) -> tuple[str, str]:
    document = {"results": [{"detail": {"comparisons": list(found)}}]}
    (kept / "sim-2026-01-01.json").write_text(json.dumps(document))
    raw = {"where": where, "shows": "", "check": "sim"}
    cells: tuple[str, str] = evidence.cells(evidence._entry("paper", raw))
    return cells


def test_a_cell_has_its_own_figures_numbers(kept: Path) -> None:
    found = (comparison("Figure 1"), comparison("Figure 13a", ours=1.0), comparison("Table II"))
    assert check_cells(kept, "Figure 13", *found) == ("a: QPS, 2 GB: 1 QPS", "4,261 QPS")
    assert check_cells(kept, "Figure 1", *found) == ("QPS, 2 GB: 4,400 QPS", "4,261 QPS")
    assert check_cells(kept, "Table I", *found) == ("", "")
    text = comparison("section 4.2", ours=2.0)
    assert check_cells(kept, "Text", text)[0] == "section 4.2: QPS, 2 GB: 2 QPS"


def test_what_is_off_is_said(kept: Path) -> None:
    off = comparison("Figure 8", ours=8000.0, error=0.9, is_within=False, name="worst")
    assert check_cells(kept, "Figure 8", off)[0].endswith("(off)")
    many = [comparison("Figure 8")] * 4
    assert check_cells(kept, "Figure 8", off, *many) == (
        "4 of 5 numbers within their tolerance; furthest: worst: 8,000 QPS",
        "4,261 QPS",
    )


def test_a_fitted_number_is_not_counted_as_repeated(kept: Path) -> None:
    fitted = comparison("Table IV", error=0.0, is_fitted=True)
    found = check_cells(kept, "Table IV", *[comparison("Table IV")] * 4, fitted)[0]
    assert found.startswith("4 of 4 numbers within their tolerance, 1 more fitted")
