"""A trace through real brokers: from another library's producer to our handler, and through a dead letter to its consumer."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kafka_async import KafkaConsumer, Reject, Retry
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.adapters.tracing import Tracing
from tests.brokers import KafkaCluster

from .groups import both, new_group
from .tools import new_topic

pytestmark = pytest.mark.brokers


@pytest.mark.parametrize("background", ["task", "thread"])
@both
async def test_producer_handler_dead_letter_and_its_consumer_are_one_trace(
    kafka44: KafkaCluster, protocol: str, background: str
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    topic, dead, tracing = new_topic(kafka44), new_topic(kafka44), Tracing(parent="record", tracer_provider=provider)
    options: dict[str, Any] = {
        "bootstrap_servers": kafka44.bootstrap_servers,
        "group_protocol": protocol,
        "background": background,
        "auto_offset_reset": "earliest",
    }
    buried = asyncio.Event()

    async def handle(record: Any) -> None:
        if record.value == b"bad":
            raise Reject("not for us")

    async def bury(record: Any) -> None:
        buried.set()

    async with (
        AIOKafkaProducer(bootstrap_servers=kafka44.bootstrap_servers) as producer,
        KafkaConsumer(topic, group_id=new_group(kafka44, protocol).name, **options) as consumer,
        KafkaConsumer(dead, group_id=new_group(kafka44, protocol).name, **options) as undertaker,
    ):
        with provider.get_tracer("program").start_as_current_span("send") as sent:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            headers = [(name, text.encode()) for name, text in carrier.items()]
            for value in (b"good", b"bad"):
                await producer.send_and_wait(topic, value, headers=headers)
        letters = DeadLetters(producer, dead)
        async with (
            consumer.processing(handle, retry=Retry(attempts=2), on_failure=letters, tracing=tracing),
            undertaker.processing(bury, tracing=tracing),
        ):
            await asyncio.wait_for(buried.wait(), 60)
    written = sent.get_span_context()
    spans = [span for span in exporter.get_finished_spans() if span.name.startswith("process")]
    assert {span.context.trace_id for span in spans if span.context is not None} == {written.trace_id}
    of_topic = [span for span in spans if span.name == f"process {topic}"]
    assert {span.parent.span_id for span in of_topic if span.parent is not None} == {written.span_id}
    (failed,) = (span for span in of_topic if not span.status.is_ok and span.status.status_code is trace.StatusCode.ERROR)
    (buries,) = (span for span in spans if span.name == f"process {dead}")
    assert failed.context is not None
    assert buries.parent is not None
    assert buries.parent.span_id == failed.context.span_id
    assert {span.context.span_id for span in of_topic if span.context is not None}.isdisjoint({written.span_id})
