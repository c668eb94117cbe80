"""The one door between the two sides for data: what was fetched and not read yet.

Decides: how much may be fetched (``room``), so that memory stays under ``fetch_buffer_bytes`` (KIP-74, KIP-81). Owns: the queue of
parcels and the ledger of bytes. The background only puts, the application only takes and releases; every number has
one writer, so no lock is needed across threads. Must never hold a reference to a parcel once it was taken.

The order of the queue is the truth: a new position or a failure of a partition travels in it as a parcel too, behind the
data that came before it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import define, field, frozen

from ..errors import KafkaError
from ..model import TopicPartition


@frozen(kw_only=True)
class FetchedData:
    """One partition's part of a Fetch response; the records are still bytes."""

    partition: TopicPartition
    stamp: int
    fetch_offset: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] = ()
    """``(producer id, first offset)`` of the transactions that were aborted (``read_committed`` only)."""

    @property
    def size(self) -> int:
        return len(self.records)


@frozen(kw_only=True)
class Repositioned:
    """The background moved the position: a reset by policy, or a truncation that policy lets pass."""

    partition: TopicPartition
    stamp: int
    offset: int
    leader_epoch: int | None = None


@frozen(kw_only=True)
class PartitionFailed:
    """The partition cannot go on from here. With ``halted`` it stays stopped until the application seeks."""

    partition: TopicPartition
    stamp: int
    error: KafkaError
    halted: bool = True


@frozen(kw_only=True)
class Watermarks:
    """What the last Fetch response said of a partition (offsets)."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    fetched_at: float


Parcel: TypeAlias = FetchedData | Repositioned | PartitionFailed


LARGE: Final = 64 * 1024
"""Bytes from which on it is worth asking for more before the application starts to work through a parcel."""


@define(eq=False)
class Account:
    """Bytes of one partition: put by the background, released by the application. Unread is the difference."""

    put: int = 0
    released: int = 0

    @property
    def unread(self) -> int:
        return self.put - self.released


@define(eq=False)
class FetchBuffer:
    """Parcels on their way to the application."""

    limit: int
    on_parcel: Callable[[], None] = field(repr=False)
    """Wakes the application; called by the background."""
    on_room: Callable[[], None] = field(repr=False)
    """Wakes the background; called by the application, and only when the background waits for room."""
    parcels: deque[Parcel] = field(factory=deque, repr=False)
    watermarks: dict[TopicPartition, Watermarks] = field(factory=dict, repr=False)
    total: Account = field(factory=Account)
    accounts: dict[TopicPartition, Account] = field(factory=dict, repr=False)
    _unannounced: bool = field(default=False, init=False)
    hungry: bool = False
    """The background would fetch if there were room, or is looking for room right now. Written by it alone."""

    # --- the background's side -------------------------------------------------------------------------------------------------

    def put(self, parcel: Parcel) -> None:
        """Hand a parcel over. Wakes the application; for a large one only with ``announce``.

        The sequence that costs a third of the throughput: the application is woken first, works through a megabyte without letting
        go of the event loop, and only then the broker is asked for more. A small parcel goes first: there latency counts.
        """
        if isinstance(parcel, FetchedData):
            self.total.put += parcel.size
            self.account(parcel.partition).put += parcel.size
        self.parcels.append(parcel)
        if isinstance(parcel, FetchedData) and parcel.size >= LARGE:
            self._unannounced = True
        else:
            self.on_parcel()

    def announce(self) -> None:
        """Wake the application for large parcels: the next requests are on their way."""
        if self._unannounced:
            self._unannounced = False
            self.on_parcel()

    def account(self, partition: TopicPartition) -> Account:
        account = self.accounts.get(partition)
        if account is None:
            account = self.accounts[partition] = Account()
        return account

    def unread(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition that were fetched and not read yet."""
        account = self.accounts.get(partition)
        return account.unread if account is not None else 0

    def room(self) -> int:
        """Return how many more bytes may be fetched; can be negative after a batch that is larger than the room there was."""
        return self.limit - self.total.unread

    def forget(self, partition: TopicPartition) -> None:
        """Drop the ledger of a partition that is no longer assigned, once nothing of it is unread."""
        self.watermarks.pop(partition, None)
        if self.unread(partition) == 0:
            self.accounts.pop(partition, None)

    # --- the application's side ------------------------------------------------------------------------------------------------

    def take(self) -> Parcel | None:
        """Return the next parcel, or ``None``. Its bytes count as unread until they are released."""
        return self.parcels.popleft() if self.parcels else None

    def release(self, data: FetchedData) -> None:
        """Say that a parcel's bytes are no longer held. Wakes the background if it waits for room."""
        self.total.released += data.size
        account = self.accounts.get(data.partition)
        if account is not None:
            account.released += data.size
        if self.hungry:
            self.on_room()
