"""Fuzzing: every decoder and every handler of a response, with spoiled captures of a real broker and what is made.

    python -m tests.faults.fuzz --cases 1000000                           all targets, by their shares
    python -m tests.faults.fuzz --target consumer --first 42 --cases 1    one case again, with its traceback

Decides: what may come of bad bytes: a value, or the one error that the decoder's contract names. Owns: the table of targets. Must
never depend on anything but the number of a case, so that a failure is a target and a number.
"""

import argparse
import logging
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from random import Random
from types import FrameType
from typing import Any, Final, NoReturn, cast

from attrs import frozen
from hypothesis.internal.entropy import deterministic_PRNG

from kafka_async.errors import (
    AuthenticationFailedError,
    IllegalArgumentError,
    KafkaProtocolError,
    MalformedResponseError,
    UnsupportedVersionError,
)
from kafka_async.network.auth import PendingWork
from kafka_async.network.protocol import Protocol
from kafka_async.network.request import UnsentRequest
from kafka_async.network.sasl.conversation import SaslConversation
from kafka_async.network.sasl.scram import Scram
from kafka_async.records import RecordReader
from kafka_async.testing.server import encode_response
from kafka_async.wire import (
    SUPPORTED,
    Request,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    decode_assignment,
    decode_response,
    decode_subscription,
)
from kafka_async.wire.messages import JoinGroupRequest, SyncGroupRequest
from tests.records.implementations import READERS, read_all
from tests.records.test_decode import CORPUS, MANY
from tests.strategies import CODECS, BatchSpec, encode_batch, encode_record
from tests.virtual import run_virtual

from .capture import load
from .handlers import converse
from .hostile_admin import question
from .hostile_cluster import live_through
from .logins import fetch_token, log_in
from .made import made
from .mutation import spoil

CPU_SECONDS: Final = 20.0
"""Seconds of computing after which a case counts as one that never ends."""
_READERS: Final = tuple(cast(type[RecordReader], parameter.values[0]) for parameter in READERS)
_LIMIT: Final = 2**18
_RECORDS: Final = b"".join(map(encode_record, MANY))


@frozen
class Known:
    """A response as a broker sends it, without its length."""

    request: Request[Any]
    version: int
    frame: bytes


@cache
def known() -> tuple[Known, ...]:
    """Return the captured and the made responses, and what they hold in every other version that we speak and that can carry it."""
    found = {}
    for capture in (*load(), *made()):
        asked = capture.asked
        assert asked.request is not None, "a capture of a version that is not spoken any more"
        found[asked.api, asked.version, len(capture.response)] = Known(asked.request, asked.version, capture.response)
        response = decode_response(asked.request, asked.version, capture.response)
        spoken = SUPPORTED[asked.api]
        for version in range(spoken.lowest, spoken.highest + 1):
            with suppress(Exception):  # an older version cannot carry everything
                frame = encode_response(response, asked.api, version, 0)[4:]
                found.setdefault((asked.api, version, len(frame)), Known(asked.request, version, frame))
    return tuple(found.values())


@cache
def _frames() -> tuple[bytes, ...]:
    return tuple(each.frame for each in known())


@cache
def _group_data() -> tuple[bytes, ...]:
    requests = [each.request for each in known()]
    said = [protocol.metadata for request in requests if isinstance(request, JoinGroupRequest) for protocol in request.protocols]
    given = [each.assignment for request in requests if isinstance(request, SyncGroupRequest) for each in request.assignments]
    return tuple(said + given)


def responses(random: Random) -> str:
    """One response, spoiled."""
    each = random.choice(known())
    try:
        decode_response(each.request, each.version, each.frame[:4] + spoil(random, each.frame[4:], _frames()))
    except MalformedResponseError:
        return "refused"
    return "read"


def group_data(random: Random) -> str:
    """What members of a classic group tell each other."""
    decode = random.choice((decode_subscription, decode_assignment))
    try:
        decode(spoil(random, random.choice(_group_data())))
    except MalformedResponseError:
        return "refused"
    return "read"


def _ignore(outcome: object, now: float) -> None:
    """An ``on_done`` of which only the answer's decoding matters."""


def stream(random: Random) -> str:
    """A connection's bytes: several answers, spoiled anywhere, in any pieces."""
    protocol = Protocol(client_id="c", peer="b:9092", limit=2**20, trace=lambda event: None)
    data = b""
    for _ in range(random.randrange(1, 4)):
        each = random.choice(known())
        with suppress(UnsupportedVersionError, IllegalArgumentError):  # an older version cannot carry every request
            protocol.ask(UnsentRequest(message=each.request, on_done=_ignore, expires_at=30.0), each.version, 0.0)
            frame = (protocol.in_flight - 1).to_bytes(4, "big") + each.frame[4:]
            data += len(frame).to_bytes(4, "big") + frame
    data = spoil(random, data)
    try:
        while data:
            view = protocol.frames.get_buffer()
            assert len(view) <= 2**20, "room for more than the limit"
            count = min(len(view), len(data), random.randrange(1, 200))
            view[:count] = data[:count]
            data = data[count:]
            protocol.receive(count, 0.0)
            while protocol.next_answer(0.0) is not None:
                pass
    except (KafkaProtocolError, AuthenticationFailedError):
        return "refused"
    return "read"


def records(random: Random) -> str:
    """Record data, spoiled before its CRC was made or after it; both decoders must agree."""
    if random.random() < 0.5:
        codec = random.choice((0, 0, *CODECS.values()))
        data = encode_batch(BatchSpec(records=MANY, codec=codec), spoil(random, _RECORDS))
    else:
        data = spoil(random, random.choice(CORPUS), CORPUS)
    options: dict[str, Any] = {
        "max_records": random.randrange(1, 9),
        "check_crcs": random.random() < 0.2,
        "read_committed": True,
        "aborted": [(7, 0), (8, 3)],
        "max_decompressed_bytes": _LIMIT,
    }
    outcomes = [read_all(reader, data, 1, **options) for reader in _READERS]
    assert all(outcome == outcomes[0] for outcome in outcomes), "the decoders disagree"
    return "refused" if outcomes[0].error else "read"


def _fail(why: str) -> NoReturn:
    raise AssertionError(why)


async def _underived(salt: bytes, iterations: int) -> bytes:
    raise AssertionError("the fuzzer hands the key in")


def scram(random: Random) -> str:
    """A broker's message in SCRAM."""
    mechanism = Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfw", derive=_underived)
    talk = SaslConversation(mechanism, "b:9092")
    talk.start(offered=False)
    talk.receive(SaslHandshakeResponse())
    demands = b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    verdict = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    try:
        step = talk.receive(SaslAuthenticateResponse(auth_bytes=spoil(random, demands)))
        assert isinstance(step, PendingWork), "demands without a key to derive"
        talk.receive(b"salted password")
        talk.receive(SaslAuthenticateResponse(auth_bytes=spoil(random, verdict)))
    except (AuthenticationFailedError, KafkaProtocolError) as error:
        return "refused" if "pencil" not in str(error) else _fail("the password is shown")
    return _fail("a broker without the password was believed")


def handlers(random: Random) -> str:
    """Every handler of a response, in conversations of some dozens of answers without an event loop or a network."""
    return converse(random).protocol or "no group"


def consumer(random: Random) -> str:
    """A whole consumer whose brokers give spoiled answers for a while: every handler of a response, and what they do together."""
    return run_virtual(lambda: live_through(random))


def admin(random: Random) -> str:
    """Questions about groups, as the command line asks them."""
    return run_virtual(lambda: question(random))


Target = Callable[[Random], str]
TARGETS: Final[dict[str, tuple[Target, float]]] = {
    "responses": (responses, 0.38),
    "handlers": (handlers, 0.10),
    "records": (records, 0.20),
    "stream": (stream, 0.15),
    "group_data": (group_data, 0.08),
    "scram": (scram, 0.02),
    "sasl": (log_in, 0.05),
    "oidc": (fetch_token, 0.005),
    "admin": (admin, 0.005),
    "consumer": (consumer, 0.01),
}
"""Every target and its share of the cases."""


@contextmanager
def _no_endless_case() -> Iterator[None]:
    """Interrupt a case that computes for too long; only in the main thread, and only if the system has such a timer."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"no end after {CPU_SECONDS:.0f} s of computing")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_case(target: str, number: int) -> str:
    """Run one case and return what came of it, in a word. Raises whatever should not have come."""
    with _no_endless_case(), deterministic_PRNG(number):  # backoff has jitter, and trio draws the order in which tasks run
        return TARGETS[target][0](Random(f"{target} {number}"))  # noqa: S311  # a number is a case


def campaign(target: str, first: int, count: int, *, show: bool) -> tuple[Counter[str], list[int]]:
    """Run cases; return how many ended how, and the numbers of those that failed."""
    outcomes: Counter[str] = Counter()
    failed = []
    for number in range(first, first + count):
        try:
            outcomes[run_case(target, number)] += 1
        except Exception:  # whatever it is, it is what we are looking for
            outcomes["FAILED"] += 1
            failed.append(number)
            if show:
                traceback.print_exc()
    return outcomes, failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=100_000, help="how many (default 100000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    bad = False
    for name in [options.target] if options.target else TARGETS:
        count = options.cases if options.target else max(int(options.cases * TARGETS[name][1]), 1)
        begun = time.perf_counter()
        outcomes, failed = campaign(name, options.first, count, show=count == 1)
        bad |= bool(failed)
        ends = ", ".join(f"{number} {word}" for word, number in outcomes.most_common())
        numbers = f"; cases {failed[:20]}" if failed else ""
        sys.stdout.write(f"{name}: {count} cases in {time.perf_counter() - begun:.1f} s: {ends}{numbers}\n")
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
