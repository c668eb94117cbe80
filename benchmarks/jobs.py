"""What one worker process is asked to do, and the shape of the records it reads. Plain data; imports no client."""

import json
from typing import Final, Literal

from attrs import asdict, frozen

Mode = Literal["throughput", "latency", "paced", "slow", "idle", "member"]
Protocol = Literal["classic", "consumer"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

LARGE_BATCH: Final = 1_000_000
SMALL_BATCH: Final = 16_384
CODECS: Final[tuple[Codec, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")


@frozen(kw_only=True)
class Shape:
    """The records of one topic: bytes of a value, compression, partitions, headers or not, how many, bytes of a record batch.

    ``batch`` is what producers call ``batch.size``, before compression; batches are full. ``LARGE_BATCH`` is librdkafka's default,
    ``SMALL_BATCH`` that of Kafka's own producer.
    """

    size: int = 100
    codec: Codec = "none"
    partitions: int = 1
    headers: bool = False
    records: int = 2_000_000
    batch: int = LARGE_BATCH
    bad: bool = False
    """Whether every hundredth value is cut off, so that it is not JSON."""

    def __str__(self) -> str:
        parts = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        headers = (", headers" if self.headers else "") + (", 1 % bad" if self.bad else "")
        return f"{self.records:,} records of {self.size} B, {self.codec}, {parts}{headers}, batches of {self.batch // 1000} KB"


@frozen(kw_only=True)
class Job:
    """One run of one client, as it crosses to the worker process in JSON.

    ``reset``: where reading begins. ``at_once``: records per call of clients that wait for a full batch (confluent's ``consume``)
    and records per step of the clients that iterate. ``max_records``: limit of a read call of the others; ``None``: their default.
    ``size``: bytes of a value, for clients that do not look at it. ``seconds``: how long to measure if time ends the run;
    ``pause``: seconds that a slow reader sleeps after each read. ``group``, ``protocol``, ``metadata_ms``
    (``metadata.max.age.ms``): of a member, whose ``partitions`` are the number that it is to get.
    """

    mode: Mode
    bootstrap: str
    topic: str
    partitions: int
    records: int = 0
    size: int = 0
    reset: Literal["earliest", "latest"] = "earliest"
    at_once: int = 1000
    max_records: int | None = None
    seconds: float = 0.0
    warm_up: float = 2.0
    pause: float = 0.0
    group: str = ""
    protocol: Protocol = "consumer"
    metadata_ms: int = 300_000

    def to_json(self) -> str:
        """Return the job as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Return the job that ``to_json`` wrote."""
        return cls(**json.loads(text))
