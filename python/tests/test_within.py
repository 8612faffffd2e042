"""Paths that others name stay in their folder, and nothing shipped joins one in another way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hushtable
from hushtable import ConfigError, _within

PACKAGE = Path(hushtable.__file__).parent

#: What is joined without the function for it, by file, and why that is no text from outside.
KNOWN: dict[str, tuple[set[str], str]] = {
    "_fetch/fetching.py": (
        {
            "folder / f'.{self._whole.name}.{self.part}.partial'",
            "self._marks / f'{self._whole.name}.json'",
            "self._marks / f'{self._whole.name}.lock'",
            "Path(folder, file)",
        },
        "the last step of a path that the function made, and what the system lists",
    ),
    "cluster/spec.py": ({"path.parent / source"}, "the operator's own file: models are anywhere"),
    "data/__init__.py": (
        {"cache / source.name", "home / member.name", "Path(aside) / f'{member.name}.part'"},
        "names of our own list of data sets",
    ),
    "data/_registries.py": ({"into / name"}, "packages of our own list of data sets"),
    "scale/_exporting.py": (
        {"stage / 'tables' / str(i)", "stage / f'model-{number}'"},
        "numbers",
    ),
    "scale/places.py": ({"folder / path"}, "the operator's own record: keys are anywhere"),
    "scale/pool.py": ({"Path(self._folder.name, str(next(self._numbers)))"}, "numbers"),
    "server.py": ({"folder / f'{name}.pem'", "folder / f'{name}.key'"}, "our own names"),
    "tune/costs.py": ({"index / name"}, "two names of the system's"),
    "tune/plots.py": ({"folder / (figure.name + suffix)"}, "names of our own figures"),
    "tune/whole.py": ({"stage / str(number)"}, "numbers"),
}

#: What variables are called that hold a path, or end with.
PATHS = ("aside", "bundle", "cache", "dir", "folder", "home", "index", "into", "marks", "models")
PATHS += ("out", "parent", "partial", "path", "place", "root", "stage", "target")


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_path(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        name = _called(node.func)
        return name in ("Path", "absolute", "resolve") or name.endswith(("folder", "path"))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_path(node.left)
    return any(_called(node).strip("_").endswith(word) for word in PATHS)


def _is_plain(node: ast.expr) -> bool:
    """A literal, or a constant of the module."""
    if isinstance(node, ast.Constant):
        return True
    return _called(node).strip("_").isupper()


def _joins(tree: ast.AST) -> Iterator[str]:
    """What is joined to a path that is neither a literal nor a constant."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                is_text = isinstance(right, ast.JoinedStr)
                if (is_text or _is_path(left)) and not _is_plain(right):
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="joinpath"), args=args):
                if not all(map(_is_plain, args)):
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=value, attr="join"), args=[_, *rest]):
                if _called(value) == "path" and not all(map(_is_plain, rest)):
                    yield ast.unparse(node)
            case ast.Call(func=func, args=[_, *rest]):
                is_path = _called(func) in ("Path", "PurePath", "PurePosixPath")
                if is_path and not all(map(_is_plain, rest)):
                    yield ast.unparse(node)


def _sources() -> dict[str, str]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE).as_posix(): file.read_text() for file in files}


def test_paths_that_others_name_are_joined_by_one_function() -> None:
    sources = _sources()
    assert len(sources) > 50
    found = {file: set(_joins(ast.parse(text))) for file, text in sources.items()}
    known = {file: KNOWN.get(file, (set(), ""))[0] for file in sources}
    others = {file: joins - known[file] for file, joins in found.items() if joins - known[file]}
    assert not others, (
        f"{others}: hushtable._within joins what others say; what nobody else says goes on the list"
        " here, with why"
    )


def test_the_list_has_what_is_there_and_why() -> None:
    sources = _sources()
    for file, (joins, reason) in KNOWN.items():
        assert reason and joins <= set(_joins(ast.parse(sources[file]))), file


def test_a_path_that_is_joined_in_another_way_is_found() -> None:
    text = """
here = folder / "model.json" / _FILE / places.MANIFEST
a = self._folder / name
b = Path(given) / f"{name}.pem"
c = anything / f"{name}.pem"
d = os.path.join(out, "x", name)
e = folder.joinpath("x", name)
f = Path(folder, name)
share = found.drop / even
line = ", ".join(names)
"""
    assert len(list(_joins(ast.parse(text)))) == 6


@pytest.mark.parametrize("real", [False, True])
def test_what_leads_out_of_a_folder_is_refused(tmp_path: Path, real: bool) -> None:
    join = _within.join_real if real else _within.join
    for path in ["a", "tables/films/rows.bin", "..a", "...", ".hidden"]:
        assert join(tmp_path, path) == tmp_path / path
    bad = ["", ".", "..", "/", "/etc/passwd", "../x", "a/..", "a/../../x", "./a", "a//b", "a/"]
    bad += ["a\0b", "a\\b", "..\\x", "\\\\host\\share", "C:", "c:/windows", "a/C:\\x"]
    for path in [*bad, "a" * 256, "a/" * 2100 + "a"]:
        with pytest.raises(ConfigError, match="no path within a folder"):
            join(tmp_path, path)
    with pytest.raises(UnicodeEncodeError):
        join(tmp_path, "\udcff")


def test_a_link_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    (folder / "tables").mkdir(parents=True)
    (tmp_path / "else").mkdir()
    (folder / "out").symlink_to(tmp_path / "else")
    (folder / "nothing").symlink_to("/nowhere")
    (folder / "in").symlink_to("tables")
    assert _within.join_real(folder, "in/new") == folder / "in/new"
    for path in ["out", "out/new", "nothing", "nothing/new"]:
        assert _within.join(folder, path) == folder / path
        with pytest.raises(ConfigError, match="no path within a folder"):
            _within.join_real(folder, path)
