"""What must be in a wheel, and what must not."""

from __future__ import annotations

import email
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import notices

ROOT = Path(__file__).resolve().parents[2]
#: Larger ones would be of symbols, or of something that slipped in.
BYTES_MAX = 40 << 20
_RELATIVE = re.compile(r"\]\((?![a-z]+:|#)[^)\s]+\)")


def sections(module: bytes) -> list[str]:
    """The names of a module's sections: of a 64-bit ELF file, the low byte first.

    Raises:
        ValueError: something else.
    """
    if module[:6] != b"\x7fELF\x02\x01":
        raise ValueError("a module must be a 64-bit ELF file with the low byte first")
    [table] = struct.unpack_from("<Q", module, 40)
    size, count, of_names = struct.unpack_from("<HHH", module, 58)
    heads = [struct.unpack_from("<IIQQQ", module, table + size * at) for at in range(count)]
    start = heads[of_names][4]
    return [module[start + head[0] :].split(b"\0", 1)[0].decode() for head in heads]


def defects(wheel: Path) -> Iterator[str]:
    """What is wrong with a wheel of hushtable, a line each."""
    version = wheel.name.split("-")[1]
    info = f"hushtable-{version}.dist-info/"
    if wheel.stat().st_size > BYTES_MAX:
        yield f"it has {wheel.stat().st_size:,} B, of at most {BYTES_MAX:,}"
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        for name in sorted(names):
            parts = name.removeprefix(info).split("/")
            if not name.startswith(("hushtable/", info)) or {"tests", "bench"} & set(parts):
                yield f"{name} has no place in it"
        for name in ("licenses/LICENSE", f"licenses/{notices.NAME}", "sboms/hushtable.cdx.json"):
            if info + name not in names:
                yield f"{info}{name} is missing"
        for name in ("py.typed", "cli/demo_words/words.npz", "_native/__init__.pyi"):
            if f"hushtable/{name}" not in names:
                yield f"hushtable/{name} is missing"
        modules = [name for name in names if name.endswith(".so")]
        if modules != ["hushtable/_native.abi3.so"]:
            yield f"its modules are {modules}, not hushtable/_native.abi3.so"
        for name in modules:
            body = packed.read(name)
            for section in sections(body):
                if section.startswith((".debug", ".symtab")):
                    yield f"{name} has {section}, which is for debuggers"
            for folder in (Path.home(), ROOT):
                if f"{folder}/".encode() in body:
                    yield f"{name} names folders of {folder}, where it was built"
        head = email.message_from_bytes(packed.read(f"{info}METADATA"))
        page = str(head.get_payload())
        for link in _RELATIVE.findall(page):
            yield f"its page has the link {link}, which leads nowhere on an index"
        for field in ("Project-URL", "Keywords", "Classifier", "License-Expression", "Summary"):
            if field not in head:
                yield f"its METADATA has no {field}"
