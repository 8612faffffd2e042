"""The files that images and containers are made of: what can be held without building an image."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import commands  # noqa: E402  (it parses command lines of pages, and these)

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
CONTAINERFILE = (ROOT / "Containerfile").read_text()
SIDES = ("left", "right")


def _option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize("side", SIDES)
def test_the_command_takes_what_a_container_gives_it(side: str) -> None:
    service: dict[str, Any] = COMPOSE["services"][side]
    words = shlex.split(service["command"])
    assert commands.defect(["hushtable", *words]) is None
    assert commands.defect(["hushtable", *words, "--renamed"]) is not None
    assert _option(words, "--side") == side
    assert service["profiles"] == [side]
    mounted = [volume.rsplit(":", 2) for volume in service["volumes"]]
    places = {Path(parts[1] if parts[-1] == "ro" else parts[-1]) for parts in mounted}
    for name in ("--tls-cert", "--tls-key", "--push-folder", "--push-token-file"):
        path = Path(_option(words, name))
        assert places & {path, *path.parents}, f"{path} is in no volume"
    assert Path(words[1]) in places
    _, port = service["ports"][0].rsplit(":", 1)
    assert _option(words, "--addr").endswith(f":{port}")


@pytest.mark.parametrize("side", SIDES)
def test_a_container_writes_pushed_bundles_alone(side: str) -> None:
    service = COMPOSE["services"][side]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    written = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
    assert written == [f"{side}-pushed:/var/lib/hushtable/pushed"]
    assert f"{side}-pushed" in COMPOSE["volumes"]
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


def test_the_probe_asks_the_port_that_the_servers_have() -> None:
    probe = re.search(r"^    CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert probe
    python, flag, code = json.loads(probe[1])
    assert (python, flag) == ("python", "-c")
    compile(code, "the probe", "exec")
    for side in SIDES:
        address = _option(shlex.split(COMPOSE["services"][side]["command"]), "--metrics-addr")
        assert f"http://{address}/readyz" in code
