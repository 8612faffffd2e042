"""docs/evidence.md names every table and figure of the papers, and says of them what is true."""

from __future__ import annotations

import importlib.util
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
    # Not the tables of every number, which are apart.
    by_hand = sections[0].partition("<!-- every ")[0]
    lines = [line for line in by_hand.splitlines() if re.match(r"\| (Figure|Table) ", line)]
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


def test_the_page_shows_the_newest_results() -> None:
    found = {name: evidence.newest(name) for name in evidence.SIMULATORS}
    page = PAGE.read_text(encoding="utf-8")
    assert evidence.render(page, found) == page, "run bench/evidence.py"


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


def test_a_cell_has_its_own_figures_numbers() -> None:
    found = [comparison("Figure 1"), comparison("Figure 13a", ours=1.0), comparison("Table II")]
    assert evidence.cells("Figure 13", found) == "QPS, 2 GB: 1 QPS | 4,261 QPS"
    assert evidence.cells("Figure 1", found) == "QPS, 2 GB: 4,400 QPS | 4,261 QPS"
    assert evidence.cells("Table I", found).startswith("drawn")
    assert evidence.cells("Table II", None).startswith("no result")
    assert evidence.cells("Text", [comparison("section 4.2", ours=2.0)]).startswith("QPS, 2 GB: 2")


def test_what_is_off_is_said() -> None:
    off = comparison("Figure 8", ours=8000.0, error=0.9, is_within=False, name="worst")
    assert "(off)" in evidence.cells("Figure 8", [off])
    many = [comparison("Figure 8"), off, comparison("Figure 8"), comparison("Figure 8")]
    assert evidence.cells("Figure 8", many) == (
        "3 of 4 numbers within their tolerance; furthest: worst: 8,000 QPS (+90.00 %) | 4,261 QPS"
    )
    assert any(line.endswith("| off |") for line in evidence.table(many))


def test_a_fitted_number_is_not_counted_as_repeated() -> None:
    fitted = comparison("Table IV", error=0.0, is_fitted=True)
    found = evidence.cells("Table IV", [comparison("Table IV")] * 4 + [fitted])
    assert found.startswith("4 of 4 numbers within their tolerance, 1 more fitted")
