import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

pytest.importorskip("typer")

import anyio
import typer
from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.adapters.admin import EARLIEST, LATEST
from kafka_async.adapters.cli.commands import app
from kafka_async.adapters.cli.deadletters import BATCH, Letterbox, LetterChoice, LetterEntry, LetterReader
from kafka_async.adapters.cli.producers import Outgoing, aiokafka_options, confluent_options, open_producer
from kafka_async.adapters.letters import DeadLetter
from kafka_async.config import ConsumerConfig
from kafka_async.errors import DataLossError, TopicAuthorizationFailedError
from kafka_async.testing import HANG, Api, Cluster, ThreadedCluster
from kafka_async.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.adapters.cli.support import unread
from tests.application.support import Consumer
from tests.virtual import run_virtual

T = TypeVar("T")

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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, []),
        ({"exceptions": ["OutOfStock", "ValueError"]}, []),
        ({"exceptions": ["outofstok"]}, ["No letter has the exception 'outofstok'; did you mean 'OutOfStock'?"]),
        ({"exceptions": ["shop.OutOfStok"]}, ["No letter has the exception 'shop.OutOfStok'; did you mean 'shop.OutOfStock'?"]),
        ({"exceptions": ["Reject", "ValueError"]}, ["No letter has the exception 'Reject'."]),
        ({"sources": ["order"]}, ["No letter came from topic 'order'; did you mean 'orders'?"]),
        ({"sources": ["orders"], "reason": "cup"}, ["No letter has a reason with 'cup' in it."]),
        ({"letters": ["0:1", "0:9", "1:2"], "reason": "mug"}, ["There is no letter at 0:9.", "There is no letter at 1:2."]),
        ({"since": "2030-01-01"}, []),
    ],
)
def test_a_name_that_no_letter_has_may_have_meant_another(options: dict[str, Any], said: list[str]) -> None:
    letters = [letter(1), letter(2, exception="ValueError"), letter(3, exception=None)]
    assert list(LetterChoice.parse(**options).mistyped(letters)) == said
    assert list(LetterChoice.parse(**{**options, "letters": None}).mistyped([])) == [], "there is nothing, whatever is asked for"


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("failing", "rare"), [(0.0, 4), (0.3, 5), (0.5, 11), (0.7, 50)])
def test_what_there_is_room_for_is_remembered_whichever_of_it_fail(failing: float, rare: int) -> None:
    chance = Random(rare)  # noqa: S311  # no secret
    offsets = sorted(chance.sample(range(6000), 4000))
    gone, strangers = set(offsets[::rare]), set(offsets[7 :: 3 * rare])
    more = [(0, each) for each in offsets if each not in gone | strangers]
    read = box(gone, strangers, offsets)

    count = read.room_for((), more)

    assert count >= 300
    assert read.has_room({place for place in more[:count] if chance.random() > failing})
    assert read.has_room(more[:count:2])
    assert read.has_room(more[1:count:2])


# --- the way back of what has to be read where it was ----------------------------------------------------------------------------

JOB = TopicPartition("jobs", 0)
PRODUCED, WRITTEN, MUCH_LATER = 1_000_000, 1_060_000, 1_060_000 + 3_600_001
"""Milliseconds: when jobs are produced, when letters about them are written, and later than any clock of theirs may be ahead."""
HEADERS = [("trace", b"1")]
BACK = [*HEADERS, ("dead-letter-redrives", b"1")]


@define
class Brokers:
    """A simulated cluster with jobs, and letters about them."""

    threaded: ThreadedCluster

    def call(self, work: Callable[[Cluster], T]) -> T:
        return self.threaded.call(work).result()

    def job(self, value: bytes = b"mug", timestamp: int = PRODUCED) -> int:
        """Produce a job; return its offset."""
        return self.call(
            lambda cluster: cluster.produce("jobs", key="k", value=value, headers=HEADERS, partition=0, timestamp=timestamp)
        )[1]

    def letter_of_broker(self, offset: int, copy: bytes | None = None) -> None:
        """Write a letter as brokers do; ``copy``: the value, if it has a copy of the record."""
        texts = {"topic": "jobs", "partition": 0, "offset": offset, "group": "g", "delivery.count": 5, "message": "given up"}
        headers = [(f"__dlq.errors.{name}", str(text).encode()) for name, text in texts.items()]
        self._write(None if copy is None else b"k", copy, headers)

    def letter_without_value(self, offset: int, size: int) -> None:
        """Write a letter as ``DeadLetters`` does if the value is too large for it."""
        texts = {"topic": "jobs", "partition": 0, "offset": offset, "timestamp": PRODUCED, "exception": "E", "reason": "no"}
        texts |= {"attempts": 1, "value-left-out": size}
        self._write(b"k", b"", [*HEADERS, *((f"dead-letter-{name}", str(text).encode()) for name, text in texts.items())])

    def letter(self, offset: int, *, by_broker: bool) -> None:
        """Write a letter that has not everything."""
        if by_broker:
            self.letter_of_broker(offset)
        else:
            self.letter_without_value(offset, len(b"mug"))

    def _write(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        self.call(lambda cluster: cluster.produce("dead", key=key, value=value, headers=headers, partition=0, timestamp=WRITTEN))

    def show(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["deadletters", "show", "dead", "-b", self.threaded.bootstrap, *arguments])

    def redrive(self, *arguments: str, seconds: int = 60) -> Result:
        """Redrive; ``seconds``: how long a call waits for brokers that do not answer."""
        quick = ("-X", f"default.api.timeout.ms={seconds * 1000}", "-X", "fetch.max.wait.ms=50")
        return CliRunner().invoke(
            app, ["deadletters", "redrive", "dead", "-b", self.threaded.bootstrap, *quick, "--execute", *arguments]
        )

    def back(self, first: int) -> list[tuple[bytes | None, list[tuple[str, bytes | None]]]]:
        """Return the values and headers of jobs from an offset on."""
        written = self.call(lambda cluster: cluster.records("jobs"))
        return [(record.value, list(record.headers)) for record in written if record.offset >= first]


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    pytest.importorskip("aiokafka")

    def make(cluster: Cluster) -> None:
        cluster.topic("jobs")
        cluster.topic("dead")

    with ThreadedCluster(Cluster()) as threaded:
        threaded.call(make).result()
        yield Brokers(threaded)


def unanswered(cluster: Cluster, api: Api) -> Callable[[], None]:
    """Leave requests of an API about the topic of jobs unanswered; return what ends this."""
    topic_id = cluster.simulated.topics["jobs"].id

    def decide(_broker: int, request: Any) -> object:
        about = {getattr(topic, "name", None) or getattr(topic, "topic_id", None) for topic in request.topics}
        return HANG if about & {"jobs", topic_id} else None

    return cluster.control(api, decide, keep=True)


@pytest.mark.slow  # waits for some seconds
@pytest.mark.parametrize("api", [Api.LIST_OFFSETS, Api.FETCH])
def test_a_letter_whose_record_cannot_be_read_stays_though_it_has_a_copy(brokers: Brokers, api: Api) -> None:
    for _ in range(3):
        brokers.letter_of_broker(brokers.job(), copy=b"mug")
    end = brokers.call(lambda cluster: unanswered(cluster, api))

    result = brokers.redrive(seconds=10)

    assert result.exit_code == 1
    assert "% Not written: 0:0: the record at jobs:0:0 cannot be read: " in result.stderr
    assert "Wrote no letters back; 3 letters not." in result.stderr
    assert brokers.back(3) == []

    brokers.call(lambda cluster: cluster.cut())
    end()
    result = brokers.redrive()
    assert result.exit_code == 0, result.stderr
    assert brokers.back(3) == [(b"mug", BACK)] * 3


@pytest.mark.brokers
def test_letters_that_stay_are_an_error_even_if_nobody_reads_where_the_others_went(brokers: Brokers) -> None:
    brokers.letter_of_broker(brokers.job(), copy=b"mug")
    command = ["deadletters", "redrive", "dead", "-b", brokers.threaded.bootstrap, "--from", "jobs", "--exception", "nope"]

    result = unread(command)
    shown = unread(["deadletters", "show", *command[2:5], "--from", "jobs", "--from", "job"])

    assert (result.returncode, shown.returncode) == (1, 1)
    assert "No letter" in shown.stderr


def test_a_copy_goes_back_in_place_of_the_record_of_another_topic(brokers: Brokers) -> None:
    brokers.letter_of_broker(brokers.job(), copy=b"mug")
    brokers.call(lambda cluster: cluster.recreate("jobs"))
    brokers.job(b"healthy")

    result = brokers.redrive()

    assert result.exit_code == 0, result.stderr
    assert brokers.back(1) == [(b"mug", [("dead-letter-redrives", b"1")])]


@pytest.mark.slow
def test_options_that_choose_none_of_the_letters_say_how_many_there_are(brokers: Brokers) -> None:
    for _ in range(2):
        brokers.letter_of_broker(brokers.job(), copy=b"mug")

    result = brokers.redrive("--exception", "Valueerror")

    assert "The options choose no letter; 2 letters could go back." in result.stderr
    assert brokers.back(2) == []
    assert brokers.redrive().exit_code == 0
    assert "There is nothing to write back." in brokers.redrive().stderr


@pytest.mark.slow
def test_a_mistyped_name_is_told_and_one_whose_letters_have_gone_back_is_none(brokers: Brokers) -> None:
    brokers.letter_without_value(brokers.job(), len(b"mug"))
    said = "No letter came from topic 'job'; did you mean 'jobs'?"

    for options in (["--from", "job"], ["--exception", "nope"], ["--reason", "zzz"], ["--letter", "0:99"]):
        codes = [brokers.redrive(*options).exit_code, brokers.show(*options).exit_code, brokers.show(*options, "-J").exit_code]
        assert codes == [1, 1, 1], options
    assert brokers.show("--since", "2090-01-01").exit_code == 0
    assert f"The options choose no letter; 1 letter could go back. {said}\n" in brokers.redrive("--from", "job").stderr
    assert f"% {said}\n% no letters\n" in brokers.show("--from", "job").stderr
    assert brokers.redrive("--from", "jobs").exit_code == 0
    again = brokers.redrive("--from", "jobs")
    assert (again.exit_code, brokers.show("--from", "jobs").exit_code) == (0, 0)
    assert ("There is nothing to write back." in again.stderr, "No letter" in again.stderr) == (True, False)


def test_a_copy_goes_back_if_its_topic_is_gone(brokers: Brokers) -> None:
    brokers.letter_of_broker(brokers.job(), copy=b"mug")
    brokers.call(lambda cluster: cluster.delete("jobs"))
    brokers.call(lambda cluster: cluster.topic("others"))

    result = brokers.redrive("--to", "others")

    assert result.exit_code == 0, result.stderr
    assert [record.value for record in brokers.call(lambda cluster: cluster.records("others"))] == [b"mug"]


@pytest.mark.parametrize("by_broker", [True, False])
def test_a_record_of_another_topic_does_not_go_back_in_place_of_a_letter(brokers: Brokers, by_broker: bool) -> None:
    brokers.letter(brokers.job(), by_broker=by_broker)
    brokers.call(lambda cluster: cluster.recreate("jobs"))
    brokers.job(b"cup", timestamp=MUCH_LATER)

    result = brokers.redrive()

    assert result.exit_code == 1
    assert "% Not written: 0:0: the record, of which the letter has not everything, is no longer at jobs:0:0" in result.stderr
    assert brokers.back(1) == []


@pytest.mark.parametrize("by_broker", [True, False])
def test_the_record_itself_goes_back_while_it_is_there(brokers: Brokers, by_broker: bool) -> None:
    brokers.letter(brokers.job(), by_broker=by_broker)

    result = brokers.redrive()

    assert result.exit_code == 0, result.stderr
    assert brokers.back(1) == [(b"mug", BACK)]


# --- letters that stay, and those after them -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_letters_that_cannot_go_back_do_not_hold_up_those_after_them(brokers: Brokers) -> None:
    for offset in range(BATCH + 1):
        brokers.letter_of_broker(1000 + offset)  # there is no such record any more
    brokers.letter_of_broker(brokers.job())

    result = brokers.redrive()

    assert result.exit_code == 1
    assert result.stderr.count("% Not written: ") == BATCH + 1
    assert "Wrote 1 letter back; 501 letters not." in result.stderr
    assert brokers.back(1) == [(b"mug", BACK)]


def test_a_letter_that_is_deleted_meanwhile_does_not_hold_up_the_others(brokers: Brokers) -> None:
    for _ in range(3):
        brokers.letter_of_broker(brokers.job())

    def forget_the_first(cluster: Cluster) -> None:
        asked: list[int] = []

        def decide(_broker: int, request: Any) -> None:
            """Which letters there are is read up to the end; what is to be written is read from the beginning once more."""
            asked.extend(topic.partitions[0].timestamp for topic in request.topics if topic.name == "dead")
            if LATEST in asked and asked[asked.index(LATEST) :].count(EARLIEST) == 2:
                cluster.delete_before(("dead", 0), 1)

        cluster.control(Api.LIST_OFFSETS, decide, keep=True)

    brokers.call(forget_the_first)

    result = brokers.redrive()

    assert result.exit_code == 1
    assert "% Not written: 0:0: the letter itself is gone by now" in result.stderr
    assert "Wrote 2 letters back; 1 letter not." in result.stderr
    assert len(brokers.back(3)) == 2


def test_letters_of_a_topic_that_is_made_anew_meanwhile_are_not_remembered_as_those_of_the_new_one(brokers: Brokers) -> None:
    for _ in range(3):
        brokers.letter_of_broker(0, copy=b"mug")

    def make_anew_as_letters_are_written(cluster: Cluster) -> None:
        cluster.control(Api.PRODUCE, lambda *_: cluster.recreate("dead"))

    brokers.call(make_anew_as_letters_are_written)

    result = brokers.redrive()
    brokers.letter_of_broker(0, copy=b"cup")

    assert (result.exit_code, len(brokers.back(0))) == (0, 3), result.stderr
    assert brokers.call(lambda cluster: cluster.committed("redrive.dead")) == {}
    assert "1 letter" in brokers.show().stderr


@pytest.mark.slow
def test_a_producer_that_writes_nothing_is_not_asked_for_each_batch(brokers: Brokers) -> None:
    for offset in range(BATCH + 1):
        brokers.letter_of_broker(offset, copy=b"mug")
    brokers.call(lambda cluster: cluster.control(Api.PRODUCE, lambda *_: TopicAuthorizationFailedError, keep=True))

    result = brokers.redrive()

    assert result.exit_code == 1
    assert result.stderr.count("% Not written: ") == BATCH
    assert "Wrote no letters back; 501 letters not." in result.stderr


@pytest.mark.slow
def test_a_letter_is_not_written_where_the_group_could_not_remember_it(brokers: Brokers) -> None:
    """Every second one fails, so there are as many runs as letters; what was forgotten went back once more in each run."""
    count = 4000

    def write(cluster: Cluster) -> None:
        cluster.topic("forbidden")
        for offset in range(count):
            texts = {"topic": ("jobs", "forbidden")[offset % 2], "partition": 0, "offset": offset, "timestamp": PRODUCED}
            texts |= {"exception": "E", "reason": "no", "attempts": 1}
            headers = [(f"dead-letter-{name}", str(text).encode()) for name, text in texts.items()]
            cluster.produce("dead", value=b"mug", headers=headers, partition=0, timestamp=WRITTEN)

        def answer(_broker: int, request: Any) -> ProduceResponse:
            def part(topic: str, index: int) -> PartitionProduceResponse:
                denied = TopicAuthorizationFailedError.errno if topic == "forbidden" else 0
                return PartitionProduceResponse(index=index, error_code=denied, base_offset=0)

            return ProduceResponse(
                responses=tuple(
                    TopicProduceResponse(
                        name=topic.name, partition_responses=tuple(part(topic.name, each.index) for each in topic.partition_data)
                    )
                    for topic in request.topic_data
                )
            )

        cluster.control(Api.PRODUCE, answer, keep=True)

    brokers.call(write)

    result = brokers.redrive()

    written = int(result.stderr.partition("Wrote ")[2].split()[0])
    assert (result.exit_code, 1000 < written < 2000) == (1, True)
    assert "group 'redrive.dead' cannot remember it with so many others between" in result.stderr
    shown = CliRunner().invoke(app, ["deadletters", "show", "dead", "-b", brokers.threaded.bootstrap, "-J"])
    assert shown.stdout.count("\n") == count - written, "those that went back are remembered"


# --- letters that change while they are read -----------------------------------------------------------------------------------


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


@pytest.mark.slow
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


def test_letters_after_those_that_are_deleted_meanwhile_are_read_whatever_a_file_says_for_others(tmp_path: Path) -> None:
    """Where the log begins by then, and not at its end: what lies between would count as looked at."""
    fetches = 0

    def write(cluster: Cluster) -> None:
        cluster.topic(DEAD.topic)
        texts = {"topic": "jobs", "partition": 0, "offset": 0, "timestamp": 0, "exception": "E", "reason": "no", "attempts": 1}
        headers = [(f"dead-letter-{name}", str(text).encode()) for name, text in texts.items()]
        for _ in range(100):
            cluster.produce(DEAD.topic, value="letter", headers=headers, partition=0)

        def delete_later(_broker: int, _request: object) -> None:
            nonlocal fetches
            fetches += 1
            if fetches == 5:
                cluster.delete_before(DEAD, 80)

        cluster.control(Api.FETCH, delete_later, keep=True)

    file = tmp_path / "client.properties"
    file.write_text("auto.offset.reset=latest\nmax.partition.fetch.bytes=1\n")
    with ThreadedCluster(Cluster()) as threaded:
        threaded.call(write).result()
        result = CliRunner().invoke(app, ["deadletters", "show", DEAD.topic, "-b", threaded.bootstrap, "-F", str(file), "-J"])

    shown = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
    assert shown[0] == 0
    assert shown[-20:] == list(range(80, 100))
    assert len(shown) < 100


def test_a_producer_gets_an_address_of_ipv6_in_brackets() -> None:
    config = ConsumerConfig.of(bootstrap_servers="[fd00::10]:9092,b:9093")

    assert aiokafka_options(config, None)["bootstrap_servers"] == "[fd00::10]:9092,b:9093"
    assert confluent_options(config)["bootstrap.servers"] == "[fd00::10]:9092,b:9093"


LARGE = Outgoing(topic="jobs", partition=0, key=None, value=bytes(5000), headers=[], timestamp=None)


def acknowledge_nothing(brokers: Brokers) -> None:
    brokers.call(lambda cluster: cluster.control(Api.PRODUCE, lambda broker, request: HANG, keep=True))


@pytest.mark.slow
@pytest.mark.parametrize(("library", "kind"), [("aiokafka", "KafkaTimeoutError"), ("confluent_kafka", "KafkaException")])
def test_a_write_that_nobody_acknowledges_ends_and_nothing_more_is_sent(brokers: Brokers, library: str, kind: str) -> None:
    """An idempotent producer of aiokafka tries for ever, and one of librdkafka for five minutes."""
    pytest.importorskip(library)

    async def main() -> list[Exception | None]:
        async with open_producer(library, {"bootstrap_servers": brokers.threaded.bootstrap}, patience=1.0) as write:
            acknowledge_nothing(brokers)
            return [*await write([LARGE] * 20), *await write([LARGE])]

    found = anyio.run(main)
    assert [type(each).__name__ for each in found] == [kind] * 21


@pytest.mark.parametrize("library", ["aiokafka", "confluent_kafka"])
def test_a_write_that_is_cancelled_does_not_go_on(brokers: Brokers, library: str) -> None:
    """Ctrl-C took until the producer gave up, and meanwhile the group was left and letters were written."""
    pytest.importorskip(library)

    async def main() -> None:
        async with open_producer(library, {"bootstrap_servers": brokers.threaded.bootstrap}) as write:
            acknowledge_nothing(brokers)
            async with asyncio.timeout(0.5):
                await write([LARGE] * 20)

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert time.monotonic() - begun < 60  # 120 if the producer went on until it gives up
