"""A network as it was read, beside what it was read from: both compute the same, or it is refused.

A reader knows what it was told; whether it was told everything is seen by computing. Random inputs
go through the framework's own code and through :meth:`Network.evaluate`. Where the answers differ
by more than rounding, the values in between say which operator is the first that does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError

if TYPE_CHECKING:
    from ._network import Floats, Network

__all__ = ["ERROR_MAX", "compared"]

#: How far two answers may differ, of the largest number of either: sums of floats in another order
#: differ by under a tenth of it in networks of a hundred layers.
ERROR_MAX = 1e-4

#: Inputs that are compared, and the deviation of each one's numbers: as trained networks are fed,
#: and so large that bounds on values are met.
_DEVIATIONS = (1.0, 8.0)
_SEED = 20_261_127

#: An operator's values in between: its node's name in the network, what to call it, its values.
Between = Iterable[tuple[str, str, npt.NDArray[Any]]]


def compared(
    network: Network,
    framework: str,
    answers: Callable[[Floats], npt.NDArray[Any]],
    between: Callable[[Floats], Between],
    source: str,
) -> Network:
    """The network, with a word on what was compared.

    Args:
        network: as it was read.
        framework: who computes the other side, for messages.
        answers: the framework's answers to one input ``[1, channels, rows, columns]``.
        between: likewise its values in between, operator by operator in order; asked for only
            where answers differ.
        source: what was read, for messages.

    Raises:
        ModelError: other answers, with the first operator that differs; no answers at all.
    """
    each = []
    for images in _inputs(network):
        try:
            wanted = np.asarray(answers(images))
        except Exception as error:  # the framework's own, of any kind
            raise ModelError(
                f"{source}: {framework} does not compute it, so nothing shows that it was read "
                f"right: {error}"
            ) from error
        each.append((images, network.evaluate(images), wanted))
    if not any(np.isfinite(wanted).any() for _, _, wanted in each):
        raise ModelError(
            f"{source}: {framework} answers random inputs with no finite number, so nothing shows "
            "that it was read right"
        )
    # One answer alone can be as small as rounding: all of them are hardly so.
    of = max(_largest(wanted) for _, _, wanted in each)
    largest = 0.0
    for images, found, wanted in each:
        error_found = difference(found, wanted, of)
        if error_found > ERROR_MAX:
            raise ModelError(f"{source}{_first(network, framework, images, between)}")
        largest = max(largest, error_found)
    count = len(_DEVIATIONS)
    checked = (
        f"{count} random inputs have the answers of {framework}, to {largest:.0e} of the largest"
    )
    return dataclasses.replace(network, checked=checked)


def difference(found: npt.NDArray[Any], wanted: npt.NDArray[Any], of: float = 0.0) -> float:
    """The largest difference of two arrays, of the largest number of either or of what is larger
    yet; infinite where they have different sizes, or one is not finite where the other is.
    """
    if found.size != wanted.size:
        return float("inf")
    left, right = (np.asarray(one, np.float64).ravel() for one in (found, wanted))
    is_odd = ~(np.isfinite(left) & np.isfinite(right))
    if not np.array_equal(left[is_odd], right[is_odd], equal_nan=True):
        return float("inf")
    largest = max(_largest(left), _largest(right), of)
    return _largest(left[~is_odd] - right[~is_odd]) / largest if largest else 0.0


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest finite number, by its size; 0 of none."""
    sizes = np.abs(np.asarray(values, np.float64))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _inputs(network: Network) -> Iterable[Floats]:
    random = np.random.default_rng(_SEED)
    for deviation in _DEVIATIONS:
        images = random.normal(0, deviation, (1, *network.input)).astype(np.float32)
        if network.range is not None:
            low, high = network.range
            images = random.uniform(low, high, images.shape).astype(np.float32)
        yield images


def _first(
    network: Network,
    framework: str,
    images: Floats,
    between: Callable[[Floats], Between],
) -> str:
    """Where the network and the framework part."""
    own = network.values(images)
    for name, where, wanted in between(images):
        if name not in own:
            continue
        error = difference(own[name], wanted)
        if error > ERROR_MAX:
            how = f"by {error:.1g} of the largest" if np.isfinite(error) else "in their sizes"
            return (
                f", {where}: {framework} computes other numbers here, they differ {how}: it means "
                "something that is not read, so the network is not taken"
            )
    return (
        f": {framework} gives other answers, though each operator alone gives the same: a value "
        "changes after it was computed, or something outside the graph has a part in it; the "
        "network is not taken"
    )
