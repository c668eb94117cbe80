"""Values as people see them."""

import copy
import pickle

from kafka_async.model import Node, OffsetAndTimestamp


def test_a_broker_is_called_by_its_address_and_id() -> None:
    assert str(Node(1, "broker.example.org", 9092)) == "broker.example.org:9092 (id 1)"


def test_a_broker_that_names_itself_with_control_codes_or_without_end_is_quoted_and_cut() -> None:
    assert str(Node(1, "a\x1b[2J\n", 9092)) == "'a\\x1b[2J\\n':9092 (id 1)"
    assert len(str(Node(1, "h" * 30_000, 9092))) < 110


def test_an_offset_found_by_time_is_a_pair_and_keeps_its_epoch() -> None:
    found = OffsetAndTimestamp(5, 1700, 3)

    offset, timestamp = found
    assert (offset, timestamp) == (5, 1700) == found
    assert found == OffsetAndTimestamp(5, 1700)
    assert found._replace(offset=6) == OffsetAndTimestamp(6, 1700)
    copies = found._replace(offset=6), pickle.loads(pickle.dumps(found)), copy.deepcopy(found)  # noqa: S301  # our own value
    assert [each.leader_epoch for each in copies] == [3, 3, 3]
