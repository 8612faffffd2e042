"""A hook of MkDocs: the pages of the site that are made of other files.

- README.md is the first page; SECURITY.md and its like, and the examples' pages, are pages too.
- `api/MODULE.md` is the reference of each public module, from its docstrings; `cli.md` that of the
  command, from what its help says; `notebooks/NAME.md` a notebook with what it printed.
- A link from a page into the repository leads to the page that the file is, or to the file itself,
  which the site then holds under `source/`. A link that leads nowhere is an error.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).parent))

import api_pages  # noqa: E402  (beside this file, which MkDocs loads by its path)

#: Files of the repository that are pages, and where.
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    **{
        f"examples/{path.parent.name}/README.md": f"examples/{path.parent.name}.md"
        for path in sorted(ROOT.glob("examples/*/README.md"))
    },
    **{
        f"examples/notebooks/{path.name}": f"notebooks/{path.stem}.md"
        for path in sorted(ROOT.glob("examples/notebooks/*.ipynb"))
    },
}
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)
_LOG = logging.getLogger("mkdocs.plugins.hushtable")


def on_config(config: Any) -> Any:
    """Puts the reference and the examples into the navigation."""
    for section in config.nav:
        if "Reference" in section:
            modules = [{module: f"api/{module}.md"} for module in api_pages.MODULES]
            section["Reference"] = [{"The command": "cli.md"}, *modules]
        if "Start" in section:
            examples = [page for page in PAGES.values() if page.startswith("examples/")]
            section["Start"].insert(4, {"Examples": examples})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made, and the files that pages link to."""
    from mkdocs.structure.files import File, InclusionLevel

    for source, page in PAGES.items():
        path = ROOT / source
        text = notebook(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "cli.md", content=api_pages.command_page()))
    for module in api_pages.MODULES:
        content = api_pages.module_page(module)
        files.append(File.generated(config, f"api/{module}.md", content=content))
    for source in sorted(_linked_files(files)):
        path = ROOT / source
        if path.is_dir():
            place, text = f"source/{source}/index.md", _listing(path)
            no_nav = InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, place, content=text, inclusion=no_nav))
        else:
            content = path.read_bytes()
            files.append(File.generated(config, f"source/{source}.txt", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Leads a page's links to where the files are in the site."""
    source = _source_of(page.file.src_uri)
    if source is None:
        return markdown
    here = posixpath.dirname(page.file.src_uri)

    def lead(found: re.Match[str]) -> str:
        target, _, anchor = found[1].partition("#")
        if not target or _is_outside(target):
            return found[0]
        place = _place(source, target)
        if place is None:
            _LOG.warning("%s links to %s, which is not in the repository", source, target)
            return found[0]
        relative = posixpath.relpath(place, here or ".")
        return f"]({relative}{'#' + anchor if anchor else ''})"

    return _outside_code(markdown, lambda text: _LINK.sub(lead, text))


def _source_of(page: str) -> str | None:
    """The file of the repository that a page is made of; None for a page that is made up."""
    for source, made in PAGES.items():
        if made == page:
            return source
    return f"docs/{page}" if (ROOT / "docs" / page).is_file() else None


def _is_outside(target: str) -> bool:
    return target.startswith(("http://", "https://", "mailto:", "data:"))


def _place(source: str, target: str) -> str | None:
    """Where the site has what ``source`` links to; None where the repository has no such file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    path = path if f"{path}/README.md" not in PAGES else f"{path}/README.md"
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.txt"


def _linked_files(files: Any) -> set[str]:
    """What pages link to that is no page."""
    found = set()
    for file in files.documentation_pages():
        source = _source_of(file.src_uri)
        if source is None:
            continue
        for target in _LINK.findall(file.content_string):
            target = target.partition("#")[0]
            place = None if not target or _is_outside(target) else _place(source, target)
            if place is not None and place.startswith("source/"):
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
    return found


def _listing(folder: Path) -> str:
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    lines = "\n".join(f"- `{name}`" for name in names if not name.startswith((".", "__")))
    return f"# {folder.relative_to(ROOT)}\n\nA folder of the repository:\n\n{lines}\n"


def _outside_code(markdown: str, change: Any) -> str:
    """``markdown`` with ``change`` made to what is in no fenced block."""
    parts, inside, start = [], False, 0
    for fence in [*_FENCE.finditer(markdown), None]:
        end = len(markdown) if fence is None else fence.start()
        text = markdown[start:end]
        parts.append(text if inside else change(text))
        start, inside = end, not inside
    return "".join(parts)


def notebook(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and what that printed or drew."""
    lines = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines.append(text)
            continue
        lines.append(f"```python\n{text}\n```")
        lines += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(lines) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![What the cell drew](data:image/png;base64,{picture})"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
