"""A sample of the matrix of edges on a real broker, in every protocol, with the background as a task and in a thread.

``python -m tests.edges.real --seconds 600 --seed 1000`` runs more of it.
"""

from itertools import islice

import pytest

from tests.brokers import KafkaCluster
from tests.edges.real import failures_on, sample, shown
from tests.effort import apart

pytestmark = pytest.mark.brokers

PROGRAMS = 50
SECONDS = 60.0
"""After which none is begun any more; they take 20 s on two cores of which the broker has its share."""
LEAST = 20


@pytest.mark.parametrize("part", [0, *apart(1)])
async def test_a_sample_of_the_matrix_holds_on_a_real_broker(kafka44: KafkaCluster, part: int) -> None:
    programs = islice(sample(0), part * PROGRAMS, (part + 1) * PROGRAMS)
    ran, found = await failures_on(kafka44, programs, at_once=8, seconds=SECONDS)
    assert not found, "\n" + shown(found)
    assert ran >= LEAST
