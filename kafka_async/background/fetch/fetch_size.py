"""How many bytes one partition may bring in one answer.

A partition is fetched by one request after the other, since only an answer says where the next one begins. So a partition gives
at most one answer's bytes in each round trip: 1 MiB in 20 ms are 50 MB/s, whatever the line could carry. An answer that came full
while the application had nothing to read and waited for longer than a broker nearby takes doubles the bytes; one that was nearly
empty, or that found the application still busy with what came before, halves them. Near a broker nothing grows, since larger
answers would only leave the processor's caches.
"""

from typing import Final, Self

from ...config import ConsumerConfig
from ...values import define, field

FULL: Final = 0.75
"""Share of the requested bytes from which on an answer counts as full; the next batch did not fit into the rest."""
_ALIKE: Final = 0.5
"""Share that batches of one size fill at least, if one of them fits, and another one does not fit into the rest."""
LEAN: Final = 0.25
"""Share below which fewer bytes would have been enough."""
FAR: Final = 0.004
"""Seconds of waiting that make a larger answer worth it. A broker in the same place sends a MiB in 1 to 2 ms."""
_HEADERS: Final = 8
"""This part of the longest answer is left to what is in it beside records: about 50 bytes for each partition."""


def largest_request(config: ConsumerConfig) -> int:
    """Return the bytes of records that one fetch may ask for: as the user says, but no more than fit into an answer."""
    longest = config.receive_message_max_bytes
    return min(config.fetch_max_bytes, longest - longest // _HEADERS)


@define(eq=False)
class FetchSize:
    """The bytes for each partition of one broker."""

    least: int
    most: int
    """For all partitions of one request together: past that, the first ones would leave nothing for the last."""
    bytes: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.bytes = self.least

    @property
    def has_grown(self) -> bool:
        return self.bytes > self.least

    def answered(self, fill: float, waited: float, partitions: int) -> None:
        """An answer came. ``fill``: the largest share of the requested bytes that a partition brought; ``waited``: seconds for
        which the application had waited for it with nothing to read, 0 if it was busy; ``partitions``: how many the broker is asked
        for.
        """
        bytes_now = self.bytes
        if fill >= FULL and waited >= FAR:
            bytes_now *= 2
        elif fill < LEAN or not waited:
            bytes_now //= 2
        self.bytes = max(self.least, min(bytes_now, self.most // max(partitions, 1)))


@define(eq=False)
class RequestShare:
    """How much of one request a partition may take, whatever ``FetchSize`` allows it.

    Before the first answer nobody knows which partitions have data, and a few that have much would fill one answer after the other
    while the rest waits. So all begin with equal parts of a request. The parts double as long as those partitions that have data
    leave room in the answers, and halve when answers come nearly empty: what has little to read leaves the others their place.
    """

    bytes: int
    partitions: int
    """How many shared a request when they began with equal parts."""
    batch: int = field(default=0, init=False)
    """The largest batch that exceeded a part: a broker sends no batch that does, unless it is the first one of the answer."""

    @classmethod
    def equal(cls, request: int, partitions: int) -> Self:
        """Return the share of each of so many partitions in a request of so many bytes."""
        return cls(max(request // max(partitions, 1), 1), partitions)

    def answered(self, request: int, wanted: int, brought: int, fill: float) -> None:
        """An answer to a ``request`` of so many bytes came. ``wanted``: partitions that the broker is asked for; ``brought``: those
        of them with records; ``fill``: as ``FetchSize.answered``.
        """
        if fill > _ALIKE:
            self.bytes = max(self.bytes, min(2 * self.bytes, request // brought))
        elif fill < LEAN:
            self.batch //= 2
            self.bytes = max(min(self.bytes, max(self.bytes // 2, request // max(wanted, 1), self.batch)), 1)

    def exceeded(self, batch: int) -> bool:
        """A batch was larger than a part; return whether it was the largest so far."""
        if batch <= self.batch:
            return False
        self.batch = batch
        self.bytes = max(self.bytes, batch)
        return True
