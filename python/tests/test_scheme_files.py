"""How many files a scheme takes beside its own: those that name it, in Rust and in Python."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushtable import _native

ROOT = Path(__file__).resolve().parents[2]
#: Where a scheme is put together; its protocol is in a folder of another crate.
PLACES = ("crates/serve/src", "crates/serve/build.rs", "crates/serve/Cargo.toml", "python/src")
PLACES += ("python/hushtable",)
#: The files that name each scheme outside its own. Lower a number that has fallen, and say why one
#: must rise.
MOST = {"pair": 23, "onion": 34, "train": 17, "ckks": 15, "hybrid": 17, "shares": 17}


def own(name: str, path: str) -> bool:
    """Whether a file is the scheme's own, by its path."""
    return re.search(rf"(^|[/_]){name}(_\w+)?([/.]|$)", path) is not None


def code(path: Path) -> str:
    """A file without comments and docstrings, which a scheme may be named in."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".rs", ".toml"):
        return re.sub(r"(//|#(?!\[)).*", "", text)
    kept: list[str] = []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in (
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.NL,
        )
        if token.type != tokenize.COMMENT and not is_docstring:
            kept.append(token.string)
        if token.type != tokenize.COMMENT:
            before = token.type
    return "\n".join(kept)


def names(name: str) -> re.Pattern[str]:
    """The scheme's name in quotes or as a module, or as the beginning of another name."""
    word = rf"""["']{name}["']|\bmod {name};|\b{name}::|^{name} = """
    return re.compile(rf"{word}|(?<![a-zA-Z]){name}_\w|\b_?{name.capitalize()}[A-Z]", re.M)


def files() -> Iterator[Path]:
    for place in PLACES:
        found = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
        # What measures is the laboratory's, and tests are of one scheme or of all.
        yield from (
            path
            for path in found
            if path.suffix in (".rs", ".toml", ".py", ".pyi")
            and not {"bench", "tests", "tests.rs"} & set(path.parts)
        )


CODE = {path.relative_to(ROOT).as_posix(): code(path) for path in files()}


@pytest.mark.parametrize("scheme", [scheme.name for scheme in _native.schemes()])
def test_a_scheme_is_named_in_few_files_beside_its_own(scheme: str) -> None:
    pattern = names(scheme)
    found = [path for path, text in CODE.items() if not own(scheme, path) and pattern.search(text)]
    assert len(found) <= MOST[scheme], "\n".join(found)
    assert len(found) == MOST[scheme], f"now {len(found)}: lower the number here"
