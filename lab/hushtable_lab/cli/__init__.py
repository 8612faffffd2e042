"""The commands ``hushtable sim`` and ``hushtable bench``."""

from __future__ import annotations

__all__ = ["COMMANDS"]

#: As :mod:`hushtable.cli._commands` has its own: module and function, and the line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "bench": ("", "Measure the engine and the servers, beside the floor that this machine sets."),
    "bench dpf": (
        ".bench:dpf",
        "Answer keys from a random table: queries a second of one server's engine.",
    ),
    "bench expand": (".bench:expand", "Expand one key alone, on one thread: nanoseconds a row."),
    "bench serve": (
        ".bench:serve",
        "Load one real server over TLS: one process on one core, the clients on another.",
    ),
    "bench ckks": (
        ".bench_ckks:ckks",
        "Do one operation on a CKKS ciphertext at its top level: milliseconds, the best of many.",
    ),
    "bench garble": (
        ".bench_garble:garble",
        "Garble circuits, and evaluate them: AND gates a second.",
    ),
    "bench gpu": (
        ".bench_gpu:gpu",
        "Answer keys from a random table on a GPU: queries a second of one server's engine.",
    ),
    "bench hybrid": (
        ".bench_hybrid:hybrid",
        "Predict privately, between two processes over loopback TLS: seconds, offline and online.",
    ),
    "bench infer": (
        ".bench_infer:infer",
        "Compute a model of a published shape on encrypted features: seconds from query to logit.",
    ),
    "bench layer": (
        ".bench_layer:layer",
        "Call private layers of one lone client, and real servers over TLS: milliseconds a call.",
    ),
    "bench layout": (
        ".bench_layout:layout",
        "Measure layouts on one thread, fit the model of their time, and keep it for `tune`.",
    ),
    "bench model": (
        ".bench_model:model",
        "Answer whole inferences, one row of every table each: inferences a second of one server.",
    ),
    "bench onion": (
        ".bench_onion:onion",
        "Answer encrypted queries from a prepared table: GB of table a second and query.",
    ),
    "bench ntt": (
        ".bench_onion:ntt",
        "Transform one polynomial modulo one prime, on one thread: microseconds, the best of many.",
    ),
    "bench oram": (
        ".bench_oram:oram",
        "Run whole rounds on a real file: microseconds a request, every step timed.",
    ),
    "bench union": (
        ".bench_oram:union",
        "Find the distinct rows of a round's requests obliviously: seconds, the best of some.",
    ),
    "bench patch": (
        ".bench_patch:patch",
        "Make a patched bundle, and have a server take it, against the same with a whole bundle.",
    ),
    "bench shards": (
        ".bench_shards:shards",
        "Load one side's front before N shards, each on a core, and before one shard on one core.",
    ),
    "bench shares": (
        ".bench_shares:shares",
        "Predict on shares by two servers, each on a core, over TLS: seconds an inference.",
    ),
    "bench paper": ("", "Repeat figures of papers, beside what they say."),
    "bench paper prg": (
        ".bench:prg",
        "Answer keys of each generator: Table V of the GPU-PIR paper, repeated on this processor.",
    ),
    "bench paper coded": (
        ".bench_coded:coded",
        "Look a compressed embedding up under encryption: as one linear map, and as CodedHELUT "
        "does.",
    ),
    "bench paper hybrid": (
        ".bench_hybrid:hybrid_figures",
        "Draw what was measured as the paper has it: its Figures 3, 4, 5, 8, 9 and 11.",
    ),
    "bench paper key": (
        ".bench_key:key",
        "Count the bytes of a key of each output group, and the calls of the generator to expand "
        "it.",
    ),
    "sim": ("", "Plan: what a deployment would cost."),
    "sim inference": (
        ".sim_inference:inference",
        "Simulate private inference under load: latency and the rate that is sustained.",
    ),
    "sim accelerator": (
        ".sim_accelerator:accelerator",
        "Simulate single-server retrieval on an accelerator, a GPU or this processor.",
    ),
    "sim serve": (
        ".sim_serve:serve",
        "Size shards, replicas and fronts: hosts, latency, the rate they carry, bytes and money.",
    ),
    "sim fdp": (
        ".sim_fdp:fdp",
        "Say how many rows a round reads, how many are dummies and how many are lost, in the mean.",
    ),
    "sim fl": (".sim:fl", "Price federated rounds through an oblivious memory on an SSD."),
}
