"""Stored positions of a group: OffsetCommit, OffsetFetch.

Decides: nothing. Owns: the shape of these messages, each once, in its newest version; a comment names the versions that carry a
field where not all that we speak do. Must never do anything. Sources: OffsetCommitRequest.json, OffsetFetchRequest.json and
their responses; KIP-320, 345, 447, 709, 848.
"""

from typing import ClassVar
from uuid import UUID

from ...values import frozen
from .base import Api, Request, Response, Struct


@frozen(kw_only=True)
class OffsetCommitRequestPartition(Struct):
    """The position to store for one partition."""

    partition_index: int
    committed_offset: int  # next offset to read
    committed_leader_epoch: int = -1  # epoch of the last record read, or -1; v6+
    committed_metadata: str | None = ""  # free text of the application


@frozen(kw_only=True)
class OffsetCommitRequestTopic(Struct):
    """Positions in one topic. The version in use decides whether the name or the id goes on the wire."""

    name: str = ""  # name of the topic; v2-9
    topic_id: UUID | None = None  # id of the topic; v10+
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


@frozen(kw_only=True)
class OffsetCommitResponsePartition(Struct):
    """Whether one position was stored."""

    partition_index: int
    error_code: int = 0


@frozen(kw_only=True)
class OffsetCommitResponseTopic(Struct):
    """Outcome of one topic, under its name or its id as the request had it."""

    name: str = ""  # name of the topic; v2-9
    topic_id: UUID | None = None  # id of the topic; v10+
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


@frozen(kw_only=True)
class OffsetCommitResponse(Response):
    """Outcome of a commit."""

    throttle_time_ms: int = 0  # v3+
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


@frozen(kw_only=True)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Store positions. The broker's own retention applies to them (KIP-211)."""

    api: ClassVar = Api.OFFSET_COMMIT
    response: ClassVar = OffsetCommitResponse
    group_id: str
    generation_id_or_member_epoch: int = -1  # generation (classic), member epoch (consumer protocol, v9+), -1 without a group
    member_id: str = ""
    group_instance_id: str | None = None  # static member (KIP-345); v7+
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


@frozen(kw_only=True)
class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic whose position is wanted."""

    name: str = ""  # name of the topic; v2-9
    topic_id: UUID | None = None  # id of the topic; v10+
    partition_indexes: tuple[int, ...] = ()


@frozen(kw_only=True)
class OffsetFetchRequestGroup(Struct):
    """What is wanted of one group."""

    group_id: str
    member_id: str | None = None  # member of the consumer protocol; v9+
    member_epoch: int = -1  # its epoch, to fence stale members; v9+
    topics: tuple[OffsetFetchRequestTopics, ...] | None = None  # None: all stored positions


@frozen(kw_only=True)
class OffsetFetchResponsePartitions(Struct):
    """The position stored for one partition."""

    partition_index: int
    committed_offset: int = -1  # next offset to read, or -1 for none
    committed_leader_epoch: int = -1  # epoch of the last record read, or -1; v5+
    metadata: str | None = ""  # free text of the application
    error_code: int = 0


@frozen(kw_only=True)
class OffsetFetchResponseTopics(Struct):
    """Positions stored for one topic, under its name or its id as the request had it."""

    name: str = ""  # name of the topic; v2-9
    topic_id: UUID | None = None  # id of the topic; v10+
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


@frozen(kw_only=True)
class OffsetFetchResponseGroup(Struct):
    """Positions stored for one group."""

    group_id: str  # before v8 the answer does not name it: the request's, if ``decode_response`` was given the request
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: int = 0  # error of the whole group


@frozen(kw_only=True)
class OffsetFetchResponse(Response):
    """Positions stored, group by group. Before v8 there is exactly one group."""

    throttle_time_ms: int = 0  # v3+
    groups: tuple[OffsetFetchResponseGroup, ...] = ()


@frozen(kw_only=True)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Read stored positions (KIP-709). Before v8 only one group can be asked for."""

    api: ClassVar = Api.OFFSET_FETCH
    response: ClassVar = OffsetFetchResponse
    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    require_stable: bool = False  # fail with UNSTABLE_OFFSET_COMMIT while transactional commits are pending (KIP-447); v7+
