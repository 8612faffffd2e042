"""What a gateway refuses, in the shape that clients of OpenAI's API read."""

from __future__ import annotations

from .. import errors
from .statuses import status_of

__all__ = ["Refused", "body_of", "refusal_of"]


class Refused(Exception):
    """A request that is refused, and how.

    Attributes:
        status: of the response.
        code: the reason in a word.
        headers: that go with it.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}


def refusal_of(error: Exception) -> Refused:
    """A client's error as a refusal: its class is the code, its text the message.

    What is no error of the package is said without its text, which nobody wrote for callers.
    """
    if isinstance(error, Refused):
        return error
    status, headers = status_of(error)
    if isinstance(error, errors.Error):
        return Refused(status, type(error).__name__, str(error), headers)
    return Refused(status, "internal_error", "the gateway failed: its log names the error")


def body_of(refused: Refused) -> dict[str, object]:
    """The response's body."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    error = {"message": str(refused), "type": kind, "param": None, "code": refused.code}
    return {"error": error}
