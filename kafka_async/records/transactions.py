"""Which batches of a response belong to aborted transactions (KIP-98, ``CompletedFetch``).

Only producer id and offset count: sequence numbers and epochs play no part.
"""

from collections.abc import Iterable
from heapq import heapify, heappop


class AbortedTransactions:
    """The aborted transactions of one partition in one Fetch response, followed batch by batch in offset order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """``aborted`` holds (producer id, first offset) in any order."""
        self._to_come = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._to_come)
        self._open: set[int] = set()

    def copy(self) -> "AbortedTransactions":
        """Return the state of this moment, to go back to."""
        same = AbortedTransactions(())
        same._to_come = list(self._to_come)
        same._open = set(self._open)
        return same

    def covers(self, producer_id: int, last_offset: int) -> bool:
        """Say whether the producer is inside an aborted transaction at a batch that ends at ``last_offset``."""
        while self._to_come and self._to_come[0][0] <= last_offset:
            self._open.add(heappop(self._to_come)[1])
        return producer_id in self._open

    def end(self, producer_id: int) -> None:
        """The abort marker of the producer was passed. A second marker for the same transaction changes nothing."""
        self._open.discard(producer_id)
