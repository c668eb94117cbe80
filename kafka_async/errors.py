"""Every error this package raises, in one tree.

Names are aiokafka's if aiokafka has one, so that ``except`` clauses move over unchanged; otherwise the name is Java's with
``Error`` for ``Exception``. ::

    Exception
    ├── ConsumerStoppedError            use after stop(); not a KafkaError, so that ``except KafkaError: retry`` loops end
    ├── IllegalOperation                the call needs a group_id
    └── KafkaError (RuntimeError)       retriable, invalid_metadata
        ├── KafkaConnectionError        retriable: a broker could not be reached, or the connection broke
        │   ├── TlsHandshakeError       the socket connected, but TLS failed on it; another attempt may succeed
        │   ├── NameResolutionError     the host name of a server cannot be resolved
        │   ├── NodeNotReadyError       no connection to the node yet
        │   └── NoBrokersAvailable      none of the known brokers answers
        ├── RequestWithdrawnError       a request was not sent: nobody waits for its answer any more. No call raises it
        ├── KafkaTimeoutError           retriable: the deadline of a call passed; ``__cause__`` is the last failure seen
        ├── KafkaProtocolError          retriable: the peer broke the protocol; the connection is closed
        │   ├── CorrelationIdError      a response that belongs to no request of ours
        │   ├── FrameSizeError          a frame length that is negative or above the limit
        │   └── MalformedResponseError  bytes that are not the message they should be
        ├── AuthenticationFailedError   credentials or certificates were refused; fatal for the connection
        │   ├── AuthenticationMethodNotSupported
        │   └── SslAuthenticationError  a certificate was refused, or the port speaks TLS and we do not
        ├── KafkaConfigurationError     options that contradict each other or the broker
        ├── IllegalStateError           the call does not fit the consumer's state
        ├── IllegalArgumentError        an argument that no consumer could accept
        ├── NoOffsetForPartitionError   no committed offset and ``auto_offset_reset="none"``
        ├── LogTruncationError          the log was truncated below our position (KIP-320)
        ├── DeserializationError        a deserializer raised; carries the raw record; the position is past it
        ├── ProcessingError             a handler of ``process`` that failed for good
        │   ├── TooManyFailuresError    too many of the last records failed for good
        │   ├── NoRoute                 a record that takes no route of a ``Router``
        │   └── InvalidValue            a value that does not fit the type of its route
        ├── LockLostError               the lock on a record of a share group has ended; others may have it
        ├── RecordTooLargeError         a record that the broker cannot send us
        ├── UnsupportedCodecError       a batch in a codec that is unknown
        ├── DataLossError               offsets to be read are no longer in the log, or not yet
        ├── WorkerError                 a process that read a part of a scan has died
        ├── CommitFailedError           the commit was refused; ``lost`` names partitions no longer assigned
        │   └── TopicRecreatedError     the offset belongs to a topic that was deleted; another one has its name now
        ├── BackgroundLoopError         a bug in the background loop; ``__cause__`` is the original
        └── BrokerResponseError         ``errno`` is the broker's code; one subclass per code, see ``BY_CODE``
            ├── CorruptRecordException  also raised by our own CRC and structure checks
            ├── OffsetOutOfRangeError   also raised when the policy is "none"
            └── ...
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

E = TypeVar("E", bound=BaseException)


def linked(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and all that it follows from, or is a group of."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ())]


def detached(error: E) -> E:
    """Return ``error`` without the frames that it and its causes have passed through.

    Errors may be kept for a long time: in a connection's history, or by an application. Their frames would keep their data alive,
    such as a response of megabytes that could not be decoded.
    """
    for each in linked(error):
        each.__traceback__ = None
    return error


class ConsumerStoppedError(Exception):
    """The consumer was stopped, or failed for good, and can no longer be used."""


class IllegalOperation(Exception):
    """The operation needs a ``group_id`` and this consumer has none."""


class KafkaError(RuntimeError):
    """Base of all errors that Kafka or this package reports."""

    retriable: ClassVar[bool] = False
    """The same call may succeed if tried again."""
    invalid_metadata: ClassVar[bool] = False
    """The cause is stale metadata; a refresh is already under way when this is raised."""


class KafkaConnectionError(KafkaError):
    """A broker could not be reached, or a connection broke before the answer came."""

    retriable = True
    invalid_metadata = True


class TlsHandshakeError(KafkaConnectionError):
    """The socket connected, but the TLS handshake failed in a way that may not happen again."""


class NameResolutionError(KafkaConnectionError):
    """The host name of a server cannot be resolved, at least not now."""


class NodeNotReadyError(KafkaConnectionError):
    """There is no usable connection to the node yet."""


class RequestWithdrawnError(KafkaError):
    """A request was not sent, because nobody waits for its answer any more."""


class NoBrokersAvailable(KafkaConnectionError):
    """None of the bootstrap servers, or of the known brokers, could be reached."""


class KafkaTimeoutError(KafkaError):
    """The deadline of a call passed. ``__cause__`` is the last failure seen on the way, if there was one."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """The peer broke the Kafka protocol; its connection is closed and every request on it fails."""

    retriable = True
    invalid_metadata = True


class CorrelationIdError(KafkaProtocolError):
    """A response had a correlation id other than that of the oldest request in flight."""


class FrameSizeError(KafkaProtocolError):
    """A frame announced a length that is negative or above the limit; nothing was allocated for it."""


class MalformedResponseError(KafkaProtocolError):
    """The bytes of a response are not the message that was asked for."""


class AuthenticationFailedError(KafkaError):
    """The broker refused our credentials, or we refused its certificate. Retrying with the same ones is useless."""


class AuthenticationMethodNotSupported(AuthenticationFailedError):
    """The broker does not offer the SASL mechanism that was configured."""


class SslAuthenticationError(AuthenticationFailedError):
    """We refused the broker's certificate, it refused ours, or the broker uses TLS and this client does not."""


class KafkaConfigurationError(KafkaError):
    """Options contradict each other, or ask for what the broker cannot do."""


class IllegalStateError(KafkaError):
    """The call does not fit the state of the consumer, such as a seek on a partition that is not assigned."""


class IllegalArgumentError(KafkaError):
    """An argument that no consumer could accept."""


class NoOffsetForPartitionError(KafkaError):
    """No offset is stored for the partitions and ``auto_offset_reset`` is ``"none"``.

    ``partitions`` holds the ``TopicPartition`` values concerned.
    """

    def __init__(self, message: str, partitions: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.partitions = partitions


class LogTruncationError(KafkaError):
    """The log of a partition was truncated below the position (KIP-320) and no reset policy is set.

    ``positions`` maps each partition to the position that is gone, ``divergent_offsets`` to the first safe offset if it is known.
    """

    def __init__(
        self, message: str, positions: Mapping[Any, int] | None = None, divergent_offsets: Mapping[Any, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.positions = dict(positions or {})
        self.divergent_offsets = dict(divergent_offsets or {})


class DeserializationError(KafkaError):
    """A deserializer raised. Everything before ``record`` was delivered and the position is past it.

    An error that is ``retriable`` is raised as it is instead, and the position stays.

    ``record`` is the raw ``ConsumerRecord`` (bytes), ``field`` is ``"key"`` or ``"value"``, ``__cause__`` what was raised.
    """

    def __init__(self, message: str, record: Any = None, field: str = "value") -> None:
        super().__init__(message)
        self.record = record
        self.field = field


class ProcessingError(KafkaError):
    """A handler of ``process`` failed for good, or ``on_failure`` did; ``__cause__`` is the reason.

    ``record`` is not done and was not committed: it is read again. ``attempts`` is the number of attempts made, 0 if no handler had
    the record, as one that cannot be deserialized.
    """

    def __init__(self, message: str, record: Any = None, attempts: int = 0) -> None:
        super().__init__(message)
        self.record = record
        self.attempts = attempts


class TooManyFailuresError(ProcessingError):
    """Too many of the last records failed for good (``process(too_many_failures=...)``).

    ``record`` is the last one, and ``__cause__`` is why it failed. It counts as done, since ``on_failure`` has it.
    """


class NoRoute(ProcessingError):
    """A record takes no route of the router; goes to ``on_failure`` without another attempt."""


class InvalidValue(ProcessingError):
    """The value of a record does not fit the type of its route; ``__cause__`` says why.

    It goes to ``on_failure`` without another attempt, and the record keeps its bytes.
    """


class LockLostError(KafkaError):
    """The lock on a record of a share group has ended, so another member may get the record, or has it already.

    Raised by ``async with record``: as the block is entered, and at its end if the lock was lost inside, which also cancels the
    block. ``record`` is the ``ShareRecord``. It was not acknowledged; skip it. The message and ``__cause__`` say why the lock has
    ended, if that is known already.
    """

    def __init__(self, message: str, record: Any = None) -> None:
        super().__init__(message)
        self.record = record


class RecordTooLargeError(KafkaError):
    """A record is larger than the broker or the configuration allows."""


class UnsupportedCodecError(KafkaError):
    """A batch is compressed with a codec that Kafka does not define."""


class DataLossError(KafkaError):
    """Offsets to be read are no longer in the log, or not yet; the message names topic, partition and offsets."""


class WorkerError(KafkaError):
    """A process that read a part of a scan has died; the message names the ranges that it was reading, and how it ended."""


class CommitFailedError(KafkaError):
    """The commit was refused for good. ``lost`` names the partitions that are no longer assigned; the others were committed."""

    def __init__(self, message: str, lost: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.lost = lost


class TopicRecreatedError(CommitFailedError):
    """The offset belongs to a topic that was deleted, and another one has its name now: it was dropped. No call raises this."""


class BackgroundLoopError(KafkaError):
    """The background loop failed because of a bug; the consumer cannot go on. ``__cause__`` is the original error.

    Raised once, by a consumer that goes on, if that happened in a rebalance before the first call, such as in a trace listener.
    """


class BrokerResponseError(KafkaError):
    """A broker answered with an error code, kept in ``errno``."""

    errno: int = -1
    description: ClassVar[str] = ""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (self.description,)))

    def __str__(self) -> str:
        return f"[Error {self.errno}] {type(self).__name__}: {' '.join(str(a) for a in self.args)}"


class UnknownError(BrokerResponseError):
    """The broker reported an unexpected error of its own, or a code that this client does not know."""

    errno = -1
    description = "The server experienced an unexpected error when processing the request."


UnknownServerError = UnknownError


class OffsetOutOfRangeError(BrokerResponseError):
    """The position is outside the log and no reset policy is set. ``offsets`` maps partition to the offset asked for."""

    errno = 1
    description = "The requested offset is not within the range of offsets maintained by the server."

    def __init__(self, *args: object, offsets: Mapping[Any, int] | None = None) -> None:
        super().__init__(*args)
        self.offsets: dict[Any, int] = dict(offsets or {})


class CorruptRecordException(BrokerResponseError):
    """A batch failed its CRC check, or its structure is inconsistent.

    ``topic``, ``partition`` and ``offset`` say where; the position stays at ``offset`` until the application seeks past it.
    """

    errno = 2
    retriable = True
    description = "This message has failed its CRC checksum, exceeds the valid size or is otherwise corrupt."

    def __init__(self, *args: object, topic: str | None = None, partition: int | None = None, offset: int | None = None) -> None:
        super().__init__(*args)
        self.topic = topic
        self.partition = partition
        self.offset = offset


InvalidMessageError = CorruptRecordException


class UnknownTopicOrPartitionError(BrokerResponseError):
    errno = 3
    retriable = True
    invalid_metadata = True
    description = "This server does not host this topic-partition."


class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
    description = "The requested fetch size is invalid."


class LeaderNotAvailableError(BrokerResponseError):
    errno = 5
    retriable = True
    invalid_metadata = True
    description = "There is no leader for this topic-partition as we are in the middle of a leadership election."


class NotLeaderForPartitionError(BrokerResponseError):
    errno = 6
    retriable = True
    invalid_metadata = True
    description = "The broker is not the leader (or a follower) of the topic-partition."


class RequestTimedOutError(BrokerResponseError):
    errno = 7
    retriable = True
    description = "The request timed out on the broker."


class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
    description = "The broker is not available."


class ReplicaNotAvailableError(BrokerResponseError):
    errno = 9
    retriable = True
    invalid_metadata = True
    description = "The replica is not available for the requested topic-partition."


class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
    description = "A message is larger than the broker accepts."


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
    description = "The metadata string of a committed offset is too large."


class NetworkExceptionError(BrokerResponseError):
    errno = 13
    retriable = True
    invalid_metadata = True
    description = "The server disconnected before a response was received."


class CoordinatorLoadInProgressError(BrokerResponseError):
    errno = 14
    retriable = True
    description = "The coordinator is loading and cannot process requests yet."


class CoordinatorNotAvailableError(BrokerResponseError):
    errno = 15
    retriable = True
    description = "The coordinator is not available."


class NotCoordinatorError(BrokerResponseError):
    errno = 16
    retriable = True
    description = "This broker is not the coordinator of the group."


class InvalidTopicError(BrokerResponseError):
    errno = 17
    description = "The topic name is not valid."


class IllegalGenerationError(BrokerResponseError):
    errno = 22
    description = "The generation of the group member is not valid."


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23
    description = "The protocols of the member are incompatible with those of the group."


class InvalidGroupIdError(BrokerResponseError):
    errno = 24
    description = "The group id is invalid."


class UnknownMemberIdError(BrokerResponseError):
    errno = 25
    description = "The coordinator is not aware of this member."


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26
    description = "The session timeout is not within the range that the broker allows."


class RebalanceInProgressError(BrokerResponseError):
    errno = 27
    description = "The group is rebalancing, so a rejoin is needed."


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28
    description = "The data of the commit is too large."


class TopicAuthorizationFailedError(BrokerResponseError):
    errno = 29
    description = "Not authorized to access the topic."


class GroupAuthorizationFailedError(BrokerResponseError):
    errno = 30
    description = "Not authorized to access the group."


class ClusterAuthorizationFailedError(BrokerResponseError):
    errno = 31
    description = "Not authorized to access the cluster."


class InvalidTimestampError(BrokerResponseError):
    errno = 32
    description = "The timestamp is out of the acceptable range."


class UnsupportedSaslMechanismError(BrokerResponseError):
    errno = 33
    description = "The broker does not support the requested SASL mechanism."


class IllegalSaslStateError(BrokerResponseError):
    errno = 34
    description = "The request is not valid in the current SASL state."


class UnsupportedVersionError(BrokerResponseError):
    errno = 35
    description = "The broker does not support the API or the version that is needed."


class InvalidConfigurationError(BrokerResponseError):
    errno = 40
    description = "The configuration is invalid."


class NotControllerError(BrokerResponseError):
    errno = 41
    retriable = True
    invalid_metadata = True
    description = "This is not the controller of the cluster."


class InvalidRequestError(BrokerResponseError):
    errno = 42
    description = "The broker could not make sense of the request."


class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = 43
    description = "The message format on the broker does not support the request."


class PolicyViolationError(BrokerResponseError):
    errno = 44
    description = "The request does not satisfy a policy of the broker."


class SecurityDisabled(BrokerResponseError):
    errno = 54
    description = "Security features are disabled on the broker."


class KafkaStorageError(BrokerResponseError):
    errno = 56
    retriable = True
    invalid_metadata = True
    description = "Disk error when the broker accessed the log."


class SaslAuthenticationFailed(BrokerResponseError):
    errno = 58
    description = "The broker refused the SASL credentials."


class DelegationTokenAuthDisabled(BrokerResponseError):
    errno = 61
    description = "Delegation tokens are not enabled."


class DelegationTokenNotFound(BrokerResponseError):
    errno = 62
    description = "The delegation token is not known to the broker."


class DelegationTokenAuthorizationFailed(BrokerResponseError):
    errno = 65
    description = "Not authorized to use the delegation token."


class DelegationTokenExpired(BrokerResponseError):
    errno = 66
    description = "The delegation token is expired."


class NonEmptyGroup(BrokerResponseError):
    errno = 68
    description = "The group is not empty."


class GroupIdNotFound(BrokerResponseError):
    errno = 69
    description = "The group id does not exist."


class FetchSessionIdNotFound(BrokerResponseError):
    errno = 70
    retriable = True
    description = "The broker does not know the fetch session."


class InvalidFetchSessionEpoch(BrokerResponseError):
    errno = 71
    retriable = True
    description = "The epoch of the fetch session is invalid."


class ListenerNotFound(BrokerResponseError):
    errno = 72
    retriable = True
    invalid_metadata = True
    description = "The leader has no listener like the one the metadata request came in on."


class TopicDeletionDisabledError(BrokerResponseError):
    errno = 73
    description = "Topic deletion is disabled."


class FencedLeaderEpochError(BrokerResponseError):
    errno = 74
    retriable = True
    invalid_metadata = True
    description = "The leader epoch in the request is older than the broker's."


class UnknownLeaderEpochError(BrokerResponseError):
    errno = 75
    retriable = True
    invalid_metadata = True
    description = "The leader epoch in the request is newer than the broker's."


class UnsupportedCompressionTypeError(BrokerResponseError):
    errno = 76
    description = "The client does not support the compression type of the partition."


class OffsetNotAvailableError(BrokerResponseError):
    errno = 78
    retriable = True
    description = "The high watermark has not caught up with a recent election, so offsets cannot be guaranteed."


class MemberIdRequired(BrokerResponseError):
    errno = 79
    description = "The member must come back with the member id it was given (KIP-394)."


class PreferredLeaderNotAvailableError(BrokerResponseError):
    errno = 80
    retriable = True
    invalid_metadata = True
    description = "The preferred leader is not available."


class GroupMaxSizeReachedError(BrokerResponseError):
    errno = 81
    description = "The group has reached its maximum size."


class FencedInstanceIdError(BrokerResponseError):
    errno = 82
    description = "Another member with the same group_instance_id has taken over."


class EligibleLeadersNotAvailableError(BrokerResponseError):
    errno = 83
    retriable = True
    invalid_metadata = True
    description = "No eligible leader is available."


class GroupSubscribedToTopicError(BrokerResponseError):
    errno = 86
    description = "Offsets of a topic cannot be deleted while the group is subscribed to it."


class InvalidRecordError(BrokerResponseError):
    errno = 87
    description = "The broker rejected a record."


class UnstableOffsetCommitError(BrokerResponseError):
    errno = 88
    retriable = True
    description = "Transactional offset commits are pending, so the offsets are not stable yet (KIP-447)."


class ThrottlingQuotaExceededError(BrokerResponseError):
    errno = 89
    retriable = True
    description = "A quota was exceeded."


class ResourceNotFoundError(BrokerResponseError):
    errno = 91
    description = "The request refers to a resource that does not exist."


class UnknownTopicIdError(BrokerResponseError):
    errno = 100
    retriable = True
    invalid_metadata = True
    description = "This server does not host the topic id."


class InconsistentTopicIdError(BrokerResponseError):
    errno = 103
    retriable = True
    invalid_metadata = True
    description = "The topic id of the log is not the one in the request."


class InconsistentClusterIdError(BrokerResponseError):
    errno = 104
    description = "The cluster id in the request is not the broker's."


class FetchSessionTopicIdError(BrokerResponseError):
    errno = 106
    retriable = True
    description = "The fetch session mixed topic names and topic ids."


class OffsetMovedToTieredStorageError(BrokerResponseError):
    errno = 109
    description = "The requested offset has moved to tiered storage."


class FencedMemberEpochError(BrokerResponseError):
    errno = 110
    description = "The coordinator has fenced the member's epoch; it must give up its partitions and rejoin."


class UnreleasedInstanceIdError(BrokerResponseError):
    errno = 111
    description = "Another member still uses the group_instance_id: it has to leave first, or its session has to end."


class UnsupportedAssignorError(BrokerResponseError):
    errno = 112
    description = "The group does not support the assignor."


class StaleMemberEpochError(BrokerResponseError):
    errno = 113
    description = "The member epoch is stale; retry with the new one."


class UnknownControllerIdError(BrokerResponseError):
    errno = 116
    description = "The controller id is not known."


class UnknownSubscriptionIdError(BrokerResponseError):
    errno = 117
    description = "The telemetry subscription is invalid or outdated."


class TelemetryTooLargeError(BrokerResponseError):
    errno = 118
    description = "The telemetry is larger than the broker accepts."


class InvalidRecordStateError(BrokerResponseError):
    errno = 121
    description = "The record is not locked for this member of the share group any more, or was acknowledged before."


class ShareSessionNotFoundError(BrokerResponseError):
    errno = 122
    retriable = True
    description = "The broker does not know the share session."


class InvalidShareSessionEpochError(BrokerResponseError):
    errno = 123
    retriable = True
    description = "The broker expects another epoch of the share session."


class FencedStateEpochError(BrokerResponseError):
    errno = 124
    retriable = True
    description = "The share coordinator has fenced the broker's state of the share partition."


class InvalidRegularExpressionError(BrokerResponseError):
    errno = 128
    description = "The regular expression is not valid."


class RebootstrapRequiredError(BrokerResponseError):
    errno = 129
    retriable = True
    invalid_metadata = True
    description = "The client's metadata is stale; it has to bootstrap again (KIP-1102)."


class ShareSessionLimitReachedError(BrokerResponseError):
    errno = 133
    retriable = True
    description = "The broker has as many share sessions as it allows (group.share.max.share.sessions)."


NotLeaderOrFollowerError = NotLeaderForPartitionError
GroupCoordinatorNotAvailableError = CoordinatorNotAvailableError
GroupLoadInProgressError = CoordinatorLoadInProgressError
NotCoordinatorForGroupError = NotCoordinatorError

BY_CODE: Mapping[int, type[BrokerResponseError]] = {cls.errno: cls for cls in BrokerResponseError.__subclasses__()}
"""Class of each broker error code that a consumer can meet."""


LONGEST_TEXT: Final = 300
"""Characters of a broker's text that an error repeats."""
LONGEST_REASON: Final = 1000
"""Characters of an error of the program's that an error of ours repeats; it is the ``__cause__`` anyway."""


def one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a broker's text, fit for an error, a log or a terminal: printable, on one line, and of limited length."""
    line = text[:longest]
    if not line.isprintable():
        line = "".join(character if character.isprintable() else " " for character in line)
    return line + "..." if len(text) > longest else line


def shown(value: object, longest: int = LONGEST_TEXT) -> str:
    """Return ``repr(value)`` for an error that is about it, of limited length: it may be a record, or hold megabytes of one.

    An error of Unicode is shown with its text, since its ``repr`` is all the data, and then the reason.
    """
    text = f"{type(value).__name__}({said(value)!r})" if isinstance(value, UnicodeError) else _text(repr, value)
    return text[:longest] + "..." if len(text) > longest else text


def said(error: BaseException) -> str:
    """Return ``str(error)``, also of a program's error that cannot say anything."""
    return _text(str, error)


def _text(form: Callable[[object], str], value: object) -> str:
    try:
        return form(value)
    except Exception as error:  # a bug of the program's: the failure that is told of must not be lost because of that
        return f"<{type(value).__name__}, whose text raised {type(error).__name__}>"


def for_code(code: int, message: str | None = None, *, group: str | None = None, topic: str | None = None) -> BrokerResponseError:
    """Return the error for a broker's ``code`` (not 0), with ``message``, cut and on one line, in place of Kafka's description.

    ``group``, ``topic``: what the request was about. An authorization error names it, since brokers do not; its text is the same
    for each partition of a topic, so that a caller gets it once. A code without a class of its own becomes an ``UnknownError``
    whose ``errno`` is that code: a newer broker must not break us.
    """
    cls = BY_CODE.get(code)
    message = one_line(message) if message else None
    if cls is GroupAuthorizationFailedError and group is not None:
        return cls(f"group {group!r}: {cls.description}")
    if cls is TopicAuthorizationFailedError and topic is not None:
        return cls(f"topics {topic!r}: {cls.description}")
    if cls is None:
        error = UnknownError(message or f"The broker answered with error code {code}, which this client does not know.")
        error.errno = code
        return error
    return cls(message) if message else cls()
