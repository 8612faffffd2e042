"""Paths of what lies in a folder, where somebody else says what it is called."""

from __future__ import annotations

from pathlib import Path

from . import _native


def join(folder: Path, path: str) -> Path:
    """``path``, whose steps a ``/`` divides, below ``folder``.

    Raises:
        ConfigError: a path that would lead out of the folder, or that some system takes for
            another: an absolute one, a step that is empty, ``.`` or ``..``, a backslash, a NUL, a
            drive, a step of over 255 bytes.
    """
    return _native.join_within(folder, path)


def join_real(folder: Path, path: str) -> Path:
    """The same for a folder whose content comes from outside too: no link leads out of it either.

    Raises:
        ConfigError: as :func:`join`, and for a link that leads out.
        OSError: what the system says of the folder.
    """
    return _native.join_within(folder, path, real=True)
