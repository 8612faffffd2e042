"""Times the dense layers on shares beside SPU and CrypTen, in one run on one machine.

    .venv/bin/python bench/peers/shares.py --setup
    .venv/bin/python bench/peers/shares.py [--rounds 3] [--calls 20] [--only NAME ...] [--out FILE]

An MLP of 432-512-256-1 with ReLU between its layers, one input at a time: of peers two processes
that speak over loopback, each on a core of its own, and of ours what ``hushtable bench shares``
prints. Both parties of each know the weights; the input is shared beforehand, and the answer stays
shared. A peer's first party is trusted to make the triples, in the time that is counted.

``--setup`` makes an environment for each peer, of the versions that its requirements.txt pins, in
the folder that ``--environments`` names: some 3 GB, of which torch is most. It needs Python 3.10,
since CrypTen's torch has no wheels for newer ones. Nothing of hushtable depends on either; a peer
without its environment is left out, and the file says so.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hybrid import Missing, free_ports

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
WIDTHS = (432, 512, 256, 1)
#: How `pip install` is asked for each peer's packages.
PEERS = {"spu": ["-r"], "crypten": ["--no-deps", "-r"]}
#: Calls of each process before those that count.
WARM = 3
#: A peer whose answers are mostly further off is wrong. SPU keeps 8 bits of fraction in 32 bits.
OFF = 0.1
SECONDS_MAX = 600
_LINK = re.compile(r"total send bytes (\d+), recv bytes (\d+), send actions (\d+)")


def cache() -> Path:
    """Where the environments are unless an option says otherwise."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "hushtable-peers"


def python_310(named: str | None) -> str:
    """A Python 3.10: the named one, that of the path, or the newest of pyenv's."""
    versions = sorted((Path.home() / ".pyenv" / "versions").glob("3.10.*/bin/python3.10"))
    candidates = [named] if named else ["python3.10", *map(str, reversed(versions))]
    ask = "import sys; print(*sys.version_info[:2])"
    for python in candidates:
        with contextlib.suppress(OSError):
            asked = subprocess.run([python, "-c", ask], capture_output=True, text=True)
            if asked.stdout.strip() == "3 10":
                return python
    raise Missing(f"no Python 3.10 among {', '.join(candidates)}: name one with --python")


def set_up(environments: Path, names: Sequence[str], python: str) -> None:
    """Makes each peer's environment, or brings it to what is pinned."""
    for name in names:
        folder = environments / name
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-cache-dir", "--quiet"]
        pinned = str(HERE / name / "requirements.txt")
        for command in ([python, "-m", "venv", str(folder)], [*pip, *PEERS[name], pinned]):
            try:
                subprocess.run(command, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise Missing(f"{shlex.join(command)}: {error}") from error
        print(f"made {folder}")


def interpreter(environments: Path, name: str) -> str:
    """The Python of a peer's environment."""
    python = environments / name / "bin" / "python"
    if not python.exists():
        raise Missing(f"{name} is not in {environments}: run with --setup first")
    return str(python)


def packages(python: str) -> list[str]:
    """What is installed beside it, with versions."""
    command = [python, "-m", "pip", "freeze"]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def network(out: Path) -> float:
    """Writes an input and random weights; returns the logit that they have in floating point."""
    random = np.random.default_rng(7)
    arrays = {"x": random.random((1, WIDTHS[0]), np.float32)}
    found = arrays["x"].astype(float)
    for at, (inputs, outputs) in enumerate(pairwise(WIDTHS)):
        weights = random.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)
        bias = np.full(outputs, 0.01, np.float32)
        arrays |= {f"weights{at}": weights, f"bias{at}": bias}
        found = (np.maximum(found, 0) if at else found) @ weights + bias
    np.savez(out, **arrays)
    return float(found[0, 0])


def printed(parties: Sequence[Sequence[str]], folder: Path) -> list[str]:
    """What each party's command prints, all run at once, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < len(parties) or not shutil.which("taskset"):
        raise Missing("each party needs a core, and taskset to keep it there")
    outs = [folder / f"party{rank}.txt" for rank in range(len(parties))]
    with contextlib.ExitStack() as opened:
        running = [
            subprocess.Popen(
                ["taskset", "--cpu-list", str(core), *party],
                # Not a pipe: nobody reads while they run.
                stdout=opened.enter_context(out.open("w")),
                stderr=subprocess.STDOUT,
            )
            for core, party, out in zip(cores, parties, outs, strict=False)
        ]
        ends = time.monotonic() + SECONDS_MAX
        try:
            # One that fails leaves the other waiting for it.
            while any(one.poll() is None for one in running):
                if any(one.poll() for one in running) or time.monotonic() > ends:
                    break
                time.sleep(0.2)
        finally:
            for one in running:
                if one.poll() is None:
                    one.kill()
                    one.wait()
    texts = [out.read_text(encoding="utf-8") for out in outs]
    if any(one.returncode for one in running):
        said = "\n".join(text[-1000:] for text in texts)
        raise Missing(f"parties ended with {[one.returncode for one in running]}: {said}")
    return texts


def lines(text: str) -> list[Any]:
    """The JSON objects in what a program prints, a line each."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def calls_of(texts: Sequence[str], logit: float) -> list[Any]:
    """Of each call that counts: the slower party's time, both's processor time, and the error."""
    made = [[line for line in lines(text) if "seconds" in line] for text in texts]
    return [
        {
            "ms": 1e3 * max(one["seconds"] for one in call),
            "processor_ms": 1e3 * sum(one["cpu"] for one in call),
            "error": abs(call[0]["logit"] - logit),
        }
        for call in list(zip(*made, strict=True))[WARM:]
    ]


def spu(python: str, field: str, model: Path, calls: int) -> tuple[list[str], Any]:
    """What SPU's parties print, and what a call sends."""
    script, ports = str(HERE / "spu" / "mlp.py"), free_ports()
    more = [str(model), field, *ports, str(calls)]
    texts = printed([[python, script, str(rank), *more] for rank in range(2)], model.parent)
    found = _LINK.findall(texts[0])
    if not found:
        raise Missing(f"SPU did not say what it sent: {texts[0][-1000:]}")
    sent, received, messages = map(int, found[-1])
    return texts, {"bytes": sent + received, "messages": messages}


def crypten(python: str, model: Path, calls: int) -> tuple[list[str], Any]:
    """What CrypTen's parties print, and what a call sends."""
    script, meet = str(HERE / "crypten" / "mlp.py"), model.parent / "rendezvous"
    meet.unlink(missing_ok=True)
    more = [str(model), f"file://{meet}", str(calls)]
    texts = printed([[python, script, str(rank), *more] for rank in range(2)], model.parent)
    counted = [lines(text)[-1] for text in texts]
    # Each party counts what it sends and what it receives.
    total = sum(one["bytes"] for one in counted) // 2
    return texts, {"bytes": total, "messages": counted[0]["rounds"]}


def ours(command: Sequence[str]) -> Any:
    """The record that our command prints last."""
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        record = lines(done.stdout)[-1]
        record["value"] = float(record["value"])
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{shlex.join(command)}: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise Missing(f"{shlex.join(command)} prints no record with a value") from error
    return record


def summary(name: str, calls: Sequence[Any], sent: Any) -> Any:
    """A peer's line of the table."""
    off = [one["error"] for one in calls]
    if statistics.median(off) > OFF:
        raise Missing(f"{name} is wrong: its logits are {statistics.median(off):.3g} off")
    times = [one["ms"] for one in calls]
    used = statistics.median(one["processor_ms"] for one in calls)
    line = {"name": name, "median_ms": statistics.median(times), "best_ms": min(times)}
    return {**line, "processor_ms": used, **sent, "error_max": max(off), "calls": len(calls)}


def compare(own: Sequence[Any], peers: Sequence[Any]) -> list[Any]:
    """A line of ours, then one a peer with how many times as long it takes."""
    if not own:
        return list(peers)
    times = [1e3 * one["value"] for one in own]
    line = {"name": "hushtable", "median_ms": statistics.median(times), "best_ms": min(times)}
    ratios = [
        {f"{kind}_ratio": peer[f"{kind}_ms"] / line[f"{kind}_ms"] for kind in ("median", "best")}
        for peer in peers
    ]
    return [line, *({**peer, **ratio} for peer, ratio in zip(peers, ratios, strict=True))]


def table(compared: Sequence[Any]) -> str:
    """The comparison as Markdown; what is not known is left blank."""
    columns = {
        "name": ("", "s"),
        "median_ms": ("median, ms", ".2f"),
        "best_ms": ("best, ms", ".2f"),
        "processor_ms": ("processor, ms", ".2f"),
        "bytes": ("bytes", ",d"),
        "messages": ("messages each way", "d"),
        "error_max": ("largest error", ".1e"),
        "median_ratio": ("median, times ours", ".1f"),
        "best_ratio": ("best, times ours", ".1f"),
    }
    rows = [[head for head, _ in columns.values()], ["---", *["--:"] * (len(columns) - 1)]]
    for line in compared:
        rows.append(
            [format(line[key], how) if key in line else "" for key, (_, how) in columns.items()]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def machine() -> dict[str, Any]:
    """What ``hushtable doctor --json`` says of this machine, where it can be asked."""
    command = [sys.executable, "-m", "hushtable", "doctor", "--json"]
    asked = subprocess.run(command, capture_output=True, text=True)
    doctor = json.loads(asked.stdout) if asked.returncode == 0 else {}
    return {"platform": platform.platform(), "cores": os.cpu_count(), "doctor": doctor}


def parsed() -> argparse.Namespace:
    """The command's options, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["hushtable", *PEERS]
    parser.add_argument("--only", action="append", choices=names, help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="times that each is started, in turn")
    parser.add_argument("--calls", type=int, default=20, help="counted ones of a peer in a round")
    parser.add_argument("--environments", type=Path, default=cache(), help="default: %(default)s")
    parser.add_argument("--setup", action="store_true", help="make the environments, and end")
    parser.add_argument("--python", help="a Python 3.10 for --setup; default: the one found")
    own = [sys.executable, "-m", "hushtable", "bench", "shares"]
    own += ["--model", "top", "--batch", "1", "--json"]
    parser.add_argument("--command", default=shlex.join(own), help="ours; default: %(default)s")
    parser.add_argument("--out", type=Path, help="default: bench/results/shares-peers-DATE.json")
    options = parser.parse_args()
    options.only = options.only or names
    # Not resolved: by the link to its Python an environment is known.
    options.environments = options.environments.absolute()
    if options.rounds < 1 or options.rounds * options.calls < 10:
        parser.error("--rounds and --calls must make at least 10 calls")
    return options


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Runs all in turn, round after round; what cannot be run is left out."""
    each = WARM + options.calls
    home = options.environments
    runs: dict[str, Callable[[Path], Any]] = {
        "SPU, 64 bits": lambda model: spu(interpreter(home, "spu"), "FM64", model, each),
        "SPU, 32 bits": lambda model: spu(interpreter(home, "spu"), "FM32", model, each),
        "CrypTen": lambda model: crypten(interpreter(home, "crypten"), model, each),
    }
    runs = {name: run for name, run in runs.items() if name.split(",")[0].lower() in options.only}
    own: list[Any] = []
    calls: dict[str, list[Any]] = {name: [] for name in runs}
    sent: dict[str, Any] = {}
    missing: dict[str, str] = {}

    def attempt(name: str, step: Callable[[], None]) -> None:
        if name in missing:
            return
        try:
            step()
        except Missing as error:
            missing[name] = str(error)
            print(f"left out: {name}: {error}", file=sys.stderr)

    def add_own() -> None:
        own.append(ours(shlex.split(options.command)))

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "top.npz"
        logit = network(model)

        def add_peer(name: str) -> None:
            texts, sent[name] = runs[name](model)
            calls[name] += calls_of(texts, logit)

        for _ in range(options.rounds):
            if "hushtable" in options.only:
                attempt("hushtable", add_own)
            for name in runs:
                attempt(name, partial(add_peer, name))
    peers: list[Any] = []
    for name in runs:
        attempt(name, lambda name=name: peers.append(summary(name, calls[name], sent[name])))
    return {
        "missing": missing,
        "compared": compare([] if "hushtable" in missing else own, peers),
        "ours": own,
        "calls": calls,
        "packages": {
            name: packages(interpreter(home, name))
            for name in PEERS
            if name in options.only and (home / name).exists()
        },
    }


def main() -> int:
    """The command."""
    options = parsed()
    if options.setup:
        wanted = [name for name in PEERS if name in options.only]
        try:
            set_up(options.environments, wanted, python_310(options.python))
        except Missing as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return 0
    facts = {**machine(), "load_before": os.getloadavg()[0]}
    found = measured(options)
    facts["load_after"] = os.getloadavg()[0]
    print(table(found["compared"]))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    shape = {"widths": WIDTHS, "batch": 1, "rounds": options.rounds}
    document = {"date": today, "machine": facts, **shape, **found}
    out = options.out or RESULTS / f"shares-peers-{today}.json"
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {out}")
    return 1 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
