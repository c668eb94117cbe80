"""The methods of ``Cluster`` for real brokers: a test that runs on ``Cluster`` runs on them too, as far as real brokers allow.

It speaks through ``wire``, without another library's producer, and waits for each answer. What it cannot do to real brokers it
refuses, naming the method.
"""

import select
import socket
import struct
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, TypeVar

import anyio
from attrs import define, field

from ..config.checks import parse_bootstrap_servers
from ..errors import BrokerResponseError, NoBrokersAvailable, for_code
from ..model import OffsetAndMetadata, TopicPartition
from ..wire import Api, BrokerVersions, Request, Response, decode_response, encode_request
from ..wire.messages import (
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MemberIdentity,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    PartitionData,
    ShareGroupHeartbeatRequest,
)
from ..wire.messages.admin import (
    AlterableConfig,
    ConfiguredResource,
    ConsumerGroupDescribeRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedShareGroup,
    DescribeGroupsRequest,
    IncrementalAlterConfigsRequest,
    ShareGroupDescribeRequest,
)
from ..wire.messages.describing import DescribeConfigsRequest, DescribeConfigsResource
from ..wire.messages.produce import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from .batches import CODECS, TRANSACTIONAL, BatchSpec, RecordSpec, read_header
from .clusters import BATCH, Headers, as_bytes, check_index, made_record, murmur2, no_member, no_topic
from .reading import WrittenRecord, batches_in, records_in
from .simulation.groups.fellows import gives_up

if TYPE_CHECKING:
    from .secure import Security


class _Answer(Protocol):
    @property
    def error_code(self) -> int: ...


A = TypeVar("A", bound=_Answer)
R = TypeVar("R", bound=Response)
_TIMEOUT: Final = 30.0
"""Seconds for one answer, and for a call that is tried again to succeed."""
_RETRY: Final = frozenset({3, 5, 6, 14, 15, 16, 51, 75, 100})
"""Temporary error codes: leaders and coordinators that are being found, a topic that one broker does not know yet."""
_LOOK: Final = 0.1
_MOST_BYTES: Final = 8 * 1024 * 1024
_UNKNOWN: Final = 3
_GONE: Final = frozenset({25, 69})
"""Error codes for a member, or its whole group, that is gone by itself meanwhile."""
_EXISTS: Final = 36
_NO_SUCH_GROUP: Final = frozenset({69})
_OF_ANOTHER_KIND: Final = _NO_SUCH_GROUP | {35}
"""Error codes of brokers that are asked for one kind of group: they do not have it, or the whole kind is switched off."""
_REFUSED: Final = frozenset({17, 37, 38, 39, 40})
"""Error codes for arguments that ``Cluster`` refuses itself: names, numbers of partitions and of replicas, settings."""
_GROUP: Final = 32
"""The resource type of a group."""
_TOPIC: Final = 2
_OF_THE_TOPIC: Final = 1
"""Where a setting comes from: it was set for the topic."""
_PATIENCE: Final = 60.0
"""Seconds that a group has to be assigned, as on the simulated cluster."""
_LEAVES: Final = -1
"""The epoch in the heartbeat of a member that leaves."""
_Described: TypeAlias = DescribedGroup | DescribedConsumerGroup | DescribedShareGroup


@define(eq=False, repr=False)
class _RealBroker:
    """One broker."""

    socket: socket.socket
    versions: BrokerVersions = field(factory=BrokerVersions)
    _last: int = 0

    @classmethod
    def to(cls, host: str, port: int, security: "Security | None") -> "_RealBroker":
        sock = socket.create_connection((host, port), timeout=_TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = cls(sock)
        try:
            if security is not None:
                made.socket = security.wrap(sock, host)
            hello = ApiVersionsRequest(client_software_name="kafka-async-testing", client_software_version="1")
            made.versions = BrokerVersions.from_response(made._ask(hello, 3))
            if security is not None:
                security.log_in(host, port, made.ask)
        except BaseException:
            made.socket.close()
            raise
        return made

    def is_over(self) -> bool:
        """Return whether the broker has hung up: no request is under way, so only the end can be read."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def ask(self, request: Request[R]) -> R:
        return self._ask(request, self.versions.choose(request))

    def _ask(self, request: Request[R], version: int) -> R:
        self._last += 1
        self.socket.sendall(encode_request(request, version, self._last, "kafka-async-testing"))
        (size,) = struct.unpack(">i", self._read(4))
        return decode_response(request, version, self._read(size))

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            data += more
        return bytes(data)


@define(eq=False)
class RealCluster:
    """Real brokers, with the methods of ``Cluster`` that make sense for them. Anything else raises ``NotImplementedError``.

    Raises ``ValueError`` for a bootstrap server that is no address. Methods raise ``NoBrokersAvailable`` if no broker answers.
    """

    bootstrap: str
    """``host:port``, or several with commas between."""
    replicas: int = 1
    """Copies of the topics that are created."""
    unable: Callable[[str], object] | None = None
    """Called with the reason if a test asks for something that real brokers cannot do; what it raises ends the test."""
    config: Mapping[str, Any] = field(factory=dict, repr=False)
    """Further options of a consumer, for TLS and SASL: ``{"security_protocol": "SSL", "ssl_cafile": ...}``."""
    _connections: dict[tuple[str, int], _RealBroker] = field(factory=dict)
    _security: "Security | None" = field(default=None, init=False)
    _addresses: tuple[tuple[str, int], ...] = field(init=False, repr=False)

    @_addresses.default
    def _parsed(self) -> tuple[tuple[str, int], ...]:
        return parse_bootstrap_servers(self.bootstrap)

    def __attrs_post_init__(self) -> None:
        if self.config:
            from .secure import Security  # imports what plain TCP does not need

            self._security = Security(self.bootstrap, self.config)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        reason = f"{name}() works on a simulated cluster only"
        if self.unable is not None:
            self.unable(reason)
        raise NotImplementedError(reason)

    def connect(self) -> None:
        """Connect to the bootstrap server, as the first method that is called does otherwise."""
        self._any()

    # --- topics and records ----------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int = 1, *, replicas: int | None = None, **config: object) -> list[TopicPartition]:
        """Create a topic, and return its partitions when they have leaders. ``config``: as ``Cluster.topic`` takes it."""
        settings = tuple(CreatableTopicConfig(name=key, value=value) for key, value in _dotted(config).items())
        wanted = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas or self.replicas, configs=settings
        )
        (made,) = self._any().ask(CreateTopicsRequest(topics=(wanted,))).topics
        if made.error_code == _EXISTS:
            raise ValueError(f"topic {name!r}: it exists already")
        _check(made.error_code, made.error_message or f"topic {name!r}")
        _until(lambda: self._led(name) == partitions, self.bootstrap)
        return [TopicPartition(name, index) for index in range(partitions)]

    def group(self, name: str, **config: object) -> None:
        """Set a group's own configuration, as ``Cluster.group`` does."""
        changes = tuple(AlterableConfig(name=key, value=value) for key, value in _dotted(config).items())
        asked = ConfiguredResource(resource_type=_GROUP, resource_name=name, configs=changes)
        (response,) = self._any().ask(IncrementalAlterConfigsRequest(resources=(asked,))).responses
        _check(response.error_code, response.error_message or f"group {name!r}")

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._known(topic)
        (gone,) = self._any().ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=topic),))).responses
        _check(gone.error_code, f"topic {topic!r}")
        _until(lambda: self._described(topic).error_code == _UNKNOWN, self.bootstrap)

    def add_partitions(self, topic: str, count: int) -> None:
        """Grow a topic to ``count`` partitions, and wait until they have leaders."""
        self._known(topic)
        wanted = CreatePartitionsTopic(name=topic, count=count)
        (grown,) = self._any().ask(CreatePartitionsRequest(topics=(wanted,))).results
        _check(grown.error_code, grown.error_message or f"topic {topic!r}")
        _until(lambda: self._led(topic) == count, self.bootstrap)

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it again, with its settings."""
        parts = self._known(topic).partitions
        resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic)
        (found,) = self._any().ask(DescribeConfigsRequest(resources=(resource,))).results
        _check(found.error_code, found.error_message or f"topic {topic!r}")
        settings = {each.name: each.value for each in found.configs if each.config_source == _OF_THE_TOPIC}
        self.delete(topic)
        self.topic(topic, len(parts), replicas=len(parts[0].replica_nodes), **settings)

    def produce(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        value: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        compression: str = "none",
    ) -> tuple[TopicPartition, int]:
        """Append one record; return its partition and offset."""
        data = as_bytes(key)
        count = len(self._known(topic).partitions)
        chosen = partition
        if chosen is None:
            ends = sum(self.end((topic, index)) for index in range(count)) if data is None else 0
            chosen = ends % count if data is None else (murmur2(data) & 0x7FFFFFFF) % count
        record = made_record(key, value, headers)
        stamp = round(time.time() * 1000) if timestamp is None else timestamp
        spec = BatchSpec(records=(record,), leader_epoch=-1, base_timestamp=stamp, codec=CODECS[compression])
        return TopicPartition(topic, chosen), self._append(topic, chosen, spec)

    def produce_many(self, topic: str, values: Iterable[bytes | str | None], *, partition: int | None = None) -> None:
        """Append records without keys, in batches of a hundred if they are for one partition."""
        if partition is None:
            for value in values:
                self.produce(topic, value=value)
            return
        found = [as_bytes(value) for value in values]
        for start in range(0, len(found), BATCH):
            records = tuple(RecordSpec(delta=number, value=value) for number, value in enumerate(found[start : start + BATCH]))
            self._append(topic, partition, BatchSpec(records=records, leader_epoch=-1, base_timestamp=round(time.time() * 1000)))

    def transaction(self, name: str | None = None) -> "RealTransaction":
        """Write records in a transaction, which is committed when the block ends, or aborted if it ends with an exception.

        ``name``: its transactional id. By default it gets one of its own, since two open transactions of one id fence each other.
        """
        return RealTransaction(self, name or f"testing-{uuid.uuid4()}")

    def delete_before(self, partition: tuple[str, int], offset: int) -> None:
        """Delete the records before an offset."""
        part = DeleteRecordsPartition(partition_index=partition[1], offset=offset)
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=partition[0], partitions=(part,)),))
        (topic,) = self._leader(*partition).ask(request).topics
        _check(topic.partitions[0].error_code, str(partition))

    def end(self, partition: tuple[str, int]) -> int:
        """Return the offset after the last record."""
        return self._listed(partition, -1, committed=False)

    def _listed(self, partition: tuple[str, int], timestamp: int, *, committed: bool) -> int:
        asked = ListOffsetsPartition(partition_index=partition[1], timestamp=timestamp)
        topics = (ListOffsetsTopic(name=partition[0], partitions=(asked,)),)
        (topic,) = self._leader(*partition).ask(ListOffsetsRequest(isolation_level=int(committed), topics=topics)).topics
        _check(topic.partitions[0].error_code, str(partition))
        return topic.partitions[0].offset

    def _fetched(self, topic: str, index: int, offset: int, *, committed: bool) -> PartitionData:
        part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_MOST_BYTES)
        wanted = FetchTopic(topic=topic, topic_id=self._described(topic).topic_id, partitions=(part,))
        request = FetchRequest(max_wait_ms=0, session_epoch=-1, isolation_level=int(committed), topics=(wanted,))
        (found,) = self._leader(topic, index).ask(request).responses
        _check(found.partitions[0].error_code, str(TopicPartition(topic, index)))
        return found.partitions[0]

    def records(self, topic: str, *, partition: int | None = None, committed: bool = True) -> list[WrittenRecord]:
        """Return the records of a topic, or of one partition, as ``Cluster.records`` does."""
        parts = range(len(self._known(topic).partitions)) if partition is None else [partition]
        found: list[WrittenRecord] = []
        for index in parts:
            place = self._listed((topic, index), -2, committed=committed)
            end = self._listed((topic, index), -1, committed=committed)
            while place < end:
                part = self._fetched(topic, index, place, committed=committed)
                batches = list(batches_in(part.records or b""))
                aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
                found += [each for each in records_in(TopicPartition(topic, index), batches, place, aborted) if each.offset < end]
                last = read_header(batches[-1])
                place = last.base_offset + last.last_offset_delta + 1
        return found

    # --- consumers -------------------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        """Return the options with which a consumer finds the cluster and logs in."""
        return {"bootstrap_servers": self.bootstrap, **self.config}

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed."""
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group),))
        found = self._of_group(group, lambda coordinator: coordinator.ask(request).groups[0])
        committed = {}
        for topic in found.topics:
            name = topic.name or self._name(topic.topic_id)
            for part in topic.partitions:
                epoch = part.committed_leader_epoch if part.committed_leader_epoch >= 0 else None
                said = OffsetAndMetadata(part.committed_offset, part.metadata or "", epoch)
                committed[TopicPartition(name, part.partition_index)] = said
        return committed

    async def assigned(self, group: str, members: int = 1) -> None:
        """Wait until a group has this many members and each knows its whole assignment.

        The coordinator's last answers to members of the classic protocol may still be on their way. Raises ``TimeoutError`` after
        60 s of the event loop's time; its text describes the group.
        """
        deadline = anyio.current_time() + _PATIENCE
        while True:
            # Once, and not until it can tell: what runs in this event loop has to go on meanwhile.
            found = self._asked(group, partial(_description, group), _NO_SUCH_GROUP)
            count, settled = (0, False) if found is None else (len(found.members), _is_settled(found))
            if count == members and settled:
                return
            if anyio.current_time() >= deadline:
                state = "all assigned" if settled else "not all assigned"
                raise TimeoutError(
                    f"group {group!r} has {count} members, {state}; {members} were expected within {_PATIENCE:.0f} s"
                )
            await anyio.sleep(_LOOK)

    def members(self, group: str) -> list[str]:
        """Return the ids of a group's members."""
        return [member.member_id for member in self._describe(group).members]

    def kick(self, group: str, member: str | None = None) -> None:
        """Remove a member from a group, or all: they find out at their next request."""
        found = self._describe(group)
        members = [each.member_id for each in found.members]
        if member is not None and member not in members:
            raise no_member(group, member, members)
        for gone in members if member is None else [member]:
            self._of_group(group, partial(_removed, found, gone), _GONE)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- brokers ---------------------------------------------------------------------------------------------------------------

    def _any(self) -> _RealBroker:
        """Return a broker, if possible one that is connected: the others may not know yet what it has been asked to do."""
        failed = []
        for host, port in sorted(self._addresses, key=lambda each: each not in self._connections):
            try:
                return self._at(host, port)
            except OSError as error:
                failed.append(f"{host}:{port}: {error!r}")
        raise NoBrokersAvailable(f"no broker answers at {'; '.join(failed)}")

    def _at(self, host: str, port: int) -> _RealBroker:
        known = self._connections.get((host, port))
        if known is not None and known.is_over():  # the broker was restarted, or closed an idle connection
            known.socket.close()
            del self._connections[host, port]
        if (host, port) not in self._connections:
            self._connections[host, port] = _RealBroker.to(host, port, self._security)
        return self._connections[host, port]

    def _metadata(self, topic: str) -> MetadataResponse:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        return self._any().ask(request)

    def _described(self, topic: str) -> MetadataResponseTopic:
        return self._metadata(topic).topics[0]

    def _known(self, topic: str) -> MetadataResponseTopic:
        return _existing(self._described(topic), topic)

    def _led(self, topic: str) -> int:
        return len([part for part in self._described(topic).partitions if part.leader_id >= 0])

    def _name(self, topic_id: Any) -> str:
        return self._any().ask(MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic_id),))).topics[0].name or ""

    def _leader(self, topic: str, partition: int) -> _RealBroker:
        found: list[MetadataResponseBroker] = []

        def led() -> bool:
            answer = self._metadata(topic)
            described = _existing(answer.topics[0], topic, partition)
            leaders = [part.leader_id for part in described.partitions if part.partition_index == partition]
            found.extend(broker for broker in answer.brokers if broker.node_id in leaders)
            return bool(found)

        _until(led, self.bootstrap)
        return self._at(found[0].host, found[0].port)

    def _coordinator(self, key: str, kind: int = 0) -> _RealBroker:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        _until(lambda: self._any().ask(request).coordinators[0].error_code == 0, self.bootstrap)
        (found,) = self._any().ask(request).coordinators
        return self._at(found.host, found.port)

    def _describe(self, group: str) -> _Described:
        """Describe a group. One that does not exist is a classic group without members."""
        return self._of_group(group, partial(_description, group), _NO_SUCH_GROUP)

    def _of_group(self, group: str, ask: Callable[[_RealBroker], A], fine: Collection[int] = ()) -> A:
        """Ask a group's coordinator: again while it loads the group, or if it has moved. ``fine``: codes that are no errors."""
        found: list[A] = []

        def tried() -> bool:
            answer = self._asked(group, ask, fine)
            if answer is not None:
                found.append(answer)
            return answer is not None

        _until(tried, self.bootstrap)
        return found[0]

    def _asked(self, group: str, ask: Callable[[_RealBroker], A], fine: Collection[int]) -> A | None:
        """Ask a group's coordinator once; return ``None`` if it cannot tell yet."""
        answer = ask(self._coordinator(group))
        if answer.error_code in _RETRY:
            return None
        if answer.error_code not in fine:
            _check(answer.error_code, f"group {group!r}")
        return answer

    def _append(self, topic: str, partition: int, spec: BatchSpec, transaction: str | None = None) -> int:
        data = PartitionProduceData(index=partition, records=spec.encode())
        topic_id = self._known(topic).topic_id
        topics = (TopicProduceData(name=topic, topic_id=topic_id, partition_data=(data,)),)
        found: list[int] = []

        def tried() -> bool:
            connection = self._leader(topic, partition)
            (response,) = connection.ask(ProduceRequest(transactional_id=transaction, topic_data=topics)).responses
            part = response.partition_responses[0]
            if part.error_code in _RETRY:
                return False
            _check(part.error_code, str(TopicPartition(topic, partition)))
            found.append(part.base_offset)
            return True

        _until(tried, self.bootstrap)
        return found[0]


def _until(condition: Callable[[], bool], bootstrap: str) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"the brokers at {bootstrap} did not do it within {_TIMEOUT:.0f} s")
        time.sleep(_LOOK)


@define(eq=False)
class RealTransaction:
    """A transaction on real brokers."""

    _cluster: RealCluster
    _name: str
    _id: int = -1
    _epoch: int = -1
    _sequences: dict[TopicPartition, int] = field(factory=dict)

    def __enter__(self) -> Self:
        answer = self._ask(InitProducerIdRequest(transactional_id=self._name))
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        return self

    def produce(self, topic: str, *values: bytes | str | None, partition: int = 0) -> int:
        """Append records as one batch; return the offset of the first."""
        tp = TopicPartition(topic, partition)
        if tp not in self._sequences:
            self._cluster.end(tp)  # raises if it is not there; the coordinator would be asked again and again
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(partition,)),),
            )
            self._ask(request)
        sequence = self._sequences.get(tp, 0)
        spec = BatchSpec(
            records=tuple(RecordSpec(delta=number, value=as_bytes(value)) for number, value in enumerate(values)),
            leader_epoch=-1,
            base_timestamp=round(time.time() * 1000),
            attributes=TRANSACTIONAL,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        self._sequences[tp] = sequence + len(values)
        return self._cluster._append(topic, partition, spec, self._name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._sequences:
            self._ask(
                EndTxnRequest(
                    transactional_id=self._name, producer_id=self._id, producer_epoch=self._epoch, committed=error is None
                )
            )
            # The coordinator answers before the markers are written. Until they are, it reports concurrent transactions.
            self._ask(InitProducerIdRequest(transactional_id=self._name))

    def _ask(self, request: Request[Any]) -> Any:
        found: list[Any] = []

        def tried() -> bool:
            answer = self._cluster._coordinator(self._name, 1).ask(request)
            topics = getattr(answer, "results_by_topic_v3_and_below", ())
            code = topics[0].results_by_partition[0].partition_error_code if topics else getattr(answer, "error_code", 0)
            if code in _RETRY:
                return False
            _check(code, f"transaction {self._name!r}")
            found.append(answer)
            return True

        _until(tried, self._cluster.bootstrap)
        return found[0]


def _description(group: str, coordinator: _RealBroker) -> _Described:
    """Ask for each kind of group in turn."""
    if coordinator.versions.supports(Api.CONSUMER_GROUP_DESCRIBE):
        (consumer,) = coordinator.ask(ConsumerGroupDescribeRequest(group_ids=(group,))).groups
        if consumer.error_code not in _OF_ANOTHER_KIND:
            return consumer
    if coordinator.versions.supports(Api.SHARE_GROUP_DESCRIBE):
        (shared,) = coordinator.ask(ShareGroupDescribeRequest(group_ids=(group,))).groups
        if shared.error_code not in _OF_ANOTHER_KIND:
            return shared
    (classic,) = coordinator.ask(DescribeGroupsRequest(groups=(group,))).groups
    return classic


def _removed(group: _Described, member: str, coordinator: _RealBroker) -> _Answer:
    """Have a member leave, as it would itself."""
    name = group.group_id
    if isinstance(group, DescribedConsumerGroup):
        return coordinator.ask(ConsumerGroupHeartbeatRequest(group_id=name, member_id=member, member_epoch=_LEAVES))
    if isinstance(group, DescribedShareGroup):
        return coordinator.ask(ShareGroupHeartbeatRequest(group_id=name, member_id=member, member_epoch=_LEAVES))
    left = coordinator.ask(LeaveGroupRequest(group_id=name, members=(MemberIdentity(member_id=member),)))
    return left if left.error_code or not left.members else left.members[0]


def _is_settled(group: _Described) -> bool:
    """Return whether the members have what they should have, and know it."""
    if isinstance(group, DescribedShareGroup):  # it is stable as soon as it has members, and its first assignment is empty
        return all(each.member_epoch == group.group_epoch and each.assignment.topic_partitions for each in group.members)
    if isinstance(group, DescribedGroup) and any(
        gives_up(group.protocol_data, each.member_metadata, each.member_assignment) for each in group.members
    ):
        return False  # another generation follows, in which the others get it
    return group.group_state == "Stable"


def _existing(described: MetadataResponseTopic, topic: str, partition: int | None = None) -> MetadataResponseTopic:
    """Return what a broker says of a topic. Raises as ``Cluster`` does if there is no such topic or partition."""
    if described.error_code == _UNKNOWN:
        raise no_topic(topic)
    _check(described.error_code, f"topic {topic!r}")
    if partition is not None:
        check_index(topic, partition, len(described.partitions))
    return described


def _dotted(config: Mapping[str, object]) -> dict[str, str]:
    return {key.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()}


def _check(code: int, what: str) -> None:
    if code in _REFUSED:
        raise ValueError(what)
    if code:
        error = for_code(code, what)
        assert isinstance(error, BrokerResponseError)  # noqa: S101 - what the function returns
        raise error
