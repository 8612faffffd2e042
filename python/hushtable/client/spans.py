"""A span of OpenTelemetry for each lookup, in programs that have set up a tracer provider.

The spans are the program's own: they say what the servers saw of a lookup and what it cost, never
which ids or how many there were. Nothing of them goes to the servers. One trace id in the requests
to both would say which two requests are one lookup, so no ``traceparent`` is sent.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from .. import _native
from .._types import LookupStats

__all__ = ["CallSpan"]

_VERSION_CHARS = 16
#: The provider that was asked last, and its tracer.
_asked: tuple[Any, Any] = (None, None)


class CallSpan:
    """A call as a span, from entry to exit; nothing where OpenTelemetry is not set up.

    A call that raises has the status ``ERROR`` and the error's class. Its message is left out: that
    of an id out of range holds the id.
    """

    __slots__ = ("_span",)

    def __init__(self, name: str, **attributes: str | int) -> None:
        tracer = _tracer()
        self._span: Any = None
        if tracer is not None:
            kind = sys.modules["opentelemetry.trace"].SpanKind.CLIENT
            named = {f"hushtable.{key}": value for key, value in attributes.items()}
            self._span = tracer.start_span(f"hushtable.{name}", kind=kind, attributes=named)

    def note(self, stats: LookupStats) -> None:
        """What the call cost, and which version answered."""
        if self._span is not None:
            self._span.set_attributes(
                {
                    "hushtable.keys": stats.keys,
                    "hushtable.bytes_up": stats.bytes_up,
                    "hushtable.bytes_down": stats.bytes_down,
                    "hushtable.queue_us": round(stats.queue_seconds * 1e6),
                    "hushtable.answer_us": round(stats.answer_seconds * 1e6),
                    "hushtable.retries": stats.retries,
                    "hushtable.version": stats.version[:_VERSION_CHARS],
                }
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._span is None:
            return
        if kind is not None:
            trace: Any = sys.modules["opentelemetry.trace"]
            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR))
        self._span.end()


def _tracer() -> Any:
    """The provider's tracer for this package; None where there is no provider.

    Who set one up has imported OpenTelemetry: where nobody has, it is not imported for this either.
    """
    global _asked
    trace: Any = sys.modules.get("opentelemetry.trace")
    # Another thread may be in the middle of the import: this comes last in it.
    if not hasattr(trace, "use_span"):
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # none is set up yet
        return None
    known, tracer = _asked
    if known is not provider:
        tracer = trace.get_tracer("hushtable", _native.__version__, provider)
        _asked = (provider, tracer)
    return tracer
