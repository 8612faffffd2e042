"""THIRD-PARTY-NOTICES.txt: of what else a wheel's module is made, and under which terms.

Wheels and images carry it. It is made of the crates' own sources, and the same wherever it is made.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import crates, licences

NAME = "THIRD-PARTY-NOTICES.txt"
_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)[^/]*$", re.IGNORECASE)
_APACHE = re.compile(r"Apache License\s+Version 2\.0, January 2004")
#: A file that is longer than that licence holds others too.
_APACHE_CHARACTERS_MAX = 12_500
_RULE = "-" * 100
#: What a crate's `license = "MIT"` stands for where the crate has no text of it.
_MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
_HEAD = """\
Third-party notices

hushtable's native module is made of the crates below, beside its own, which are under the Apache
License 2.0 (LICENSE). The Rust standard library, under the same licence or MIT, is in it too:
https://www.rust-lang.org/policies/licenses. Where a crate offers several licences, it is used
under the ones that are named here. What is under the Apache License 2.0 alone has no text of its
own below: LICENSE holds it.

The table of `hushtable demo --small` is of GloVe 6B, which is in the public domain (PDDL 1.0).

Made by `python .ci/release notices`.
"""


def text(found: list[crates.Crate] | None = None) -> str:
    """The whole file.

    Raises:
        ValueError: a licence that the policy does not allow, or whose text cannot be found.
    """
    found = crates.linked() if found is None else found
    lines: list[str] = []
    bodies: dict[str, list[str]] = {}
    width = max(len(f"{crate.name} {crate.version}") for crate in found)
    for crate in found:
        name = f"{crate.name} {crate.version}"
        terms = licences.taken(crate.expression)
        source = crate.repository or f"https://crates.io/crates/{crate.name}"
        lines.append(f"{name:<{width}}  {' AND '.join(sorted(terms))}  {source}")
        for title, body in _texts(crate, terms):
            bodies.setdefault(body, []).append(f"{name}{title}")
    parts = [f"{_RULE}\n{_wrapped(names)}\n\n{body}\n" for body, names in bodies.items()]
    return "\n".join([_HEAD, *lines, "", *parts])


def _texts(crate: crates.Crate, terms: frozenset[str]) -> list[tuple[str, str]]:
    """(which file, or nothing for the crate's own; its text) of all texts that must go along."""
    texts = []
    for path in sorted(crate.folder.rglob("*")):
        place = path.relative_to(crate.folder)
        if not _FILE.match(path.name) or path.suffix in (".rs", ".py") or not path.is_file():
            continue
        body = "\n".join(line.rstrip() for line in path.read_text().strip().splitlines())
        is_own = place.parent == Path()
        if _APACHE.search(body) and len(body) < _APACHE_CHARACTERS_MAX:
            continue
        if is_own and _is_other(place.name, terms):
            continue
        texts.append(("" if is_own else f" ({place})", body))
    has_own = any(not title for title, _ in texts)
    if has_own or terms == {"Apache-2.0"}:
        return texts
    if terms != {"MIT"}:
        raise ValueError(f"{crate.name} {crate.version} has no text of {sorted(terms)}")
    holders = ", ".join(re.sub(r"\s*<.*?>", "", author) for author in crate.authors)
    return [("", f"Copyright (c) {holders or f'the authors of {crate.name}'}\n\n{_MIT}"), *texts]


def _is_other(name: str, terms: frozenset[str]) -> bool:
    """Whether a file of several is the text of a licence that is not taken."""
    name = name.lower()
    of = {
        "MIT": ("mit",),
        "Apache-2.0 WITH LLVM-exception": ("llvm",),
        "CC0-1.0": ("cc0",),
        "Unlicense": ("unlicense",),
        "Zlib": ("zlib",),
        "BSD-3-Clause": ("bsd",),
        "ISC": ("isc",),
    }
    marks = {licence: any(mark in name for mark in words) for licence, words in of.items()}
    if any(marks.values()):
        return not any(marks[licence] for licence in terms if licence in marks)
    # `LICENSE` of what is taken under Apache-2.0 alone can only be of another choice.
    return terms == {"Apache-2.0"} and name.startswith(("licen", "unlicen"))


def _wrapped(names: list[str], width: int = 100) -> str:
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + len(name) + 2 > width:
            lines.append("")
        lines[-1] += f", {name}" if lines[-1] else name
    return ",\n".join(lines) + ":"
