"""What is built: the source distribution of a tree, and from it, and nothing else, the wheels.

A source distribution that lacks a file makes no wheel. All of it is under target/, where a second
build finds what the first compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

from . import fields

#: Which C library wheels take: 2.28 or later.
PLATFORM = "manylinux_2_28"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def absolute(page: str, address: str, tag: str) -> str:
    """A page of the root whose links and pictures of files lead into the repository.

    Links inside pictures' texts, anchors of the page and what is code stay.
    """

    def link(match: re.Match[str]) -> str:
        mark, text, place = match.groups()
        if re.match(r"[a-z]+:|#", place):
            return match[0]
        kind = "raw" if mark else "blob"
        return f"{mark}[{text}]({address}/{kind}/{tag}/{place})"

    parts, end = [], 0
    for fence in _FENCE.finditer(page):
        parts += [_LINK.sub(link, page[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, page[end:])])


def written(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes a file unless it holds this already: cargo compiles anew what was written."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    path.chmod(mode)


def source(root: Path, work: Path, out: Path) -> Path:
    """Makes the source distribution of the files that git tracks in `root`; where it is."""
    tree = work / "tree"
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=root, text=True)
    wanted = {Path(name) for name in listed.split("\0") if name and (root / name).is_file()}
    for name in wanted:
        written(tree / name, (root / name).read_bytes(), (root / name).stat().st_mode & 0o777)
    for path in [path for path in tree.rglob("*") if path.is_file()]:
        if path.relative_to(tree) not in wanted:
            path.unlink()
    version, address = fields.version_of(root), fields.address_of(root)
    page = absolute((root / "README.md").read_text(), address, f"v{version}")
    written(tree / "README.md", page.encode())
    # It warns of each crate that it has no homepage: what it says matters where it fails.
    made = subprocess.run(
        [tool("maturin"), "sdist", "--out", out], cwd=tree, capture_output=True, text=True
    )
    if made.returncode:
        raise fields.Refused(f"maturin made no source distribution:\n{made.stderr}")
    return out / f"hushtable-{version}.tar.gz"


def unpacked(archive: Path, work: Path) -> Path:
    """Unpacks a source distribution, into the folder that an earlier one of its version had."""
    name = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as packed:
        files = {member.name: member for member in packed if member.isfile()}
        assert all(Path(place).parts[0] == name for place in files)
        for place, member in files.items():
            read = packed.extractfile(member)
            assert read is not None
            written(work / place, read.read(), member.mode & 0o777)
    folder = work / name
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if str(path.relative_to(work)) not in files:
            path.unlink()
    return folder


def wheel(folder: Path, cpu: str, bill: Path, out: Path, built: Path) -> Path:
    """Builds the wheel for a processor from an unpacked source distribution.

    Args:
        folder: the source distribution.
        cpu: x86_64 or aarch64.
        bill: the bill of materials that goes along.
        out: where the wheel is put.
        built: where cargo keeps what it compiled.
    """
    target = f"{cpu}-unknown-linux-gnu"
    if shutil.which("rustup"):
        subprocess.run(["rustup", "target", "add", target], check=True, capture_output=True)
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    # A wheel names no folder of the machine that built it. Both folders are below one, whatever the
    # version: what cargo keeps is kept for these very flags.
    assert folder.is_relative_to(built.parent)
    remapped = [
        f"--remap-path-prefix={home}=/cargo",
        f"--remap-path-prefix={built.parent}=/hushtable",
    ]
    options = ["--release", "--locked", "--zig", "--target", target, "--sbom-include", str(bill)]
    _run(
        ["maturin", "build", *options, "--compatibility", PLATFORM, "--out", str(out)],
        folder,
        {"CARGO_TARGET_DIR": str(built), "RUSTFLAGS": " ".join(remapped)},
    )
    [made] = out.glob(f"hushtable-*-{PLATFORM}_{cpu}.whl")
    shown = subprocess.check_output([tool("auditwheel"), "show", made], text=True)
    if f'tag: "{PLATFORM}_' not in " ".join(shown.split()):
        raise fields.Refused(f"{made.name} does not keep to {PLATFORM}:\n{shown}")
    return made


def laboratory(root: Path, out: Path) -> Path:
    """Builds the wheel of lab."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--wheel-dir", out, root / "lab"], check=True)
    version = fields.version_of(root)
    [made] = out.glob(f"hushtable_lab-{version}-*.whl")
    with zipfile.ZipFile(made) as packed:
        if f"hushtable_lab-{version}.dist-info/licenses/LICENSE" not in packed.namelist():
            raise fields.Refused(f"{made.name} has no licence")
    # pip leaves it to its owner alone.
    made.chmod(0o644)
    return made


def chart(root: Path, out: Path) -> Path:
    """Packs the Helm chart, as `helm package` does; the same bytes of the same files."""
    folder = root / "deploy" / "helm" / "hushtable"
    path = out / f"hushtable-chart-{fields.version_of(root)}.tgz"
    made = path.with_suffix(".tar")
    with tarfile.open(made, "w") as packed:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            if "ci" in file.relative_to(folder).parts:
                continue
            member = packed.gettarinfo(file, f"hushtable/{file.relative_to(folder)}")
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.mode = 0o644
            with file.open("rb") as read:
                packed.addfile(member, read)
    # -n: without its name and time.
    subprocess.run(["gzip", "-9", "-n", "--force", made], check=True)
    made.with_suffix(".tar.gz").replace(path)
    return path


def tool(name: str) -> str:
    """Where a tool is: in this environment, or else on the path.

    Raises:
        Refused: nowhere.
    """
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise fields.Refused(f"{name} is missing: `make wheel` and `make release` install it")
    return found


def _run(command: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
    # Zig is called by name, beside maturin.
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    where = {**os.environ, "PATH": path, "PYO3_BUILD_EXTENSION_MODULE": "1", **(env or {})}
    subprocess.run([tool(command[0]), *command[1:]], cwd=folder, env=where, check=True)
