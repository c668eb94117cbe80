"""``python -m tests.faults.operators_log FILE [MINUTES]``: what two consumers in one process log while a cluster has faults.
``--page`` puts such a file into the page on the log.

Two groups, one in each protocol, read one topic from three brokers; another member joins and leaves, all brokers are restarted one
after the other, one is killed, reading the topic is denied for a while, and the process is frozen for longer than a session. All
this takes four minutes. If more are given, nothing happens in the time between. The page on the log (``kafka_async/LOGGING.md``)
shows such a run; it must never be edited by hand, or it shows what no consumer has written.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark what it re-exports
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_async import KafkaConsumer
from kafka_async.errors import KafkaError
from tests.brokers import CURRENT, KafkaCluster

TOPIC = "orders"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",  # the brokers, and the tests' administrator
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.shop.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "10000",
}
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "shop",
    "sasl_plain_password": "secret",
}
log = logging.getLogger("shop")

PAGE: Final = Path(__file__).parent.parent.parent / "kafka_async" / "LOGGING.md"
TITLE: Final = "## What an operator sees"
HEAD: Final = f"""{TITLE}

Two consumers in one process, `web-billing` (group protocol `consumer`) and `web-audit` (`classic`), read a topic of six
partitions from three brokers: one run of `python -m tests.faults.operators_log FILE` on Apache Kafka {CURRENT}, with sessions of
ten seconds. From the first line to the last it took {{minutes:.0f}} minutes; faults that are normally days apart follow one another
here. In an hour without faults, nothing is logged. Every line of `kafka_async` is shown. Lines of the logger `shop` are the
program's own: what was done to the cluster, and errors that reads raised; {{left_out}} repetitions of these errors are left out.
Lines that begin with `#` are explanations.
"""
START: Final = "The start. A new cluster sets up its coordinators on the first request, so each consumer waits for its own."
EXPLAINED: Final = {
    "another member of billing joins": "A rebalance: another member joins and leaves. Partitions that stay are read meanwhile.",
    "broker 0 is restarted": "A rolling restart. Other brokers take over as coordinators; commits and heartbeats wait for that.",
    "dies": "The coordinator of billing is killed. Its partitions are read from other brokers.",
    "and is started again": "It is back. Kafka moves leaders and coordinators back to it only after five minutes.\n"
    "# Until a consumer needs it again, the outage of its connections goes on, but holds up nothing.",
    "an ACL denies reading the topic": "An ACL denies reading for ten seconds. Reads raise an error, which the program logs.\n"
    "# The consumer logs how long it lasts. A refused auto-commit has a line of its own, if there is something to commit.",
    "the process is frozen for 20 seconds": "The process is frozen for longer than its sessions: the groups went on without it.\n"
    "# Records since the last commit are read again.",
}
"""What is explained before each event."""


async def read(group: str, protocol: str, servers: str) -> None:
    """Consume for ever; what is raised is logged, and reading goes on."""
    options: dict[str, Any] = {"session_timeout_ms": 10_000} if protocol == "classic" else {}
    options |= {"client_id": f"web-{group}", "group_id": group, "group_protocol": protocol}
    options |= LOGIN | {"auto_commit_interval_ms": 1000, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer[bytes, bytes](TOPIC, bootstrap_servers=servers, **options)
    async with consumer:
        while True:
            try:
                await consumer.getmany(timeout_ms=1000)
            except KafkaError as error:
                log.warning("%s: %s", group, error)
                await asyncio.sleep(2)


@contextlib.contextmanager
def denied(cluster: KafkaCluster) -> Iterator[None]:
    """Deny reading the topic while the block lasts."""
    what = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:shop", "*")
    rules = [
        AclBinding(*what, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(*what, AclOperation.READ, AclPermissionType.DENY),
    ]
    for made in cluster.admin.create_acls(rules).values():
        made.result()
    try:
        yield
    finally:
        every = AclBindingFilter(*what, AclOperation.ANY, AclPermissionType.ANY)
        cluster.admin.delete_acls([every])[every].result()


@contextlib.contextmanager
def another_member(group: str, servers: str) -> Iterator[None]:
    """Let a process of its own be a member of a group while the block lasts."""
    options = [f"-X{name.replace('_', '.')}={value}" for name, value in LOGIN.items()]
    command = [sys.executable, "-m", "kafka_async", "consume", TOPIC, "-b", servers, "-G", group, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  # our own
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def freeze(seconds: int) -> None:
    """Stop this process for so long, as a laptop that sleeps or a machine without memory does."""
    thaw = f"import os, signal, time; time.sleep({seconds}); os.kill({os.getpid()}, signal.SIGCONT)"
    subprocess.Popen([sys.executable, "-c", thaw])  # noqa: S603  # our own
    os.kill(os.getpid(), signal.SIGSTOP)


async def trouble(cluster: KafkaCluster, quiet: float) -> None:
    """Do to the cluster what happens to clusters, with ``quiet`` seconds without trouble before each kind of it and at the end."""

    async def after(seconds: float, what: str, do: Callable[[], object]) -> None:
        await asyncio.sleep(seconds)
        log.info("--- %s", what)
        await asyncio.to_thread(do)

    with contextlib.ExitStack() as stack:
        join = another_member("billing", cluster.listener("SHOP"))
        await after(quiet + 8, "another member of billing joins", lambda: stack.enter_context(join))
        await after(12, "and leaves", stack.close)
    await asyncio.sleep(quiet)
    for broker in range(3):
        await after(15, f"broker {broker} is restarted", partial(cluster.restart, broker))
    await asyncio.sleep(quiet + 15)
    dead = cluster.coordinator("billing")
    await after(0, f"broker {dead} dies", lambda: cluster.kill(dead))
    await after(40, "and is started again", lambda: cluster.start(dead))
    with contextlib.ExitStack() as stack:
        await after(quiet + 15, "an ACL denies reading the topic", lambda: stack.enter_context(denied(cluster)))
        await after(10, "and is taken back", stack.close)
    await asyncio.sleep(quiet + 10)
    log.info("--- the process is frozen for 20 seconds")
    freeze(20)
    await asyncio.sleep(quiet + 15)


async def produce(cluster: KafkaCluster) -> None:
    """Write some records a second, as far as the cluster takes them."""
    number = 0
    while True:
        with contextlib.suppress(Exception):
            await asyncio.to_thread(cluster.produce, TOPIC, 60, partitions=6, start=number)
        number += 60
        await asyncio.sleep(1)


def page(lines: list[str]) -> str:
    """Return the section of the page: every line of the log, but errors that a read has raised before only once."""
    shown: list[str] = []
    raised: set[str] = set()
    left_out = 0
    for line in lines:
        what = line[9:]
        if what.startswith("WARNING shop"):
            left_out += what in raised
            if what in raised:
                continue
            raised.add(what)
        shown += [f"\n# {text}" for mark, text in EXPLAINED.items() if what.endswith(mark)]
        shown.append(line)
    minutes = (_seconds(lines[-1]) - _seconds(lines[0])) % 86400 / 60
    log = "\n".join([f"# {START}", *shown])
    return f"{HEAD.format(minutes=minutes, left_out=left_out)}\n```\n{log}\n```\n\n"


def _seconds(line: str) -> int:
    hours, minutes, seconds = map(int, line[:8].split(":"))
    return hours * 3600 + minutes * 60 + seconds


def put_into_page(file: str) -> None:
    """Replace the section of the page by one made of ``file``."""
    before, _, rest = PAGE.read_text().partition(f"{TITLE}\n")
    _, table, after = rest.partition("| an alarm worth setting")
    PAGE.write_text(before + page(Path(file).read_text().splitlines()) + table + after)


async def main(file: str, minutes: float) -> None:
    """Run it all."""
    logging.basicConfig(
        filename=file,
        filemode="w",
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s %(message)s",
        datefmt="%H:%M:%S",
    )
    with KafkaCluster(
        brokers=3,
        properties=PROPERTIES,
        listeners={"SHOP": "SASL_PLAINTEXT"},
        scram=["SCRAM-SHA-256=[name=shop,password=secret]"],
    ) as cluster:
        cluster.create_topic(TOPIC, 6, replicas=3)
        servers = cluster.listener("SHOP")
        tasks = [
            asyncio.create_task(produce(cluster)),
            asyncio.create_task(read("billing", "consumer", servers)),
            asyncio.create_task(read("audit", "classic", servers)),
        ]
        await trouble(cluster, max(0.0, minutes * 60 - 240) / 6)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file")
    arguments.add_argument("minutes", nargs="?", type=float, default=4)
    arguments.add_argument("--page", action="store_true", help="put FILE into the page on the log, and run nothing")
    given = arguments.parse_args()
    if given.page:
        put_into_page(given.file)
    else:
        asyncio.run(main(given.file, given.minutes))
