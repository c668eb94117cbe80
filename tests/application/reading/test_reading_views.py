"""Columns of views as a caller of the facade gets them, on a fake cluster."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

from kafka_async.testing.simulation import FakeCluster

from ..support import consumer_on, virtual


@pytest.mark.parametrize("size", [0, 100])
@virtual
async def test_views_hold_what_plain_columns_hold(size: int) -> None:
    """Also where a deserializer has seen some of the records before."""
    pa = pytest.importorskip("pyarrow")
    cluster = FakeCluster()
    tps = cluster.create_topic("t", 2)
    for tp in tps:
        cluster.fill(tp, 30, size=size)
    async with consumer_on(cluster, value_deserializer=bytes.decode) as consumer:
        consumer.assign(tps)
        found: dict[bool, list[dict[str, Any]]] = {}
        for view in (False, True):
            await consumer.seek_to_beginning()
            await consumer.getone()
            rows = found[view] = []
            while len(rows) < 59:
                batch = await consumer.getarrow(timeout_ms=1000, max_records=7, columns=("partition", "offset", "value"), view=view)
                assert batch.schema.field("value").type == (pa.binary_view() if view else pa.binary())
                rows += batch.to_pylist()
            rows.sort(key=lambda row: (row["partition"], row["offset"]))
        assert found[True] == found[False]
        assert (await consumer.getarrow(view=True)).num_rows == 0
        await consumer.seek_to_beginning()
        async with aclosing(cast("AsyncGenerator[Any, None]", consumer.arrow_batches(max_records=60, view=True))) as batches:
            async for batch in batches:
                assert (batch.schema.field("key").type, batch.schema.field("value").type) == (pa.binary_view(), pa.binary_view())
                break
