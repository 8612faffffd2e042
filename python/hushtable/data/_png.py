"""Portable Network Graphics of the simplest kind: 8-bit red, green and blue, not interlaced.

Enough for small pictures in packages, without a library of images. W3C, "Portable Network Graphics
(PNG) Specification (Second Edition)", 2003.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["pixels"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 3
#: The largest picture that is read, in pixels across and down.
_SIZE_MAX = 4096


def pixels(image: bytes) -> npt.NDArray[np.uint8]:
    """uint8 [rows, columns, 3].

    Raises:
        ValueError: bytes that are no such picture.
    """
    if not image.startswith(_SIGNATURE):
        raise ValueError("no PNG: its signature is missing")
    at, packed, size = len(_SIGNATURE), b"", (0, 0)
    while at + 12 <= len(image):
        length = int.from_bytes(image[at : at + 4])
        kind, body = image[at + 4 : at + 8], image[at + 8 : at + 8 + length]
        at += 12 + length
        if kind == b"IHDR":
            size = _size(body)
        elif kind == b"IDAT":
            packed += body
        elif kind == b"IEND":
            break
    columns, rows = size
    if not rows:
        raise ValueError("a PNG without a header")
    row_bytes = 1 + _COLOURS * columns
    try:
        raw = zlib.decompressobj().decompress(packed, rows * row_bytes)
    except zlib.error as error:
        raise ValueError(f"a PNG whose pixels cannot be unpacked: {error}") from error
    if len(raw) != rows * row_bytes:
        raise ValueError(f"a PNG of {len(raw)} bytes of pixels, expected {rows * row_bytes}")
    lines = np.frombuffer(raw, np.uint8).reshape(rows, row_bytes)
    found = np.zeros((rows, columns, _COLOURS), np.uint8)
    above = np.zeros((columns, _COLOURS), np.int64)
    for row, line in enumerate(lines):
        above = _unfiltered(int(line[0]), line[1:].reshape(columns, _COLOURS), above)
        found[row] = above
    return found


def _size(header: bytes) -> tuple[int, int]:
    if len(header) != 13 or header[8:13] != bytes([8, 2, 0, 0, 0]):
        raise ValueError("a PNG other than of 8-bit red, green and blue, not interlaced")
    columns, rows = int.from_bytes(header[:4]), int.from_bytes(header[4:8])
    if not (0 < columns <= _SIZE_MAX and 0 < rows <= _SIZE_MAX):
        raise ValueError(f"a PNG of {columns} x {rows} pixels, at most {_SIZE_MAX} are read")
    return columns, rows


def _unfiltered(
    filter_type: int, line: npt.NDArray[np.uint8], above: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """A row from its differences to the pixels left of it, above it, or between (section 9.2)."""
    values = line.astype(np.int64)
    if filter_type == 0:
        return values
    if filter_type == 2:
        return (values + above) & 255
    if filter_type == 1:
        return np.asarray(np.cumsum(values, 0) & 255, np.int64)
    if filter_type not in (3, 4):
        raise ValueError(f"a PNG with a filter of type {filter_type}")
    left = corner = np.zeros(_COLOURS, np.int64)
    for column, up in enumerate(above):
        near = (left + up) // 2 if filter_type == 3 else _nearest(left, up, corner)
        left = values[column] = (values[column] + near) & 255
        corner = up
    return values


def _nearest(
    left: npt.NDArray[np.int64], up: npt.NDArray[np.int64], corner: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Paeth's predictor."""
    guess = left + up - corner
    far = [np.abs(guess - one) for one in (left, up, corner)]
    is_left = (far[0] <= far[1]) & (far[0] <= far[2])
    return np.where(is_left, left, np.where(far[1] <= far[2], up, corner))
