"""The page on transactions: its program, run as it is, writes a result of each record once, though it fails and is run again."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kafka_async
from kafka_async import KafkaConsumer
from kafka_async.testing import Cluster

pytest.importorskip("aiokafka", reason="aiokafka is in the extra 'bench'")

PAGE = Path(kafka_async.__file__).parent / "application" / "TRANSACTIONS.md"
ORDERS = [b"%d" % number for number in range(12)]


async def test_the_program_of_the_page_writes_each_invoice_once() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    refused = [b"7"]

    def invoice(order: bytes) -> bytes:
        if order in refused:
            refused.remove(order)
            raise ZeroDivisionError(order)
        return b"of " + order

    async with Cluster() as cluster:
        cluster.topic("orders", 2)
        cluster.topic("invoices")
        for order in ORDERS:
            cluster.produce("orders", value=order, key=order)
        names: dict[str, Any] = {"invoice": invoice}
        made = program.partition("\n\nrun(main())")[0].replace("localhost:9092", await cluster.serve())
        exec(compile(made, PAGE.name, "exec"), names)  # noqa: S102 - our own page

        with pytest.raises(ZeroDivisionError):
            await names["main"]()
        program_again = asyncio.create_task(names["main"]())
        options: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", **cluster.options()}
        async with KafkaConsumer("invoices", **options) as reader:
            found = [(await asyncio.wait_for(reader.getone(), 30)).value for _ in ORDERS]
        program_again.cancel()
        with suppress(asyncio.CancelledError):
            await program_again

        assert sorted(found) == sorted(b"of " + order for order in ORDERS)
        assert len(cluster.records("invoices")) == len(ORDERS)
        assert sum(end.offset for end in cluster.committed("billing").values()) == len(ORDERS)
