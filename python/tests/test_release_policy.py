"""What this project may be made of: crates by cargo-deny, Python's packages by what they say."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from release_tools import NO_NETWORK, ROOT, licences

DENY = ROOT / "deny.toml"


def _cargo_deny(*arguments: str, config: Path = DENY) -> subprocess.CompletedProcess[str]:
    beside = Path(sysconfig.get_path("scripts")) / "cargo-deny"
    tool = str(beside) if beside.exists() else shutil.which("cargo-deny")
    if tool is None:
        pytest.skip("cargo-deny is not installed: `make setup` brings it")
    how = ["--locked", "--color", "never", "--config", str(config)]
    command = [tool, *how, "check", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    # It reads the sources of crates that only other platforms build: the first run fetches them.
    if done.returncode and NO_NETWORK.search(done.stderr):
        pytest.skip("cargo has not got all crates, and no network")
    return done


def test_crates_keep_to_the_policy() -> None:
    done = _cargo_deny("licenses", "bans", "sources")
    assert done.returncode == 0, done.stderr
    assert "bans ok, licenses ok, sources ok" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("part", "before", "after", "says"),
    [
        ("licenses", '    "ISC",\n', "", "ISC"),
        ("bans", '    { crate = "syn@2"', '    { crate = "syn@1"', "syn"),
        ("bans", 'crate = "openssl-sys"', 'crate = "rustls"', "rustls"),
        ("sources", "https://github.com/rust-lang/crates.io-index", "https://a.example", "source"),
    ],
)
def test_the_policy_finds_what_it_forbids(
    part: str, before: str, after: str, says: str, tmp_path: Path
) -> None:
    text = DENY.read_text()
    assert before in text
    stricter = tmp_path / "deny.toml"
    # Programs in crates are another test's, and take the longest to look for.
    stricter.write_text(text.replace(before, after).replace('executables = "deny"', ""))
    done = _cargo_deny(part, config=stricter)
    assert done.returncode != 0
    assert says in done.stderr + done.stdout


def _requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(one for name, parts in extras.items() if name != "dev" for one in parts),
    ]


def test_what_python_brings_along_keeps_to_the_policy() -> None:
    found = list(licences.needed_by(_requirements()))
    names = {licences.normalised(one.metadata["Name"]) for one in found}
    assert {"numpy", "typer", "rich", "markdown-it-py"} <= names
    assert not [text for one in found if (text := licences.defect(one))]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("License-Expression: GPL-3.0-only", "GPL-3.0-only is not allowed"),
        ("License-Expression: MIT AND LGPL-2.1-or-later", "is not allowed"),
        ("License-Expression: MIT OR LGPL-2.1-or-later", None),
        ("License: Apache 2.0", None),
        ("Classifier: License :: OSI Approved :: BSD License", None),
        ("Classifier: License :: OSI Approved :: GNU General Public License (GPL)", "GNU General"),
        ("Summary: it says nothing", "says of its licence"),
    ],
)
def test_a_package_is_judged_by_what_it_says(lines: str, says: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "some_package-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: some-package\nVersion: 1.0\n{lines}\n"
    )
    [found] = metadata.distributions(path=[str(tmp_path)])
    told = licences.defect(found)
    assert told is None if says is None else told is not None and says in told


def test_exceptions_are_by_name(tmp_path: Path) -> None:
    for name in ("nvidia_cublas", "envidia"):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n"
            "License-Expression: LicenseRef-NVIDIA-Proprietary\n"
        )
    told = {
        one.metadata["Name"]: licences.defect(one)
        for one in metadata.distributions(path=[str(tmp_path)])
    }
    assert told["nvidia_cublas"] is None
    assert told["envidia"] is not None


@pytest.mark.parametrize(
    ("expression", "sets"),
    [
        ("MIT", [{"MIT"}]),
        ("MIT/Apache-2.0", [{"MIT"}, {"Apache-2.0"}]),
        ("Apache-2.0 / MIT", [{"Apache-2.0"}, {"MIT"}]),
        (
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            [{"MIT", "Unicode-3.0"}, {"Apache-2.0", "Unicode-3.0"}],
        ),
        (
            "Apache-2.0 WITH LLVM-exception OR MIT AND ISC",
            [{"Apache-2.0 WITH LLVM-exception"}, {"MIT", "ISC"}],
        ),
    ],
)
def test_expressions_offer_sets(expression: str, sets: list[set[str]]) -> None:
    assert [set(found) for found in licences.alternatives(expression)] == sets


@pytest.mark.parametrize("text", ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT Apache-2.0"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        licences.alternatives(text)


def test_ours_is_taken_first() -> None:
    assert licences.taken("MIT OR Apache-2.0") == {"Apache-2.0"}
    assert licences.taken("MIT OR Zlib") == {"MIT"}
    assert licences.taken("LGPL-2.1-or-later OR Zlib") == {"Zlib"}
    with pytest.raises(ValueError, match=r"deny\.toml"):
        licences.taken("GPL-3.0-only AND MIT")
