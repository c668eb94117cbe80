"""The only member of a group, whatever happens to its topic, and whoever else comes."""

import asyncio
from typing import Any

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.adapters.admin import Admin, Client
from kafka_async.adapters.cli.sole_member import SoleMember
from kafka_async.config import ConsumerConfig
from kafka_async.errors import IllegalStateError
from kafka_async.testing import Cluster


@pytest.mark.slow
async def test_a_topic_that_grows_holds_up_no_commit_and_a_second_member_is_refused() -> None:
    async with Cluster() as cluster:
        cluster.topic("dead", 2)
        options: dict[str, Any] = {**cluster.options(), "metadata_max_age_ms": 50}
        first = TopicPartition("dead", 0)
        of_client = {name: value for name, value in options.items() if name != "transport_factory"}
        async with Client.connect(ConsumerConfig.from_options(of_client), options.get("transport_factory")) as client:
            admin = Admin(client)
            async with SoleMember.of(admin, "redrive", "dead", options) as member:
                cluster.add_partitions("dead", 3)
                async with asyncio.timeout(30):
                    while len(member.consumer.assignment()) < 3:
                        await member.consumer.getmany(timeout_ms=10)
                await member.commit({first: OffsetAndMetadata(1, "")})
                with pytest.raises(IllegalStateError, match="another member"):
                    async with SoleMember.of(admin, "redrive", "dead", options):
                        raise AssertionError("there are two")
                await member.commit({first: OffsetAndMetadata(2, "")})
            assert (await admin.committed("redrive"))[first].offset == 2
