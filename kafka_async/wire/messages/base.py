"""What every message is: the numbers of the APIs and the two marker classes.

Decides: nothing. Owns: Kafka's API keys that a consumer, our tools and the cluster for tests use
(``org.apache.kafka.common.protocol.ApiKeys``). Must never hold a
version number.
"""

from enum import IntEnum
from typing import ClassVar, Generic, TypeVar


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
    """Base of the body of every request, generic over the body of its response."""

    __slots__ = ()
    api: ClassVar[Api]
    api_name: ClassVar[str]
    """As Kafka spells it, for texts and trace events: ``OffsetCommit``."""
    response: ClassVar[type[Response]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "api_name" not in vars(cls):
            cls.api_name = cls.__name__.removesuffix("Request")
