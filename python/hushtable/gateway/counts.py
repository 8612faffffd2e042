"""A gateway's metrics, as Prometheus reads them. No label and no value comes from a request."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

__all__ = ["Counts"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counts:
    """What was asked and answered since the start, by route and status."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._refused: Counter[str] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._sums: defaultdict[str, float] = defaultdict(float)
        self.under_way = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request of a route had this status after so many seconds."""
        self._requests[route, status] += 1
        buckets = self._seconds.setdefault(route, [0] * (len(_SECONDS) + 1))
        buckets[bisect_left(_SECONDS, seconds)] += 1
        self._sums[route] += seconds

    def refused(self, code: str) -> None:
        """The gateway itself refused a request, by a word of its own."""
        self._refused[code] += 1

    def text(self) -> str:
        """All of it, in the text format 0.0.4."""
        lines = [
            "# HELP hushtable_gateway_requests_total Requests, by route and status.",
            "# TYPE hushtable_gateway_requests_total counter",
        ]
        for (route, status), count in sorted(self._requests.items()):
            labels = f'{{route="{route}",status="{status}"}}'
            lines.append(f"hushtable_gateway_requests_total{labels} {count}")
        lines += [
            "# HELP hushtable_gateway_refused_total Requests refused by the gateway itself.",
            "# TYPE hushtable_gateway_refused_total counter",
        ]
        for code, count in sorted(self._refused.items()):
            lines.append(f'hushtable_gateway_refused_total{{reason="{code}"}} {count}')
        lines += [
            "# HELP hushtable_gateway_under_way Requests for rows under way.",
            "# TYPE hushtable_gateway_under_way gauge",
            f"hushtable_gateway_under_way {self.under_way}",
            "# HELP hushtable_gateway_request_seconds From a request's head to its response.",
            "# TYPE hushtable_gateway_request_seconds histogram",
        ]
        name = "hushtable_gateway_request_seconds"
        for route, buckets in sorted(self._seconds.items()):
            count = 0
            for bound, here in zip((*map(str, _SECONDS), "+Inf"), buckets, strict=True):
                count += here
                lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {count}')
            lines.append(f'{name}_sum{{route="{route}"}} {self._sums[route]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {count}')
        return "\n".join(lines) + "\n"
