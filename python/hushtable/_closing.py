"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self


class Closing(abc.ABC):
    """A context manager whose block ends with its :meth:`close`."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing(abc.ABC):
    """The same for asyncio."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what it holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
