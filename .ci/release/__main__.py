"""Makes a release, or a part of it: `make release VERSION=0.2.0`, `make wheel`.

python .ci/release release VERSION [--cpus x86_64,aarch64] [--sign KEY] [--day 2026-11-28]
python .ci/release cut VERSION              the commit of a release, and nothing else
python .ci/release wheels [--cpus x86_64]   source distribution, and wheels of it, into dist/
python .ci/release notices [--check]        THIRD-PARTY-NOTICES.txt
python .ci/release image                    what the image is made of, pinned by hash and digest
python .ci/release fields                   addresses in all files, once Cargo.toml has another
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# As a folder that Python runs, this is no package by itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from release import contents, crates, fields, image, licences, notices, sbom, tree

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
WORK = ROOT / "target" / "sdist"
BUILT = ROOT / "target" / "wheel"
CPUS = ("x86_64", "aarch64")
#: What a signature is for: `ssh-keygen -Y verify` is told the same.
NAMESPACE = "hushtable-release"


def git(*arguments: str) -> str:
    """What git prints."""
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()


def say(step: str) -> None:
    """A step, for people who wait."""
    print(f"== {step}", flush=True)


def write_notices(check: bool) -> None:
    """Writes the third-party notices, or refuses those that are stale."""
    path, text = ROOT / notices.NAME, notices.text()
    if not check:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        raise fields.Refused(f"{path.name} is stale: `python .ci/release notices` writes it")


def cut(version: str, day: str) -> None:
    """Commits a release's version and changelog, unless the last commit has them.

    Raises:
        Refused: nothing can be released from this tree.
    """
    wanted = fields.parsed(version)
    if changed := git("status", "--porcelain"):
        raise fields.Refused(f"the working tree has changes: commit them first:\n{changed}")
    if git("tag", "--list", f"v{version}") and git("rev-list", "-1", f"v{version}") != git(
        "rev-parse", "HEAD"
    ):
        raise fields.Refused(f"the tag v{version} is of another commit: choose the next version")
    here, path = fields.version_of(ROOT), ROOT / "CHANGELOG.md"
    if stale := list(fields.unlike(ROOT)):
        raise fields.Refused(
            f"{', '.join(stale)} do not say what Cargo.toml says: `python .ci/release fields`"
        )
    if wanted < fields.parsed(here):
        raise fields.Refused(f"the tree is at {here}, which is later than {version}")
    changelog = path.read_text()
    if wanted == fields.parsed(here) and fields.section(changelog, version):
        if fields.section(changelog, "Unreleased"):
            raise fields.Refused(
                f"CHANGELOG.md has lines under Unreleased that are not {version}'s: move them "
                "there, or choose the next version"
            )
        return
    texts = fields.rewritten(ROOT, version, fields.address_of(ROOT), day)
    texts["CHANGELOG.md"] = fields.cut(changelog, version, day)
    for name, text in texts.items():
        (ROOT / name).write_text(text)
    git("add", "--", *texts)
    git("commit", "--quiet", "--message", f"Release {version}")
    say(f"committed: Release {version}; `git reset --hard HEAD~1` takes it back")


def wheels(cpus: list[str]) -> list[Path]:
    """The source distribution, the wheels made of it, and lab's; each tried as its user would."""
    DIST.mkdir(exist_ok=True)
    version = fields.version_of(ROOT)
    for old in (*DIST.glob("hushtable*"), DIST / "allowed_signers", DIST / "UPLOAD.md"):
        old.unlink(missing_ok=True)
    say("source distribution")
    write_notices(check=True)
    archive = tree.source(ROOT, WORK, DIST)
    folder = tree.unpacked(archive, WORK)
    linked = crates.linked(folder)
    bill = WORK / "hushtable.cdx.json"
    # Of what the wheel holds; what Python brings along is only known where it is installed.
    sbom.write(bill, sbom.bill(version, _when(), linked, _requirements(), []))
    made = [archive]
    for cpu in cpus:
        began = time.monotonic()
        say(f"wheel for {cpu}, of the source distribution")
        wheel = tree.wheel(folder, cpu, bill, DIST, BUILT)
        if found := list(contents.defects(wheel)):
            raise fields.Refused(f"{wheel.name}: " + "; ".join(found))
        print(f"{wheel.name}: {wheel.stat().st_size:,} B, {time.monotonic() - began:.0f} s")
        made.append(wheel)
    say("wheel of lab")
    made.append(tree.laboratory(ROOT, DIST))
    for cpu in cpus:
        say(f"trying the wheel for {cpu}")
        subprocess.run([ROOT / ".ci" / "wheel", cpu, sys.executable], check=True)
    return made


def release(version: str, cpus: list[str], key: Path | None, day: str) -> None:
    """All of a release up to the upload.

    Raises:
        Refused: this tree cannot be released, and why.
    """
    if key is not None and not key.is_file():
        raise fields.Refused(f"SIGN_KEY={key} is no file: give the private key of ssh-keygen")
    cut(version, day)
    say("licences, bans and sources")
    deny = ["check", "licenses", "bans", "sources"]
    subprocess.run([tree.tool("cargo-deny"), "--color", "never", *deny], cwd=ROOT, check=True)
    made = wheels(cpus)
    say("bill of materials, chart, notes, sums")
    with tempfile.TemporaryDirectory() as fresh:
        # What pip takes today for who installs the wheel: the bill lists it.
        native = next(path for path in made if path.name.endswith(f"_{os.uname().machine}.whl"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", fresh, native], check=True)
        packages = sbom.installed(Path(fresh), _requirements())
        if found := [text for one in packages if (text := licences.defect(one))]:
            raise fields.Refused("; ".join(found))
        bill = DIST / f"hushtable-{version}.cdx.json"
        sbom.write(bill, sbom.bill(version, _when(), crates.linked(), _requirements(), packages))
    made += [bill, tree.chart(ROOT, DIST)]
    notes = DIST / f"hushtable-{version}.md"
    notes.write_text(fields.section((ROOT / "CHANGELOG.md").read_text(), version) + "\n")
    third = DIST / f"hushtable-{version}-{notices.NAME}"
    shutil.copy(ROOT / notices.NAME, third)
    made += [notes, third]
    sums = DIST / f"hushtable-{version}.sha256"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    sums.write_text("".join(sorted(lines, key=lambda line: line.split()[1])))
    made.append(sums)
    if key is not None:
        made += signed(sums, key)
    text = upload(version, made, key is not None)
    (DIST / "UPLOAD.md").write_text(text)
    print(text)


def signed(sums: Path, key: Path) -> list[Path]:
    """Signs the sums; the signature, and the file by which it is verified."""
    signature = sums.with_name(f"{sums.name}.sig")
    signature.unlink(missing_ok=True)
    sign = ["-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(sums)]
    subprocess.run(["ssh-keygen", *sign], check=True)
    public = subprocess.check_output(["ssh-keygen", "-y", "-f", key], text=True).split()
    signers = sums.with_name("allowed_signers")
    signers.write_text(f'hushtable namespaces="{NAMESPACE}" {public[0]} {public[1]}\n')
    verify = ["-Y", "verify", "-q", "-f", str(signers), "-I", "hushtable", "-n", NAMESPACE]
    with sums.open("rb") as read:
        subprocess.run(["ssh-keygen", *verify, "-s", str(signature)], stdin=read, check=True)
    return [signature, signers]


def upload(version: str, made: list[Path], is_signed: bool) -> str:
    """What to upload, and how."""
    names = [path.name for path in made]
    packages = [name for name in names if name.endswith((".whl", ".tar.gz"))]
    chart = next(name for name in names if name.endswith(".tgz"))
    sums = f"hushtable-{version}.sha256"
    missing = [cpu for cpu in CPUS if not any(name.endswith(f"_{cpu}.whl") for name in packages)]
    address = fields.address_of(ROOT)
    before = []
    if fields.NOWHERE in address:
        before.append(
            f"The project has no address: `repository` of Cargo.toml is {address}, and so are the "
            "links of the package's page. Set it, run `python .ci/release fields`, commit, and "
            "release again."
        )
    if missing:
        before.append(f"There is no wheel for {', '.join(missing)}: leave WHEELS out.")
    if not is_signed:
        before.append("Nothing is signed: SIGN_KEY=FILE signs, with a key of ssh-keygen.")
    if not image.BASES.exists():
        before.append(
            "The image's bases are not pinned: `python .ci/release image` writes "
            f"{image.BASES.name}, with the network and a builder; commit it."
        )
    before.append("Advisories take the network: `cargo-deny check advisories`.")
    steps = {
        "The commit and its tag": f"git tag -a v{version} -m 'hushtable {version}' && "
        f"git push origin HEAD v{version}",
        "PyPI": f"cd dist && python -m twine upload {' '.join(packages)}",
        "The release's page, beside the tag": f"text: hushtable-{version}.md; "
        f"files: {' '.join(names)}",
        "The chart": f"helm push dist/{chart} oci://REGISTRY/charts",
        "The image, built at the tag": f".ci/image REGISTRY/hushtable:{version} && "
        f"docker push REGISTRY/hushtable:{version}",
    }
    lines = [f"# hushtable {version}: what to upload", "", "Before:", ""]
    lines += [*(f"- {line}" for line in before), ""]
    lines += [line for what, how in steps.items() for line in (f"{what}:", "", f"    {how}", "")]
    lines += ["Who downloads it checks it by:", "", f"    sha256sum --check {sums}"]
    if is_signed:
        lines += [
            f"    ssh-keygen -Y verify -f allowed_signers -I hushtable -n {NAMESPACE} "
            f"-s {sums}.sig < {sums}",
            "",
            "allowed_signers is worth what its source is: publish the key elsewhere too.",
        ]
    return "\n".join([*lines, ""])


def _requirements() -> list[str]:
    return list(_project()["dependencies"])


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _when() -> str:
    """The time of the commit, so that it is the same wherever it is built."""
    seconds = int(git("log", "-1", "--format=%ct"))
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> int:
    """Runs a command; 2 for what is refused."""
    parser = argparse.ArgumentParser(prog="python .ci/release")
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("release")
    whole.add_argument("--sign", type=Path)
    for parts in (whole, commands.add_parser("cut")):
        parts.add_argument("version")
        parts.add_argument("--day", default=datetime.now(UTC).strftime("%Y-%m-%d"))
    for parts in (whole, commands.add_parser("wheels")):
        parts.add_argument(
            "--cpus", type=lambda text: text.replace(",", " ").split(), default=[*CPUS]
        )
    commands.add_parser("notices").add_argument("--check", action="store_true")
    commands.add_parser("image")
    commands.add_parser("fields")
    given = parser.parse_args()
    try:
        if given.command == "release":
            release(given.version, given.cpus, given.sign, given.day)
        elif given.command == "cut":
            cut(given.version, given.day)
        elif given.command == "wheels":
            wheels(given.cpus)
        elif given.command == "notices":
            write_notices(given.check)
        elif given.command == "image":
            extras = _project()["optional-dependencies"]
            wanted = [*_requirements(), *extras["remote"], *image.BESIDE]
            image.PACKAGES.write_text(image.packages(wanted))
            image.BASES.write_text(image.digests())
        else:
            texts = fields.rewritten(ROOT, fields.version_of(ROOT), fields.address_of(ROOT))
            for name, text in texts.items():
                (ROOT / name).write_text(text)
    except fields.Refused as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"release: {error}\n{error.stderr or ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
