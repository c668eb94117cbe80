from kafka_async.records.transactions import AbortedTransactions


def test_a_producer_is_covered_from_the_first_offset_until_its_marker() -> None:
    aborted = AbortedTransactions([(7, 10)])
    assert not aborted.covers(7, 9)
    assert aborted.covers(7, 10)
    assert aborted.covers(7, 12)
    assert not aborted.covers(8, 12)
    aborted.end(7)
    assert not aborted.covers(7, 20)


def test_the_order_of_the_list_does_not_matter() -> None:
    aborted = AbortedTransactions([(2, 30), (1, 10), (2, 5)])
    assert aborted.covers(2, 6)
    aborted.end(2)
    assert not aborted.covers(2, 29)
    assert aborted.covers(1, 29)
    assert aborted.covers(2, 30)


def test_a_second_marker_changes_nothing() -> None:
    aborted = AbortedTransactions([(1, 0)])
    assert aborted.covers(1, 0)
    aborted.end(1)
    aborted.end(1)
    assert not aborted.covers(1, 5)
