"""``hushtable doctor``: what this machine has, and what would be used."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from .. import __version__, _native
from .._machine import cores, gpu_report, instruction_ns, read_gb_per_s
from ..errors import ConfigError
from .output import Json, command, note, print_facts, print_json, print_table

#: What the kernels look for, as Linux names it.
_FLAGS = (
    *("aes", "avx2", "pclmulqdq", "gfni", "vaes", "vpclmulqdq"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "asimd"),
)
_STREAM_BYTES = 1 << 30
_CONNECT_S = 10.0
#: A server warns of its certificate from so many days on.
_SOON_DAYS = 30
_PACKAGES = ("numpy", "typer", "rich", "torch")


@command(
    "hushtable doctor",
    "hushtable doctor --json",
    "HUSHTABLE_ISA=avx2 hushtable doctor",
    "hushtable doctor --certificate https://left.example:4000 --certificate left.pem",
)
def doctor(
    certificate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|URL",
            help="Say of this certificate alone when it expires: a PEM file, or the https:// URL "
            "of a server that shows it; repeat for more. Exits with 1 where one has expired.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print processor, memory bandwidth, versions, and what would be used."""
    if certificate:
        found = [one for place in certificate for one in certificates_at(place)]
        if json:
            print_json({"certificates": found})
        else:
            rows = [[str(one[key]) for key in ("place", "subject", "expires")] for one in found]
            left = [_days_left(one["days"]) for one in found]
            columns = ["where", "subject", "expires", ""]
            print_table(columns, [[*row, days] for row, days in zip(rows, left, strict=True)])
        if any(one["days"] < 0 for one in found):
            raise typer.Exit(1)
        return
    report = _examine()
    if json:
        print_json(report)
    else:
        _print(report)


def certificates_at(place: str) -> list[dict[str, Any]]:
    """What each certificate of a PEM file, or the one that a server at a URL shows, says of itself.

    Nothing is trusted of a server for this, and nothing sent to it but a greeting.

    Raises:
        ConfigError: a file or server that has none.
    """
    url = urlsplit(place)
    try:
        if url.scheme == "https" and url.hostname:
            address = (url.hostname, url.port or 443)
            pem = ssl.get_server_certificate(address, timeout=_CONNECT_S).encode()
        else:
            pem = Path(place).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{place}: no certificate could be read: {error}") from None
    now = time.time()
    return [
        {
            "place": place,
            "subject": subject,
            "names": names,
            "starts": datetime.fromtimestamp(start, UTC).isoformat(),
            "expires": datetime.fromtimestamp(end, UTC).isoformat(),
            "days": int((end - now) // 86400),
        }
        for subject, names, start, end in _native.certificate_validities(pem, place)
    ]


def _days_left(days: int) -> str:
    if days < 0:
        return "EXPIRED"
    return f"{days} days left" + (": renew it" if days < _SOON_DAYS else "")


def _examine() -> dict[str, Any]:
    tiers = _native.platforms()
    note("measuring memory bandwidth and instructions")
    affine_ns, aes_round_ns = instruction_ns()
    engine = _native.check_engine()
    model, flags = _processor()
    total, free = memory_bytes()
    return {
        "cpu": {"model": model, "flags": [flag for flag in _FLAGS if flag in flags]},
        "isa": {
            "used": tiers.chosen,
            "available": tiers.available,
            "cap": tiers.cap,
            "cap_is_known": tiers.cap_is_known,
        },
        "cores": {"usable": cores(), "online": os.cpu_count()},
        "memory": {"total_bytes": total, "available_bytes": free},
        "read_gb_per_s": {
            "one_thread": round(read_gb_per_s(_STREAM_BYTES, 1), 1),
            "all_threads": round(read_gb_per_s(_STREAM_BYTES, cores()), 1),
        },
        "instruction_ns": {"vgf2p8affineqb_512": affine_ns, "vaesenc_512": aes_round_ns},
        "versions": {
            "hushtable": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "would_use": {
            "kernel": engine.description.split(",")[1].strip(),
            "threads": engine.threads,
            "batch_keys": engine.batch_keys_best,
            "prg": "aes128",
            "ring_kernel": _native.ring_kernel(),
        },
        "gpu": gpu_report(),
    }


def _print(report: dict[str, Any]) -> None:
    isa, use, speed = report["isa"], report["would_use"], report["read_gb_per_s"]
    memory, ns = report["memory"], report["instruction_ns"]
    cap = "no cap" if isa["cap"] is None else f"HUSHTABLE_ISA={isa['cap']}"
    if not isa["cap_is_known"]:
        cap += " is unknown and ignored: portable, neon, avx2 or avx512"
    bytes_of = [f"{memory[key] / 2**30:.1f} GiB" for key in ("total_bytes", "available_bytes")]
    facts = {
        "processor": report["cpu"]["model"],
        "features": " ".join(report["cpu"]["flags"]) or "none of those looked for",
        "instruction set": f"{isa['used']} (of {', '.join(isa['available'])}; {cap})",
        "cores": f"{report['cores']['usable']} usable of {report['cores']['online']}",
        "memory": f"{bytes_of[0]}, {bytes_of[1]} available",
        "read bandwidth": f"{speed['one_thread']} GB/s one thread, "
        f"{speed['all_threads']} GB/s {report['cores']['usable']} threads",
        "instructions": ", ".join(
            f"{name} {value:.3f} ns" for name, value in ns.items() if value is not None
        )
        or "not measured below AVX-512",
        "versions": ", ".join(
            f"{name} {value}" for name, value in report["versions"].items() if value
        ),
        "would use": f"kernel {use['kernel']}, {use['threads']} thread(s), "
        f"passes of {use['batch_keys']} keys, {use['prg']}; "
        f"single servers: transforms by {use['ring_kernel']}",
        **_gpu_facts(report["gpu"]),
    }
    print_facts(facts)


def _gpu_facts(gpu: dict[str, Any]) -> dict[str, str]:
    """What was found of a GPU, and why not what was not."""
    facts = {"GPU": "would be used" if gpu["available"] else f"not used: {gpu['reason']}"}
    if not gpu["engine"]:
        return facts
    if gpu["driver"] is not None:
        facts["CUDA driver"] = f"for CUDA {gpu['driver']}"
    for device in gpu["devices"]:
        major, minor = device["capability"]
        memory = f"{device['memory_bytes'] / 2**30:.1f} GiB"
        facts[f"cuda:{device['index']}"] = (
            f"{device['name']}, capability {major}.{minor}, "
            f"{device['multiprocessors']} multiprocessors, {memory}"
        )
    if gpu["devices"]:
        facts["NVRTC"] = gpu["nvrtc"] or "none: pip install 'hushtable[cuda]'"
    facts["compiled kernels"] = gpu["cache"] or "kept in memory only"
    if gpu["visible_devices"] is not None:
        facts["CUDA_VISIBLE_DEVICES"] = gpu["visible_devices"]
    return facts


def _processor() -> tuple[str, set[str]]:
    """Model and feature flags, from Linux; elsewhere what Python knows."""
    model, flags = platform.processor() or platform.machine(), set[str]()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() in ("flags", "Features"):
                flags = set(value.split())
    return model, flags


def memory_bytes() -> tuple[int, int]:
    """Of this machine: in all, and what new processes can have."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    free = os.sysconf("SC_AVPHYS_PAGES") * page
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    return total, free


def _version(package: str) -> str | None:
    # Not imported: torch takes seconds.
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
