"""Values as people see them."""

from kafka_async.model import Node


def test_a_broker_is_called_by_its_address_and_id() -> None:
    assert str(Node(1, "broker.example.org", 9092)) == "broker.example.org:9092 (id 1)"


def test_a_broker_that_names_itself_with_control_codes_or_without_end_is_quoted_and_cut() -> None:
    assert str(Node(1, "a\x1b[2J\n", 9092)) == "'a\\x1b[2J\\n':9092 (id 1)"
    assert len(str(Node(1, "h" * 30_000, 9092))) < 110
