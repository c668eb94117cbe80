"""Every layout of every struct that is spoken, in every version."""

from collections.abc import Iterator

from kafka_async.testing.server import REQUESTS
from kafka_async.wire import Struct, codec
from kafka_async.wire.layout import WireStruct, layout_of
from kafka_async.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.wire.strategies import VERSIONS


def structs_of(layout: WireStruct) -> Iterator[WireStruct]:
    yield layout
    for field in layout.fields:
        if field.struct is not None:
            yield from structs_of(field.struct)


def every_layout() -> Iterator[tuple[int, WireStruct]]:
    for api, version in VERSIONS:
        for cls in (REQUESTS[api], REQUESTS[api].response):
            for struct in structs_of(codec.layout(api, cls, version)):
                yield version, struct
    data: tuple[type[Struct], ...] = (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
    for data_cls in data:
        for version in range(4):
            for struct in structs_of(layout_of(data_cls, version, flexible=False)):
                yield version, struct


LAYOUTS = list(every_layout())
