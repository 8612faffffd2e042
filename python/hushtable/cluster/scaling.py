"""How many replicas a shard has, by how long keys wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from .spec import Scaling

__all__ = ["Autoscaler"]


@dataclass
class _Shard:
    """Since when the wait has been on one side of the bounds, and when the count changed last."""

    high_since: float | None = None
    low_since: float | None = None
    changed_at: float = float("-inf")


class Autoscaler:
    """Says a shard's replica count; one of each cluster, in the coordinator.

    Between the two bounds nothing changes. Beyond one for long enough a shard gets one replica more
    or loses one, and then keeps its count for the cooldown. What it remembers may be lost: a new
    one waits for the bounds again.
    """

    def __init__(self, scaling: Scaling, replicas_min: int, replicas_max: int) -> None:
        self._scaling = scaling
        self._least, self._most = replicas_min, replicas_max
        self._shards: dict[int, _Shard] = {}

    def count(self, shard: int, replicas: int, queue_s: float | None, now_s: float) -> int:
        """How many replicas ``shard`` is to have, which has ``replicas``.

        ``queue_s`` is the mean wait of its replicas lately; None where that is not known, which
        changes nothing.
        """
        bounded = min(max(replicas, self._least), self._most)
        if bounded != replicas or queue_s is None:
            return bounded
        scaling, state = self._scaling, self._shards.setdefault(shard, _Shard())
        state.high_since = _since(state.high_since, queue_s > scaling.queue_s_high, now_s)
        state.low_since = _since(state.low_since, queue_s < scaling.queue_s_low, now_s)
        if now_s - state.changed_at < scaling.cooldown_s:
            return replicas
        if _lasts(state.high_since, scaling.up_after_s, now_s) and replicas < self._most:
            self._shards[shard] = _Shard(changed_at=now_s)
            return replicas + 1
        if _lasts(state.low_since, scaling.down_after_s, now_s) and replicas > self._least:
            self._shards[shard] = _Shard(changed_at=now_s)
            return replicas - 1
        return replicas


def _since(since: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if since is None else since


def _lasts(since: float | None, seconds: float, now_s: float) -> bool:
    return since is not None and now_s - since >= seconds
