"""A controller in plain memory that speaks sealed messages, and Flower without a network.

A double for tests of what is around the controller. Its sealing is real (X25519 and
ChaCha20-Poly1305), so that nothing that must be sealed can go unsealed by accident, but it is not
the wire format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from hushtable.fl import (
    DUMMY,
    Credential,
    Flags,
    Floats,
    Ids,
    PlainReport,
    PlainTable,
    RoundTerms,
)

KEY_BYTES = 32


def _shared(secret: X25519PrivateKey, public: bytes, terms: RoundTerms) -> bytes:
    info = terms.spec + f"{terms.round} {terms.user}".encode()
    kdf = HKDF(SHA256(), KEY_BYTES, salt=None, info=info)
    return kdf.derive(secret.exchange(X25519PublicKey.from_public_bytes(public)))


def _seal(key: bytes, what: bytes, text: bytes) -> bytes:
    nonce = os.urandom(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, what)


def _unseal(key: bytes, what: bytes, sealed: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], what)
    except Exception as error:
        raise ValueError(f"the {what.decode()} does not open") from error


class DoubleSession:
    """A user's half."""

    def __init__(self, pin: str, terms: RoundTerms, credential: Credential | None = None) -> None:
        key, spec_hash = (bytes.fromhex(part) for part in pin.split(":"))
        if sha256(terms.spec).digest() != spec_hash:
            raise ValueError("not the pinned controller's terms")
        secret = X25519PrivateKey.generate()
        self._public = secret.public_key().public_bytes_raw()
        self._key, self._terms = _shared(secret, key, terms), terms
        self._spec = json.loads(terms.spec)

    def request(self, ids: Ids) -> bytes:
        padded = np.full(self._spec["slots"], DUMMY, np.uint32)
        padded[: len(ids)] = ids
        return self._public + _seal(self._key, b"request", padded.tobytes())

    def rows(self, reply: bytes) -> tuple[Floats, Flags]:
        text = _unseal(self._key, b"reply", reply)
        found = np.frombuffer(text[: self._spec["slots"]], np.bool_)
        rows = np.frombuffer(text[self._spec["slots"] :], np.float32)
        return rows.reshape(self._spec["slots"], self._spec["dim"]), found

    def upload(self, gradients: Floats, weight: float) -> bytes:
        text = np.float32(weight).tobytes() + gradients.astype(np.float32).tobytes()
        return _seal(self._key, b"upload", text)

    def to_bytes(self) -> bytes:
        return self._key + self._terms.spec

    @classmethod
    def from_bytes(cls, kept: bytes) -> DoubleSession:
        session = cls.__new__(cls)
        session._key = kept[:KEY_BYTES]
        session._spec = json.loads(kept[KEY_BYTES:])
        session._public = b""
        return session


class DoubleController:
    """The controller's half, over a table in plain memory."""

    def __init__(self, table: PlainTable) -> None:
        self.table = table
        self._secret = X25519PrivateKey.generate()
        self._round = 2**63  # More than a signed number holds.
        self._requests: Ids | None = None
        self._keys: dict[int, bytes] = {}
        self._begun = False

    @classmethod
    def create(cls, folder: Path, *, table: Floats, **options: Any) -> DoubleController:
        folder.mkdir(parents=True)
        # In the clear: there is no key to keep anywhere.
        options.pop("key_beside", None)
        return cls(PlainTable(table, **options))

    @property
    def public_key(self) -> bytes:
        return self._secret.public_key().public_bytes_raw()

    @property
    def _spec(self) -> bytes:
        rows = len(self.table.export())
        spec = {"rows": rows, "slots": self.table.slots, "dim": self.table.dim}
        return json.dumps({"name": "double", **spec}).encode()

    @property
    def pin(self) -> str:
        return f"{self.public_key.hex()}:{sha256(self._spec).hexdigest()}"

    @property
    def users(self) -> int:
        return self.table.users

    def open_round(self, users: int) -> int:
        assert self._requests is None, "a round is open"
        assert users <= self.users
        self._round += 1
        self._requests = np.full((self.users, self.table.slots), DUMMY, np.uint32)
        self._keys, self._begun = {}, False
        return self._round

    def terms(self, user: int) -> RoundTerms:
        return RoundTerms(self._spec, self._round, user)

    def request(self, user: int, sealed: bytes) -> None:
        assert self._requests is not None
        key = _shared(self._secret, sealed[:KEY_BYTES], self.terms(user))
        text = _unseal(key, b"request", sealed[KEY_BYTES:])
        self._requests[user] = np.frombuffer(text, np.uint32)
        self._keys[user] = key

    def close_requests(self) -> int:
        assert self._requests is not None
        self._begun = True
        return self.table.begin(self._requests)

    def reply(self, user: int) -> bytes:
        rows, found = self.table.rows(user)
        return _seal(self._keys[user], b"reply", found.tobytes() + rows.tobytes())

    def upload(self, user: int, sealed: bytes) -> None:
        text = _unseal(self._keys[user], b"upload", sealed)
        numbers = np.frombuffer(text, np.float32)
        shape = (self.table.slots, self.table.dim)
        self.table.add(user, numbers[1:].reshape(shape), float(numbers[0]))

    def commit(self) -> PlainReport:
        self._requests = None
        return self.table.commit()

    def export(self) -> Floats:
        return self.table.export()

    def abandon(self) -> None:
        self._requests = None
        if self._begun:
            self.table.abandon()


class LocalGrid(Grid):
    """Nodes in this process.

    Attributes:
        seen: every message that Flower's server sent or got: the direction, the node, and it.
        silent: whether a node leaves a message unanswered; changed by tests.
    """

    def __init__(self, app: ClientApp, nodes: int, settings: dict[str, Any] | None = None) -> None:
        # As a process of Flower's is told at its start.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self._app = app
        self._contexts = {
            node: Context(1, node, {"partition-id": node - 1}, RecordDict(), settings or {})
            for node in range(1, nodes + 1)
        }
        self.seen: list[tuple[str, int, Message]] = []
        self.silent: Callable[[int, Message], bool] = lambda node, message: False

    def set_run(self, run: Run) -> None:
        raise AssertionError("no test comes this way")

    @property
    def run(self) -> Run:
        return Run.create_empty(1)

    def create_message(self, *args: object, **options: object) -> Message:
        raise AssertionError("no test comes this way")

    def node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    get_node_ids = node_ids  # the name is Flower's

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise AssertionError("no test comes this way")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise AssertionError("no test comes this way")

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"{number}"
            node = message.metadata.dst_node_id
            self.seen.append(("to", node, deepcopy(message)))
            if self.silent(node, message):
                continue
            try:
                reply = self._app(deepcopy(message), self._contexts[node])
            except Exception as error:  # as a SuperNode does it
                reply = Message(Error(code=0, reason=repr(error)), reply_to=message)
            self.seen.append(("from", node, deepcopy(reply)))
            replies.append(reply)
        return replies
