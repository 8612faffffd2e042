"""One inference by itself, in closed form: Table 1 and Figures 5, 11 and 14 follow from these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .deployment import Costs, Deployment, Step

__all__ = ["Breakdown", "best_split", "breakdown", "seconds", "traffic"]

#: Of steps that compute, what the paper counts them as.
_KINDS = {
    "keygen": "he",
    "he": "he",
    "garble": "gc",
    "encode": "gc",
    "evaluate": "gc",
    "ot": "gc",
    "shares": "ss",
}


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of one phase: garbled circuits with their labels, encryption, shares, the link."""

    gc: float
    he: float
    ss: float
    link: float

    @property
    def total(self) -> float:
        """One step after the other."""
        return self.gc + self.he + self.ss + self.link


def seconds(step: Step, deployment: Deployment) -> float:
    """What a step takes by itself."""
    if step.on == "up":
        return 8e-6 * step.amount / deployment.up_mbps
    if step.on == "down":
        return 8e-6 * step.amount / deployment.down_mbps
    return step.amount


def breakdown(
    deployment: Deployment,
    *,
    he_speedup: float = 1.0,
    gc_speedup: float = 1.0,
    link_speedup: float = 1.0,
    fewer_relus: float = 1.0,
    with_keys: bool = True,
) -> tuple[Breakdown, Breakdown]:
    """Offline and online phase of an inference that waits for nobody.

    Args:
        deployment: of which neither stores nor cores matter.
        he_speedup: divides encryption, at both parties.
        gc_speedup: divides garbling, evaluating and labels.
        link_speedup: divides what the link takes.
        fewer_relus: divides garbled circuits and the link, as the paper does: it counts bytes of
            encryption with those of ReLUs.
        with_keys: the paper's closed form leaves making the keys out.
    """
    by = {
        "he": he_speedup,
        "gc": gc_speedup * fewer_relus,
        "ss": 1.0,
        "link": link_speedup * fewer_relus,
    }

    def phase(steps: Iterable[Step]) -> Breakdown:
        found = dict.fromkeys(by, 0.0)
        for step in steps:
            if step.part == "keygen" and not with_keys:
                continue
            kind = "link" if step.on in ("up", "down") else _KINDS[step.part]
            found[kind] += seconds(step, deployment) / by[kind]
        return Breakdown(**found)

    return phase(deployment.costs.offline), phase(deployment.costs.online)


def traffic(costs: Costs) -> tuple[float, float]:
    """Bytes to the server and back, of both phases."""
    steps = (*costs.offline, *costs.online)
    up = sum(step.amount for step in steps if step.on == "up")
    return up, sum(step.amount for step in steps if step.on == "down")


def best_split(costs: Costs, mbps: float) -> tuple[float, float]:
    """Of a link of ``mbps``, the shares for the way up and down at which a whole inference's bytes
    take least (section 5.3)."""
    from ...plots import slots

    up, _ = slots(*traffic(costs), mbps)
    return up, mbps - up
