"""Dead letters as records that are read again: where each came from, why, and what goes back to its topic.

Decides: what of a letter belongs to the original record. Owns nothing. ``dead_letters.py`` writes them.

The headers of a letter are those of the record, then ours. A record of a topic of dead letters that failed again has two sets of
ours: the last is about the last failure, and the first stays with the record.
"""

from typing import Final, Self

from attrs import frozen

from ..model import TopicPartition
from .dead_letters import ATTEMPTS, EXCEPTION, GROUP, LEFT_OUT, OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC, Headers, Record

REDRIVES: Final = "dead-letter-redrives"
"""How many times a record was written back to its topic. It stays with the record, and so with its next letter."""
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
    timestamp: int
    """Of the original record, in milliseconds."""
    exception: str
    reason: str
    attempts: int
    group: str | None
    left_out: int | None
    """Bytes of the value, if it was too large for a letter."""
    redrives: int
    """How often the record was written back before it became this letter."""

    @classmethod
    def read(cls, record: Record) -> "Self | None":
        """Return the letter that a record is; ``None`` for a record that ``DeadLetters`` has not written."""
        begin = _begin(record)
        if begin is None:
            return None
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
                redrives=_redrives(record, begin),
            )
        except (KeyError, ValueError):
            return None


def headers_back(record: Record) -> Headers:
    """Return the headers of the original record, and how often it has been written back with this time."""
    begin = _begin(record)
    if begin is None:
        raise ValueError(f"{record.topic}:{record.partition}:{record.offset} is not a dead letter: it has no header {TOPIC}")
    before = [header for header in record.headers[:begin] if header[0] != REDRIVES]
    after = [header for header in record.headers[begin:] if header[0] not in _OURS]  # of a producer that adds some
    return [*before, *after, (REDRIVES, b"%d" % (_redrives(record, begin) + 1))]


def _begin(record: Record) -> int | None:
    """Return where our headers begin."""
    return max((index for index, (name, _) in enumerate(record.headers) if name == TOPIC), default=None)


def _redrives(record: Record, begin: int) -> int:
    counts = [value or b"" for name, value in record.headers[:begin] if name == REDRIVES]
    return int(counts[-1]) if counts and counts[-1].isdigit() else 0
