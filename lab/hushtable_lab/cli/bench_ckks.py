"""``hushtable bench ckks``: single operations on CKKS ciphertexts."""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.errors import ConfigError

from .. import native
from ..measure.floors import ckks_floor
from ..measure.memory import peak_bytes
from ..measure.records import bench_record


@command(
    "hushtable bench ckks --operation rotate --degree 16384 --limbs 8 --threads 1",
    "hushtable bench ckks --operation multiply --degree 16384 --limbs 8",
    "hushtable bench ckks --operation transform --degree 32768 --limbs 6 --json",
    "hushtable bench ckks --operation bootstrap --degree 65536 --slots 512 --json",
)
def ckks(
    operation: Annotated[
        str,
        typer.Option(
            help="rotate, multiply (relinearised, rescaled), rescale, transform (a linear map), or "
            "bootstrap."
        ),
    ] = "rotate",
    degree: Annotated[
        int, typer.Option(help="N: a power of two, twice the slots of a ciphertext.")
    ] = 16384,
    limbs: Annotated[
        int, typer.Option(help="Primes of Q: levels, and one. A bootstrap has its own.")
    ] = 8,
    threads: Annotated[int, typer.Option(help="Threads: an operation takes one.")] = 1,
    diagonals: Annotated[int, typer.Option(help="Diagonals of a transform.")] = 512,
    baby_steps: Annotated[int, typer.Option(help="Baby steps of a transform.")] = 32,
    slots: Annotated[
        int, typer.Option(help="Numbers that a bootstrap keeps, up to half the degree.")
    ] = 512,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 3.0,
    json: Json = False,
) -> None:
    """Do one operation on a CKKS ciphertext at its top level: milliseconds, the best of many.

    The set is the one of 128 bits with as many limbs whose key switches cost least. Before the
    clock starts, a result is decrypted and compared: the detail has its error. The floor is the
    multiplications of transforms, changes of basis and sums, or reading each key and prepared
    plaintext once.

    A bootstrap is of real numbers, at N = 32768 or 65536, over the set of 128 bits for as many
    slots. Its detail has the levels left and the bits of vectors that it treats differently: the
    mean's are those of the mean error, the worst's those of the largest.
    """
    if threads != 1:
        raise ConfigError(f"threads is {threads}, but an operation takes one: it must be 1")
    note("drawing keys, preparing and checking")
    if operation == "bootstrap":
        print_bench(_bootstrap(degree, slots, seconds), json)
        return
    bench = native.CkksBench(
        degree, limbs, operation=operation, diagonals=diagonals, baby_steps=baby_steps
    )
    params = {"operation": operation, "degree": degree, "limbs": limbs}
    if operation == "transform":
        params |= {"diagonals": diagonals, "baby_steps": baby_steps}
    facts = bench.facts
    record = _timed(
        bench,
        seconds,
        params,
        level=facts["level"],
        log_q=facts["log_q"],
        log_qp=facts["log_qp"],
        special_limbs=facts["special_limbs"],
        scale_bits=facts["scale_log2"],
        error_bits=-facts["error_log2"],
        key_bytes=facts["key_bytes"],
        keys_memory_bytes=facts["keys_memory_bytes"],
        prepared_bytes=facts["prepared_bytes"],
        ciphertext_memory_bytes=facts["ciphertext_memory_bytes"],
        transforms=facts["transforms"],
        vectors=facts["vectors"],
        read_bytes=facts["read_bytes"],
        ring_kernel=facts["ring_kernel"],
    )
    print_bench(record, json)


def _bootstrap(degree: int, slots: int, seconds: float) -> dict[str, Any]:
    bench = native.BootstrapBench(degree, slots)
    params = {"operation": "bootstrap", "degree": degree, "slots": slots}
    return _timed(bench, seconds, params, **bench.facts)


def _timed(
    bench: native.CkksBench | native.BootstrapBench,
    seconds: float,
    params: dict[str, Any],
    **detail: Any,
) -> dict[str, Any]:
    """The record of the best of many runs, beside the floor of what one computes and reads."""
    note("measuring")
    times = bench.seconds(seconds)
    peak = peak_bytes()
    note("measuring the floor")
    floor = ckks_floor(bench.facts["read_bytes"], bench.facts["vectors"])
    value, best = min(times) * 1e3, floor.seconds * 1e3
    return bench_record(
        "ckks",
        params,
        value,
        "ms",
        best,
        best / value,
        1,
        _native.platforms().chosen,
        bound=floor.bound,
        median_ms=statistics.median(times) * 1e3,
        repeats=len(times),
        peak_bytes=peak,
        read_gb_per_s=floor.gb_per_s,
        multiply_ns=floor.instruction_ns,
        **detail,
    )
