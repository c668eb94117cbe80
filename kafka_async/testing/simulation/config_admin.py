"""Requests of tools about settings of topics, groups and brokers: describe them and change them.

Source: KIP-133, KIP-226, KIP-339.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from attrs import define, field

from ...wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ...wire.messages.admin import (
    AlterableConfig,
    AlteredResource,
    ConfiguredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from .kafka_settings import (
    ALL_OF_TOPICS,
    BROKER,
    GROUP,
    SYNONYMS,
    Setting,
    TopicSettings,
    as_list,
    broker_settings,
    group_settings,
    topic_settings,
)

if TYPE_CHECKING:
    from .broker import FakeBroker
    from .cluster import FakeCluster

UNKNOWN_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 3, 40, 42
OF_TOPIC, OF_BROKER, OF_GROUP = 2, 4, 32
"""Kinds of resources."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_DEFAULT: Final = 5
_FROM_ALL_BROKERS: Final = 3
_OWN: Final = {OF_TOPIC: 1, OF_BROKER: 2, OF_GROUP: 8}
"""Where a setting comes from (``ConfigEntry.ConfigSource``): the resource's own settings, those of all brokers, or the default."""
_FIXED: Final = {"errors.deadletterqueue.auto.create.topics.enable": "false", "errors.deadletterqueue.topic.name.prefix": "dlq."}
"""Settings of brokers that no request changes, as far as a client may want to know them."""
EVERY: Final = ""
"""The name under which all brokers are set."""


@define(eq=False, repr=False)
class BrokerSettings:
    """What was set for brokers: at their start, and while they run for all of them or for one."""

    auto_create: int = 0
    """Partitions of a topic that a client's metadata request creates; 0: none is created."""
    cluster_id: str = "fake-cluster"
    given: dict[str, dict[str, str]] = field(factory=dict)
    """By the broker's number as text; ``EVERY`` for all."""
    defaults: dict[str, str] = field(factory=dict)
    """The defaults of topics that follow: those for all brokers, since here no broker differs in what it does."""

    def set(self, name: str, found: dict[str, str]) -> None:
        """Replace what was set."""
        self.given[name] = found
        self.defaults.clear()
        self.defaults.update({SYNONYMS[key]: value for key, value in self.given.get(EVERY, {}).items() if key in SYNONYMS})

    def of(self, name: str) -> dict[str, tuple[str, int]]:
        """Return values and where they come from."""
        defaults = {key: known.default for key, known in BROKER.items()} | _FIXED
        found = {} if name == EVERY else {key: (value, _DEFAULT) for key, value in defaults.items()}
        found |= {key: (value, _FROM_ALL_BROKERS) for key, value in self.given.get(EVERY, {}).items()}
        return found | ({} if name == EVERY else {key: (value, _OWN[OF_BROKER]) for key, value in self.given.get(name, {}).items()})


def describe(broker: "FakeBroker", request: DescribeConfigsRequest, version: int, error: int) -> DescribeConfigsResponse:
    """Settings of topics, groups and brokers. A group has settings before it has members."""
    return DescribeConfigsResponse(results=tuple(_described(broker.cluster, asked, error) for asked in request.resources))


def _described(cluster: "FakeCluster", asked: DescribeConfigsResource, error: int) -> DescribeConfigsResult:
    kind, name = asked.resource_type, asked.resource_name
    code = error or _missing(cluster, kind, name)
    found = {} if code else _values(cluster, kind, name)
    wanted = found.keys() if asked.configuration_keys is None else found.keys() & set(asked.configuration_keys)
    results = tuple(
        DescribeConfigsResourceResult(name=key, value=found[key][0], config_source=found[key][1]) for key in sorted(wanted)
    )
    return DescribeConfigsResult(error_code=code, resource_type=kind, resource_name=name, configs=results)


def _missing(cluster: "FakeCluster", kind: int, name: str) -> int:
    match kind:
        case 2:
            return 0 if name in cluster.topics else UNKNOWN_TOPIC
        case 4:
            return 0 if name == EVERY or name in map(str, cluster.brokers) else INVALID_REQUEST
        case 32:
            return 0
        case _:
            return INVALID_REQUEST


def _values(cluster: "FakeCluster", kind: int, name: str) -> dict[str, tuple[str, int]]:
    if kind == OF_BROKER:
        return cluster.broker_settings.of(name)
    own = _own(cluster, kind, name)
    if kind == OF_GROUP:
        found = {key: (value, _DEFAULT) for key, value in cluster.groups.settings.items()}
    else:
        found = {key: (known.default, _DEFAULT) for key, known in ALL_OF_TOPICS.items()}
        found |= {key: (value, _FROM_ALL_BROKERS) for key, value in cluster.broker_settings.defaults.items()}
    return found | {key: (value, _OWN[kind]) for key, value in own.items()}


def _own(cluster: "FakeCluster", kind: int, name: str) -> Mapping[str, str]:
    match kind:
        case 2:
            return cluster.topics[name].settings.given
        case 4:
            return cluster.broker_settings.given.get(name, {})
        case _:
            return cluster.groups.own.get(name, {})


def alter(
    broker: "FakeBroker", request: IncrementalAlterConfigsRequest, version: int, error: int
) -> IncrementalAlterConfigsResponse:
    """KIP-339."""
    return IncrementalAlterConfigsResponse(
        responses=tuple(_altered(broker.cluster, asked, error, request.validate_only) for asked in request.resources)
    )


def _altered(cluster: "FakeCluster", asked: ConfiguredResource, error: int, only_check: bool) -> AlteredResource:
    kind, name = asked.resource_type, asked.resource_name
    code, text = error or _missing(cluster, kind, name), None
    names = [change.name for change in asked.configs]
    if not code and (len(names) > len(set(names)) or any(_lacks_value(change) for change in asked.configs)):
        code, text = INVALID_REQUEST, "each setting once, and with a value if it is set"
    if not code:
        try:
            found = _applied(cluster, asked)
        except ValueError as problem:
            code, text = INVALID_REQUEST if kind == OF_BROKER else INVALID_CONFIG, str(problem)
        else:
            if not only_check:
                _set(cluster, kind, name, found)
    return AlteredResource(error_code=code, error_message=text, resource_type=kind, resource_name=name)


def _lacks_value(change: AlterableConfig) -> bool:
    return change.value is None and change.config_operation != _DELETE


def _applied(cluster: "FakeCluster", asked: ConfiguredResource) -> dict[str, str]:
    kind, name = asked.resource_type, asked.resource_name
    known: Mapping[str, Setting] = {OF_TOPIC: ALL_OF_TOPICS, OF_BROKER: BROKER, OF_GROUP: GROUP}[kind]
    found = _changed(_own(cluster, kind, name), asked.configs, known)
    return {OF_TOPIC: topic_settings, OF_BROKER: broker_settings, OF_GROUP: group_settings}[kind](found)


def _changed(before: Mapping[str, str], changes: Iterable[AlterableConfig], known: Mapping[str, Setting]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        value = change.value or ""
        if change.config_operation in (_APPEND, _SUBTRACT):
            setting = known.get(change.name)
            if setting is None or not setting.is_list:
                raise ValueError(f"{change.name}: it is not a list, so nothing can be appended to it or taken away from it")
            items, given = as_list(after.get(change.name, setting.default)), as_list(value)
            adds = change.config_operation == _APPEND
            items = [*items, *(each for each in given if each not in items)] if adds else [i for i in items if i not in given]
            after[change.name] = ",".join(items)
        elif change.config_operation == _SET:
            after[change.name] = value
        elif change.config_operation == _DELETE:
            after.pop(change.name, None)
        else:
            raise ValueError(f"{change.name}: there is no operation {change.config_operation}")
    return after


def _set(cluster: "FakeCluster", kind: int, name: str, found: dict[str, str]) -> None:
    if kind == OF_TOPIC:
        cluster.topics[name].settings = TopicSettings(found, cluster.broker_settings.defaults)
    elif kind == OF_BROKER:
        cluster.broker_settings.set(name, found)
    else:
        cluster.groups.own[name] = found
    cluster.changed()
