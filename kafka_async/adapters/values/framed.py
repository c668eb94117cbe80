"""Values whose schemas are in a registry: which schema each was written with (Confluent's wire format).

The id is looked for first in the header ``__value_schema_id`` (Confluent Platform 8: a one and the sixteen bytes of a schema's
GUID, or a zero byte and the number in four; the value is then bare), and else in front of the value: a zero byte and the number in
four bytes. A registry that does not answer is an error, never a bad value; so is a topic of which the first values that a process
reads, ``FEW`` or more, have no id that the registry knows: it was written without a registry, or by another one. The number in
front may be the first bytes of a bare value, since those can begin with a zero byte, too.
"""

import io
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from struct import Struct
from typing import Any, Final, Generic, Self, TypeVar
from uuid import UUID

from ...errors import KafkaConfigurationError
from ...values import evolve, field, frozen
from .ddl import Fields, shown
from .decoding import BadValueError, Piece, ValueDecoder
from .names import REGISTRY
from .registry import RegisteredSchema, Registry, UnknownSchemaError

W = TypeVar("W")
NUMBER: Final = 0
GUID: Final = 1
"""The first byte of an id: of a number in four bytes, or of a GUID in sixteen."""
FRAME: Final = Struct(">bI")
GUID_SIZE: Final = 17
FEW: Final = 5
"""Fewer values without an id may be bad values."""
MISSING_SECONDS: Final = 30.0
"""How long an id that the registry did not know is not asked for again: it may be about to learn it from its leader."""
ONCE_MORE: Final = 0.25
"""Seconds after which it is asked again for one of the first ids that it does not know: most followers have learnt it by then."""
MAX_UNKNOWN: Final = 64
"""Ids of one batch that it does not know, after which it is asked for no more if it knows none of the topic's: probably the values
have no ids."""
MAX_ASKED: Final = 1000
"""As many of a topic that does have ids: each question takes milliseconds."""
_KEPT: Final = re.compile(r"(?:([^:;]+):)?id=(\d+),version=(\d+)")
"""A topic, if it was one topic's schema, and the schema's id and version."""


@frozen(kw_only=True)
class RegisteredDecoder(ValueDecoder):
    """A decoder whose schemas may be in a registry."""

    schema: str
    """The reader's schema."""
    built: Fields
    """The types that Arrow builds, by column, before they are cast to those of ``columns``."""
    registry: Registry | None = None
    kept: str = ""
    """Id and version of the reader's schema if it is one of a subject: ``orders:id=7,version=2``, without the topic if it is for
    several."""
    chosen: bool = False
    """Whether the user has chosen that version, and not what was newest."""
    known: tuple[tuple[int | str, str], ...] = field(default=(), repr=False)
    """Schemas of writers, by id, that the driver asked for, as JSON: tasks need not ask for these."""

    @property
    def id_header(self) -> str | None:
        """The header that may hold the id of a schema; none if there is no registry."""
        return None if self.registry is None else f"__{self.part}_schema_id"

    @property
    def version(self) -> int | None:
        """The version of the reader's schema if it is one of a subject."""
        return int(match[3]) if (match := _KEPT.fullmatch(self.kept)) else None

    def begin_reading(self) -> None:
        """See ``ValueDecoder``. A topic of which a value had an id once stays one of values with ids."""
        for key, count in list(_without_ids.items()):  # others may read meanwhile
            if count is not None and key[0] == self:
                _without_ids.pop(key, None)

    def keeping(self, kept: str) -> Self:
        """Return a decoder whose reader's schema is the one that was newest when a stream began, if the user names no other.

        That is the entry of its topic, or one without a topic. Where several topics have one schema now, one entry may be meant.
        Raises ``KafkaConfigurationError`` if its columns are other ones: Spark has planned those of the newest.
        """
        if self.registry is None or not self.kept or self.chosen or kept in ("", self.kept):
            return self
        topic, entries = self.kept.rpartition(":")[0], _entries(kept)
        found = entries.get(topic) or entries.get("") or (next(iter(entries.values())) if not topic and len(entries) == 1 else None)
        if found is None:
            return self
        number, version = found
        schema, built, columns = self.of_schema(number)
        there = dict(columns)
        for name, kind in self.columns:
            if there.get(name) != kind:
                was = "not there" if name not in there else shown(there[name])
                ((newest, newest_version),) = _entries(self.kept).values()
                raise KafkaConfigurationError(
                    f"the stream began with the schema of id {number}, version {version}, in which field {name!r} was {was}, and "
                    f"in the newest, id {newest}, version {newest_version}, it is {shown(kind)}; {self.part}.schema.registry."
                    f"version={version} goes on as before, and another version begins to read with that one"
                )
        return evolve(self, schema=schema, built=built, kept=_kept(topic, number, version))

    @abstractmethod
    def of_schema(self, number: int) -> tuple[str, Fields, Fields]:
        """Return a schema of the registry for reading, the types that Arrow builds, and the columns."""


@frozen(kw_only=True)
class TopicsDecoder(ValueDecoder):
    """A decoder for each topic, with the schema of its own subject; all have the same columns."""

    each: tuple[tuple[str, ValueDecoder], ...]

    @property
    def id_header(self) -> str | None:
        """The header that may hold the id of a schema."""
        return self.each[0][1].id_header

    @property
    def kept(self) -> str:
        """What the decoders keep: ``orders:id=7,version=2;payments:id=9,version=1``."""
        return ";".join(decoder.kept for _, decoder in self.each if decoder.kept)

    def keeping(self, kept: str) -> Self:
        """Return a decoder in which each topic keeps its schema. Raises as that of one topic."""
        parts = dict(zip(_entries(kept), kept.split(";"), strict=True)) if kept else {}
        return evolve(self, each=tuple((topic, decoder.keeping(parts.get(topic, ""))) for topic, decoder in self.each))

    def begin_reading(self) -> None:
        """See ``ValueDecoder``."""
        for _, decoder in self.each:
            decoder.begin_reading()

    def select(self, names: Collection[str]) -> Self:
        """Return a decoder of fewer columns."""
        fewer = super().select(names)
        return evolve(fewer, each=tuple((topic, decoder.select(names)) for topic, decoder in self.each))

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values as the decoder of their topic reads them."""
        return dict(self.each)[topic].piece(values, ids, topic)


def for_each_topic(
    options: Mapping[str, str], topics: Sequence[str], part: str, make: Callable[[Mapping[str, str], Sequence[str]], ValueDecoder]
) -> ValueDecoder | None:
    """Return a decoder for several topics, each with the subject ``TOPIC-value``; ``None`` for one topic, and if the options name a
    schema.

    Raises ``KafkaConfigurationError`` if the subjects have different columns.
    """
    given = (f"{REGISTRY}subject", f"{REGISTRY}version", "value.schema")
    if len(topics) < 2 or f"{REGISTRY}url" not in options or any(name in options for name in given):
        return None
    each = [(topic, make({**options, f"{REGISTRY}subject": f"{topic}-{part}"}, (topic,))) for topic in sorted(topics)]
    (first, decoder), *others = each
    for topic, other in others:
        here, there = dict(decoder.columns), dict(other.columns)
        if different := sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name)):
            name = different[0]
            what = " and ".join(shown(columns[name]) if name in columns else "not there" for columns in (here, there))
            raise KafkaConfigurationError(
                f"the newest schemas of {first}-{part} and {topic}-{part} have different columns ({name!r} is {what}); "
                f"{REGISTRY}subject says which one names the columns of all topics"
            )
    same_order = tuple((topic, evolve(other, columns=decoder.columns)) for topic, other in each)
    return TopicsDecoder(
        each=same_order, columns=decoder.columns, permissive=decoder.permissive, prefix=decoder.prefix, part=decoder.part
    )


def kept_schema(found: RegisteredSchema, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, Any]:
    """Return what a decoder knows of its reader's schema if that is a version of a subject."""
    known = found.id is not None and found.version is not None
    kept = _kept(topics[0] if len(topics) == 1 else "", found.id, found.version) if known else ""
    return {"kept": kept, "chosen": f"{REGISTRY}version" in options}


def _kept(topic: str, number: int | None, version: int | None) -> str:
    return f"{topic}:id={number},version={version}" if topic else f"id={number},version={version}"


def _entries(kept: str) -> dict[str, tuple[int, int]]:
    """Return id and version by topic, of what a checkpoint says; the topic is empty if there is none."""
    found = [_KEPT.fullmatch(entry) for entry in kept.split(";")]
    if None in found:
        raise KafkaConfigurationError(f"checkpoint: {kept!r} is not like 'id=7,version=2'")
    return {match[1] or "": (int(match[2]), int(match[3])) for match in found if match is not None}


def in_front(data: io.BytesIO) -> int:
    """Return the id in front of a value, and move behind it. Raises ``BadValueError``."""
    head = data.read(FRAME.size)
    if len(head) < FRAME.size or head[0] != NUMBER:
        raise BadValueError("it does not begin with a zero byte and the id of a schema")
    number: int = FRAME.unpack(head)[1]
    return number


def in_header(header: bytes, *, more: bool = False) -> str | int:
    """Return the id in a header; ``more``: something may follow it. Raises ``BadValueError``."""
    if header[:1] == b"\0" and (len(header) == FRAME.size or (more and len(header) > FRAME.size)):
        number: int = FRAME.unpack_from(header)[1]
        return number
    if header[:1] == b"\1" and (len(header) == GUID_SIZE or (more and len(header) > GUID_SIZE)):
        return str(UUID(bytes=header[1:GUID_SIZE]))
    raise BadValueError("the header holds no id of a schema")


_without_ids: dict[tuple[RegisteredDecoder, str], int | None] = {}
"""How many values of a topic this process has seen before the first with a known id, in the last reading if it has a beginning;
``None``: it has seen such a one."""
_missing: dict[tuple[Registry, str | int], float] = {}
"""Ids that a registry did not know, and when."""
_met: set[tuple[Registry, str | int]] = set()
"""Ids that a registry knew: as a rule they need no question."""
_MOST: Final = 1000


class Writers(Generic[W]):
    """The schemas that the values of one batch of a topic were written with.

    ``parse``: what makes one of a text that the driver sent. ``load``: what asks the registry, and returns one, or a text: why
    values cannot be read with it; raises ``UnknownSchemaError`` if there is none.
    """

    def __init__(
        self, decoder: RegisteredDecoder, topic: str, *, parse: Callable[[str], W], load: Callable[[Registry, str | int], W | str]
    ) -> None:
        self._decoder = decoder
        self._topic = topic
        self._known = dict(decoder.known)
        self._parse = parse
        self._load = load
        self._found = _without_ids.get((decoder, topic), 0) is None
        """Whether a value had an id that the registry knows, in this batch or before."""
        self._writers: dict[str | int, W] = {}
        self._unknown: set[str | int] = set()
        self._unasked = False
        """Whether the registry was not asked for an id, as it seemed that the topic had none."""
        self._unusable = ""
        """Why values cannot be read with a schema that the registry does have."""

    def __call__(self, name: str | int) -> W:
        """Return the schema with an id. Raises ``BadValueError`` if the registry has none, or none that values are read with."""
        if (writer := self._writers.get(name)) is None:
            writer = self._writers[name] = self._writer(name)
            self._found = True
        return writer

    def _writer(self, name: str | int) -> W:
        if (text := self._known.get(name)) is not None:
            return self._parse(text)
        registry = self._decoder.registry
        most = MAX_ASKED if self._found else MAX_UNKNOWN
        if len(self._unknown) >= most and name not in self._unknown and (registry, name) not in _met:
            self._unasked = self._unasked or not self._found
            raise BadValueError(f"the registry was not asked for schema {name}, since it has none of {most} others of the batch")
        if registry is not None and _missing.get((registry, name), -inf) < time.monotonic() - MISSING_SECONDS:
            try:
                writer = self._asked(registry, name)
            except UnknownSchemaError:
                if len(_missing) >= _MOST:
                    _missing.clear()
                _missing[registry, name] = time.monotonic()
            else:
                if len(_met) >= _MOST:
                    _met.clear()
                _met.add((registry, name))
                if isinstance(writer, str):
                    self._unusable = writer
                    raise BadValueError(writer)
                return writer
        self._unknown.add(name)
        raise BadValueError(f"the registry has no schema {name}")

    def _asked(self, registry: Registry, name: str | int) -> W | str:
        try:
            return self._load(registry, name)
        except UnknownSchemaError:
            if len(self._unknown) >= FEW:  # the values have no ids
                raise
            time.sleep(ONCE_MORE)
            return self._load(registry, name)

    def check(self, count: int) -> bool:
        """Return whether all values are read; else read the batch again, which the registry was not asked about to its end.

        What a value means does not depend on how many without ids stand before the first one with an id. Raises
        ``KafkaConfigurationError`` if no value of the topic had an id that the registry knows, in this batch or before.
        """
        decoder, topic = self._decoder, self._topic
        if decoder.registry is None or (before := _without_ids.get((decoder, topic), 0)) is None:
            return not self._unasked
        if len(_without_ids) >= _MOST:
            _without_ids.clear()
        count += before
        _without_ids[decoder, topic] = None if self._found else count
        if not self._found and count >= FEW:
            if self._unusable:
                raise KafkaConfigurationError(f"topic {topic!r}: no {decoder.part} can be read; {self._unusable}")
            unknown = f" (it has no schema {min(map(str, self._unknown))})" if self._unknown else ""
            raise KafkaConfigurationError(
                f"topic {topic!r}: none of {count} {decoder.part}s has the id of a schema that the registry knows{unknown}, in the "
                f"header {decoder.id_header} or in front; if they were written without one, give {decoder.part}.schema alone"
            )
        return not self._unasked
