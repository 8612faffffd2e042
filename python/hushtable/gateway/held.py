"""What a gateway's client holds: tables by name, each asked alone, or a model's features."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .._types import LookupStats, TableInfo
from ..client import AsyncClient, AsyncModelClient
from ..client.model import AsyncFeatureClient
from .refusals import Refused

__all__ = ["Held"]


class _Asks(Protocol):
    @property
    def info(self) -> TableInfo: ...

    async def lookup_with_stats(
        self, ids: Any, max_ids: int | None = None, *, timeout: float | None = None
    ) -> tuple[npt.NDArray[np.float32], LookupStats]: ...


class Held:
    """What is held by the servers of a client of one table, or of a model."""

    def __init__(self, client: AsyncClient | AsyncModelClient) -> None:
        self._client = client

    @property
    def names(self) -> list[str]:
        """Of the tables that can be asked: the only one's, or those of a model's features."""
        if isinstance(self._client, AsyncModelClient):
            return list(self._client.features)
        return [self._client.info.name]

    def of(self, name: str | None) -> _Asks:
        """What asks this table; without a name the only one.

        Raises:
            Refused: it is none of these.
        """
        names = self.names
        if name is None and len(names) == 1:
            name = names[0]
        if name not in names:
            listed = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
            message = f"there is no such table here: there are {listed}"
            raise Refused(404, "model_not_found", message)
        if isinstance(self._client, AsyncModelClient):
            asks: AsyncFeatureClient = self._client[name]
            return asks
        return self._client

    def model(self) -> AsyncModelClient:
        """The model, all of whose features are asked at once.

        Raises:
            Refused: a single table is held.
        """
        if isinstance(self._client, AsyncModelClient):
            return self._client
        raise Refused(404, "model_not_found", "this gateway serves a table, and no model")

    def tables(self) -> list[dict[str, object]]:
        """What there is, for callers."""
        return [{"id": name, **dataclasses.asdict(self.of(name).info)} for name in self.names]
