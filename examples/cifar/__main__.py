"""Classifies CIFAR-10 images that the server does not see by networks that the client does not
see. See README.md."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import hushtable
from hushtable import infer
from hushtable.data import CIFAR_CLASSES, DataError, Images, fetch, load_cifar

from .networks import Floats, Trained, load

NETWORKS = ("cifar-cnn", "cifar-resnet")
GARBLERS = ("server", "client")
#: Of these a network must be right on as many privately as in the clear.
IMAGES = 20
#: Images whose ranges numbers are held for; all that there are, as a model's owner would take
#: those it was trained with.
_SAMPLES = 20


@dataclass(frozen=True)
class Judgement:
    """What came of one network with one garbler.

    Attributes:
        network: its name.
        garbler: who garbled.
        images: how many were classified.
        clear_right: of them rightly, in floats.
        integers_right: rightly by the integers that the protocol computes.
        private_right: rightly, privately.
        differing: classes that are not those in the clear.
        error_max: the largest difference between a private answer's number and the clear one.
        offline_s: seconds of each precompute.
        online_s: seconds of each prediction.
        offline_bytes: of a precompute, both ways.
        online_bytes: of a prediction, both ways.
        client_bytes: what the client keeps of a precompute.
        server_bytes: what the server keeps.
    """

    network: str
    garbler: str
    images: int
    clear_right: int
    integers_right: int
    private_right: int
    differing: int
    error_max: float
    offline_s: list[float]
    online_s: list[float]
    offline_bytes: int
    online_bytes: int
    client_bytes: int
    server_bytes: int


def build(trained: Trained, folder: Path, samples: Floats) -> tuple[Path, infer.HybridPlanInfo]:
    """A bundle with a plan, and what the plan says.

    Raises:
        hushtable.Error: a network that cannot be compiled.
    """
    bundle = trained.network.build(folder / trained.name, name=trained.name)
    return bundle, infer.compile(bundle, scheme="hybrid", samples=samples)


def judge(
    trained: Trained,
    bundle: Path,
    images: Images,
    garbler: infer.Garbler,
    certificates: hushtable.Certificates,
) -> Judgement:
    """Serves the network from a process of its own, and asks for each image by itself."""
    inputs = trained.inputs(images.pixels)
    clear = trained.network.evaluate(inputs)
    integers = infer.HybridModel.load(bundle).predict(inputs, fhe="simulate").classes
    answers, stats = [], []
    with (
        infer.ServerProcess(bundle, tls=certificates.server) as server,
        hushtable.connect(
            server=server.url,
            scheme="hybrid",
            tls=certificates.ca,
            options=hushtable.ClientOptions(garbler=garbler, timeout=600.0),
        ) as client,
    ):
        info = client.info
        for image in inputs:
            offline = client.precompute(1)
            found = client.predict(image)
            answers.append(found.outputs)
            stats.append((offline, found.stats[0]))
    outputs = np.stack(answers)
    kept = info.bytes_if_client_garbles if garbler == "client" else info.bytes_if_server_garbles
    first_offline, first_online = stats[0]
    return Judgement(
        network=trained.name,
        garbler=garbler,
        images=len(images),
        clear_right=_right(clear.argmax(1), images),
        integers_right=_right(integers, images),
        private_right=_right(outputs.argmax(1), images),
        differing=int((outputs.argmax(1) != clear.argmax(1)).sum()),
        error_max=float(np.abs(outputs - clear).max()),
        offline_s=[offline.seconds for offline, _ in stats],
        online_s=[online.seconds for _, online in stats],
        offline_bytes=first_offline.bytes_up + first_offline.bytes_down,
        online_bytes=first_online.bytes_up + first_online.bytes_down,
        client_bytes=kept["client"],
        server_bytes=kept["server"],
    )


def _right(classes: npt.NDArray[np.intp], images: Images) -> int:
    return int((classes == images.labels).sum())


def run(
    chosen: list[Trained],
    images: Images,
    garblers: list[infer.Garbler],
    folder: Path,
    say: Callable[[str], None],
    most: int | None = None,
) -> list[Judgement]:
    """Every network with every garbler.

    Args:
        chosen: networks.
        images: with their labels.
        garblers: client, server or both.
        folder: for bundles, plans and certificates.
        say: called with lines for a person to read.
        most: images at most; all of them if not given.
    """
    certificates = hushtable.make_certificates(folder / "certificates")
    judged = []
    for trained in chosen:
        bundle, plan = build(trained, folder, trained.inputs(images.pixels[:_SAMPLES]))
        say(
            f"{trained.name}: {plan.activations:,} activations in {plan.stages} stages, numbers of"
            f" {plan.bits} bits with {plan.fraction} of fraction"
        )
        some = Images(images.pixels[:most], images.labels[:most])
        for garbler in garblers:
            judged.append(found := judge(trained, bundle, some, garbler, certificates))
            say(
                f"  {garbler} garbles: {found.images} images, right in the clear"
                f" {found.clear_right}, privately {found.private_right}; error at most"
                f" {found.error_max:.2g}; {statistics.median(found.offline_s):.2f} s offline and"
                f" {statistics.median(found.online_s):.2f} s online an image"
            )
    return judged


def main() -> int:
    """Runs the demo; the exit code is 1 where a private class is not the clear one."""
    parser = argparse.ArgumentParser(prog="python -m examples.cifar", description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, help="one; by default both")
    parser.add_argument("--garbler", choices=GARBLERS, help="one; by default either in turn")
    parser.add_argument("--images", type=int, help=f"at most; by default all {IMAGES}")
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    if chosen.images is not None and chosen.images < 1:
        parser.error("--images must be at least 1")

    def say(line: str) -> None:
        print(line, file=sys.stderr if chosen.json else sys.stdout, flush=True)

    garblers: list[infer.Garbler] = [chosen.garbler] if chosen.garbler else ["server", "client"]
    try:
        images = load_cifar(fetch("cifar-images", say=say))
        names = [chosen.network] if chosen.network else NETWORKS
        trained = [load(name, say) for name in names]
        with tempfile.TemporaryDirectory(prefix="hushtable-cifar-") as folder:
            judged = run(trained, images, garblers, Path(folder), say, chosen.images)
    except (hushtable.Error, DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps({"classes": CIFAR_CLASSES, "judged": [asdict(one) for one in judged]}))
    differing = sum(one.differing for one in judged)
    if differing:
        print(f"error: {differing} private classes are not the clear ones", file=sys.stderr)
        return 1
    say("every private class is the one in the clear")
    return 0


if __name__ == "__main__":
    sys.exit(main())
