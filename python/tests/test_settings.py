"""One name for a setting: in the flag, the variable, the file and the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from waiting import COMMAND_HUNG_S

import hushtable
from hushtable._settings import Setting, checked, flat, nested, settings
from hushtable.cli import app
from hushtable.cli._settings import gathered, parse_bytes
from hushtable.cli._variables import _OF_OPTIONS, known_variables

COMMAND = typer.main.get_command(app)
KINDS: tuple[str, ...] = ("pair", "onion", "shares", "train")
EVERY = [(kind, setting) for kind in KINDS for setting in settings(kind)]


def parameters(*path: str) -> dict[str, Any]:
    command: Any = COMMAND
    for name in path:
        command = command.commands[name]
    return {parameter.name: parameter for parameter in command.params}


@pytest.mark.parametrize(("kind", "setting"), EVERY, ids=[f"{k}-{s.name}" for k, s in EVERY])
def test_every_field_has_its_flag_and_its_variable(kind: str, setting: Setting) -> None:
    found = parameters("train", "serve") if kind == "train" else parameters("serve")
    if setting.name in ("table", "model"):
        assert found["bundles"].envvar == "HUSHTABLE_TABLE"
        return
    parameter = found[setting.name.replace(".", "_")]
    assert parameter.opts == ["--" + setting.name.replace(".", "-").replace("_", "-")]
    assert parameter.envvar == "HUSHTABLE_" + setting.name.replace(".", "_").upper()
    assert parameter.default is None  # the server's own is the only one
    assert setting.variable in known_variables()


def test_no_flag_of_a_server_is_anything_else() -> None:
    own = {"bundles", "scheme", "infer", "config", "log", "log_json", "json", "help"}
    # Of the process, and no setting: a file must not end a server.
    own |= {"exit_with_parent"}
    named = {setting.parameter for kind in KINDS[:3] for setting in settings(kind)}
    own |= {"help_all"}
    assert parameters("serve").keys() == (own | named) - {"table", "model", "help"}


def test_the_three_ways_to_say_a_setting_end_in_one_place(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'request_ms_max = 1\nkeep_alive_ms = 2\nprgs = ["aes128"]\n[tls]\ncert = "c"\nkey = "k"\n'
    )
    given = {"keep_alive_ms": 3, "prgs": "aes128, chacha20", "tls_key": "other", "threads": None}
    assert gathered(("pair",), file, given) == {
        "request_ms_max": 1,
        "keep_alive_ms": 3,
        "prgs": ["aes128", "chacha20"],
        "tls.cert": "c",
        "tls.key": "other",
    }


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "threads = 2"), ("a.json", '{"threads": 2}')]
)
def test_a_mark_of_the_byte_order_is_no_part_of_a_file(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert gathered(("pair",), tmp_path / name, {}) == {"threads": 2}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.toml", "threads = 2".encode("utf-16"), "can't decode byte 0xff"),
        ("a.json", b'{"threads": 1, "threads": 2}', "threads is given twice"),
        ("a.json", b'{"tls.cert": "a", "tls": {"cert": "b"}}', "tls.cert is given twice"),
        ("a.json", b"[" * 100_000, "recursion"),
        ("a.toml", b"[tls]\n# cert = 'c'\n", "[tls] is empty"),
        ("a.toml", b"table = 5", "table must be a path, not 5"),
        ("a.toml", b'tables = "films"', "tables must be a list of paths, not 'films'"),
        ("a.toml", b"tables = [1]", "tables must be a path, not 1"),
        ("a.toml", b"threads = 2026-01-01", "threads cannot be datetime.date"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(hushtable.ConfigError, match=re.escape(says)):
        checked("pair", gathered(("pair",), tmp_path / name, {}))


def test_names_with_dots_are_tables_and_back() -> None:
    given = {"addr": "a", "metrics_addr": None, "tls.cert": "c", "tls.client_ca": None}
    assert nested(given) == {"addr": "a", "metrics_addr": None, "tls": {"cert": "c"}}
    assert flat({"addr": "a", "tls": {"cert": "c"}}) == {"addr": "a", "tls.cert": "c"}


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("pair", "queue_key_max", "did you mean queue_keys_max"),
        ("pair", "keys_folder", "a single server"),
        ("onion", "prgs", "one of a pair"),
        ("train", "threads", "training has none"),
        ("pair", "zzz", "there is no setting 'zzz'"),
    ],
)
def test_a_setting_that_a_server_lacks_is_refused_by_name(kind: str, name: str, says: str) -> None:
    with pytest.raises(hushtable.ConfigError, match=says):
        checked(kind, {name: 1})


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("1KiB", 1024), ("256 MiB", 256 << 20), ("1.5gib", 3 << 29), ("7B", 7)],
)
def test_bytes_may_have_a_unit(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1 MB", "one", "1MiBs", "0.3KiB"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no number of bytes"):
        parse_bytes(text)


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hushtable", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_HUNG_S,
        check=False,
    )


@pytest.mark.parametrize("command", [["--version"], ["table", "info", "nowhere", "--json"]])
def test_a_variable_that_nothing_reads_is_warned_of_once(command: list[str]) -> None:
    done = run(*command, HUSHTABLE_QUEUE_KEY_MAX="8", HUSHTABLE_ISA="avx2", HUSHTABLE_THREADS="1")
    warnings = [line for line in done.stderr.splitlines() if "HUSHTABLE" in line]
    assert warnings == [
        "warning: HUSHTABLE_QUEUE_KEY_MAX is no variable of hushtable: did you mean "
        "HUSHTABLE_QUEUE_KEYS_MAX?"
    ]
    if "--json" in command:
        assert json.loads(done.stdout)["error"]["type"] == "TableError"


def test_flags_that_do_not_fit_the_scheme_or_their_kind_end_in_a_line() -> None:
    for arguments, says in (
        (["serve", "b", "--side", "up"], "none of left, right"),
        (["serve", "b", "--side", "left", "--inflight-bytes-max", "1MB"], "no number of bytes"),
        (["serve", "b", "--side", "left", "--keys-folder", "k"], "a single server"),
        (["serve", "b", "--scheme", "two"], "scheme must be pair or onion"),
    ):
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert says in " ".join(done.stderr.split()), done.stderr


def test_flags_that_errors_of_servers_name_are_there() -> None:
    sources = Path(__file__).parents[2].glob("crates/serve/src/**/*.rs")
    named = {
        flag
        for source in sources
        for flag in re.findall(r"hushtable serve (--[a-z-]+)", source.read_text())
    }
    assert named
    assert named <= {flag for parameter in parameters("serve").values() for flag in parameter.opts}


def test_variables_of_options_are_known_without_the_commands() -> None:
    def named(command: Any) -> set[str]:
        found = {name for one in command.params for name in _names(one.envvar)}
        for below in getattr(command, "commands", {}).values():
            found |= named(below)
        return found

    # What is missing goes into _OF_OPTIONS of hushtable/cli/_variables.py.
    assert named(COMMAND) - known_variables() == set()
    assert {f"HUSHTABLE_{name}" for name in _OF_OPTIONS} - named(COMMAND) == set()


def _names(variable: Any) -> tuple[str, ...]:
    return (variable,) if isinstance(variable, str) else tuple(variable or ())
