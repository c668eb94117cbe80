"""A classic group in memory: a coordinator that answers members, and members whose applications act when they are told to."""

from collections.abc import Generator
from typing import Any, Final

from attrs import define, field

from kafka_async.errors import KafkaConnectionError
from kafka_async.model import TopicPartition
from kafka_async.network import UnsentRequest
from kafka_async.testing.simulation import FakeCluster
from kafka_async.testing.simulation.waking import Answering
from kafka_async.wire import SUPPORTED, Response
from tests.background.group.classic.world import Host, World

GROUP: Final = "g"


@define(eq=False)
class Application(Host):
    """Carries proposals out one by one, in order."""

    queue: list[tuple[int, frozenset[TopicPartition], bool]] = field(factory=list)
    """Number, partitions, whether they are to be given up."""

    def publish_revocation(
        self, number: int, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool = False
    ) -> None:
        self.queue.append((number, partitions, True))

    def publish_assignment(self, number: int, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        self.queue.append((number, partitions, False))


@define(eq=False)
class Group:
    """The test kit's coordinator without a network: a request that has to wait for other members is answered once they act.

    No session ends here, since no time passes for the coordinator; ``forget`` is the end of one.
    """

    cluster: FakeCluster = field(factory=FakeCluster)
    _waiting: list[tuple[UnsentRequest, Answering[Response]]] = field(factory=list)

    def members(self) -> set[str]:
        return set(self.cluster.groups.members(GROUP))

    def answer(self, request: UnsentRequest, now: float) -> None:
        api = request.message.api
        answer = self.cluster.handlers[api](self.cluster.brokers[0], request.message, SUPPORTED[api].highest, 0)
        if isinstance(answer, Response):
            request.on_done(answer, now)
        else:
            assert isinstance(answer, Generator)
            self._waiting.append((request, answer))
        self._go_on(now)

    def forget(self, member_id: str, now: float) -> None:
        if member_id in self.members():
            self.cluster.groups.kick(GROUP, member_id)
            self._go_on(now)

    def cut(self, member_id: str) -> list[UnsentRequest]:
        """Drop what waits for a member; return it."""
        dropped = [each for each in self._waiting if getattr(each[0].message, "member_id", None) == member_id]
        for each in dropped:
            self._waiting.remove(each)
            each[1].close()
        return [request for request, _ in dropped]

    def _go_on(self, now: float) -> None:
        """Answer what does not have to wait any longer, which may let other requests go on."""
        while sum(self._is_done(*each, now) for each in list(self._waiting)):
            pass

    def _is_done(self, request: UnsentRequest, answer: Answering[Response], now: float) -> bool:
        try:
            answer.send(None)
        except StopIteration as end:
            self._waiting.remove((request, answer))
            request.on_done(end.value, now)
            return True
        return False


@define(eq=False)
class Crowd:
    """Members of one group, each with a connection that can be cut and an application that can be slow."""

    options: dict[str, Any]
    group: Group = field(factory=Group)
    worlds: list[World] = field(factory=list)

    def add(self, now: float, subscription: Any) -> World:
        world = World(self.options, host=Application())
        self.worlds.append(world)
        world.member.subscribe(subscription, now)
        return world

    def step(self, world: World, now: float) -> None:
        """One turn of a member's loop; its requests reach the coordinator."""
        world.turn(now)
        flying, world.flying = world.flying, []
        for request in flying:
            self.group.answer(request, now)

    def act(self, world: World, now: float) -> None:
        """Have the member's application carry out the next proposal."""
        host = world.host
        assert isinstance(host, Application)
        if not host.queue:
            return
        number, partitions, gives_up = host.queue.pop(0)
        if gives_up:
            host.have -= partitions
            world.member.revoked(number, now)
        else:
            host.have = partitions
            world.member.assigned(number, now)

    def cut(self, world: World, now: float) -> None:
        """The member's connection breaks; what waits at the coordinator is not answered any more."""
        for request in self.group.cut(world.member.identity.member_id):
            request.on_done(KafkaConnectionError("cut"), now)
        world.coordinator.found(world.coordinator.latest or world.metadata.nodes[1])

    def owners(self) -> list[TopicPartition]:
        """What the members own whom the coordinator knows; twice what two of them own."""
        members = self.group.members()
        known = [world for world in self.worlds if world.member.identity.member_id in members]
        return sorted(partition for world in known for partition in world.host.have)
