"""An implementation of its own of what users and controllers say, and the vectors made by it.

RFC 9180 (X25519, HKDF-SHA256, ChaCha20Poly1305; base and authenticated mode), XChaCha20Poly1305
and BLAKE3 over the primitives of ``cryptography``. ``python python/tests/reference/train.py``
writes ``vectors/train_wire.json``, which the Rust tests read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

VECTORS = Path(__file__).parents[3] / "vectors" / "train_wire.json"
DUMMY = 2**32 - 1
KEM = b"KEM" + struct.pack(">H", 0x20)
SUITE = b"HPKE" + struct.pack(">HHH", 0x20, 1, 3)


def extract(salt: bytes, label: bytes, ikm: bytes, suite: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")


def expand(prk: bytes, label: bytes, info: bytes, length: int, suite: bytes) -> bytes:
    info = struct.pack(">H", length) + b"HPKE-v1" + suite + label + info
    out, block, number = b"", b"", 1
    while len(out) < length:
        block = hmac.digest(prk, block + info + bytes([number]), "sha256")
        out, number = out + block, number + 1
    return out[:length]


class Pair:
    """A key pair by DeriveKeyPair, section 7.1.3."""

    def __init__(self, ikm: bytes) -> None:
        prk = extract(b"", b"dkp_prk", ikm, KEM)
        self.secret = X25519PrivateKey.from_private_bytes(expand(prk, b"sk", b"", 32, KEM))
        self.public = self.secret.public_key().public_bytes_raw()

    def dh(self, public: bytes) -> bytes:
        return self.secret.exchange(X25519PublicKey.from_public_bytes(public))


class Sender:
    """SetupBaseS, or with the sender's own pair SetupAuthS: section 5.1."""

    def __init__(self, ephemeral: Pair, to: bytes, info: bytes, own: Pair | None) -> None:
        self.encapsulated = ephemeral.public
        shared, context = ephemeral.dh(to), ephemeral.public + to
        if own is not None:
            shared, context = shared + own.dh(to), context + own.public
        prk = extract(b"", b"eae_prk", shared, KEM)
        shared = expand(prk, b"shared_secret", context, 32, KEM)
        mode = bytes([0 if own is None else 2])
        context = (
            mode
            + extract(b"", b"psk_id_hash", b"", SUITE)
            + extract(b"", b"info_hash", info, SUITE)
        )
        secret = extract(shared, b"secret", b"", SUITE)
        self._key = expand(secret, b"key", context, 32, SUITE)
        self._nonce = expand(secret, b"base_nonce", context, 12, SUITE)
        self._exporter = expand(secret, b"exp", context, 32, SUITE)

    def seal(self, text: bytes, data: bytes = b"") -> bytes:
        return ChaCha20Poly1305(self._key).encrypt(self._nonce, text, data)

    def export(self, label: bytes) -> bytes:
        return expand(self._exporter, b"sec", label, 32, SUITE)


def _rounds(state: list[int]) -> list[int]:
    x = list(state)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for to, other, by, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[to] = (x[to] + x[other]) & DUMMY
            mixed = x[by] ^ x[to]
            x[by] = (mixed << turn | mixed >> (32 - turn)) & DUMMY

    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return x


def _state(key: bytes, rest: bytes) -> list[int]:
    return list(struct.unpack("<16I", b"expand 32-byte k" + key + rest))


def xchacha(key: bytes, nonce: bytes, text: bytes) -> bytes:
    """Nonce, then the text sealed by XChaCha20Poly1305."""
    x = _rounds(_state(key, nonce[:16]))
    inner = struct.pack("<8I", *x[:4], *x[12:])
    return nonce + ChaCha20Poly1305(inner).encrypt(bytes(4) + nonce[16:], text, None)


_IV = struct.unpack(
    ">8I",
    bytes.fromhex("6a09e667bb67ae853c6ef372a54ff53a510e527f9b05688c1f83d9ab5be0cd19"),
)
_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def blake3(text: bytes) -> bytes:
    """BLAKE3 of one chunk: 1 to 1,024 bytes."""
    assert 1 <= len(text) <= 1024
    chaining, starts = list(_IV), range(0, len(text), 64)
    for start in starts:
        block = text[start : start + 64]
        first, last = start == 0, start == starts[-1]
        words = list(struct.unpack("<16I", block.ljust(64, b"\0")))
        x = [*chaining, *_IV[:4], 0, 0, len(block), first * 1 + last * (2 + 8)]
        for _ in range(7):
            for number, (a, b, c, d) in enumerate(_COLUMNS + _DIAGONALS):
                for half, (turn_d, turn_b) in enumerate(((16, 12), (8, 7))):
                    x[a] = (x[a] + x[b] + words[2 * number + half]) & DUMMY
                    mixed = x[d] ^ x[a]
                    x[d] = (mixed >> turn_d | mixed << (32 - turn_d)) & DUMMY
                    x[c] = (x[c] + x[d]) & DUMMY
                    mixed = x[b] ^ x[c]
                    x[b] = (mixed >> turn_b | mixed << (32 - turn_b)) & DUMMY
            words = [words[index] for index in _ORDER]
        chaining = [x[at] ^ x[at + 8] for at in range(8)]
    return struct.pack("<8I", *chaining)


class Random:
    """ChaCha20 as a generator, from block 0 on."""

    def __init__(self, seed: bytes) -> None:
        self._bytes = b""
        for block in range(4):
            state = _state(seed, struct.pack("<QQ", block, 0))
            words = [(a + b) & DUMMY for a, b in zip(state, _rounds(state), strict=True)]
            self._bytes += struct.pack("<16I", *words)

    def take(self, count: int) -> bytes:
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken


def _floats(numbers: list[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def vector(name: str, **of: Any) -> dict[str, Any]:
    """One round of one user; what is drawn follows from ``name``."""

    def drawn(what: str) -> bytes:
        return hashlib.sha256(f"{name} {what}".encode()).digest()

    controller = Pair(drawn("controller"))
    made: dict[str, Any] = {
        "controller_seed": drawn("controller").hex(),
        "controller_public": controller.public.hex(),
        "user_seed": drawn("user").hex(),
    }
    spec = dict(of["spec"])
    authority = own = None
    if of["enrolled"]:
        authority, own = Pair(drawn("authority")), Pair(drawn("own"))
        spec["authority"] = authority.public.hex()
    terms = json.dumps(spec, ensure_ascii=False)
    terms_hash = blake3(terms.encode())
    made["terms"], made["pin"] = terms, "pin1:" + (controller.public + terms_hash).hex()
    head = b""
    if authority is not None and own is not None:
        info = b"hushtable enrolment 1\0" + terms_hash
        sender = Sender(Pair(drawn("ticket")), controller.public, info, authority)
        ticket = sender.encapsulated + sender.seal(b"", own.public)
        made["user_key_seed"], made["ticket"] = drawn("own").hex(), "ticket1:" + ticket.hex()
        head = own.public + ticket

    slots, dim = spec["slots"], spec["dim"]
    place = struct.pack("<QI", of["round"], of["user"])
    random = Random(drawn("user"))
    info = b"hushtable train 2\0" + terms_hash + place
    sender = Sender(Pair(random.take(32)), controller.public, info, own)
    ids = of["ids"] + [DUMMY] * (slots - len(of["ids"]))
    request = sender.seal(place + struct.pack(f"<{slots}I", *ids))
    rows = [0.25 * number - 1 for number in range(slots * dim)]
    found = [slot % 2 == 0 for slot in range(slots)]
    gradients = of["gradients"] + [0.0] * (slots * dim - len(of["gradients"]))
    nonce = drawn("reply")[:24]
    made["reply"] = xchacha(sender.export(b"reply"), nonce, bytes(found) + _floats(rows)).hex()
    text = _floats([of["weight"], *gradients])
    made["upload"] = xchacha(sender.export(b"upload"), random.take(24), text).hex()
    made["request"] = (head + sender.encapsulated + request).hex()
    made |= {"rows_of_reply": rows, "found": found}
    made |= {name: of[name] for name in ("round", "user", "ids", "gradients", "weight")}
    return made


def _spec(name: str, rows: int, dim: int, slots: int) -> dict[str, Any]:
    aggregate = {"name": "fed_avg", "learning_rate": 1.0}
    return {
        "name": name,
        "rows": rows,
        "dim": dim,
        "users_max": 10,
        "slots": slots,
        "aggregate": aggregate,
    }


def vectors() -> list[dict[str, Any]]:
    """All of them."""
    first = {"ids": [0, 2999], "gradients": [0.125, 0.625, 1.125, 1.625], "weight": 1.5}
    second = {"ids": [DUMMY - 1], "gradients": [0.125], "weight": 2.5}
    third: dict[str, Any] = {"ids": [], "gradients": [], "weight": 0.0}
    of_first = {"spec": _spec("films", 3000, 2, 4), "round": 0, "user": 0, **first}
    of_second = {
        "spec": _spec("wörter", DUMMY, 1, 1),
        "round": 2**64 - 1,
        "user": DUMMY,
        **second,
    }
    of_third = {"spec": _spec("t", 1, 5, 3), "round": 81985529216486895, "user": 7, **third}
    return [
        vector(f"{number} {enrolled}", enrolled=enrolled, **of)
        for number, of in enumerate((of_first, of_second, of_third))
        for enrolled in (False, True)
    ]


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1, sort_keys=True, ensure_ascii=False) + "\n")
