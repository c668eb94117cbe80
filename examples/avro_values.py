"""Confluent's Avro deserializers, plain and async, without a wrapper class: they need topic, headers and bytes.

``subject.name.strategy.type`` is ``TOPIC``: by default these deserializers first ask the registry for associations, which
registries other than Confluent's answer differently. Needs ``pip install 'confluent-kafka[schemaregistry,avro]'``. The registry
here is Confluent's own ``mock://``; set ``SCHEMA_REGISTRY`` to the address of yours.
"""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from examples.mock import source
from kafka_async import KafkaConsumer

REGISTRY = {"url": os.environ.get("SCHEMA_REGISTRY", "mock://orders")}
SUBJECT = {"subject.name.strategy.type": "TOPIC"}
ORDER = Schema(
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": name, "type": "string"} for name in ("order", "customer", "item")]
            + [{"name": name, "type": "int"} for name in ("quantity", "cents")],
        }
    ),
    "AVRO",
)


def context(topic: str, headers: Any) -> SerializationContext:
    """Return what Confluent's deserializers need to know about a value."""
    return SerializationContext(topic, MessageField.VALUE, list(headers))


def plain(client: SchemaRegistryClient) -> Callable[..., Any]:
    """Return a deserializer that blocks the event loop while it asks the registry: once for each schema."""
    avro = AvroDeserializer(client, conf=SUBJECT)
    return lambda topic, headers, data: avro(data, context(topic, headers))


async def asynchronous(client: AsyncSchemaRegistryClient) -> Callable[..., Any]:
    """Return a deserializer that does not: what it returns is awaited."""
    avro = await AsyncAvroDeserializer(client, conf=SUBJECT)
    return lambda topic, headers, data: avro(data, context(topic, headers))


async def read(bootstrap: str, topic: str, limit: int | None, deserializer: Callable[..., Any]) -> int:
    """Read the orders. Return what they cost together."""
    cents = count = 0
    async with KafkaConsumer[bytes, dict[str, Any]](
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100, value_deserializer=deserializer
    ) as consumer:
        async for record in consumer:
            cents += record.value["cents"]
            count += 1
            if count == limit:
                break
    return cents


async def main() -> None:
    """Read the same orders with both."""
    client, async_client = SchemaRegistryClient.new_client(REGISTRY), AsyncSchemaRegistryClient.new_client(REGISTRY)
    if REGISTRY["url"].startswith("mock:"):  # each mock has a memory of its own
        client.register_schema("orders-value", ORDER)
        await async_client.register_schema("orders-value", ORDER)
    serializer = AvroSerializer(client, ORDER, conf={"auto.register.schemas": False, **SUBJECT})

    def encode(topic: str, text: str) -> bytes:
        data: bytes = serializer(json.loads(text), context(topic, ()))
        return data

    with source(encode) as (bootstrap, topic, limit):
        print(f"plain: {await read(bootstrap, topic, limit, plain(client)) / 100:,.2f} in total")
        print(f"async: {await read(bootstrap, topic, limit, await asynchronous(async_client)) / 100:,.2f} in total")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
