"""Options of server commands: a flag and a variable for each setting that a server has."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from .._ports import RIGHT
from .._settings import Setting, flat, settings
from ..errors import ConfigError
from ..server import ServerTls

__all__ = [
    "Config",
    "Log",
    "LogJson",
    "gathered",
    "option",
    "server_tls",
    "with_settings",
]

Config = Annotated[
    Path | None,
    typer.Option(
        help="TOML or JSON file with these settings by name; flags and variables win.",
        envvar="HUSHTABLE_CONFIG",
        show_default=False,
        metavar="",
    ),
]
_LOGS = "Logs and traces"
Log = Annotated[
    str,
    typer.Option(help="Level or filter of the log.", envvar="HUSHTABLE_LOG", rich_help_panel=_LOGS),
]
LogJson = Annotated[
    bool,
    typer.Option(
        "--log-json", help="Log JSON lines.", envvar="HUSHTABLE_LOG_JSON", rich_help_panel=_LOGS
    ),
]

#: What an operator sets, under no heading; then settings by what they are about. What is here of
#: neither is of one kind of server, and has its heading.
_COMMON = (
    *("side", "device", "threads", "addr", "metrics_addr", "tls.cert", "tls.key", "watch"),
    *("plan", "operator_token_file"),
)
_HEADINGS: dict[str, tuple[str, ...]] = {
    "Addresses and TLS": ("port", "tls.client_ca", "insecure", "io_threads"),
    "Bundles and versions": (
        *("tables", "tables_bytes_max", "push_folder", "push_token_file"),
        *("keep_old_s", "keep_old_s_max"),
    ),
    "Shards": ("shard", "shards", "shards_file"),
    "Batches": (
        *("window_us", "batch_keys_max", "batch_bags_max", "batch_queries_max", "prgs"),
        *("batch_inferences_max", "nvrtc_folders"),
    ),
    "Limits": (
        *("keys_per_request_max", "bags_per_request_max", "queries_per_request_max"),
        *("queue_keys_max", "queue_bags_max", "queue_queries_max", "inferences_max"),
        *("predictions_max", "inflight_bytes_max", "inflight_bytes_per_peer_max"),
        *("connections_max", "connections_per_peer_max", "requests_per_s_per_peer_max"),
        *("streams_per_connection_max", "pings_per_s_max"),
    ),
    "Times": (
        *("handshake_ms_max", "headers_ms_max", "body_idle_ms_max", "request_ms_max"),
        *("keep_alive_ms", "idle_ms_max", "drain_ms_max", "silence_ms_max"),
    ),
    "Clients' keys": (
        *("keys_folder", "keys_memory_bytes_max", "keys_folder_bytes_max"),
        "keys_bytes_per_peer_max",
    ),
    _LOGS: ("otlp_endpoint", "otlp_service", "otlp_sample"),
}
_HEADED = tuple(name for names in _HEADINGS.values() for name in names)


def option(text: str, name: str, **more: Any) -> Any:
    """An option that ``HUSHTABLE_NAME`` sets too, and whose default is said in its text."""
    return typer.Option(
        help=text, envvar=f"HUSHTABLE_{name.upper()}", show_default=False, metavar="", **more
    )


def with_settings(
    *kinds: str, besides: tuple[str, ...] = (), panels: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for each setting of these kinds of servers.

    The command gets what was given as keyword arguments, by the parameters' names; None is what was
    not given. ``besides`` are the settings that it takes in another way; ``panels`` the headings of
    the help under which settings of one kind alone stand.
    """
    whose = {kind: f"With --scheme {kind}" for kind in kinds} | dict(panels or {})

    def is_common(setting: Setting, of: list[str]) -> bool:
        return setting.name in _COMMON and (len(of) > 1 or kinds[0] in of)

    def place(found: tuple[Setting, list[str]]) -> int:
        order = _COMMON if is_common(*found) else _HEADED
        return order.index(found[0].name) if found[0].name in order else len(_HEADED)

    def annotation(setting: Setting, of: list[str]) -> Any:
        only = whose[of[0]] if len(of) == 1 else None
        if has_sides and setting.name in RIGHT:
            right = f"{setting.default}; of the right server {RIGHT[setting.name]}"
            setting = dataclasses.replace(setting, default=right)
        heading = None if is_common(setting, of) else _heading(setting) or only
        # What stands under the heading of a kind need not say so, nor where there is one kind.
        return _annotation(setting, heading, None if len(kinds) == 1 or heading == only else only)

    has_sides = any(setting.name == "side" for kind in kinds for setting in settings(kind))
    found: dict[str, tuple[Setting, list[str]]] = {}
    for kind in kinds:
        for setting in settings(kind):
            if setting.name not in besides:
                found.setdefault(setting.name, (setting, []))[1].append(kind)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        made = [
            inspect.Parameter(
                setting.parameter,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=annotation(setting, of),
            )
            for setting, of in sorted(found.values(), key=place)
        ]

        @functools.wraps(command)
        def called(*arguments: Any, **options: Any) -> None:
            command(*arguments, **options)

        # The file, the log and the form of what is printed come last in the help.
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        last = [parameter.name for parameter in own].index("config")
        signature = inspect.Signature([*own[:last], *made, *own[last:]])
        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return called

    return decorate


def _heading(setting: Setting) -> str | None:
    return next((text for text, names in _HEADINGS.items() if setting.name in names), None)


def _annotation(setting: Setting, panel: str | None, only: str | None) -> Any:
    more: dict[str, Any] = {} if panel is None else {"rich_help_panel": panel}
    text = _help(setting) + (f" [{only[0].lower()}{only[1:]}]" if only else "")
    if setting.kind == "flag":
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        option = typer.Option(
            flag,
            help=text,
            envvar=setting.variable,
            show_envvar=False,
            show_default=False,
            **more,
        )
        return Annotated[bool | None, option]
    if setting.kind == "bytes":
        kind: Any = int
        more["parser"] = parse_bytes
    elif setting.kind in ("count", "time"):
        kind = int
    elif setting.kind == "fraction":
        kind = float
    else:
        kind = str
        if setting.choices:
            more["parser"] = _one_of(setting.choices)
    option = typer.Option(
        setting.flag,
        help=text,
        envvar=setting.variable,
        show_envvar=False,  # the rule is in the command's help
        show_default=False,
        metavar="",
        **more,
    )
    return Annotated[kind | None, option]


def _help(setting: Setting) -> str:
    text = setting.help
    if setting.choices:
        text = f"{text.removesuffix('.')}: {' or '.join(setting.choices)}."
    if setting.kind == "time":
        text = f"{text.removesuffix('.')}, in {setting.unit}."
    if setting.kind in ("names", "paths"):
        text = f"{text.removesuffix('.')}; several with commas."
    default = _default(setting)
    return f"{text} Default: {default}." if default else text


def _default(setting: Setting) -> str:
    value = setting.default
    if value is None:
        return setting.unset
    if setting.kind == "flag" or value == []:
        return ""
    if setting.kind == "bytes":
        return _bytes_text(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def parse_bytes(text: str | int) -> int:
    """A number of bytes: ``4096``, ``256MiB``, ``1.5 GiB``."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    unit = found and _UNITS.get(found[2].upper())
    if not found or not unit or not (count := float(found[1]) * unit).is_integer():
        raise typer.BadParameter(f"{text!r} is no number of bytes: 4096, 256MiB or 1.5GiB, say")
    return int(count)


def _bytes_text(count: int) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} bytes"


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        if text not in choices:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(choices)}")
        return text

    return chosen


def gathered(
    kinds: tuple[str, ...], config: Path | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What the file, the variables and the flags say together, by the settings' names.

    ``given`` has flags and variables by parameter, None where there was none. What else it or the
    file names is left as it is.
    """
    known = {setting.parameter: setting for kind in kinds for setting in settings(kind)}
    found = flat(_read(config)) if config else {}
    for name, value in given.items():
        if value is None:
            continue
        setting = known.get(name)
        if setting is None:
            found[name] = value
        elif setting.kind in ("names", "paths"):
            found[setting.name] = [part.strip() for part in value.split(",")]
        else:
            found[setting.name] = value
    if found.get("metrics_addr") == "none":
        found["metrics_addr"] = None
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        # With the mark that editors of Windows put before a text.
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".toml":
            found = tomllib.loads(text)
        else:
            found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold settings by name, as {{...}}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; TOML refuses a name that is there twice by itself."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is given twice")
    return dict(pairs)


def server_tls(settings: dict[str, Any]) -> ServerTls | None:
    """Takes TLS's files out of the settings; none of none.

    Raises:
        ConfigError: a certificate without its key, or the reverse.
    """
    files = {part: settings.pop(f"tls.{part}", None) for part in ("cert", "key", "client_ca")}
    if not any(files.values()):
        return None
    for part in ("cert", "key"):
        if files[part] is None:
            raise ConfigError(f"TLS needs a certificate and its key: give --tls-{part} too")
    return ServerTls(files["cert"], files["key"], files["client_ca"])
