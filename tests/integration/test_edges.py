"""A sample of the matrix of edges on a real broker, in every protocol, with the background as a task and in a thread.

``python -m tests.edges.real --seconds 600 --seed 1000`` runs more of it.
"""

from itertools import islice

import pytest

from tests.brokers import KafkaCluster
from tests.edges.real import failures_on, sample, shown

pytestmark = pytest.mark.brokers

PROGRAMS = 100
SECONDS = 60.0
"""After which none is begun any more; they take 40 s on two cores of which the broker has its share."""
LEAST = 20


async def test_a_sample_of_the_matrix_holds_on_a_real_broker(kafka44: KafkaCluster) -> None:
    ran, found = await failures_on(kafka44, islice(sample(0), PROGRAMS), at_once=8, seconds=SECONDS)
    assert not found, "\n" + shown(found)
    assert ran >= LEAST
