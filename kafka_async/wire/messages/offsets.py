"""Stored positions of a group: OffsetCommit, OffsetFetch (KIP-320, 345, 447, 709, 848)."""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
from .base import NotOurs, Request, Response, Struct, int16, int32, int64, since


@frozen(kw_only=True)
class OffsetCommitRequestPartition(Struct):
    """The position to store for one partition."""

    partition_index: int32
    committed_offset: int64  # next offset to read
    committed_leader_epoch: int32 = since(6, default=-1)  # epoch of the last record read, or -1
    committed_metadata: str | None = ""  # free text of the application


@frozen(kw_only=True)
class OffsetCommitRequestTopic(Struct):
    """Positions in one topic. The version in use decides whether the name or the id goes on the wire."""

    name: str = since(0, until=9, default="")  # name of the topic
    topic_id: UUID | None = since(10, default=None)  # id of the topic
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


@frozen(kw_only=True)
class OffsetCommitResponsePartition(Struct):
    """Whether one position was stored."""

    partition_index: int32
    error_code: int16 = 0


@frozen(kw_only=True)
class OffsetCommitResponseTopic(Struct):
    """Outcome of one topic, under its name or its id as the request had it."""

    name: str = since(0, until=9, default="")  # name of the topic
    topic_id: UUID | None = since(10, default=None)  # id of the topic
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


@frozen(kw_only=True)
class OffsetCommitResponse(Response):
    """Outcome of a commit."""

    throttle_time_ms: int32 = since(3, default=0)
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


@frozen(kw_only=True)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Store positions. The broker's own retention applies to them (KIP-211)."""

    group_id: str
    generation_id_or_member_epoch: int32 = -1  # generation (classic), member epoch (consumer protocol, v9+), -1 without a group
    member_id: str = ""
    group_instance_id: str | None = since(7, default=None)  # static member (KIP-345)
    retention_time_ms: ClassVar = NotOurs(int64, default=-1, until=4)  # the broker's own (KIP-211)
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


@frozen(kw_only=True)
class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic whose position is wanted."""

    name: str = since(0, until=9, default="")  # name of the topic
    topic_id: UUID | None = since(10, default=None)  # id of the topic
    partition_indexes: tuple[int32, ...] = ()


@frozen(kw_only=True)
class OffsetFetchRequestGroup(Struct):
    """What is wanted of one group."""

    group_id: str
    member_id: str | None = since(9, default=None)  # member of the consumer protocol
    member_epoch: int32 = since(9, default=-1)  # its epoch, to fence stale members
    topics: tuple[OffsetFetchRequestTopics, ...] | None = None  # None: all stored positions


@frozen(kw_only=True)
class OffsetFetchResponsePartitions(Struct):
    """The position stored for one partition."""

    partition_index: int32
    committed_offset: int64 = -1  # next offset to read, or -1 for none
    committed_leader_epoch: int32 = since(5, default=-1)  # epoch of the last record read, or -1
    metadata: str | None = ""  # free text of the application
    error_code: int16 = 0


@frozen(kw_only=True)
class OffsetFetchResponseTopics(Struct):
    """Positions stored for one topic, under its name or its id as the request had it."""

    name: str = since(0, until=9, default="")  # name of the topic
    topic_id: UUID | None = since(10, default=None)  # id of the topic
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


@frozen(kw_only=True)
class OffsetFetchResponseGroup(Struct):
    """Positions stored for one group."""

    group_id: str  # before v8 the answer does not name it: the request's, if ``decode_response`` was given the request
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: int16 = 0  # error of the whole group


@frozen(kw_only=True)
class OffsetFetchResponse(Response):
    """Positions stored, group by group. Before v8 there is exactly one group."""

    throttle_time_ms: int32 = 0
    groups: tuple[OffsetFetchResponseGroup, ...] = ()


@frozen(kw_only=True)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Read stored positions (KIP-709). Before v8 only one group can be asked for."""

    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    require_stable: bool = False  # fail with UNSTABLE_OFFSET_COMMIT while transactional commits are pending (KIP-447)
