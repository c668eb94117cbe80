"""Options: what they mean, and what is refused."""

import pickle
from typing import Any

import pytest

from kafka_async import ConsumerConfig, TopicPartition
from kafka_async.adapters.ranges.planner import OffsetRange
from kafka_async.adapters.spark.options.source_options import SourceOptions, consumer_options
from kafka_async.adapters.spark.plan.offsets import EARLIEST, LATEST, OffsetSpec
from kafka_async.errors import KafkaConfigurationError

from ..support import A0, A1, B0, options

SERVERS = {"kafka.bootstrap.servers": "b0:9092"}


def test_spark_hands_names_over_in_lower_case() -> None:
    given = {"subscribe": "b, a,b", "startingoffsets": "EARLIEST", "minpartitions": "7", "failondataloss": "false"}
    parsed = SourceOptions.parse(SERVERS | given)
    assert parsed.topics == ("a", "b")
    assert parsed.starting == OffsetSpec("earliest", "startingOffsets")
    assert (parsed.min_partitions, parsed.fail_on_data_loss) == (7, False)


def test_defaults_are_those_of_sparks_own_connector() -> None:
    parsed = options()
    assert parsed.fail_on_data_loss
    assert (parsed.poll_timeout_ms, parsed.retries, parsed.retry_interval, parsed.max_trigger_delay) == (120_000, 3, 1.0, 900.0)
    assert parsed.starting is None
    assert parsed.ending is None


def test_a_time_for_all_counts_before_times_and_times_before_offsets() -> None:
    given = {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"a":{"0":7}}', "startingOffsets": "earliest"}
    assert options(**given).starting == OffsetSpec("timestamp", "startingTimestamp", timestamp=5)
    del given["startingTimestamp"]
    assert options(**given).starting == OffsetSpec("timestamps", "startingOffsetsByTimestamp", {A0: 7})


def test_partitions_can_be_assigned() -> None:
    assert options(assign='{"a":[0,1],"b":[0]}').partitions == (A0, A1, B0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("15m", 900), ("500ms", 0.5), ("250", 0.25), ("1 h", 3600), ("2min", 120), ("1d", 86400)),
        *(("1 minute", 60), ("90 Seconds", 90), ("1 hour 30 minutes", 5400), ("2 days", 172_800)),
    ],
)
def test_durations_are_sparks(text: str, seconds: float) -> None:
    assert options(maxTriggerDelay=text).max_trigger_delay == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscrib": "a"}, "unknown option 'subscrib'; did you mean 'subscribe'?"),
        ({"maxTriggerDelay": "1 minute 30"}, "maxTriggerDelay='1 minute 30'"),
        ({"maxTriggerDelay": ""}, "maxTriggerDelay=''"),
        (
            {"subscribe": "a", "kafka.sasl.password": "x"},
            "unknown option 'kafka.sasl.password'; a login is given in 'kafka.sasl.jaas.config'",
        ),
        ({"subscribe": "a", "PROVIDER": "kafka_async"}, "a permanent table is not supported; expected CREATE TEMPORARY VIEW"),
        ({"kafka.fetch.max.byte": "1"}, "did you mean 'kafka.fetch.max.bytes'?"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset is not supported: use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "use commitGroup"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer is not supported"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({"assign": '{"a":[0]}'}, "exactly one of subscribe, subscribePattern and assign; found subscribe and assign"),
        ({"subscribe": " , "}, "subscribe=' , '"),
        ({"minPartitions": "0"}, "minPartitions='0': expected a whole number of at least 1"),
        ({"startingTimestamp": "9" * 20}, f"startingTimestamp='{'9' * 20}': expected a whole number of at least 0, below 2**63"),
        ({"startingOffsetsByTimestamp": f'{{"a":{{"0":{"9" * 20}}}}}'}, "expected milliseconds from 0 to"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition='many'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': expected true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "expected error or latest"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger=10 is above maxOffsetsPerTrigger=5"),
        ({"startingOffsets": "committed"}, "startingOffsets=committed needs commitGroup"),
        ({"commitGroup": " "}, "commitGroup is empty"),
        ({"columns": " , "}, "columns=' , ': expected names of columns with commas between them"),
    ],
)
def test_bad_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        SourceOptions.parse(SERVERS | {"subscribe": "a"} | given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribePattern": "a("}, "subscribePattern='a\\(' is not a regular expression that Java and Python both have"),
        ({"subscribePattern": ""}, "subscribePattern is empty"),
        ({}, "exactly one of"),
    ],
)
def test_bad_choices_of_topics_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        SourceOptions.parse(SERVERS | given)


def test_a_pattern_has_no_blanks_around_it() -> None:
    assert options(subscribePattern=r" a\.b-\d+ ").pattern == r"a\.b-\d+"
    with pytest.raises(KafkaConfigurationError, match="at character 5 is not supported"):
        options(subscribePattern="pat-[a-z&&[^b]]")


def test_servers_are_needed() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"kafka\.bootstrap\.servers is missing"):
        SourceOptions.parse({"subscribe": "a"})


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"startingOffsets": '{"a":{"0":-1}}'}])
def test_a_batch_does_not_begin_at_the_end(given: dict[str, str]) -> None:
    with pytest.raises(KafkaConfigurationError, match="begins at the end"):
        options(**given).check_batch()


@pytest.mark.parametrize("given", [{"endingOffsets": "earliest"}, {"endingOffsets": '{"a":{"0":-2}}'}])
def test_a_batch_does_not_end_at_the_beginning(given: dict[str, str]) -> None:
    with pytest.raises(KafkaConfigurationError, match="ends at the beginning"):
        options(**given).check_batch()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingTimestamp": "200", "endingTimestamp": "100"}, "startingTimestamp=200 is after endingTimestamp=100"),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":7,"1":9}}', "endingOffsetsByTimestamp": '{"a":{"0":7,"1":8}}'},
            "startingOffsetsByTimestamp: 9 of a-1 is above endingOffsetsByTimestamp, 8",
        ),
        (
            {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"a":{"0":9,"1":8}}'},
            "startingTimestamp: 9 of a-1 is above endingOffsetsByTimestamp, 8",
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":9}}', "endingTimestamp": "8"},
            "startingOffsetsByTimestamp: 9 of a-0 is above endingTimestamp, 8",
        ),
        (
            {"startingOffsets": '{"a":{"0":50,"1":1}}', "endingOffsets": '{"a":{"0":5,"1":1}}'},
            "startingOffsets: 50 of a-0 is above endingOffsets, 5",
        ),
        ({"startingOffsets": '{"zz":{"0":5}}'}, "startingOffsets: zz-0 is not read"),
        ({"endingOffsetsByTimestamp": '{"zz":{"0":5}}'}, "endingOffsetsByTimestamp: zz-0 is not read"),
        ({"assign": '{"a":[1]}', "endingOffsets": '{"a":{"0":5,"1":5}}'}, "endingOffsets: a-0 is not read"),
        ({"subscribePattern": "^[ab]$", "startingOffsets": '{"ab":{"0":5}}'}, "startingOffsets: ab-0 is not read"),
    ],
)
def test_what_contradicts_itself_is_named_before_a_broker_is_asked(given: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        options(**given).check_batch()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("given", "starting", "ending"),
    [
        (
            {"startingTimestamp": "100", "endingTimestamp": "100"},
            OffsetSpec("timestamp", "startingTimestamp", timestamp=100),
            OffsetSpec("timestamp", "endingTimestamp", timestamp=100),
        ),
        (
            {"startingTimestamp": "100", "endingOffsets": '{"a":{"0":5}}'},
            OffsetSpec("timestamp", "startingTimestamp", timestamp=100),
            OffsetSpec("offsets", "endingOffsets", {A0: 5}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":7}}', "endingOffsetsByTimestamp": '{"a":{"1":3}}'},
            OffsetSpec("timestamps", "startingOffsetsByTimestamp", {A0: 7}),
            OffsetSpec("timestamps", "endingOffsetsByTimestamp", {A1: 3}),
        ),
        (
            {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":-1}}'},
            OffsetSpec("offsets", "startingOffsets", {A0: 5}),
            OffsetSpec("offsets", "endingOffsets", {A0: LATEST}),
        ),
        (
            {"subscribePattern": "[ab]", "startingOffsets": '{"b":{"0":5}}', "endingOffsets": "latest"},
            OffsetSpec("offsets", "startingOffsets", {B0: 5}),
            OffsetSpec("latest", "endingOffsets"),
        ),
        (
            {"assign": '{"a":[1]}', "startingOffsets": '{"a":{"1":-2}}', "endingOffsets": '{"a":{"1":0}}'},
            OffsetSpec("offsets", "startingOffsets", {A1: EARLIEST}),
            OffsetSpec("offsets", "endingOffsets", {A1: 0}),
        ),
    ],
)
def test_what_only_the_broker_knows_is_left_to_it(given: dict[str, str], starting: OffsetSpec, ending: OffsetSpec) -> None:
    parsed = options(**given)
    parsed.check_batch()  # raises nothing
    assert (parsed.starting, parsed.ending) == (starting, ending)


def test_a_stream_that_goes_on_from_a_checkpoint_may_say_where_others_began() -> None:
    parsed = options(startingOffsets='{"zz":{"0":5}}')
    parsed.check_stream()  # raises nothing
    assert parsed.starting == OffsetSpec("offsets", "startingOffsets", {TopicPartition("zz", 0): 5})
    with pytest.raises(KafkaConfigurationError, match="zz-0 is not read"):
        parsed.check_batch()  # a batch has no checkpoint


def test_secrets_that_a_plan_would_show_are_known() -> None:
    key, user = "kafka.ssl.keystore.key", "value.schema.registry.basic.auth.user.info"
    assert SourceOptions.parse(SERVERS | {"subscribe": "a", key: "x", user: "me:hunter2"}).exposed == (key, user)
    assert SourceOptions.parse(SERVERS | {"subscribe": "a", key: "env:KEY", user: "file:/user"}).exposed == ()
    assert SourceOptions.parse(SERVERS | {"subscribe": "a", "kafka.ssl.key.password": "x"}).exposed == ()


@pytest.mark.parametrize("given", [{"endingOffsets": "latest"}, {"endingTimestamp": "5"}])
def test_a_stream_has_no_end_and_no_filters(given: dict[str, str]) -> None:
    with pytest.raises(KafkaConfigurationError):
        options(**given).check_stream()


def test_options_of_a_stream_mean_nothing_in_a_batch_and_stop_none() -> None:
    parsed = options(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2", maxTriggerDelay="1s")
    parsed.check_batch()  # raises nothing
    assert parsed.tasks([OffsetRange(A0, 0, 10_000)]) == options().tasks([OffsetRange(A0, 0, 10_000)])


def test_the_consumer_takes_what_kafka_options_say() -> None:
    given: dict[str, Any] = {
        "kafka__fetch__max__bytes": "1000",
        "kafka__check__crcs": "False",
        "kafka__isolation__level": "read_committed",
        "kafka__client__id": "me",
        "kafka__metric__reporters": "com.example.Reporter",
        "kafka__group__id": "g",
    }
    config = ConsumerConfig.from_options(consumer_options(options(**given).reading))
    assert (config.fetch_max_bytes, config.check_crcs, config.client_id) == (1000, False, "me")
    assert config.isolation_level.name == "READ_COMMITTED"
    assert (config.auto_offset_reset, config.allow_auto_create_topics, config.enable_auto_commit) == ("none", False, False)
    assert config.group_id is None


def test_looking_offsets_up_may_need_the_group() -> None:
    assert options(commitGroup="g").looking["group_id"] == "g"
    assert "group_id" not in options().looking


def test_a_group_of_the_users_is_asked_for_its_offsets_and_joined_by_no_task() -> None:
    parsed = options(kafka__group__id="g", startingOffsets="committed")
    assert ConsumerConfig.from_options(consumer_options(parsed.looking)).group_id == "g"
    assert ConsumerConfig.from_options(consumer_options(parsed.reading)).group_id is None


@pytest.mark.parametrize(
    ("given", "client_id"),
    [({}, "spark-kafka-async"), ({"groupIdPrefix": "jobs"}, "jobs-kafka-async"), ({"kafka__client__id": "me"}, "me")],
    ids=["default", "prefix", "named"],
)
def test_brokers_know_a_job_by_its_prefix(given: dict[str, str], client_id: str) -> None:
    parsed = options(**given)
    for kafka in (parsed.reading, parsed.looking):
        assert ConsumerConfig.from_options(consumer_options(kafka)).client_id == client_id


@pytest.mark.parametrize(
    ("name", "expected"), [("kafka__fetch__max__bytes", "an integer"), ("kafka__check__crcs", "true or false")]
)
def test_a_bad_value_of_the_consumers_is_not_shown(name: str, expected: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"expected {expected}") as caught:
        consumer_options(options(**{name: "hunter2"}).kafka)
    assert "hunter2" not in str(caught.value)


def test_options_travel_and_do_not_show_what_may_be_secret() -> None:
    parsed = options(kafka__client__id="hunter2")
    assert pickle.loads(pickle.dumps(parsed)) == parsed  # noqa: S301  # our own bytes
    assert "hunter2" not in repr(parsed)


def test_what_jobs_hand_to_any_source_is_passed_over() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "a", "path": "/data", "inferSchema": "true", "MODE": "FAILFAST"}
    assert SourceOptions.parse(given).strays == ("MODE", "inferSchema", "path")
    assert options().strays == ()
