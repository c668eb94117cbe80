"""Questions about groups to a cluster whose answers are spoiled on their way: each ends with a value or a typed error, in time.

Decides: which answers are spoiled, from a seeded source of randomness. Owns nothing. Must never take an answer for harmless before
it was also shown as the command line shows it.
"""

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Final

import anyio

from kafka_async.adapters.admin import Admin
from kafka_async.adapters.cli.groups import description, description_json, progress
from kafka_async.testing.simulation import FakeCluster
from kafka_async.wire import Api, Response, decode_response
from kafka_async.wire.messages import OffsetFetchResponsePartitions
from tests.adapters.admin.test_admin import NOT_FOUND, answer, asking, modern, stored

from .hostile_cluster import Spoiler, hostile, tolerate
from .made import made

_LIMITS: Final = {"request_timeout_ms": 1000, "default_api_timeout_ms": 3000}
PATIENCE: Final = 60.0
"""Virtual seconds for all questions: each is repeated for 3 s, and its last attempt makes three requests of 1 s at most."""
_APIS: Final = (Api.FIND_COORDINATOR, Api.OFFSET_FETCH, Api.LIST_GROUPS, Api.DESCRIBE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE)


@cache
def _honest() -> Mapping[Api, Response]:
    offsets = (OffsetFetchResponsePartitions(partition_index=index, committed_offset=7 * index) for index in range(2))
    found: dict[Api, Response] = {Api.OFFSET_FETCH: stored(0, *offsets)}
    for capture in made():
        asked = capture.asked
        if asked.api in _APIS and asked.request is not None:
            found[asked.api] = decode_response(asked.request, asked.version, capture.response)
    return found


async def question(random: Random) -> str:
    """Ask everything once. Return what was answered; raise ``AssertionError``, or what should not come."""
    cluster = FakeCluster(size=2)
    for api, response in _honest().items():
        answer(cluster, api, response)
    if random.random() < 0.5:
        answer(cluster, Api.CONSUMER_GROUP_DESCRIBE, modern(NOT_FOUND))  # a classic group
    spoiled = random.choice((None, Api.API_VERSIONS, Api.METADATA, *_APIS, *_APIS))
    hostile(cluster, Spoiler(random, spoiled, random.random() < 0.6, random.choice((0.1, 0.5, 1.0))))
    answered: list[str] = []
    with anyio.fail_after(PATIENCE):
        failed = await tolerate(_ask(cluster, answered))
    return "no connection" if failed else " and ".join(answered) or "nothing"


async def _ask(cluster: FakeCluster, answered: list[str]) -> None:
    async with asking(cluster, **_LIMITS) as admin:
        if not await tolerate(admin.list_groups()):
            answered.append("list")
        if not await tolerate(_show(admin)):
            answered.append("group")


async def _show(admin: Admin) -> None:
    group = await admin.describe("g")
    rows = progress(await admin.committed("g"), {}, group.members)
    assert description(group, rows)
    assert json.loads(description_json(group, rows))
