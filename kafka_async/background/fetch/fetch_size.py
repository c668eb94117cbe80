"""How many bytes one partition may bring in one answer.

A partition is fetched by one request after the other, since only an answer says where the next one begins. So a partition gives
at most one answer's bytes in each round trip: 1 MiB in 20 ms are 50 MB/s, whatever the line could carry. An answer that came full
while the application had nothing to read and waited for longer than a broker nearby takes doubles the bytes; one that was nearly
empty, or that found the application still busy with what came before, halves them. Near a broker nothing grows, since larger
answers would only leave the processor's caches.
"""

from typing import Final

from ...values import define, field

FULL: Final = 0.75
"""Share of the requested bytes from which on an answer counts as full; the next batch did not fit into the rest."""
LEAN: Final = 0.25
"""Share below which fewer bytes would have been enough."""
FAR: Final = 0.004
"""Seconds of waiting that make a larger answer worth it. A broker in the same place sends a MiB in 1 to 2 ms."""


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
