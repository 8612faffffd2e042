"""What watches over the run: what a test leaves behind is found, and the order can be shuffled."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import COMMAND_HUNG_S

CONFTEST = """
from leaves import LeavesPlugin
from shuffle import shuffle_of_environment

def pytest_configure(config):
    config.pluginmanager.register(LeavesPlugin(config))
    if (plugin := shuffle_of_environment()) is not None:
        config.pluginmanager.register(plugin)
"""

#: A kind of thing that is left, what leaves it, and what is said of it.
PLANTED = {
    "child": (
        "kept.append(subprocess.Popen(['sleep', '600']))",
        r"the process (\d+) \(sleep 600\)",
    ),
    "child_without_its_environment": (
        "kept.append(subprocess.Popen(['sleep', '600'], env={'PATH': os.environ['PATH']}))",
        r"the process (\d+) \(sleep 600\)",
    ),
    "orphan": (
        "subprocess.run(['sh', '-c', 'sleep 600 >/dev/null 2>&1 &'], start_new_session=True)",
        r"the process (\d+) \(sleep 600\)",
    ),
    "socket": (
        "kept.append(socket.create_server(('127.0.0.1', 0)))",
        r"the socket that listens at port \d+",
    ),
    "unix_socket": (
        "kept.append(socket.socket(socket.AF_UNIX)); kept[-1].bind(str(tmp_path / 's'));"
        " kept[-1].listen()",
        r"the socket that listens at \['.*/s'\]",
    ),
    "file": (
        "(here / 'folder' / 'left.txt').write_text('')",
        r"the file .*/folder/left\.txt",
    ),
    "folder": ("(here / 'left').mkdir()", r"the file .*/left"),
    "temporary_file": (
        "kept.append(tempfile.mkdtemp(prefix='hushtable-stage-'))",
        r"the temporary file .*/hushtable-stage-\w+",
    ),
}
HEAD = """
import os, socket, subprocess, sys, tempfile
from pathlib import Path
here = Path(__file__).parent
kept = []
"""
#: What comes and goes, and what a fixture takes away at its end.
CLEAN = """
import pytest

@pytest.fixture(scope="module")
def served():
    with socket.create_server(("127.0.0.1", 0)), subprocess.Popen(["sleep", "600"]) as child:
        yield
        child.kill()

def test_clean(served):
    with tempfile.NamedTemporaryFile(prefix="hushtable-") as file:
        (here / "folder" / "gone").write_text(file.name)
        (here / "folder" / "gone").unlink()

def test_clean_too(served):
    tempfile.mkdtemp(prefix="another")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A repository of tests, whose environment is that of no run around this one."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    yield tmp_path


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "HUSHTABLE_"))}
    path = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=folder,
        env={**env, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_HUNG_S,
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "xdist"])
def test_what_is_left_fails_the_run_and_names_the_test(
    repository: Path, workers: tuple[str, ...]
) -> None:
    for name, (code, _) in PLANTED.items():
        text = f"{HEAD}\ndef test_first(): pass\n\ndef test_plants(tmp_path):\n    {code}\n"
        (repository / f"test_{name}.py").write_text(f"{text}\ndef test_last(): pass\n")
    (repository / "test_clean.py").write_text(HEAD + CLEAN)
    done = run(repository, *workers, PYTEST_LEAVES_GRACE_S="0.5")
    _, _, said = done.stdout.partition("left behind")
    lines = said.splitlines()
    for line in lines:
        if found := re.match(r"the process (\d+) ", line):
            os.kill(int(found[1]), signal.SIGKILL)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "26 passed" in done.stdout
    for name, (_, pattern) in PLANTED.items():
        by = f"left by test_{name}.py::test_plants"
        # Workers share the repository: both see what is left there, and one knows whose it is.
        assert any(re.match(pattern, one) and by in one for one in lines), (name, said)
    assert not any("test_clean" in one for one in lines if "the file" not in one), said


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one", "xdist"])
def test_a_run_that_leaves_nothing_passes(repository: Path, workers: tuple[str, ...]) -> None:
    (repository / "test_clean.py").write_text(HEAD + CLEAN)
    done = run(repository, *workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left behind" not in done.stdout


def test_a_seed_shuffles_files_and_their_tests(repository: Path) -> None:
    for name in "abcd":
        tests = "".join(f"def test_{number}(): pass\n" for number in range(9))
        (repository / f"test_{name}.py").write_text(tests)

    def order(seed: str) -> list[str]:
        done = run(repository, "-v", HUSHTABLE_SHUFFLE=seed)
        assert done.returncode == 0, done.stdout
        assert (f"shuffled: HUSHTABLE_SHUFFLE={seed}" in done.stdout) is bool(seed)
        return re.findall(r"^(test_\w\.py::test_\d)", done.stdout, re.MULTILINE)

    plain, first, again, other = order(""), order("1"), order("1"), order("2")
    assert first == again != other
    assert plain == sorted(first) == sorted(other) != first
    files = [test.partition("::")[0] for test in first]
    # A file's tests stay together: its fixtures are made once.
    assert len([1 for one, next_ in itertools.pairwise(files) if one != next_]) == 3
    for name in set(files):
        tests = [test for test in first if test.startswith(name)]
        assert tests != sorted(tests), tests
