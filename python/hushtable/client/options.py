"""How a client reaches its servers, and what it asks of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from ..errors import ConfigError

#: What a layout may take by default: one with the ids of 2^28 rows.
MAX_LAYOUT_BYTES = 1 << 30
#: The parameter sets that a single server may serve by, unless the caller says otherwise.
PARAMETER_SETS = ("n4096_128",)
#: Keys that a client of an encrypted model makes and uploads by default, at most.
KEY_BYTES_MAX = 4 << 30
#: What a client of hybrid inference keeps of precomputes by default, at most.
STORE_BYTES_MAX = 64 << 30
#: Predictions on shares under way at once, at most: as many as a server may be told to take.
INFERENCES_MAX = 1 << 16

#: Who garbles a network's circuits.
Garbler = Literal["client", "server"]
#: How precomputes of hybrid inference are made.
Parallel = Literal["layer", "sequential", "request"]
#: Who deals what a prediction on shares takes.
Dealer = Literal["client", "servers"]


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How to check the servers, and how to show them who asks.

    Attributes:
        ca: PEM file with the certificate of the authority that the servers' certificates come
            from; without, any authority that this machine trusts (``SSL_CERT_FILE`` and
            ``SSL_CERT_DIR`` name others).
        certificate: PEM file with this client's own certificate, for servers that ask for one.
        key: PEM file with its private key.
        left_name: the name that left's certificate is for, where that is not its URL's host.
        right_name: the same for right.
        server_name: the same for a single server.
        left_ca: of two operators with an authority each, the PEM file of left's, in place of
            ``ca``: what it signs is taken from the left server alone.
        right_ca: the same for right. Both are given, or neither.
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    left_name: str | None = None
    right_name: str | None = None
    server_name: str | None = None
    left_ca: str | os.PathLike[str] | None = None
    right_ca: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.left_ca is None) != (self.right_ca is None):
            raise ConfigError(
                "an authority for each side needs both: left_ca= and right_ca=; or ca= for both"
            )
        if self.ca is not None and self.left_ca is not None:
            raise ConfigError("ca= is for both sides: leave it out with left_ca= and right_ca=")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate needs both: certificate= and key=")

    @property
    def authorities(self) -> Path | Literal[True]:
        """The file of a single server's authority; True for those that this machine trusts.

        Raises:
            ConfigError: authorities for left and right, and a single server is neither.
        """
        if self.left_ca is not None:
            raise ConfigError(
                "left_ca= and right_ca= are for two servers: give ca= for a single one"
            )
        return True if self.ca is None else Path(self.ca)

    @property
    def authorities_by_side(self) -> tuple[Path | Literal[True], Path | Literal[True]]:
        """The files of left's and right's authorities; True for those that this machine trusts."""
        if self.left_ca is None or self.right_ca is None:
            return self.authorities, self.authorities
        return Path(self.left_ca), Path(self.right_ca)

    @property
    def identity(self) -> tuple[Path, Path] | None:
        """The files of this client's certificate and its key, where it has them."""
        if self.certificate is None or self.key is None:
            return None
        return Path(self.certificate), Path(self.key)

    @classmethod
    def of(cls, given: Tls | None) -> TlsConfig | None:
        """What ``tls=`` was given; None for no TLS.

        Raises:
            ConfigError: False, which would be taken for a file's number.
        """
        if given is None or isinstance(given, TlsConfig):
            return given
        if isinstance(given, bool):
            if given:
                return cls()
            raise ConfigError("tls must be True, a PEM file or a TlsConfig: leave it out for none")
        return cls(given)


#: How servers are checked: by the authority of a PEM file, by a :class:`TlsConfig`, or, with True,
#: by the authorities that this machine trusts.
Tls = TlsConfig | str | os.PathLike[str] | Literal[True]


#: Options that are whole numbers, and the least that each can be.
_COUNTS = {
    "max_layout_bytes": 0,
    "key_bytes_max": 0,
    "steps": 1,
    "store_bytes_max": 0,
}
#: Which clients read an option.
_LOOKUP, _PAIR, _ONION, _CKKS, _HYBRID, _SHARES = (
    {"schemes": schemes}
    for schemes in (("pair", "onion"), ("pair",), ("onion",), ("ckks",), ("hybrid",), ("shares",))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What a client does beyond its defaults.

    An option that the scheme does not read may only have its default: :func:`connect` refuses any
    other by name.

    Attributes:
        timeout: seconds that one call may take, with all that is asked again: a busy server, one
            that drains, and the next of a list. Default: 30; of ``ckks`` and ``hybrid`` 60.
        connect_timeout: seconds that one connection may take.
        insecure: allow ``http://`` to other machines, where something else encrypts the way.
        max_ids: pair, onion: default for :meth:`Client.lookup`. (A model says its own.)
        prg: pair: the generator that keys use. Servers accept aes128, chacha20 and chacha12 by
            default.
        max_layout_bytes: pair: the largest layout to fetch. Where the table has one, it is fetched
            when the client connects, for :meth:`Client.lookup_bag`; 0 for a client that makes plain
            lookups only.
        parameter_sets: onion: the parameter sets that the server may serve by. The client takes the
            parameters themselves from its own build and refuses a server that names another set.
            ``ive_paper`` has less than 128 bits of security by the 2024 guidelines.
        upload_timeout: ckks: seconds that the upload of the keys may take.
        key_bytes_max: ckks: the largest keys to make and upload.
        progress: ckks: called with (bytes of keys uploaded, all of them) during an upload. A copied
            or pickled client has none.
        garbler: hybrid: who garbles, ``client`` or ``server``. Who does keeps little of a
            precompute, and the other keeps the circuits.
        parallel: hybrid: how precomputes are made: all layers of one at once (``layer``), step by
            step (``sequential``), or several precomputes at once (``request``).
        steps: hybrid: steps, or precomputes, that are under way at once.
        retry_timeout: hybrid: seconds for which a lost call of a precompute is made again.
        up_mbps: hybrid: megabits a second to the server, at most.
        down_mbps: hybrid: megabits a second from the server, at most.
        store: hybrid: folder where this client's halves of precomputes are kept; memory by default.
            One client at a time may use it.
        store_key: hybrid: the file of the key that the folder is sealed with; ``key`` in it.
        store_ledger: hybrid: a folder, outside of ``store`` and on storage that is not put back
            together with it, where it is written down which halves may still be used; where the
            machine keeps its state by default.
        store_bytes_max: hybrid: most bytes of this client's halves.
        dealer: shares: the only one to accept: ``client``, who then may read more of the model than
            predictions say, or ``servers``, which deal beforehand; whichever the servers announce
            by default.
        inferences: shares: how many users' predictions are under way at once, 1 to 65536.

    Raises:
        ConfigError: a value that cannot work.
    """

    timeout: float | None = None
    connect_timeout: float = 5.0
    insecure: bool = False
    max_ids: int | None = field(default=None, metadata=_LOOKUP)
    prg: str = field(default="aes128", metadata=_PAIR)
    max_layout_bytes: int = field(default=MAX_LAYOUT_BYTES, metadata=_PAIR)
    parameter_sets: Sequence[str] = field(default=PARAMETER_SETS, metadata=_ONION)
    upload_timeout: float = field(default=600.0, metadata=_CKKS)
    key_bytes_max: int = field(default=KEY_BYTES_MAX, metadata=_CKKS)
    progress: Callable[[int, int], None] | None = field(default=None, metadata=_CKKS)
    garbler: Garbler = field(default="server", metadata=_HYBRID)
    parallel: Parallel = field(default="layer", metadata=_HYBRID)
    steps: int = field(default=8, metadata=_HYBRID)
    retry_timeout: float = field(default=60.0, metadata=_HYBRID)
    up_mbps: float | None = field(default=None, metadata=_HYBRID)
    down_mbps: float | None = field(default=None, metadata=_HYBRID)
    store: str | os.PathLike[str] | None = field(default=None, metadata=_HYBRID)
    store_key: str | os.PathLike[str] | None = field(default=None, metadata=_HYBRID)
    store_ledger: str | os.PathLike[str] | None = field(default=None, metadata=_HYBRID)
    store_bytes_max: int = field(default=STORE_BYTES_MAX, metadata=_HYBRID)
    dealer: Dealer | None = field(default=None, metadata=_SHARES)
    inferences: int = field(default=32, metadata=_SHARES)

    def __post_init__(self) -> None:
        sets = self.parameter_sets
        if isinstance(sets, str) or not isinstance(sets, Iterable) or not (sets := tuple(sets)):
            raise ConfigError(
                f"parameter_sets must list one or more names, as ('n4096_128',): {sets!r}"
            )
        # A generator of names would be empty the second time.
        object.__setattr__(self, "parameter_sets", sets)
        check_max_ids(self.max_ids)
        for name, least in _COUNTS.items():
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < least:
                raise ConfigError(
                    f"{name} must be a whole number of at least {least}, not {count!r}"
                )
        if self.garbler not in ("client", "server"):
            raise ConfigError(f"garbler is {self.garbler}, but must be client or server")
        if not isinstance(self.inferences, int) or not 1 <= self.inferences <= INFERENCES_MAX:
            raise ConfigError(f"inferences is {self.inferences}, but must be 1 to {INFERENCES_MAX}")

    def check(self, scheme: str) -> None:
        """Checks that all that is set is for clients of this scheme.

        Raises:
            ConfigError: an option of another scheme, by its name.
        """
        for option in fields(self):
            schemes = option.metadata.get("schemes", (scheme,))
            if scheme not in schemes and getattr(self, option.name) != option.default:
                raise ConfigError(
                    f"{option.name} is an option of {' and '.join(schemes)}, and these servers are "
                    f"asked by {scheme}: leave it out"
                )


def check_max_ids(max_ids: int | None) -> int | None:
    """The padding of a lookup, or None.

    Raises:
        ConfigError: it is no whole number from 1 on.
    """
    if max_ids is None:
        return None
    if isinstance(max_ids, bool) or not hasattr(max_ids, "__index__"):
        raise ConfigError(f"max_ids must be a whole number, not {max_ids!r}")
    if max_ids < 1:
        raise ConfigError(f"max_ids must be at least 1, not {max_ids}")
    return max_ids
