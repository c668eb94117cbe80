"""The versions that the simulated brokers of each release accept are those of the release."""

import pytest

from kafka_async.testing.server import REQUESTS
from kafka_async.testing.simulation.versions import RELEASES
from kafka_async.wire import SUPPORTED
from tests.brokers import CURRENT, OLDER, PREVIOUS, available, jars, required
from tests.wire.generate import schemas_in

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(not required() and available() is not None, reason=str(available())),
]


@pytest.mark.parametrize("kafka", [CURRENT, PREVIOUS, OLDER])
def test_a_release_accepts_what_its_schemas_have_as_far_as_we_speak_it(kafka: str) -> None:
    schemas = schemas_in(jars(kafka) / f"kafka-clients-{kafka}.jar")
    table = RELEASES[kafka.rpartition(".")[0]]

    newest = {api: int(schemas[REQUESTS[api].__name__]["validVersions"].rpartition("-")[-1]) for api in table}

    assert table == {api: min(version, SUPPORTED[api].highest) for api, version in newest.items()}
