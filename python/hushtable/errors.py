"""What can go wrong, as types.

Every error of this package is an :class:`Error`. Its text says what was wrong, what was expected
and what to do; the facts a program may want are attributes. The native module raises these same
classes.
"""

from __future__ import annotations

__all__ = [
    "ActivationRange",
    "BadFeatures",
    "BadIds",
    "BudgetSpent",
    "ConfigError",
    "ControllerError",
    "DamagedTable",
    "Error",
    "FetchError",
    "IdOutOfRange",
    "KeyFormatError",
    "KeysTooLarge",
    "LayoutError",
    "LayoutMismatch",
    "ModelError",
    "ModelTooDeep",
    "NoLayout",
    "NoRoom",
    "OperatorOnly",
    "ParametersRefused",
    "PartExists",
    "PinMismatch",
    "PlanMismatch",
    "PrecomputeError",
    "PreparedError",
    "ProtocolError",
    "PushRefused",
    "QueryTooLarge",
    "RoundError",
    "RoundOver",
    "RoundPending",
    "ServerBusy",
    "ServerError",
    "ServerTimeout",
    "ServerUnavailable",
    "ShardAbsent",
    "ShardMapError",
    "SourceChanged",
    "SwappedServers",
    "TableError",
    "TlsError",
    "TooManyIds",
    "UnknownFeature",
    "UnknownKeys",
    "UnknownModel",
    "VersionMismatch",
]


class Error(Exception):
    """The base of every error that hushtable raises on purpose."""


class ConfigError(Error, ValueError):
    """An option, address or argument that cannot work as given."""


class PushRefused(ConfigError):
    """A pushed bundle that a server does not take; what it held goes on being served.

    Attributes:
        reason: why, as it travels: ``PUSH_DAMAGED``, ``PUSH_SPACE``; docs/errors.md lists them.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class TableError(Error):
    """A table bundle or a source file that cannot be read, built or served."""


class DamagedTable(TableError):
    """A bundle whose bytes are not those that were built."""


class PreparedError(TableError):
    """A prepared file that cannot be made or read: damaged, locked, of another table or kind."""


class ModelError(TableError):
    """A model bundle that cannot be read or built, or a checkpoint that makes none."""


class ModelTooDeep(ModelError):
    """A model whose multiplications no 128-bit parameter set carries under encryption.

    Attributes:
        levels: multiplications one after the other that it takes.
        levels_max: what the largest ring carries at the precision asked for.
    """

    def __init__(self, message: str, *, levels: int = 0, levels_max: int = 0) -> None:
        super().__init__(message)
        self.levels = levels
        self.levels_max = levels_max


class KeysTooLarge(ModelError):
    """A bound on the bytes of keys that no plan of a model keeps.

    Attributes:
        least_bytes: bytes of the keys of the plan whose keys are smallest.
        max_bytes: the bound.
    """

    def __init__(self, message: str, *, least_bytes: int = 0, max_bytes: int = 0) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes
        self.max_bytes = max_bytes


class QueryTooLarge(ModelError):
    """A bound on the bytes of an encrypted query that no plan of a model keeps.

    Attributes:
        least_bytes: bytes of a query of the plan whose queries are smallest.
        max_bytes: the bound.
    """

    def __init__(self, message: str, *, least_bytes: int = 0, max_bytes: int = 0) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes
        self.max_bytes = max_bytes


class ShardMapError(ModelError):
    """A map of a model's shards that is missing, damaged, of another version or cannot be made."""


class FetchError(TableError):
    """A shard's part of a model that cannot be fetched: a source or a disk that fails.

    What was copied is kept: the same fetch made again goes on where this one stopped.
    """


class SourceChanged(FetchError):
    """A model that changed while it was copied. The same fetch made again begins anew."""


class NoRoom(FetchError):
    """A disk that a shard's part of a model does not fit on. Nothing was copied to it.

    Attributes:
        needed_bytes: what it takes beside what is there of it.
        free_bytes: what is free.
    """

    def __init__(self, message: str, *, needed_bytes: int = 0, free_bytes: int = 0) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class PartExists(FetchError):
    """A folder that has another part of the model where a shard's is to be.

    Attributes:
        path: what stands there.
        part: what it has: ``front``, ``shard-0`` and so on; empty where that is not known.
    """

    def __init__(self, message: str, *, path: str = "", part: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.part = part


class BadFeatures(Error, ValueError):
    """Features that a model cannot take: of another shape, not finite, out of all proportion.

    Raised before anything is sent.
    """


class ActivationRange(Error, ValueError):
    """An activation that met a value outside the range that its polynomial was made for.

    Under encryption nobody would see it: it is found in the clear and simulated.

    Attributes:
        layer: the layer's name, ``bottom 0``, say.
        value: what it met.
        limit: the end of its range.
    """

    def __init__(
        self, message: str, *, layer: str = "", value: float = 0.0, limit: float = 0.0
    ) -> None:
        super().__init__(message)
        self.layer = layer
        self.value = value
        self.limit = limit


class BadIds(Error, TypeError, ValueError):
    """Ids that are no integers, or a nested list of them that is ragged.

    Raised before anything is sent.
    """


class IdOutOfRange(Error, IndexError):
    """An id that is not a row of the table.

    Raised before anything is sent: a server never learns of it.

    Attributes:
        id: the first such id; -1 in federated training, whose errors may be read by others.
        rows: rows in the table; ids run from 0 to ``rows - 1``.
        feature: the model's feature that was asked for it; empty without a model.
    """

    def __init__(self, message: str, *, id: int = -1, rows: int = 0, feature: str = "") -> None:
        super().__init__(message)
        self.id = id
        self.rows = rows
        self.feature = feature


class TooManyIds(Error, ValueError):
    """More ids in one lookup than its ``max_ids``, or than the servers accept in one request.

    Attributes:
        ids: ids, or padded ids, asked for; 0 in federated training, whose errors may be read by
            others.
        max_ids: the bound; of a model, what its manifest says of the feature.
        feature: the model's feature that was asked for them; empty without a model.
    """

    def __init__(self, message: str, *, ids: int = 0, max_ids: int = 0, feature: str = "") -> None:
        super().__init__(message)
        self.ids = ids
        self.max_ids = max_ids
        self.feature = feature


class LayoutError(Error, ValueError):
    """A layout that cannot be: out of limits, malformed, edited by hand, of a future format.

    Attributes:
        part: ``hot``, ``full`` or ``layout``, where one number is at fault; empty otherwise.
        field: the number's name; empty otherwise.
    """

    def __init__(self, message: str, *, part: str = "", field: str = "") -> None:
        super().__init__(message)
        self.part = part
        self.field = field


class LayoutMismatch(LayoutError):
    """A layout that was made for another version of the table.

    Attributes:
        expected: the table's version, in hex.
        found: the version that the layout is for, in hex.
    """

    def __init__(self, message: str, *, expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class NoLayout(LayoutError):
    """A table, or its servers, without the layout that a bag of ids is asked by."""


class ProtocolError(Error):
    """A server and this client do not understand each other."""


class KeyFormatError(ProtocolError):
    """A key that a server refused: wrong length, unknown format, another table's domain."""


class ParametersRefused(ProtocolError):
    """A single server of a parameter set that this client does not accept; nothing was sent.

    Attributes:
        announced: the set that the server named.
        accepted: the sets that :class:`~hushtable.ClientOptions` names, separated by commas.
    """

    def __init__(self, message: str, *, announced: str = "", accepted: str = "") -> None:
        super().__init__(message)
        self.announced = announced
        self.accepted = accepted


class PrecomputeError(Error):
    """A precompute of hybrid inference that cannot be kept or used: damaged, lost, or no room."""


class PlanMismatch(ProtocolError):
    """A server of encrypted inference whose plan is another than this client's keys are for.

    Attributes:
        expected: the server's plan, in hex.
        found: this client's, in hex.
    """

    def __init__(self, message: str, *, expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class UnknownFeature(Error, LookupError):
    """A feature that the model does not have. Nothing was sent.

    Attributes:
        feature: its name.
    """

    def __init__(self, message: str, *, feature: str = "") -> None:
        super().__init__(message)
        self.feature = feature


class UnknownModel(ProtocolError, LookupError):
    """A model that the servers do not hold, or none named where they hold more than one table."""


class UnknownKeys(ProtocolError):
    """A server that does not hold this client's keys, although they were just uploaded.

    A client uploads its keys by itself where a server has lost or dropped them. This is raised
    where the server drops them again at once: its budget for keys is too small for its clients.
    """


class SwappedServers(ProtocolError, ValueError):
    """``left`` and ``right`` point at the wrong servers, or both at the same one."""


class VersionMismatch(ProtocolError):
    """The two servers hold different versions of the table, so their answers do not add up.

    With one server: it answered from another version than the one that was asked. To a client that
    was told which version to take: the servers hold another.

    Attributes:
        left: version on the left server, in hex; empty where it is not known.
        right: version on the right server, in hex; empty where it is not known.
        expected: the version that the client was told to take; empty where it was not.
        found: what a server holds instead, where it said so.
    """

    def __init__(
        self,
        message: str,
        *,
        left: str = "",
        right: str = "",
        expected: str = "",
        found: str = "",
    ) -> None:
        super().__init__(message)
        self.left = left
        self.right = right
        self.expected = expected
        self.found = found


class ServerError(Error):
    """A server that did not answer as it should."""


class ServerUnavailable(ServerError, ConnectionError):
    """A server that cannot be reached, or went away before it answered."""


class TlsError(ServerUnavailable):
    """A connection that failed over TLS: a wrong certificate authority, a plain-text port."""


class ServerTimeout(ServerError, TimeoutError):
    """A server that did not answer within ``timeout``."""


class ServerBusy(ServerError):
    """A server whose queue stayed full until ``timeout``.

    Attributes:
        retry_after: seconds after which the server asks to be tried again.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ShardAbsent(ServerUnavailable):
    """A front that reaches no server of one of its shards: said at once, over when one is back.

    Attributes:
        shard: the shard's number in the map.
        retry_after: seconds after which the front asks to be tried again.
    """

    def __init__(self, message: str, *, shard: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.shard = shard
        self.retry_after = retry_after


class OperatorOnly(ServerError, PermissionError):
    """A call that is the operator's without the operator's token: a push, or one of training."""


class ControllerError(Error):
    """A controller that cannot be opened or go on: a missing or changed file, a full disk."""


class RoundError(Error, ValueError):
    """A call or message that does not fit the round.

    Its order, a shape, a user, an id, a message that does not open. The round goes on.
    """


class BudgetSpent(Error):
    """A round that would cost more privacy than is left. Nothing was booked, and nothing sent.

    Attributes:
        user: whose budget it is; empty for a controller's, or one's own.
        rounds: rounds that were booked; 0 where that is not told.
        spent: the epsilon lost so far; 0 where a server does not tell.
        needed: what it would be after the round.
        limit: what it may be.
    """

    def __init__(
        self,
        message: str,
        *,
        user: str = "",
        rounds: int = 0,
        spent: float = 0.0,
        needed: float = 0.0,
        limit: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.user = user
        self.rounds = rounds
        self.spent = spent
        self.needed = needed
        self.limit = limit


class PinMismatch(RoundError):
    """A training server, or a relay, that announces another controller than the pinned one."""


class RoundOver(RoundError):
    """A call of a round that has ended.

    Attributes:
        outcome: ``committed``, ``abandoned``, ``deserted`` (too few users came in time), ``failed``
            (the table is as it was), ``expired`` (nobody finished it in time; the table is as it
            was), or ``unknown``: whether the table is updated shows when the server could open its
            memory again. Call :meth:`TrainingClient.finish <hushtable.fl.TrainingClient.finish>`
            again then, and do not train the same round anew before.
    """

    def __init__(self, message: str, *, outcome: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome


class RoundPending(Error, TimeoutError):
    """A round that still waits for its users: the same call may be made again."""
