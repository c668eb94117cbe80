"""Ways to spoil bytes and messages, from a seeded source of randomness.

Decides: what a mutation may be. Owns nothing. Must never use any randomness but the one it is given, so that a seed is a case.

``spoil`` knows nothing of what the bytes mean. ``twist`` keeps a message well-formed and changes what it says: a count that does
not fit, a partition that was not requested, an error code out of the blue. The first tests decoders, the second the code that acts
on what was decoded.
"""

import struct
from collections.abc import Sequence
from random import Random
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import attrs

from kafka_async.testing.server import encode_response
from kafka_async.wire import Api, Response

T = TypeVar("T", bound=attrs.AttrsInstance)

_EDGES: Final = (0, 1, -1, 2, 7, 127, 128, -128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_ERRORS: Final = (
    *range(-1, 10),
    *(14, 15, 16, 22, 25, 27, 29, 30, 33, 34, 35, 45, 56, 58, 69, 70, 71, 74, 75, 76, 79, 82, 87, 89),
    *(100, 103, 106, 110, 111, 112, 113, 117, 118, 129, 999),
)
_TEXTS: Final = ("", "t", "b0", "\N{SNOWMAN}" * 3, "x" * 300, "{0.__class__}%s\n")


def spoil(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return the bytes with one to four things wrong; ``others`` is what a part of another message may be taken from."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        place = random.randrange(len(changed) + 1)
        match random.randrange(8):
            case 0 if changed:
                changed[place % len(changed)] ^= 1 << random.randrange(8)
            case 1:
                changed[place : place + 1] = random.randbytes(1)
            case 2:
                size = random.choice((1, 2, 4, 8))
                number = random.choice(_EDGES) % 2 ** (8 * size)
                changed[place : place + size] = number.to_bytes(size, "big")
            case 3:
                del changed[place : place + random.randrange(1, 9)]
            case 4:
                changed[place:place] = random.randbytes(random.randrange(1, 9))
            case 5:
                del changed[place:]
            case 6:
                end = place + random.randrange(1, 40)
                changed[place:place] = changed[place:end]
            case _:
                changed[place : place + 5] = b"\xff\xff\xff\xff" + bytes([random.randrange(256)])  # a long varint
        if others and random.random() < 0.05:
            other = random.choice(others)
            changed[place:] = other[random.randrange(len(other) + 1) :]
    return bytes(changed)


def twist(random: Random, message: T) -> T:
    """Return the message with one to three values changed for others of the same type."""
    for _ in range(random.choice((1, 1, 2, 3))):
        message = _twisted(random, message)
    return message


def twisted_frame(random: Random, response: Response, api: Api, version: int, correlation_id: int = 0) -> bytes:
    """Return a response twisted, length prefix included, as far as its version can carry it."""
    while True:
        try:
            return encode_response(cast(Response, twist(random, cast(Any, response))), api, version, correlation_id)
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError, struct.error):
            continue  # not every value fits its field


def _twisted(random: Random, message: T) -> T:
    fields = attrs.fields(type(message))
    names = [field.name for field in fields]
    if not names:
        return message
    name = random.choice(names)
    changed = random.choice(_ERRORS) if name == "error_code" else _other(random, getattr(message, name))
    changes: dict[str, Any] = {name: changed}
    return cast(T, attrs.evolve(cast(Any, message), **changes))


def _other(random: Random, value: Any) -> Any:
    if attrs.has(type(value)):
        return _twisted(random, value)
    match value:
        case bool():
            return not value
        case int():
            return random.choice((value + 1, value - 1, random.choice(_EDGES)))
        case str():
            return random.choice((*_TEXTS, value[:-1], value * 2))
        case bytes() | memoryview():
            return spoil(random, bytes(value))
        case UUID():
            return UUID(int=random.choice((1, 2, 3, random.getrandbits(128))))
        case tuple():
            return _reordered(random, value)
    return value


def _reordered(random: Random, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        return values
    place = random.randrange(len(values))
    match random.randrange(8):
        case 0:
            return ()
        case 1:
            return values[:place] + values[place + 1 :]
        case 2:
            return (*values, values[place])
        case 3:
            return values[::-1]
        case _:
            return (*values[:place], _other(random, values[place]), *values[place + 1 :])
