"""Reading one partition's share of a Fetch response.

It adds to a decoder's failure where that was. It keeps no records: what ``read`` returns is the caller's, and what it has not
returned is still bytes.
"""

from collections.abc import Sequence
from typing import ClassVar

from ..errors import CorruptRecordException, UnsupportedCodecError, detached
from ..model import ConsumerRecord, at_offset
from .columns import ColumnBuilder
from .decode import Decoder
from .implementation import Decoder as ChosenDecoder
from .transactions import AbortedTransactions


class RecordReader:
    """Resumable reading of the record data that one Fetch response holds for one partition. Not thread safe.

    ``aborted`` holds (producer id, first offset) of the aborted transactions, in any order; used only with ``read_committed``.
    ``max_decompressed_bytes`` bounds what one batch may become.
    """

    decoder: ClassVar[type[Decoder]] = ChosenDecoder
    decoding: Decoder
    """The decoder of the data. For compiled loops alone, in which a call of ``read`` would cost more than what it does."""

    def __init__(
        self,
        topic: str,
        partition: int,
        data: bytes,
        fetch_offset: int,
        *,
        read_committed: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
        check_crcs: bool = True,
        max_decompressed_bytes: int = 256 * 2**20,
    ) -> None:
        transactions = AbortedTransactions(aborted) if read_committed and aborted else None
        self.decoding = self.decoder(topic, partition, data, fetch_offset, transactions, check_crcs, max_decompressed_bytes)

    @property
    def next_offset(self) -> int:
        """Offset after what was handed out and after what needs no handing out. It never goes back."""
        return self.decoding.next_offset

    @property
    def leader_epoch(self) -> int | None:
        """Epoch of the last batch that was handed out, if only in part, or passed; ``None`` if unknown."""
        epoch = self.decoding.epoch
        return epoch if epoch >= 0 else None

    @property
    def exhausted(self) -> bool:
        """Nothing is left to hand out, and ``next_offset`` is past everything complete in the data.

        Before the first read this is ``False``, although that read may return nothing.
        """
        return self.decoding.exhausted

    @property
    def held(self) -> int:
        """Bytes that the compressed batch in which the reader stands became; 0 if it stands in none."""
        return self.decoding.held

    def read(self, max_records: int) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """Return the next records in offset order, at most ``max_records``; none if the reader is exhausted.

        Raises ``CorruptRecordException`` (with topic, partition and ``offset == next_offset``) or ``UnsupportedCodecError`` where
        the next record cannot be read, every time. Records before it are returned first. After any other exception, such as an
        interrupt, the reader stands where it stood before the call.
        """
        try:
            return self.decoding.read(max_records)
        except (CorruptRecordException, UnsupportedCodecError) as found:
            error = self.located(found)
        raise error

    def read_columns(self, max_records: int, into: ColumnBuilder) -> int:
        """Append the next records to ``into``, at most ``max_records``, and return how many. Raises as ``read`` does.

        Fewer rows, or none, are also appended if ``into`` is full; ``exhausted`` shows the difference.
        """
        try:
            return self.decoding.read_columns(max_records, into)
        except (CorruptRecordException, UnsupportedCodecError) as found:
            error = self.located(found)
        raise error

    def located(self, error: CorruptRecordException | UnsupportedCodecError) -> CorruptRecordException | UnsupportedCodecError:
        """Return what ``read`` raises for an error of the decoder."""
        topic, partition, offset = self.decoding.topic, self.decoding.partition, self.decoding.next_offset
        text = f"{at_offset(topic, partition, offset)}: {error.args[0]}"
        located: CorruptRecordException | UnsupportedCodecError
        if isinstance(error, UnsupportedCodecError):
            located = UnsupportedCodecError(text)
        else:
            located = CorruptRecordException(text, topic=topic, partition=partition, offset=offset)
        located.__cause__ = detached(error).__cause__  # whose frames hold the data
        return located
