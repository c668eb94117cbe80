"""A service with FastAPI that handles orders in the background: many at once, with all that stands around a handler.

A router gives each handler values of its type; retries; what failed for good is set aside; at most 5,000 orders a second, and none
while the other service is down (the breaker); a span for each attempt, linked to the one that wrote the order (``Tracing``).

The consumer lives as long as the application (its lifespan). ``/alive`` and ``/ready`` are for probes, ``/metrics`` for
Prometheus, ``/`` shows the statistics. At SIGTERM uvicorn ends the lifespan: no new handler starts, running handlers finish,
their records are committed, and the consumer leaves the group. A handler that fails for good ends the service with its error, so
that a supervisor sees it.

``uvicorn`` may serve it from its own command line too: ``KAFKA_BOOTSTRAP=... KAFKA_TOPIC=... uvicorn --factory
examples.fastapi_service:application``.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Response

from examples.metrics import exposition
from examples.mock import source
from kafka_async import Breaker, ConsumerRecord, KafkaConsumer, ProcessingContext, Retry, Router, exponential
from kafka_async.adapters.tracing import Tracing


@dataclass
class Order:
    """The value of a record; what does not fit is set aside with its bytes, without an attempt."""

    order: str
    customer: str
    item: str
    quantity: int
    cents: int


class Orders:
    """Bills orders."""

    def __init__(self) -> None:
        self.billed = 0
        self.refused: list[int] = []

    def router(self, topic: str) -> Router:
        """Return which records go where."""
        router = Router()
        router.on(topic=topic, value=Order)(self.bill)
        return router

    async def bill(self, order: Order, context: ProcessingContext) -> None:
        """Bill one order, for example by calling another service. If it raises, the order is tried again."""
        await asyncio.sleep(0.005)
        self.billed += 1

    async def refuse(self, record: ConsumerRecord[bytes, bytes], error: BaseException, attempts: int) -> None:
        """Take a record that failed for good; ``kafka_async.adapters.dead_letters`` writes it to a topic."""
        self.refused.append(record.offset)


def application(bootstrap: str = "", topic: str = "") -> FastAPI:
    """Return the application; without arguments from the environment."""
    orders = Orders()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with KafkaConsumer[bytes, bytes](
            topic or os.environ["KAFKA_TOPIC"],
            bootstrap_servers=bootstrap or os.environ["KAFKA_BOOTSTRAP"],
            group_id="billing",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        ) as consumer:
            app.state.consumer = consumer  # of this life of the application: one that has stopped does not start again
            work = consumer.process(
                orders.router(topic or os.environ["KAFKA_TOPIC"]),
                concurrency=20,
                retry=Retry(attempts=5, delay=exponential(0.5, 30), on=(OSError, TimeoutError)),
                on_failure=orders.refuse,
                rate=5000,
                breaker=Breaker(on=(ConnectionError, TimeoutError), ratio=0.5, window=20, probe_after=exponential(1, 60)),
                tracing=Tracing(),
            )
            processing = asyncio.create_task(work)
            processing.add_done_callback(_end_the_service)
            yield
            processing.cancel()  # drains and commits
            await asyncio.wait([processing])
        print(f"left the group: {orders.billed} billed", flush=True)

    app = FastAPI(lifespan=lifespan)

    def current() -> KafkaConsumer[bytes, bytes]:
        found: KafkaConsumer[bytes, bytes] = app.state.consumer
        return found

    @app.get("/")
    async def totals() -> dict[str, Any]:
        lag = sum(partition.lag or 0 for partition in current().statistics().partitions.values())
        return {"billed": orders.billed, "refused": len(orders.refused), "unread": lag}

    @app.get("/alive")
    async def alive(response: Response) -> dict[str, str]:
        response.status_code = 200 if current().alive else 503
        return {"state": str(current().state)}

    @app.get("/ready")
    async def ready(response: Response) -> dict[str, str]:
        response.status_code = 200 if current().ready else 503
        return {"state": str(current().state)}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(exposition(current().metrics(), client_id="billing-1"), media_type="text/plain; version=0.0.4")

    return app


def _end_the_service(processing: "asyncio.Task[None]") -> None:
    """Have uvicorn end if handling failed."""
    if not processing.cancelled() and (error := processing.exception()) is not None:
        logging.getLogger(__name__).critical("orders are not handled any more", exc_info=error)
        signal.raise_signal(signal.SIGTERM)


async def _visit(server: uvicorn.Server, limit: int | None) -> None:
    """Print the service's address; with the mock cluster poll it until all is billed, then end it as a supervisor would."""
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.05)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    print(f"{url}/", flush=True)
    if limit is None:
        return
    async with httpx.AsyncClient(base_url=url) as client:
        while (found := (await client.get("/")).json())["billed"] < limit:  # noqa: ASYNC110 - as a client would
            await asyncio.sleep(0.05)
        print(found)
        for path in ("/alive", "/ready"):
            answer = await client.get(path)
            print(path, answer.status_code, answer.json())
        lines = (await client.get("/metrics")).text.splitlines()
        print(*(line for line in lines if line.startswith("org_apache_kafka_consumer_processing_records_handled_total")), sep="\n")
    server.should_exit = True  # what SIGTERM does


async def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    with source() as (bootstrap, topic, limit):
        port = int(os.environ.get("PORT", "0"))
        server = uvicorn.Server(uvicorn.Config(application(bootstrap, topic), port=port, log_level="warning", ws="none"))
        visit = asyncio.create_task(_visit(server, limit))
        await server.serve()  # raises the signal again when everything has ended
        await visit


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C
        asyncio.run(main())
