"""The commands ``hushtable sim`` and ``hushtable bench``."""

from __future__ import annotations

__all__ = ["GROUPS"]

#: Groups of commands, and the modules that add to a group beside its own.
GROUPS: dict[str, tuple[str, ...]] = {
    "bench": (
        "bench_ckks",
        "bench_coded",
        "bench_garble",
        "bench_gpu",
        "bench_hybrid",
        "bench_infer",
        "bench_key",
        "bench_layer",
        "bench_layout",
        "bench_model",
        "bench_onion",
        "bench_oram",
        "bench_patch",
        "bench_shards",
        "bench_shares",
    ),
    "sim": (),
}
