"""Names by which a compiled or exported program finds the layers of this process again."""

from __future__ import annotations

import uuid
import weakref
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from ._module import Served

__all__ = ["bind", "layer_of", "take"]

_LAYERS: weakref.WeakValueDictionary[str, Served] = weakref.WeakValueDictionary()


def take(layer: Served, wanted: str | None = None) -> str:
    """A handle for ``layer``: ``wanted``, where no other layer of this process has it."""
    if wanted is None or _LAYERS.get(wanted, layer) is not layer:
        wanted = uuid.uuid4().hex
    _LAYERS[wanted] = layer
    return wanted


def bind(handle: str, layer: Served) -> None:
    """Makes ``layer`` answer where a program asks for ``handle``.

    An exported program (``torch.export``) holds the ``handle`` of each private layer, never its
    rows. Whoever loads it into another process binds each handle to a layer of that process first;
    the program looks its rows up there. The caller keeps the layer: a handle alone does not.

    Args:
        handle: the ``handle`` of the layer that was exported.
        layer: what answers from now on, of the same kind and shape.

    Example:
        >>> hushtable.nn.bind(handle, PrivateEmbedding(client))  # doctest: +SKIP
        >>> torch.export.load("model.pt2").module()(ids)  # doctest: +SKIP
    """
    _LAYERS[handle] = layer


def layer_of(handle: str) -> Served:
    """The layer of a handle.

    Raises:
        ConfigError: this process has none: it was not bound, or the layer is gone.
    """
    layer = _LAYERS.get(handle)
    if layer is None:
        raise ConfigError(
            f"no layer of this process has the handle {handle!r}: a program that was exported with "
            "private layers holds no rows; make the layer of a connected client, keep it, and call "
            "hushtable.nn.bind(handle, layer) before the program runs"
        )
    return layer
