"""``hushtable bench garble``: garbled circuits, beside what AES alone would allow."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import typer

from hushtable.cli.output import Json, command, note, print_bench
from hushtable.errors import ConfigError

from .. import native
from ..measure.records import bench_record


@command(
    "hushtable bench garble --threads 1 --json",
    "hushtable bench garble --bits 41 --isa avx2",
)
def garble(
    threads: Annotated[int, typer.Option(help="Threads that garble at once.")] = 1,
    bits: Annotated[int, typer.Option(help="k: numbers are held modulo 2^k; 16 to 64.")] = 37,
    fraction: Annotated[int, typer.Option(help="f: fraction bits that a ReLU drops.")] = 12,
    seconds: Annotated[float, typer.Option(help="How long each figure is measured.")] = 0.5,
    isa: Annotated[
        str | None, typer.Option(help="portable, avx2, avx512 or neon; the best by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Garble circuits, and evaluate them: AND gates a second.

    The value is what a garbler makes with a hash of two AES blocks, which circuits use; the floor
    is AES alone, eight blocks a gate. The details are the evaluator's rate, that of a hash of one
    block, and bytes and rates of a ReLU: as it is used (by either rounding), and as DELPHI's,
    modulo a prime.
    """
    if not 1 <= threads <= 1024:
        raise ConfigError(f"--threads is {threads}, but must be 1 to 1024")
    if not 0.001 <= seconds <= 600:
        raise ConfigError(f"--seconds is {seconds}, but must be 0.001 to 600")
    note("garbling and evaluating")
    found = json_.loads(
        native.garble_rates(bits=bits, fraction=fraction, threads=threads, seconds=seconds, isa=isa)
    )
    print_bench(_record(bits, fraction, found), json)


def _record(bits: int, fraction: int, found: dict[str, Any]) -> dict[str, Any]:
    rate, floor = found["tmmo"], found["tmmo_floor"]
    detail: dict[str, Any] = {
        "bound": "aes",
        "evaluate": rate["evaluate"],
        "evaluate_floor": floor["evaluate"],
        "aes_blocks_per_s": found["aes_blocks_per_s"],
        "one_block_garble": found["mmo"]["garble"],
        "one_block_evaluate": found["mmo"]["evaluate"],
        "one_block_garble_floor": found["mmo_floor"]["garble"],
        "one_block_evaluate_floor": found["mmo_floor"]["evaluate"],
    }
    for circuit in found["circuits"]:
        name = circuit["name"]
        per_s, floor_per_s = circuit["per_s"], circuit["floor_per_s"]
        detail |= {
            f"{name}_and_gates": circuit["and_gates"],
            f"{name}_table_bytes": circuit["table_bytes"],
            f"{name}_evaluator_label_bytes": circuit["evaluator_label_bytes"],
            f"{name}_garbler_label_bytes": circuit["garbler_label_bytes"],
            f"{name}_garbled_per_s": per_s["garble"],
            f"{name}_evaluated_per_s": per_s["evaluate"],
            f"{name}_garbled_of_floor": per_s["garble"] / floor_per_s["garble"],
            f"{name}_evaluated_of_floor": per_s["evaluate"] / floor_per_s["evaluate"],
        }
    return bench_record(
        "garble",
        {"bits": bits, "fraction": fraction},
        rate["garble"],
        "AND gates/s",
        floor["garble"],
        rate["garble"] / floor["garble"],
        found["threads"],
        found["isa"],
        **detail,
    )
