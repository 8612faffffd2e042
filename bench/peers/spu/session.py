"""What every party of SPU does: connect, compile a function, open an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from spu import libspu
from spu.utils import frontend


def linked(rank: int, ports: Sequence[str]) -> Any:
    """The connections of this party to the others, each of which listens on a port of loopback."""
    description = libspu.link.Desc()
    for at, port in enumerate(ports):
        description.add_party(f"party{at}", f"127.0.0.1:{port}")
    description.recv_timeout_ms = 600_000
    description.http_timeout_ms = 600_000
    return libspu.link.create_brpc(description, rank)


def compiled(
    function: Callable[..., Any], values: Sequence[np.ndarray], visible: Sequence[Any]
) -> tuple[Any, list[str]]:
    """What runs the function, with its answer in ``out0``, and the names of its values."""
    names = [f"in{at}" for at in range(len(values))]
    executable, _ = frontend.compile(
        frontend.Kind.JAX,
        function,
        list(values),
        {},
        names,
        list(visible),
        lambda flat: [f"out{at}" for at in range(len(flat))],
    )
    return executable, names


def revealed(link: Any, io: Any, share: Any) -> np.ndarray:
    """The value that all parties' shares are of; each of them must ask."""
    shares = []
    for text in link.all_gather(share.share_chunks[0].hex()):
        one = libspu.Share()
        one.meta = share.meta
        one.share_chunks = [bytes.fromhex(text)]
        shares.append(one)
    return np.asarray(io.reconstruct(shares)).ravel()
