"""The pages of the reference: of the command by its own help, and of each public module."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hushtable.cli import app

ROOT = Path(__file__).resolve().parents[1]

#: The public modules, in the order of the navigation.
MODULES = (
    "hushtable",
    "hushtable.client",
    "hushtable.gateway",
    "hushtable.table",
    "hushtable.model",
    "hushtable.push",
    "hushtable.shards",
    "hushtable.server",
    "hushtable.nn",
    "hushtable.nn.encrypted",
    "hushtable.tune",
    "hushtable.fl",
    "hushtable.scale",
    "hushtable.cluster",
    "hushtable.infer",
    "hushtable.infer.networks",
    "hushtable_lab.sim",
    "hushtable_lab.sim.accelerator",
    "hushtable_lab.sim.fl",
    "hushtable_lab.sim.inference",
    "hushtable_lab.sim.serve",
    "hushtable.data",
    "hushtable.data.criteo",
    "hushtable.errors",
)
#: What rich's markup has in help texts.
_MARKUP = re.compile(r"(?<!\\)\[/?(?:bold|dim|italic|red|green|cyan|yellow)(?: [a-z]+)*\]")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group of commands with its full name, groups before what is in them."""
    yield from _below("hushtable", typer.main.get_command(app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for below, found in getattr(command, "commands", {}).items():
        if not found.hidden:
            yield from _below(f"{name} {below}", found)


def command_page() -> str:
    """The reference of the command: every command, its arguments, options and examples."""
    parts = [
        "# The command\n\nWhat `--help` says, of every command. With `--json` a command prints one "
        "line of JSON, also of what went wrong. It exits with 0, with 2 for bad input, and with 1 "
        "for what else went wrong."
    ]
    for name, command in commands():
        level = "##" if name.count(" ") < 2 else "###"
        parts.append(f"{level} `{name}` {{#{name.replace(' ', '-')}}}")
        parts.append(_text(command.help or ""))
        if hasattr(command, "commands"):
            rows = [
                f"| [`{name} {below}`](#{name.replace(' ', '-')}-{below}) | {_first(found)} |"
                for below, found in command.commands.items()
                if not found.hidden
            ]
            parts.append("\n".join(["| Command | What it does |", "| --- | --- |", *rows]))
        else:
            parts += _arguments(name, command)
        parts.append(_examples(command))
    return "\n\n".join(part for part in parts if part) + "\n"


def _first(command: Any) -> str:
    return _cell(_text(command.help or "").split("\n\n")[0].split(". ")[0].rstrip(".") + ".")


def _arguments(name: str, command: Any) -> Iterator[str]:
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_metavar, arguments)])
    yield f"```text\n{usage}\n```"
    if arguments:
        rows = [f"| `{_metavar(p)}` | {_cell(_text(p.help or ''))} |" for p in arguments]
        yield "\n".join(["| Argument | What it is |", "| --- | --- |", *rows])
    if options:
        rows = [f"| {_names(p)} | {_meaning(p)} |" for p in options]
        yield "\n".join(["| Option | What it is |", "| --- | --- |", *rows])


def _metavar(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = name.strip("[]").removesuffix("...")
    name += "..." if parameter.nargs == -1 else ""
    return name if parameter.required else f"[{name}]"


def _names(option: Any) -> str:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} {_cell(_kind(option))}"


def _kind(option: Any) -> str:
    if option.metavar:
        return f"*{option.metavar}*"
    if choices := getattr(option.type, "choices", None):
        return " or ".join(f"*{choice}*" for choice in choices)
    return f"*{option.type.name}*"


def _meaning(option: Any) -> str:
    words = [_text(option.help or "")]
    default = option.default
    is_value = default is not None and not callable(default) and default not in ((), [], "")
    if is_value and not option.is_flag and option.show_default is not False:
        words.append(f"Default: `{getattr(default, 'value', default)}`.")
    if option.required:
        words.append("Required.")
    envvar = option.envvar if isinstance(option.envvar, str) else None
    if envvar:
        words.append(f"Variable: `{envvar}`.")
    return _cell(" ".join(words))


def _text(text: str) -> str:
    text = _MARKUP.sub("", text).replace("\\[", "[")
    # Angle brackets and asterisks of help texts are meant as they stand.
    pieces = re.split(r"(`[^`]*`)", text)
    plain = (re.sub(r"([<*_\[\]])", r"\\\1", piece) for piece in pieces[::2])
    return "".join(x for pair in zip(plain, [*pieces[1::2], ""], strict=True) for x in pair).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _examples(command: Any) -> str:
    lines = [
        line.strip().replace("\\[", "[")
        for line in (command.epilog or "").split("\n\n")
        if line.strip().startswith("$ ")
    ]
    return "```console\n" + "\n".join(lines) + "\n```" if lines else ""


def module_page(module: str) -> str:
    """The page of a module: its docstring, and what it exports; links to what others describe."""
    names = exported(module)
    elsewhere = {}
    if module == "hushtable":
        pages = [page for page in MODULES if page.startswith("hushtable.") and page.count(".") == 1]
        elsewhere = {name: page for page in pages for name in exported(page) if name in names}
        elsewhere |= {page.partition(".")[2]: page for page in pages}
    own = [name for name in names if name not in elsewhere]
    page = (
        f"::: {module}\n    options:\n      heading_level: 1\n      show_submodules: false\n"
        f"      members: {json.dumps(own) if own else 'false'}\n"
    )
    linked = [name for name in names if name in elsewhere]
    rows = [f"| `{name}` | [{elsewhere[name]}]({elsewhere[name]}.md) |" for name in linked]
    if rows:
        page += "\n## Also here\n\n" + "\n".join(
            ["| Name | Described in |", "| --- | --- |", *rows]
        )
    return page + "\n"


def exported(module: str) -> list[str]:
    """What `__all__` of a module names, or nothing where it has none; it is not imported."""
    folder = "lab" if module.startswith("hushtable_lab") else "python"
    path = ROOT / folder / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return [name for name in names if not name.startswith("_")]
    return []
