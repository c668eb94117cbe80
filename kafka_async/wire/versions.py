"""Which version of an API is used with which broker: what both sides speak, and what can carry the request.

The lower bounds let in every broker that this client is meant for (2.1 and newer, and some older ones at no cost); the upper
bounds are Kafka 4.4's, without Fetch 18, which only replicas use. A field that an older version lacks is dropped when the
request means the same without it, as Kafka's schemas say with ``ignorable``; where it does not, ``_NEEDS`` keeps the request off
that version.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import UnsupportedVersionError
from ..values import field, frozen
from .messages import (
    Api,
    ApiVersionsResponse,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsRequest,
    MetadataRequest,
    Request,
)
from .messages.base import NEWEST
from .step import FetchStep

if TYPE_CHECKING:  # a consumer, or one without a group, does not need them
    from .messages.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeGroupsRequest, ListGroupsRequest
    from .messages.coordinator import FindCoordinatorRequest
    from .messages.describing import DescribeClusterRequest
    from .messages.group import (
        ConsumerGroupHeartbeatRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
    )
    from .messages.offsets import OffsetCommitRequest, OffsetFetchRequest
    from .messages.produce import ProduceRequest
    from .messages.share import ShareAcknowledgeRequest, ShareFetchRequest

UNSUPPORTED_VERSION = 35
IDENTIFYING: Final = 5
"""The lowest version of ApiVersions that says which broker is meant (KIP-1242).

Without anything to say the version before it does as well, which older brokers accept without another round trip.
"""
_BROKER_REGISTRATION: Final = 62
"""The API with which brokers tell the controller that they are there: only controllers offer it (KIP-631)."""


class VersionRange(NamedTuple):
    """Versions of an API, both ends included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


_SPOKEN: Final[Mapping[Api, tuple[int, int, int | None]]] = {
    Api.PRODUCE: (3, 13, 9),
    Api.FETCH: (4, 17, 12),
    Api.LIST_OFFSETS: (1, 11, 6),
    Api.METADATA: (4, 13, 9),
    Api.OFFSET_COMMIT: (2, 10, 8),
    Api.OFFSET_FETCH: (2, 10, 6),
    Api.FIND_COORDINATOR: (1, 6, 3),
    Api.JOIN_GROUP: (1, 9, 6),
    Api.HEARTBEAT: (0, 4, 4),
    Api.LEAVE_GROUP: (0, 5, 4),
    Api.SYNC_GROUP: (0, 5, 4),
    Api.DESCRIBE_GROUPS: (0, 6, 5),
    Api.LIST_GROUPS: (0, 5, 3),
    Api.SASL_HANDSHAKE: (1, 1, None),
    Api.API_VERSIONS: (0, 5, 3),
    Api.CREATE_TOPICS: (2, 7, 5),
    Api.DELETE_TOPICS: (1, 6, 4),
    Api.DELETE_RECORDS: (0, 2, 2),
    Api.INIT_PRODUCER_ID: (0, 5, 2),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4, 4),
    Api.ADD_PARTITIONS_TO_TXN: (0, 3, 3),
    Api.ADD_OFFSETS_TO_TXN: (0, 4, 3),
    Api.END_TXN: (0, 4, 3),
    Api.TXN_OFFSET_COMMIT: (0, 4, 3),
    Api.DESCRIBE_CONFIGS: (1, 4, 4),
    Api.SASL_AUTHENTICATE: (0, 2, 2),
    Api.CREATE_PARTITIONS: (0, 3, 2),
    Api.DELETE_GROUPS: (0, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1, 1),
    Api.OFFSET_DELETE: (0, 0, None),
    Api.DESCRIBE_CLUSTER: (0, 2, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1, 0),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1, 0),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0, 0),
    Api.PUSH_TELEMETRY: (0, 0, 0),
    Api.SHARE_GROUP_HEARTBEAT: (1, 1, 1),
    Api.SHARE_GROUP_DESCRIBE: (1, 1, 1),
    Api.SHARE_FETCH: (1, 2, 1),
    Api.SHARE_ACKNOWLEDGE: (1, 2, 1),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1, 0),
    Api.ALTER_SHARE_GROUP_OFFSETS: (0, 0, 0),
    Api.DELETE_SHARE_GROUP_OFFSETS: (0, 0, 0),
}
"""What this client speaks: the lowest and the highest version, and the first with compact types and tags (KIP-482).

After a change here, ``python -m tests.wire.generate`` writes which fields the messages have.

Metadata starts where auto-creation can be declined, OffsetFetch where all positions can be asked for, JoinGroup where the rebalance
timeout exists, SaslHandshake where SaslAuthenticate follows, DeleteTopics, which only tools use, where its shape is today's,
Produce where records have format 2. Transactions end before the versions that only brokers and the newest kind of transaction use
(KIP-890), share groups after the version that only their early access had.
"""
SUPPORTED: Mapping[Api, VersionRange] = {api: VersionRange(lowest, highest) for api, (lowest, highest, _) in _SPOKEN.items()}
FLEXIBLE: Mapping[Api, int] = {api: first for api, (_, _, first) in _SPOKEN.items() if first is not None}

_LAST_BEFORE_2_4: Mapping[int, int] = {Api.JOIN_GROUP: 5, Api.SYNC_GROUP: 3, Api.LEAVE_GROUP: 2}
"""Highest versions of Kafka 2.3, the last broker whose ApiVersions ends before version 3.

librdkafka's mock cluster is the only other server that ends there. It offers newer versions of these APIs, but drops the connection
on their requests or leaves fields out of their responses.
"""


_NEEDED_BESIDE: Mapping[Api, Mapping[Api, int]] = {
    Api.CONSUMER_GROUP_HEARTBEAT: {Api.METADATA: 10, Api.OFFSET_COMMIT: 9},
    Api.SHARE_GROUP_HEARTBEAT: {Api.METADATA: 10},
}
"""What an API is of no use without: assignments name topics by id, which Metadata tells since version 10, and only OffsetCommit 9
carries a member epoch.

Every release of Kafka that offers the API offers these. Some servers that are not Kafka offer it alone: a member there would be
assigned partitions that it cannot name, and no commit of it would be taken.
"""


class Need(NamedTuple):
    """Versions that a request cannot do without, and what in it is the cause."""

    lowest: int
    highest: int
    cause: str


_FETCH_WITHOUT_ID = Need(0, 12, "a topic without an id")
_FETCH_WITHOUT_NAME = Need(13, NEWEST, "a topic without a name")
_FETCH_SESSION = Need(7, NEWEST, "a fetch session")


_STEP: Final = [_FETCH_SESSION]
"""A step names its one topic and has its id, so it goes with either."""


def _fetch(request: FetchRequest) -> list[Need]:
    # With thousands of topics as with one: no generators, no objects.
    found = []
    nameless = idless = False
    topics: tuple[FetchTopic | ForgottenTopic, ...] = request.topics
    if request.forgotten_topics_data:
        topics += request.forgotten_topics_data
    for topic in topics:
        if topic.topic_id is None:
            idless = True
        if not topic.topic:
            nameless = True
    if idless:
        found.append(_FETCH_WITHOUT_ID)
    if nameless:
        found.append(_FETCH_WITHOUT_NAME)
    if request.session_id or request.forgotten_topics_data:
        found.append(_FETCH_SESSION)
    return found


_LIST_OFFSETS_TIMESTAMPS = {-3: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamp -> version that defines it (KIP-734, 405, 1005, 1023)."""


def _produce(request: "ProduceRequest") -> Iterator[Need]:
    if any(topic.topic_id is None for topic in request.topic_data):
        yield Need(0, 12, "a topic without an id")
    if not all(topic.name for topic in request.topic_data):
        yield Need(13, NEWEST, "a topic without a name")


def _list_offsets(request: ListOffsetsRequest) -> Iterator[Need]:
    if request.isolation_level:
        yield Need(2, NEWEST, "the isolation level")
    for special in {partition.timestamp for topic in request.topics for partition in topic.partitions if partition.timestamp < -2}:
        yield Need(_LIST_OFFSETS_TIMESTAMPS.get(special, 0), NEWEST, f"the timestamp {special}")


def _metadata(request: MetadataRequest) -> Iterator[Need]:
    if any(topic.topic_id is not None or topic.name is None for topic in request.topics or ()):
        yield Need(12, NEWEST, "a topic by id")  # versions 10 and 11 have the field, but brokers refuse it
    if request.include_topic_authorized_operations:
        yield Need(8, NEWEST, "the authorized operations")


def _offset_commit(request: "OffsetCommitRequest") -> Iterator[Need]:
    if any(topic.topic_id is None for topic in request.topics):
        yield Need(0, 9, "a topic without an id")
    if not all(topic.name for topic in request.topics):
        yield Need(10, NEWEST, "a topic without a name")
    if request.group_instance_id is not None:
        yield Need(7, NEWEST, "a group instance id")


def _offset_fetch(request: "OffsetFetchRequest") -> Iterator[Need]:
    topics = [topic for group in request.groups for topic in group.topics or ()]
    if any(topic.topic_id is None for topic in topics):
        yield Need(0, 9, "a topic without an id")
    if not all(topic.name for topic in topics):
        yield Need(10, NEWEST, "a topic without a name")
    if len(request.groups) != 1:
        yield Need(8, NEWEST, f"{len(request.groups)} groups")


def _find_coordinator(request: "FindCoordinatorRequest") -> Iterator[Need]:
    if len(request.coordinator_keys) != 1:
        yield Need(4, NEWEST, f"{len(request.coordinator_keys)} keys")
    if request.key_type > 1:
        yield Need(6, NEWEST, f"the key type {request.key_type}")


def _join_group(request: "JoinGroupRequest") -> Iterator[Need]:
    if request.group_instance_id is not None:
        yield Need(5, NEWEST, "a group instance id")


def _static_member(request: "HeartbeatRequest | SyncGroupRequest") -> Iterator[Need]:
    if request.group_instance_id is not None:
        yield Need(3, NEWEST, "a group instance id")


def _leave_group(request: "LeaveGroupRequest") -> Iterator[Need]:
    if len(request.members) != 1:
        yield Need(3, NEWEST, f"{len(request.members)} members")
    if any(member.group_instance_id is not None for member in request.members):
        yield Need(3, NEWEST, "a group instance id")


def _describe_groups(request: "DescribeGroupsRequest") -> Iterator[Need]:
    if request.include_authorized_operations:
        yield Need(3, NEWEST, "the authorized operations")


def _list_groups(request: "ListGroupsRequest") -> Iterator[Need]:
    if request.states_filter:
        yield Need(4, NEWEST, "a filter by state")
    if request.types_filter:
        yield Need(5, NEWEST, "a filter by type")


def _create_topics(request: "CreateTopicsRequest") -> Iterator[Need]:
    if any(-1 in (topic.num_partitions, topic.replication_factor) and not topic.assignments for topic in request.topics):
        yield Need(4, NEWEST, "the broker's defaults")


def _delete_topics(request: "DeleteTopicsRequest") -> Iterator[Need]:
    if any(topic.name is None for topic in request.topics):
        yield Need(6, NEWEST, "topics without a name")


def _describe_cluster(request: "DescribeClusterRequest") -> Iterator[Need]:
    if request.endpoint_type != 1:
        yield Need(1, NEWEST, f"the endpoint type {request.endpoint_type}")
    if request.include_fenced_brokers:
        yield Need(2, NEWEST, "fenced brokers")


def _consumer_group_heartbeat(request: "ConsumerGroupHeartbeatRequest") -> Iterator[Need]:
    if request.subscribed_topic_regex:  # an empty one takes a pattern back, which version 0 never had
        yield Need(1, NEWEST, "a subscription by pattern")


def _share_fetch(request: "ShareFetchRequest") -> Iterator[Need]:
    if request.share_acquire_mode:
        yield Need(2, NEWEST, "a strict limit of records")
    yield from _renewal(request)


def _renewal(request: "ShareFetchRequest | ShareAcknowledgeRequest") -> Iterator[Need]:
    if request.is_renew_ack:
        yield Need(2, NEWEST, "the renewal of locks")


_NEEDS: Mapping[Api, Callable[[Any], Iterable[Need]]] = {
    Api.PRODUCE: _produce,
    Api.FETCH: _fetch,
    Api.LIST_OFFSETS: _list_offsets,
    Api.METADATA: _metadata,
    Api.OFFSET_COMMIT: _offset_commit,
    Api.OFFSET_FETCH: _offset_fetch,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.JOIN_GROUP: _join_group,
    Api.HEARTBEAT: _static_member,
    Api.SYNC_GROUP: _static_member,
    Api.LEAVE_GROUP: _leave_group,
    Api.DESCRIBE_GROUPS: _describe_groups,
    Api.LIST_GROUPS: _list_groups,
    Api.CREATE_TOPICS: _create_topics,
    Api.DELETE_TOPICS: _delete_topics,
    Api.DESCRIBE_CLUSTER: _describe_cluster,
    Api.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    Api.SHARE_FETCH: _share_fetch,
    Api.SHARE_ACKNOWLEDGE: _renewal,
}


def needs(request: Request[Any]) -> Iterable[Need]:
    """Return the versions that the content of a request asks for, with the cause of each."""
    find = _NEEDS.get(request.api)
    return () if find is None else find(request)


def check(request: Request[Any], version: int) -> None:
    """Raise ``UnsupportedVersionError`` if ``version`` cannot carry the request or is not spoken here."""
    spoken = SUPPORTED[request.api]
    if not spoken.lowest <= version <= spoken.highest:
        raise UnsupportedVersionError(f"{request.api.name} version {version} is not spoken by this client, which speaks {spoken}.")
    for need in needs(request):
        if not need.lowest <= version <= need.highest:
            raise UnsupportedVersionError(f"{request.api.name} version {version} cannot carry {need.cause}: {_bounds(need)} can.")


def _bounds(need: Need) -> str:
    return f"{need.lowest} and above" if need.highest == NEWEST else f"{need.highest} and below"


@frozen(kw_only=True)
class BrokerVersions:
    """What one broker can do, according to its answer to ApiVersions."""

    ranges: Mapping[int, VersionRange] = field(factory=dict)
    """API key -> versions that the broker accepts."""
    _common: Mapping[int, VersionRange] = field(init=False, repr=False, eq=False)
    """API key -> versions that both sides speak, if there are any."""

    @_common.default
    def _find_common(self) -> Mapping[int, VersionRange]:
        found = {}
        for api, spoken in SUPPORTED.items():
            offered = self.ranges.get(api)
            if offered is not None:
                common = VersionRange(max(offered.lowest, spoken.lowest), min(offered.highest, spoken.highest))
                if common.lowest <= common.highest:
                    found[int(api)] = common
        for api, others in _NEEDED_BESIDE.items():
            if any(other not in found or found[other].highest < lowest for other, lowest in others.items()):
                found.pop(api, None)
        return found

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> "BrokerVersions":
        """Take over a successful answer; an offer that a broker of its age cannot mean is cut back."""
        ranges = {api.api_key: VersionRange(api.min_version, api.max_version) for api in response.api_keys}
        if Api.API_VERSIONS in ranges and ranges[Api.API_VERSIONS].highest < 3:
            for key, last in _LAST_BEFORE_2_4.items():
                if key in ranges:
                    ranges[key] = VersionRange(ranges[key].lowest, min(ranges[key].highest, last))
        return cls(ranges=ranges)

    def range(self, api: Api) -> VersionRange | None:
        """Return the versions that both sides speak, or ``None``."""
        return self._common.get(api)

    def supports(self, api: Api, version: int | None = None) -> bool:
        """Return whether both sides speak ``version`` of an API, or any version of it."""
        common = self.range(api)
        return common is not None and (version is None or common.lowest <= version <= common.highest)

    @property
    def checks_identity(self) -> bool:
        """Whether the broker refuses connections that are meant for another one (KIP-1242)."""
        return self.supports(Api.API_VERSIONS, IDENTIFYING)

    @property
    def stranger(self) -> str | None:
        """What the server is if it is not a broker that clients can talk to, else ``None``."""
        if Api.METADATA in self.ranges:
            return None
        if _BROKER_REGISTRATION in self.ranges:
            return "a KRaft controller; clients need the address of a listener for clients"
        return "no broker, since it does not offer METADATA"

    @property
    def offers_consumer_protocol(self) -> bool:
        """Whether groups may speak the consumer protocol (KIP-848); 3.9 brokers list version 0 and refuse it all the same.

        Without what it needs beside the heartbeats (``_NEEDED_BESIDE``) it does not count as offered.
        """
        return self.supports(Api.CONSUMER_GROUP_HEARTBEAT, 1)

    @property
    def commits_by_topic_id(self) -> bool:
        """Whether offsets are committed under the ids of topics (KIP-848's last part, from Kafka 4.1 on), and not by name."""
        return self.supports(Api.OFFSET_COMMIT, 10)

    def choose(self, request: Request[Any], *, lowest: int = 0, highest: int = NEWEST) -> int:
        """Return the highest version that both sides speak and that can carry ``request``.

        ``lowest`` and ``highest`` are bounds of the caller's own, such as 9 for a commit under the consumer protocol, or 12 for an
        incremental fetch in a session that was opened by topic name. Raises ``UnsupportedVersionError`` if there is none.
        """
        demands = _STEP if isinstance(request, FetchStep) else list(needs(request))
        common = self._common.get(request.api)
        if common is not None:
            low, high = max(common[0], lowest), min(common[1], highest)
            for needed_low, needed_high, _ in demands:
                low, high = max(low, needed_low), min(high, needed_high)
            if low <= high:
                return high
        raise UnsupportedVersionError(self._refusal(request.api, [*demands, Need(lowest, highest, "the caller's demand")]))

    def _refusal(self, api: Api, demands: list[Need]) -> str:
        offered = self.ranges.get(api)
        offer = f"offers versions {offered}" if offered is not None else "does not offer it"
        causes = [f"{need.cause} needs {_bounds(need)}" for need in demands if need.lowest or need.highest != NEWEST]
        if self.range(api) is None:
            causes += [
                f"it is of no use without {other.name} {lowest} and above (the broker offers {self.ranges.get(other, 'none')})"
                for other, lowest in _NEEDED_BESIDE.get(api, {}).items()
                if not self.supports(other, lowest)
            ]
        wanted = f"; {', '.join(causes)}" if causes else ""
        return f"{api.name}: the broker {offer}, this client speaks {SUPPORTED[api]}{wanted}."


def next_api_versions(tried: int, response: ApiVersionsResponse) -> int | None:
    """Return the version of ApiVersions to try next, or ``None`` if the negotiation is over.

    A broker that does not know the version tried answers with error 35 and, if it is recent, the versions it does know (KIP-511);
    otherwise version 0 is tried. Every step goes down, so there is an end. Any error but 35 is the caller's to handle. Raises
    ``UnsupportedVersionError`` if version 0 was refused.
    """
    if response.error_code != UNSUPPORTED_VERSION:
        return None
    if tried <= 0:
        raise UnsupportedVersionError("API_VERSIONS: the broker refuses version 0, which every broker must accept.")
    listed = (api.max_version for api in response.api_keys if api.api_key == Api.API_VERSIONS)
    best = min(next(listed, 0), SUPPORTED[Api.API_VERSIONS].highest)
    return best if 0 <= best < tried else 0
