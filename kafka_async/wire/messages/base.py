"""What messages are made of: numbers of APIs, types of numbers, versions of fields.

The class of a message is its whole description: its fields stand in the order of the bytes, the types say how they are written, and
``since`` says in which versions, where that is not all that we speak. ``python -m tests.wire.generate`` writes them from Kafka's
schemas, and ``layout.py`` reads them.
"""

import re
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, get_args

from ...values import field

int8: TypeAlias = Annotated[int, "b"]
int16: TypeAlias = Annotated[int, "h"]
int32: TypeAlias = Annotated[int, "i"]
int64: TypeAlias = Annotated[int, "q"]
"""Numbers, with their codes for ``struct``."""

NEWEST: Final = 0x7FFF
"""Stands for the newest version that there is."""


T = TypeVar("T")


def since(first: int, *, until: int = NEWEST, null: int = 0, tag: int | None = None, default: T) -> T:
    """Return a field that not all versions have, or have alike.

    ``null``: the first version in which it may be null, if its type may be ``None``; ``tag``: its number if it is tagged (KIP-482).
    """
    return field(default=default, metadata={"first": first, "until": until, "null": null, "tag": tag})


class NotOurs:
    """A field of Kafka's that we have no use for: it is written as its default, and not at all if it has a tag."""

    def __init__(self, kind: Any, *, default: Any, first: int = 0, until: int = NEWEST, tag: int | None = None) -> None:
        self.type = kind
        self.default = default
        self.versions = {"first": first, "until": until, "tag": tag}


class Api(IntEnum):
    """Kafka's number of each API that this package speaks."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Struct:
    """Base of every message and every part of one. Subclasses are frozen attrs classes; times are milliseconds."""

    __slots__ = ("__weakref__",)


class Response(Struct):
    """Base of the body of every response."""

    __slots__ = ()


R_co = TypeVar("R_co", bound=Response, covariant=True)


class Request(Struct, Generic[R_co]):
    """Base of the body of every request, generic over the body of its response. The name of a class says which API it is."""

    __slots__ = ()
    api: ClassVar[Api]
    api_name: ClassVar[str]
    """As Kafka spells it, for texts and trace events: ``OffsetCommit``."""
    response: ClassVar[type[Response]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        made = vars(cls)
        if "api_name" not in made and "__orig_bases__" in made:  # not the twin of one, which ``compiler.py`` makes
            cls.api_name = cls.__name__.removesuffix("Request")
            cls.api = Api[re.sub(r"\B(?=[A-Z])", "_", cls.api_name).upper()]
            (cls.response,) = get_args(made["__orig_bases__"][0])
