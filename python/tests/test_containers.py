"""The files that images and containers are made of: what can be held without building an image."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from release_tools import image

import hushtable
from hushtable.cli._variables import known_variables

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import commands  # noqa: E402  (it parses command lines of pages, and these)

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
PUSH = yaml.safe_load((ROOT / "compose.push.yaml").read_text())
#: What the machine of a test has free, in place of a container's own.
FREE = ("--addr", "127.0.0.1:0", "--metrics-addr", "none")
CONTAINERFILE = (ROOT / "Containerfile").read_text()
SIDES = ("left", "right")


def _option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def _mounts(side: str, files: tuple[dict[str, Any], ...] = (COMPOSE, PUSH)) -> dict[str, str]:
    """Where each mount of a side leads, by its place within: with no variable set."""
    mounts = [mount for file in files for mount in file["services"][side]["volumes"]]
    return {mount["target"]: _filled(mount["source"]) for mount in mounts}


def _filled(text: str) -> str:
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text)


@pytest.mark.parametrize("side", SIDES)
def test_the_command_takes_what_a_container_gives_it(side: str) -> None:
    service: dict[str, Any] = COMPOSE["services"][side]
    words = shlex.split(service["command"])
    assert commands.defect(["hushtable", *words]) is None
    assert commands.defect(["hushtable", *words, "--renamed"]) is not None
    assert _option(words, "--side") == side
    assert service["profiles"] == [side]
    told = PUSH["services"][side]["environment"]
    # Nothing of a server's is set by a name that it does not know.
    assert told.keys() <= known_variables()
    used = [_option(words, "--tls-cert"), _option(words, "--tls-key"), words[1], *told.values()]
    places = set(map(Path, _mounts(side)))
    for path in map(Path, used):
        assert places & {path, *path.parents}, f"{path} is in no volume"
    _, port = service["ports"][0].rsplit(":", 1)
    assert _option(words, "--addr").endswith(f":{port}")


def test_no_variable_need_be_set_and_each_side_has_its_own() -> None:
    for file in ("compose.yaml", "compose.push.yaml"):
        text = (ROOT / file).read_text()
        # Compose fills in variables of both profiles, whichever is asked for.
        for name, rest in re.findall(r"\$\{([A-Z_]+)([^}]*)\}", text):
            assert rest.startswith(":-") and rest != ":-", name
    left, right = (_mounts(side) for side in SIDES)
    assert left.keys() == right.keys()
    assert not set(left.values()) & set(right.values())
    ports = [_filled(COMPOSE["services"][side]["ports"][0]) for side in SIDES]
    assert ports == ["4000:4000", "5000:4000"]  # as `hushtable lookup` asks


def test_both_sides_serve_from_the_folders_that_compose_names(tmp_path: Path) -> None:
    weight = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    with contextlib.ExitStack() as stack:
        urls = {}
        for side in SIDES:
            mounts = {place: str(tmp_path / path) for place, path in _mounts(side).items()}
            hushtable.make_certificates(mounts["/etc/hushtable/tls"])
            hushtable.Table.from_weight(weight, name="films").save(mounts["/srv/tables/current"])
            Path(mounts["/etc/hushtable/push.token"]).write_text("0123456789abcdef\n")
            Path(mounts["/var/lib/hushtable/pushed"]).mkdir()
            command = [
                next((word.replace(at, to) for at, to in mounts.items() if at in word), word)
                for word in shlex.split(COMPOSE["services"][side]["command"])
            ]
            told = PUSH["services"][side]["environment"]
            env = {name: mounts.get(value, value) for name, value in told.items()}
            server = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "hushtable", *command, "--json", *FREE],
                    env={**os.environ, **env},
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(server.terminate)
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            assert "error" not in ready, ready
            urls[side] = ready["url"]
        tls = hushtable.TlsConfig(
            None,
            left_ca=tmp_path / "left/tls/ca.pem",
            right_ca=tmp_path / "right/tls/ca.pem",
        )
        with hushtable.connect(urls["left"], urls["right"], tls=tls) as client:
            assert np.array_equal(client.lookup([7]), weight[[7]])


@pytest.mark.parametrize("side", SIDES)
def test_a_container_writes_pushed_bundles_alone(side: str) -> None:
    service = COMPOSE["services"][side]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert all(mount["read_only"] for mount in service["volumes"])
    pushes = PUSH["services"][side]
    written = [mount for mount in pushes["volumes"] if not mount.get("read_only")]
    assert [mount["source"] for mount in written] == [f"{side}-pushed"]
    assert written[0]["target"] == pushes["environment"]["HUSHTABLE_PUSH_FOLDER"]
    assert f"{side}-pushed" in PUSH["volumes"]
    # A folder that is not there is not made, as root's.
    for mount in (*service["volumes"], *pushes["volumes"]):
        assert mount["type"] == "volume" or mount["bind"] == {"create_host_path": False}
    # The image makes the folder for its user: a new volume takes its owner over.
    assert re.search(r"install .*--owner hushtable .*/var/lib/hushtable/pushed", CONTAINERFILE)


def test_the_image_is_of_this_tree() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for path in line.split():
            assert (ROOT / path).exists(), path
    workspace = (ROOT / "Cargo.toml").read_text()
    rust = re.search(r'^rust-version = "(.*)"$', workspace, re.MULTILINE)
    assert rust and f"library/rust:{rust[1]}-slim" in CONTAINERFILE
    pinned = re.search(r"^maturin==.*$", (ROOT / "python/requirements-dev.txt").read_text(), re.M)
    assert pinned and f"'{pinned[0]}'" in CONTAINERFILE
    users = re.findall(r"^USER (\S+)$", CONTAINERFILE, re.MULTILINE)
    assert users == ["10001:10001"]
    ignored = (ROOT / ".containerignore").read_text()
    assert ignored == (ROOT / ".dockerignore").read_text()


def test_the_image_says_what_it_is_and_brings_its_notices() -> None:
    builder = (ROOT / ".ci" / "image").read_text()
    for name in ("version", "revision", "source"):
        assert f'org.opencontainers.image.{name}="${{{name.upper()}}}"' in CONTAINERFILE
        assert f"ARG {name.upper()}=" in CONTAINERFILE
        assert f'--build-arg "{name.upper()}=' in builder
    assert 'org.opencontainers.image.licenses="Apache-2.0"' in CONTAINERFILE
    assert re.search("^COPY LICENSE THIRD-PARTY-NOTICES.txt /usr/share/doc/", CONTAINERFILE, re.M)


def test_what_the_image_is_made_of_is_pinned() -> None:
    # By name, so that a builder may be told their digests.
    assert set(image.bases()) == {"RUST", "PYTHON"}
    assert re.findall("^FROM (.*)$", CONTAINERFILE, re.M) == ["${RUST} AS build", "${PYTHON}"]
    if image.BASES.exists():
        for line in image.BASES.read_text().splitlines():
            name, _, base = line.partition("=")
            tag = image.bases()[name].partition(":")[0]
            assert re.fullmatch(rf"{re.escape(tag)}@sha256:[0-9a-f]{{64}}", base), line
    blocks = re.split(r"\n(?=\S)", image.PACKAGES.read_text().strip())
    pinned = {block.split("==")[0] for block in blocks if not block.startswith("#")}
    for block in blocks:
        hashed = re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", block)
        assert block.startswith("#") or hashed, block
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["remote"], "s3fs"]
    assert {re.split("[>=]", one)[0] for one in wanted} <= pinned
    assert "--require-hashes" in CONTAINERFILE and "--no-deps /wheels" in CONTAINERFILE
    assert image.PYTHON in image.bases()["PYTHON"]


def test_the_probe_asks_the_port_that_the_servers_have() -> None:
    probe = re.search(r"^    CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert probe
    python, flag, code = json.loads(probe[1])
    assert (python, flag) == ("python", "-c")
    compile(code, "the probe", "exec")
    for side in SIDES:
        address = _option(shlex.split(COMPOSE["services"][side]["command"]), "--metrics-addr")
        assert f"http://{address}/readyz" in code
