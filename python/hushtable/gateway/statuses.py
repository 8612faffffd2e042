"""What each error is over HTTP: one table for the gateway and for services of one's own."""

from __future__ import annotations

from ..errors import (
    BadFeatures,
    BadIds,
    Error,
    IdOutOfRange,
    LayoutError,
    ProtocolError,
    ServerBusy,
    ServerError,
    ServerTimeout,
    ServerUnavailable,
    ShardAbsent,
    TooManyIds,
    UnknownFeature,
    UnknownModel,
)

__all__ = ["STATUSES", "status_of"]

#: Errors' classes and their statuses: the first class that an error is of decides. What a caller
#: can mend is 4xx; what another attempt may bring is 503 or 504; the rest is of the servers.
STATUSES: tuple[tuple[type[Error], int], ...] = (
    (BadIds, 400),
    (BadFeatures, 400),
    (IdOutOfRange, 400),
    (TooManyIds, 400),
    (LayoutError, 400),
    (UnknownFeature, 404),
    (UnknownModel, 404),
    (ServerBusy, 503),
    (ShardAbsent, 503),
    (ServerTimeout, 504),
    (ServerUnavailable, 502),
    (ProtocolError, 502),
    (ServerError, 502),
    (Error, 500),
)


def status_of(error: BaseException) -> tuple[int, dict[str, str]]:
    """The status of a response that says this error, and headers that go with it.

    Returns:
        the status, 500 for what is no error of this package; ``retry-after`` in whole seconds where
        the servers said when to come again.
    """
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    if isinstance(error, ServerBusy | ShardAbsent):
        return status, {"retry-after": str(max(1, round(error.retry_after)))}
    return status, {}
