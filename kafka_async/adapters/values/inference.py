"""The fields of JSON values, found in a sample of them: ``schema="infer"``.

Nothing is guessed from names. What is found:

- ``true`` and ``false``: BOOLEAN. Whole numbers: BIGINT. If there are others too, or some are beyond 64 bits: DOUBLE.
- Texts that are all ISO 8601 with date and time to the second: TIMESTAMP if each has a zone, TIMESTAMP_NTZ if none has.
  Texts that are all YYYY-MM-DD: DATE. Other texts: STRING.
- Arrays: ARRAY of what all their elements have in common; objects: STRUCT of all fields of all of them. Objects with more than
  ``MOST_FIELDS`` different names, as with ids for names: MAP of what their values have in common.
- What has nothing in common, as a number here and a text there, is STRING, which holds any JSON as a text, so nothing is lost.
  So is a field that is always null, or always an empty array or object. ``conflicts`` says where that was done.

A value later on that does not fit counts as bad: the schema is fixed before the first batch.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any, Final

import pyarrow as pa

from ...values import define, field, frozen
from .ddl import TIMESTAMP, TIMESTAMP_NTZ, list_type, shown
from .times import days, microseconds

SAMPLE: Final = 10_000
"""Values that are enough for a sample."""
MOST_FIELDS: Final = 200
"""Names of the fields of a struct; objects with more of them are maps."""

DEEPEST: Final = 32
"""Types within types; Arrow's interface between libraries has 64."""

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(_DATE.pattern + r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_INT64: Final = range(-(1 << 63), 1 << 63)
_WORDS: Final = {
    "null": "null",
    "boolean": "a boolean",
    "whole": "a number",
    "large": "a number",
    "number": "a number",
    "date": "a text",
    "zoned": "a text",
    "local": "a text",
    "text": "a text",
    "array": "an array",
    "object": "an object",
}
_NUMBERS: Final = frozenset(("whole", "large", "number"))
_TEXTS: Final = frozenset(("date", "zoned", "local", "text"))


@frozen
class Inferred:
    """What a sample of values has shown."""

    schema: Any
    """The ``pyarrow.Schema`` of the fields."""
    conflicts: tuple[str, ...]
    """A sentence for each field whose values have no type in common, and about values that are no JSON objects."""
    values: int
    """How many values were looked at; null ones do not count."""


def infer(sample: Any) -> Inferred:
    """Return the fields of JSON values in a ``pyarrow.BinaryArray``. A frame of Confluent's in front of a value is passed over.

    Raises ``ValueError`` if no value is a JSON object with a field.
    """
    from .json_values import unframed

    root = _Seen()
    count = 0
    texts = [value for value in unframed(sample).to_pylist() if value is not None]
    for text in texts:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            count += 1
            root.add(found)
    if not root.fields:
        what = f"none of {len(texts)} values is a JSON object with a field" if texts else "there are no values"
        raise ValueError(f"schema='infer': {what}; a schema has to be given")
    conflicts = [f"{len(texts) - count} of {len(texts)} values are not JSON objects"] if count < len(texts) else []
    schema = pa.schema([(name, part.kind(name, conflicts)) for name, part in root.fields.items()])
    return Inferred(schema, tuple(conflicts), count)


@define(eq=False)
class _Seen:
    """What was seen in one place of many values."""

    kinds: Counter[str] = field(factory=Counter)
    fields: "dict[str, _Seen]" = field(factory=dict)
    """What was seen in the fields of objects."""
    elements: "_Seen | None" = None
    """What was seen in arrays."""

    def add(self, value: Any, depth: int = 0) -> None:
        """Note a value."""
        kind = _kind_of(value)
        self.kinds[kind] += 1
        if depth == DEEPEST:
            return  # what is within stays a text
        if kind == "object":
            for name, part in value.items():
                self.fields.setdefault(name, _Seen()).add(part, depth + 1)
        elif kind == "array":
            self.elements = self.elements or _Seen()
            for part in value:
                self.elements.add(part, depth + 1)

    def merge(self, other: "_Seen") -> None:
        """Note what was seen in another place, too."""
        self.kinds += other.kinds
        for name, part in other.fields.items():
            self.fields.setdefault(name, _Seen()).merge(part)
        if other.elements is not None:
            self.elements = self.elements or _Seen()
            self.elements.merge(other.elements)

    def kind(self, place: str, conflicts: list[str], depth: int = 1) -> Any:
        """Return the type of what was seen; ``conflicts`` gets a sentence if there is none but STRING."""
        kinds = self.kinds.keys() - {"null"}
        if (simple := _simple(kinds)) is not None:
            return simple
        if kinds == {"array"} and self.elements is not None and self.elements.kinds:
            return list_type(self.elements.kind(f"{place}[]", conflicts, depth + 1))
        if kinds == {"object"} and self.fields:
            return self._object(place, conflicts, depth)
        if not kinds:
            why = "is always null"
        elif len(kinds) == 1:
            why = f"is always an empty {min(kinds)}" if depth < DEEPEST else "is nested too deeply"
        else:
            words = Counter[str]()
            for name, times in self.kinds.items():
                words[_WORDS[name]] += times if name != "null" else 0
            why = "is " + " and ".join(f"{word} in {times}" for word, times in words.most_common() if times) + " values"
        conflicts.append(f"field {place!r} {why}: {shown(pa.string())}")
        return pa.string()

    def _object(self, place: str, conflicts: list[str], depth: int) -> Any:
        if len(self.fields) <= MOST_FIELDS:
            parts = self.fields.items()
            return pa.struct([(name, part.kind(f"{place}.{name}", conflicts, depth + 1)) for name, part in parts])
        whole = _Seen()
        for part in self.fields.values():
            whole.merge(part)
        return pa.map_(pa.string(), whole.kind(f"{place}.*", conflicts, depth + 1))


def _simple(kinds: Iterable[str]) -> Any:
    """Return the type of what is neither array nor object; ``None`` if there is none that holds all of it."""
    kinds = frozenset(kinds)
    found: Mapping[frozenset[str], Any] = {
        frozenset(("boolean",)): pa.bool_(),
        frozenset(("whole",)): pa.int64(),
        frozenset(("date",)): pa.date32(),
        frozenset(("zoned",)): TIMESTAMP,
        frozenset(("local",)): TIMESTAMP_NTZ,
    }
    if kinds and kinds <= _NUMBERS:
        return found.get(kinds, pa.float64())
    if kinds and kinds <= _TEXTS:
        return found.get(kinds, pa.string())
    return found.get(kinds)


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "whole" if value in _INT64 else "large"
        case float():
            return "number"
        case str():
            return _kind_of_text(value)
        case list():
            return "array"
        case _:
            return "object"


def _kind_of_text(text: str) -> str:
    try:
        if _DATE.fullmatch(text):
            days(text)
            return "date"
        if match := _TIME.fullmatch(text):
            microseconds(text, UTC)
            return "zoned" if match[1] else "local"
    except ValueError:  # such as the 30th of February
        pass
    return "text"
