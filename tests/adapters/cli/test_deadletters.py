from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("typer")

import anyio
import typer
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.adapters.cli.deadletters import Letterbox, LetterChoice, LetterEntry, LetterReader
from kafka_async.adapters.letters import DeadLetter
from kafka_async.errors import DataLossError
from kafka_async.testing import Cluster
from tests.application.support import Consumer
from tests.virtual import run_virtual

DEAD = TopicPartition("orders-dead", 0)


def letter(offset: int = 0, **changes: Any) -> DeadLetter:
    values: dict[str, Any] = {
        "partition": 0,
        "written_at": 1_000_000,
        "source": TopicPartition("orders", 0),
        "source_offset": offset,
        "timestamp": 5,
        "exception": "shop.OutOfStock",
        "reason": "no mug left",
        "attempts": 1,
        "group": None,
        "left_out": None,
        "redrives": 0,
    }
    return DeadLetter(**values | {"offset": offset} | changes)


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({}, True),
        ({"letters": ["0:3", "1:4"]}, True),
        ({"letters": ["1:3"]}, False),
        ({"sources": ["orders", "returns"]}, True),
        ({"sources": ["returns"]}, False),
        ({"exceptions": ["OutOfStock"]}, True),
        ({"exceptions": ["shop.OutOfStock"]}, True),
        ({"exceptions": ["Stock"]}, False),
        ({"reason": "mug"}, True),
        ({"reason": "cup"}, False),
        ({"since": "1970-01-01T00:16:40"}, True),
        ({"since": "1970-01-01T00:16:41"}, False),
        ({"until": "1970-01-01T00:16:40"}, False),
        ({"since": "1970-01-01", "reason": "cup"}, False),
    ],
)
def test_a_choice_is_of_the_letters_that_all_its_options_mean(options: dict[str, Any], meant: bool) -> None:
    assert (letter(3) in LetterChoice.parse(**options)) == meant


@pytest.mark.parametrize("text", ["", "3", "a:3", "0:-1", "0:1:2"])
def test_a_letter_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected PARTITION:OFFSET, as in 0:17"):
        LetterChoice.parse(letters=[text])


def box(gone: set[int], strangers: set[int], offsets: list[int]) -> Letterbox:
    entries = [
        LetterEntry(partition=0, offset=each, letter=None if each in strangers else letter(each), gone_back=each in gone)
        for each in offsets
    ]
    return Letterbox(ends={DEAD: (offsets[-1] + 5 if offsets else 0)}, entries=tuple(entries), topic_id=None)


@given(data=st.data(), offsets=st.lists(st.integers(0, 300), unique=True, max_size=80).map(sorted))
def test_exactly_what_has_gone_back_is_remembered(data: st.DataObject, offsets: list[int]) -> None:
    pick = st.sets(st.sampled_from(offsets)) if offsets else st.just(set[int]())
    gone, strangers, done = data.draw(pick), data.draw(pick), data.draw(pick)
    read = box(gone, strangers, offsets)
    committed = read.commits({(0, each) for each in done})
    assert read.has_room({(0, each) for each in done})

    after = read.after(committed)

    assert {entry.offset for entry in after.entries if entry.gone_back} == gone | strangers | done
    assert {each.offset for each in after.left(LetterChoice.parse())} == set(offsets) - gone - strangers - done


def test_a_choice_that_a_commit_has_no_room_for_is_seen_before_anything_is_written() -> None:
    every_other = {(0, each) for each in range(1, 8000, 2)}
    read = box(set(), set(), list(range(8000)))

    assert not read.has_room(every_other)
    assert read.has_room({(0, each) for each in range(8000)})


def read_while(event: Callable[[Cluster], None]) -> int:
    """Read a topic of 100 letters again after looking at it; after 60 of them something happens. Return how many came."""
    count = 0

    async def main() -> None:
        nonlocal count
        async with Cluster() as cluster:
            cluster.topic(DEAD.topic)
            for _ in range(100):
                cluster.produce(DEAD.topic, value="letter", partition=0)
            options: dict[str, Any] = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 1, "fetch_buffer_bytes": 1000}
            consumer: Consumer = KafkaConsumer(**cluster.options(), **options)
            async with consumer:
                reader = LetterReader(consumer, DEAD.topic, {})
                read = await reader.look()
                with anyio.fail_after(60):
                    async for _ in reader.records(read.ends):
                        count += 1
                        if count == 60:
                            event(cluster)

    run_virtual(main)
    return count


def anew(cluster: Cluster) -> None:
    cluster.recreate(DEAD.topic)
    for _ in range(200):
        cluster.produce(DEAD.topic, value="other", partition=0)


def test_letters_are_read_again_as_they_were_looked_at() -> None:
    assert read_while(lambda _: None) == 100


@pytest.mark.parametrize(
    ("event", "match"),
    [
        (anew, "orders-dead-0 was read in part: the topic was deleted and created again"),
        (lambda cluster: cluster.truncate(DEAD, 80), "orders-dead-0 was read in part: the log ends at 80 by now, not at 100"),
    ],
)
def test_letters_that_are_no_longer_those_that_were_looked_at_are_an_error(event: Callable[[Cluster], None], match: str) -> None:
    with pytest.raises(DataLossError, match=match):
        read_while(event)
