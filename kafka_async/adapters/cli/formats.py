r"""Records as bytes for a terminal, a file or a pipe.

No byte of a key, a value or a header is changed: what is written can be read back. JSON is for people too: it has no character in
it that a terminal obeys.

Tokens and field names are kcat's (its manual page, ``-f`` and ``-J``), see ``CODES``. A length of null is -1.
"""

import json
import re
from collections.abc import Callable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ...model import ConsumerRecord

Record: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
Writer: TypeAlias = Callable[[Record], bytes]

CODES: Final = (
    "\b\n"
    + r"""Codes of --format:
  %t  topic                 %s  value
  %p  partition             %S  length of the value (-1: null)
  %o  offset                %R  the same in four bytes
  %k  key                   %T  timestamp in milliseconds
  %K  length of the key     %h  headers, as name=value,...
  %%  a percent sign        \n \r \t \0 \\ \xNN  as in C
  For example: -f '%t [%p] at %o: key %k, value %s\n'
"""
)
"""The help on format strings."""

TIMESTAMP_TYPES: Final = {0: "create", 1: "logappend"}

_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.|$)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.|$)|\\(?:x[0-9A-Fa-f]{2}|.|$)|[^%\\]+", re.DOTALL)
_INT32: Final = Struct(">i")
_UNSEEN: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0001-\U000e007f]")
"""DEL and the C1 control codes, which terminals obey; characters that change the direction of text, end lines or have no width."""


def unescape(text: str) -> bytes:
    r"""Return ``text`` with ``\n`` and the like replaced. Raises ``ValueError`` for an escape that is unknown."""
    out, end = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        out += _encoded(text[end : match.start()])
        name = match[1]
        if len(name) == 3:
            out.append(int(name[1:], 16))
        elif name in _ESCAPES:
            out += _ESCAPES[name]
        else:
            raise ValueError(f"unknown escape {match[0]!r}: expected \\n, \\r, \\t, \\0, \\\\ or \\xNN")
        end = match.end()
    return bytes(out + _encoded(text[end:]))


def formatter(text: str, *, null: bytes = b"") -> Writer:
    """Return a function that writes a record as the format ``text`` says; ``null`` stands for a null key or value.

    Raises ``ValueError`` for a token or an escape that is unknown.
    """
    tokens: dict[str, Writer] = {
        "t": lambda record: _encoded(record.topic),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "K": lambda record: b"%d" % record.serialized_key_size,
        "s": lambda record: null if record.value is None else record.value,
        "S": lambda record: b"%d" % record.serialized_value_size,
        "R": lambda record: _INT32.pack(record.serialized_value_size),
        "T": lambda record: b"%d" % record.timestamp,
        "h": _headers,
        "%": lambda _: b"%",
    }
    parts: list[Writer] = []
    for match in _TOKEN.finditer(text):
        if not match[0].startswith("%"):
            parts.append(_constant(unescape(match[0])))
        elif match[1] in tokens:
            parts.append(tokens[match[1]])
        else:
            raise ValueError(f"unknown token {match[0]!r} in the format: expected one of {' '.join('%' + name for name in tokens)}")
    return lambda record: b"".join([part(record) for part in parts])


def json_line(record: Record, objects: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    r"""Return the record as one JSON object. Bytes that are not UTF-8 become lone surrogates (``\udcff`` for 0xff).

    ``objects``: what stands for ``key`` and ``value``, if they were read as something else than text.

    In Python ``json.loads(line)["payload"].encode("utf-8", "surrogateescape")`` gives every byte back.
    """
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": TIMESTAMP_TYPES.get(record.timestamp_type, "unknown"),
        "ts": record.timestamp if record.timestamp >= 0 else None,
        "headers": [part for key, value in record.headers for part in (key, _text(value))],
        "key": objects["key"] if "key" in objects else _text(record.key),
        "payload": objects["value"] if "value" in objects else _text(record.value),
    }
    return dump(line)


def dump(value: Any) -> bytes:
    """Return ``value`` as JSON in UTF-8, on one line. Characters that are invisible or change the text around them are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not text.isascii() or "\x7f" in text:
        text = _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)
    # A lone surrogate has no UTF-8; as an escape of Python it is spelled as JSON spells it.
    return text.encode("utf-8", "backslashreplace")


def json_row(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return dump(value) + b"\n"


def _constant(data: bytes) -> Writer:
    return lambda _: data


def _headers(record: Record) -> bytes:
    return b",".join(_encoded(key) + b"=" + (b"NULL" if value is None else value) for key, value in record.headers)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
