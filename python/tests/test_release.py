"""What a release is made of: versions, changelog, page, notices, bill, contents, signature."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from release_tools import NO_NETWORK, ROOT, command, contents, crates, fields, notices, sbom, tree

from hushtable import _native


@pytest.fixture(scope="module")
def linked() -> list[crates.Crate]:
    """What the module is made of; skipped where cargo has not got it, and no network."""
    try:
        return crates.linked()
    except subprocess.CalledProcessError as error:
        if NO_NETWORK.search(error.stderr):
            pytest.skip("cargo has not got all crates, and no network")
        raise


def test_all_files_say_one_version_and_one_address() -> None:
    assert list(fields.unlike(ROOT)) == []


def test_a_new_version_and_address_reach_all_files() -> None:
    address = "https://forge.example/people/hushtable"
    texts = fields.rewritten(ROOT, "7.8.9", address, "2031-02-03")
    here, there = fields.version_of(ROOT), fields.address_of(ROOT)
    assert "date-released: 2031-02-03" in texts["CITATION.cff"]
    for path, text in texts.items():
        before = (ROOT / path).read_text()
        if path not in ("pyproject.toml",):
            assert "7.8.9" in text, path
        if there in before:
            assert address in text and there not in text, path
        # Nothing else is another.
        back = text.replace("7.8.9", here).replace(address, there)
        assert back.replace("2031-02-03", _released()) == before, path
    assert texts["Cargo.lock"].count('version = "7.8.9"') == 13
    assert 'dependencies = ["hushtable==7.8.9"]' in texts["lab/pyproject.toml"]


def _released() -> str:
    return str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["date-released"])


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "1.2.3-rc1", "01.2.3", "", "1.2.3\n"])
def test_versions_are_three_numbers(text: str) -> None:
    with pytest.raises(fields.Refused, match="three numbers"):
        fields.parsed(text)


LOG = "# Changelog\n\n## Unreleased\n\n- New.\n  More.\n\n## 0.1.0 (2025-01-01)\n\n- Old.\n"


def test_what_was_unreleased_becomes_the_versions() -> None:
    made = fields.cut(LOG, "0.2.0", "2026-01-02")
    assert fields.section(made, "Unreleased") == ""
    assert fields.section(made, "0.2.0") == "- New.\n  More."
    assert fields.section(made, "0.1.0") == "- Old."
    assert "## 0.2.0 (2026-01-02)\n" in made
    with pytest.raises(fields.Refused, match="nothing under Unreleased"):
        fields.cut(made, "0.3.0", "2026-01-03")
    with pytest.raises(fields.Refused, match=r"has a 0\.1\.0 already"):
        fields.cut(LOG, "0.1.0", "2026-01-03")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of the files that have fields, at 0.1.0, for what commits."""
    texts = fields.rewritten(ROOT, "0.1.0", fields.address_of(ROOT))
    for path, text in {**texts, "CHANGELOG.md": LOG.replace("0.1.0", "0.0.9")}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for arguments in (
        ["init", "--quiet"],
        ["config", "user.name", "somebody"],
        ["config", "user.email", "somebody@a.example"],
        ["config", "commit.gpgsign", "false"],
        ["add", "."],
        ["commit", "--quiet", "--message", "Begin"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    yield tmp_path


def _commits(folder: Path) -> list[str]:
    return subprocess.check_output(
        ["git", "log", "--format=%s"], cwd=folder, text=True
    ).splitlines()


def test_a_release_is_one_commit_and_is_not_made_twice(checkout: Path) -> None:
    command.cut("0.2.0", "2026-01-02")
    assert _commits(checkout) == ["Release 0.2.0", "Begin"]
    assert fields.version_of(checkout) == "0.2.0"
    assert list(fields.unlike(checkout)) == []
    assert fields.section((checkout / "CHANGELOG.md").read_text(), "0.2.0") == "- New.\n  More."
    command.cut("0.2.0", "2026-01-05")
    assert _commits(checkout) == ["Release 0.2.0", "Begin"]


def test_a_first_release_may_have_the_trees_version(checkout: Path) -> None:
    command.cut("0.1.0", "2026-01-02")
    assert fields.section((checkout / "CHANGELOG.md").read_text(), "0.1.0") == "- New.\n  More."


@pytest.mark.parametrize(
    ("spoil", "version", "says"),
    [
        (lambda root: (root / "new").write_text("x"), "0.2.0", "the working tree has changes"),
        (lambda root: None, "0.0.9", "is later than 0.0.9"),
        (lambda root: None, "two", "is no version"),
        (
            lambda root: _committed(root, "CHANGELOG.md", "- New.\n  More.\n", ""),
            "0.2.0",
            "nothing under Unreleased",
        ),
        (
            lambda root: _committed(root, "CITATION.cff", "version: 0.1.0", "version: 0.1.1"),
            "0.2.0",
            "CITATION.cff do not say what Cargo.toml says",
        ),
        (lambda root: _tagged(root), "0.2.0", "tag v0.2.0 is of another commit"),
    ],
)
def test_what_cannot_be_released_is_refused(
    spoil: Any, version: str, says: str, checkout: Path
) -> None:
    spoil(checkout)
    before = _commits(checkout)
    with pytest.raises(fields.Refused, match=re.escape(says)):
        command.cut(version, "2026-01-02")
    assert _commits(checkout) == before


def _committed(root: Path, path: str, before: str, after: str) -> None:
    text = (root / path).read_text()
    assert before in text
    (root / path).write_text(text.replace(before, after))
    subprocess.run(["git", "commit", "--quiet", "-am", "Spoil"], cwd=root, check=True)


def _tagged(root: Path) -> None:
    subprocess.run(["git", "tag", "v0.2.0"], cwd=root, check=True)
    _committed(root, "CHANGELOG.md", "Old", "Older")


def test_lines_that_came_after_the_section_stop_a_release(checkout: Path) -> None:
    command.cut("0.2.0", "2026-01-02")
    _committed(checkout, "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- Late.\n")
    with pytest.raises(fields.Refused, match=r"not 0\.2\.0's"):
        command.cut("0.2.0", "2026-01-02")


def test_the_page_leads_into_the_repository() -> None:
    page = (ROOT / "README.md").read_text()
    made = tree.absolute(page, "https://forge.example/hushtable", "v0.2.0")
    relative = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")
    assert len(relative.findall(page)) > 40
    assert relative.findall(made) == []
    led = re.findall(r"https://forge\.example/hushtable/(blob|raw)/v0\.2\.0/([^)#\s]+)", made)
    assert ("raw", "docs/protocol.svg") in led
    for _, place in led:
        assert (ROOT / place).exists(), place
    # But for links, it is the same page.
    assert re.sub(r"https://forge\.example/hushtable/(blob|raw)/v0\.2\.0/", "", made) == page


def test_code_anchors_and_addresses_of_a_page_stay() -> None:
    page = "[a](#b) [c](https://d.example) [e](f.md#g)\n```\n[h](i)\n```\n![j](k.svg)\n"
    assert tree.absolute(page, "https://l.example/m", "n") == (
        "[a](#b) [c](https://d.example) [e](https://l.example/m/blob/n/f.md#g)\n```\n[h](i)\n```\n"
        "![j](https://l.example/m/raw/n/k.svg)\n"
    )


def test_notices_are_of_these_crates(linked: list[crates.Crate]) -> None:
    text = notices.text(linked)
    assert (ROOT / notices.NAME).read_text() == text, "`python .ci/release notices` writes them"
    # The C of mimalloc, and what ring took from elsewhere, have texts of their own.
    for part in ("tokio 1", "libmimalloc-sys", "third_party/fiat", "Daan Leijen", "Unicode"):
        assert part in text, part
    assert "syn 2" not in text, "it runs in builds alone"
    assert str(Path.home()) not in text


def test_notices_refuse_what_has_no_text(linked: list[crates.Crate], tmp_path: Path) -> None:
    crate = dataclasses.replace(linked[0], folder=tmp_path, expression="BSD-3-Clause")
    with pytest.raises(ValueError, match="has no text"):
        notices.text([crate])
    with pytest.raises(ValueError, match="not allowed"):
        notices.text([dataclasses.replace(crate, expression="GPL-2.0-only")])
    assert "Copyright (c) A Person\n" in notices.text(
        [dataclasses.replace(crate, expression="MIT", authors=("A Person <a@b.example>",))]
    )


def test_the_bill_lists_all_and_is_the_same_again(linked: list[crates.Crate]) -> None:
    import numpy

    site = Path(numpy.__file__).parents[1]
    packages = sbom.installed(site, ["numpy", "typer"])
    with pytest.raises(ValueError, match="frobnicate is not installed"):
        sbom.installed(site, ["frobnicate"])
    made = sbom.bill("0.2.0", "2026-01-02T03:04:05Z", linked, ["numpy>=1.26"], packages)
    again = sbom.bill("0.2.0", "2026-01-02T03:04:05Z", linked, ["numpy>=1.26"], packages)
    assert made == again
    other = sbom.bill("0.2.0", "2026-01-02T03:04:05Z", linked[1:], ["numpy>=1.26"], packages)
    assert made["serialNumber"] != other["serialNumber"]
    names = [component["bom-ref"] for component in made["components"]]
    assert len(names) == len(set(names)) == len(linked) + len(packages)
    assert {crate.name for crate in linked} < {one["name"] for one in made["components"]}
    assert any(name.startswith("pkg:pypi/numpy@") for name in names)
    assert made["dependencies"][0]["dependsOn"] == sorted(names)
    for component in made["components"]:
        if component["purl"].startswith("pkg:cargo/"):
            assert re.fullmatch("[0-9a-f]{64}", component["hashes"][0]["content"])
    assert str(Path.home()) not in json.dumps(made)


def _elf(*names: str) -> bytes:
    """A module with sections of these names, and no more."""
    table = "\0".join(["", *names, ""]).encode()
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(table)) + bytes(10)
    head += struct.pack("<HHH", 64, 1 + len(names), 0)
    made = head + table + struct.pack("<IIQQQ24x", 0, 3, 0, 0, 64) + bytes(8)
    for name in names:
        made += struct.pack("<IIQQQ24x", table.index(name.encode()), 1, 0, 0, 0) + bytes(8)
    return made


def test_a_module_of_a_checkout_has_symbols() -> None:
    names = contents.sections(Path(_native.__file__).read_bytes())
    assert {".text", ".symtab"} <= set(names)
    with pytest.raises(ValueError, match="64-bit ELF"):
        contents.sections(b"MZ" + bytes(100))


def _wheel(path: Path, change: dict[str, bytes | None]) -> Path:
    info = "hushtable-0.2.0.dist-info"
    head = (
        "Metadata-Version: 2.4\nName: hushtable\nSummary: s\nKeywords: k\nClassifier: c\n"
        "License-Expression: Apache-2.0\nProject-URL: Source, https://a.example\n\n[a](https://b)\n"
    )
    files: dict[str, bytes | None] = {
        "hushtable/py.typed": b"",
        "hushtable/_native/__init__.pyi": b"",
        "hushtable/_native.abi3.so": _elf(".text", ".dynsym"),
        "hushtable/cli/demo_words/words.npz": b"",
        f"{info}/METADATA": head.encode(),
        f"{info}/licenses/LICENSE": b"",
        f"{info}/licenses/THIRD-PARTY-NOTICES.txt": b"",
        f"{info}/sboms/hushtable.cdx.json": b"{}",
    }
    wheel = path / "hushtable-0.2.0-cp311-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, body in {**files, **change}.items():
            if body is not None:
                packed.writestr(name, body)
    return wheel


def test_a_wheel_that_is_whole_has_no_defect(tmp_path: Path) -> None:
    assert list(contents.defects(_wheel(tmp_path, {}))) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hushtable_lab/__init__.py": b""}, "hushtable_lab/__init__.py has no place"),
        ({"hushtable/tests/test_a.py": b""}, "has no place"),
        ({"hushtable-0.2.0.dist-info/licenses/THIRD-PARTY-NOTICES.txt": None}, "is missing"),
        ({"hushtable-0.2.0.dist-info/sboms/hushtable.cdx.json": None}, "is missing"),
        ({"hushtable/cli/demo_words/words.npz": None}, "is missing"),
        ({"hushtable/_native.abi3.so": _elf(".debug_info")}, "for debuggers"),
        ({"hushtable/_native.abi3.so": _elf() + f"{Path.home()}/x".encode()}, "where it was built"),
        ({"hushtable/_native.abi3.so": _elf(".symtab")}, "for debuggers"),
        ({"hushtable/other.so": _elf()}, "its modules are"),
        ({"hushtable-0.2.0.dist-info/METADATA": b"Name: h\n\n[a](docs/b.md)\n"}, "leads nowhere"),
        ({"hushtable-0.2.0.dist-info/METADATA": b"Name: h\n\n"}, "has no Keywords"),
    ],
)
def test_a_wheels_defects_are_found(
    change: dict[str, bytes | None], says: str, tmp_path: Path
) -> None:
    assert any(says in defect for defect in contents.defects(_wheel(tmp_path, change)))


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not there")
def test_sums_are_signed_and_a_change_is_noticed(tmp_path: Path) -> None:
    key, sums = tmp_path / "key", tmp_path / "hushtable-0.2.0.sha256"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "thrown away", "-f", str(key)]
    subprocess.run(make, check=True)
    sums.write_text("00  hushtable-0.2.0.tar.gz\n")
    signature, signers = command.signed(sums, key)
    # What the release tells those who download to do, as it tells it.
    text = command.upload("0.2.0", [tmp_path / "hushtable-chart-0.2.0.tgz"], True)
    [line] = [line.strip() for line in text.splitlines() if "ssh-keygen -Y verify" in line]
    assert signers.read_text().startswith("hushtable namespaces=") and signature.exists()
    verify = ["bash", "-c", line]
    assert subprocess.run(verify, cwd=tmp_path, capture_output=True).returncode == 0
    sums.write_text("01  hushtable-0.2.0.tar.gz\n")
    assert subprocess.run(verify, cwd=tmp_path, capture_output=True).returncode != 0


def test_what_to_upload_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "hushtable-0.2.0.tar.gz",
        "hushtable-0.2.0-cp311-abi3-manylinux_2_28_x86_64.whl",
        "hushtable_lab-0.2.0-py3-none-any.whl",
        "hushtable-chart-0.2.0.tgz",
        "hushtable-0.2.0.sha256",
    ]
    made = [Path("dist") / name for name in names]
    monkeypatch.setattr(fields, "address_of", lambda root: f"https://{fields.NOWHERE}/hushtable")
    text = command.upload("0.2.0", made, False)
    for name in names:
        assert name in text, name
    packages = " ".join(names[:3])
    assert f"twine upload {packages}" in text
    assert "no address" in text and "no wheel for aarch64" in text and "Nothing is signed" in text
    monkeypatch.setattr(fields, "address_of", lambda root: "https://forge.example/hushtable")
    arm = Path("dist/hushtable-0.2.0-cp311-abi3-manylinux_2_28_aarch64.whl")
    text = command.upload("0.2.0", [*made, arm], True)
    assert "no address" not in text and "no wheel" not in text and "Nothing is signed" not in text


def test_the_chart_is_packed_as_helm_reads_it(tmp_path: Path) -> None:
    import tarfile

    path = tree.chart(ROOT, tmp_path)
    first = path.read_bytes()
    assert tree.chart(ROOT, tmp_path).read_bytes() == first
    with tarfile.open(path) as packed:
        names = packed.getnames()
        read = packed.extractfile("hushtable/Chart.yaml")
        assert read is not None
        assert yaml.safe_load(read)["version"] == fields.version_of(ROOT)
    assert "hushtable/values.schema.json" in names and "hushtable/templates/NOTES.txt" in names
    assert not any("/ci/" in name for name in names)


def test_the_citation_has_what_its_format_asks_for() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["license"] == "Apache-2.0"
    for paper in cited["references"]:
        assert {"type", "title", "authors", "year"} <= set(paper)


def test_the_source_distribution_has_what_its_crates_compile(tmp_path: Path) -> None:
    archive = tree.source(ROOT, tmp_path / "work", tmp_path)
    first = archive.read_bytes()
    assert tree.source(ROOT, tmp_path / "work", tmp_path).read_bytes() == first
    folder = tree.unpacked(archive, tmp_path)
    described = json.loads(
        subprocess.check_output(
            ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"],
            cwd=folder,
            text=True,
        )
    )
    names = {package["name"] for package in described["packages"]}
    assert {"hushtable-python", "hushtable-serve"} <= names
    for proto in (ROOT / "proto").rglob("*.proto"):
        assert (folder / proto.relative_to(ROOT)).read_bytes() == proto.read_bytes()
    # What a source includes is there, but for what its tests do.
    for source in (folder / "crates").rglob("src/**/*.rs"):
        text = source.read_text().split("#[cfg(test)]")[0]
        if source.name == "tests.rs" or "tests" in source.parts:
            continue
        for place in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', text):
            assert (source.parent / place).is_file(), f"{source}: {place}"
    page = (folder / "README.md").read_text()
    assert re.findall(r"\]\((?![a-z]+:|#)", page) == []
    for name in (notices.NAME, "LICENSE", "python/hushtable/cli/demo_words/words.npz"):
        assert (folder / name).read_bytes() == (ROOT / name).read_bytes()
    # A second one takes away what the tree has no more.
    (folder / "stale.rs").write_text("")
    assert not (tree.unpacked(archive, tmp_path) / "stale.rs").exists()


def test_what_wheels_are_tried_by_is_of_this_package() -> None:
    # Its servers are started by a shell, and end with it.
    done = subprocess.run(
        [ROOT / ".ci" / "wheel", "--installed", sys.executable], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "three rows came back right from two servers" in done.stdout
