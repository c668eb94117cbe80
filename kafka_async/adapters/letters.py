"""Dead letters as records that are read again: where each came from, why, and what goes back to its topic.

``dead_letters.py`` writes them, and so do brokers for share groups (KIP-1191, Kafka 4.4). Those of brokers have neither the headers
of the record nor its time, and key and value only on request: what goes back is read from where the record was.

The headers of a letter are those of the record, then ours. A record of a topic of dead letters that failed again has two sets of
ours: the last is about the last failure, and the first stays with the record.
"""

from collections.abc import Iterable
from typing import Final, Self

from attrs import frozen

from ..model import TopicPartition
from .dead_letters import ATTEMPTS, EXCEPTION, GROUP, LEFT_OUT, OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC
from .publishing import Headers, Record

REDRIVES: Final = "dead-letter-redrives"
"""How many times a record was written back to its topic. It stays with the record, and so with its next letter."""
_BROKERS: Final = "__dlq.errors."
"""How the names of the headers in the letters of brokers begin."""
_OURS: Final = frozenset((TOPIC, PARTITION, OFFSET, TIMESTAMP, EXCEPTION, REASON, ATTEMPTS, GROUP, LEFT_OUT))


@frozen(kw_only=True)
class DeadLetter:
    """What the headers of a dead letter say."""

    partition: int
    """Of the letter itself."""
    offset: int
    written_at: int
    """Milliseconds since the epoch."""
    source: TopicPartition
    source_offset: int
    timestamp: int | None
    """Of the original record, in milliseconds; ``None`` in a letter of a broker."""
    exception: str | None
    """``None`` in a letter of a broker."""
    reason: str
    attempts: int
    group: str | None
    left_out: int | None
    """Bytes of the value, if it was too large for a letter."""
    redrives: int
    """How often the record was written back before it became this letter; a broker's letter does not know."""
    by_broker: bool = False

    @property
    def incomplete(self) -> bool:
        """Whether the letter lacks something that the record had: it is to be read where it was."""
        return self.by_broker or self.left_out is not None

    @classmethod
    def read(cls, record: Record) -> "Self | None":
        """Return the letter that a record is; ``None`` for a record that neither ``DeadLetters`` nor a broker has written so."""
        begin = _begin(record)
        if begin is None:
            return cls._of_broker(record)
        texts = {name: (value or b"").decode(errors="replace") for name, value in record.headers[begin:]}
        try:
            return cls(
                partition=record.partition,
                offset=record.offset,
                written_at=record.timestamp,
                source=TopicPartition(texts[TOPIC], int(texts[PARTITION])),
                source_offset=int(texts[OFFSET]),
                timestamp=int(texts[TIMESTAMP]),
                exception=texts[EXCEPTION],
                reason=texts[REASON],
                attempts=int(texts[ATTEMPTS]),
                group=texts.get(GROUP),
                left_out=int(texts[LEFT_OUT]) if LEFT_OUT in texts else None,
                redrives=redrives(record.headers[:begin]),
            )
        except (KeyError, ValueError):
            return None

    @classmethod
    def _of_broker(cls, record: Record) -> "Self | None":
        texts = {
            name.removeprefix(_BROKERS): (value or b"").decode(errors="replace")
            for name, value in record.headers
            if name.startswith(_BROKERS)
        }
        try:
            return cls(
                partition=record.partition,
                offset=record.offset,
                written_at=record.timestamp,
                source=TopicPartition(texts["topic"], int(texts["partition"])),
                source_offset=int(texts["offset"]),
                timestamp=None,
                exception=None,
                reason=texts["message"],
                attempts=int(texts["delivery.count"]),
                group=texts["group"],
                left_out=None,
                redrives=0,
                by_broker=True,
            )
        except (KeyError, ValueError):
            return None


def counted(headers: Headers) -> Headers:
    """Return the headers of a record that goes back once more."""
    return [*(header for header in headers if header[0] != REDRIVES), (REDRIVES, b"%d" % (redrives(headers) + 1))]


def headers_back(record: Record) -> Headers:
    """Return the headers of the original record, and how often it has been written back with this time."""
    begin = _begin(record)
    if begin is None:
        raise ValueError(f"{record.topic}:{record.partition}:{record.offset} is not a dead letter: it has no header {TOPIC}")
    after = [header for header in record.headers[begin:] if header[0] not in _OURS]  # of a producer that adds some
    return counted([*record.headers[:begin], *after])


def _begin(record: Record) -> int | None:
    """Return where our headers begin."""
    return max((index for index, (name, _) in enumerate(record.headers) if name == TOPIC), default=None)


def redrives(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return how often a record has gone back, as its headers say."""
    counts = [value or b"" for name, value in headers if name == REDRIVES]
    return int(counts[-1]) if counts and counts[-1].isdigit() else 0
