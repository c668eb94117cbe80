"""Each call in a copy of its own of the context variables."""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from types import coroutine
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.application.processing.contexts import anew, called_in, untouched_size
from tests.virtual import VirtualLoop, run_virtual

from .world import Record, processed, until, world

OWN: ContextVar[int] = ContextVar("own")
NOBODY = "nobody"
WHO: ContextVar[Any] = ContextVar("who", default=NOBODY)
WHERE: ContextVar[Any] = ContextVar("where", default=NOBODY)


@coroutine
def waits(what: Any) -> Any:
    return (yield what)


def started(function: Callable[[], Any]) -> Any:
    """Return a coroutine that calls the function in an empty context, where nobody is known."""
    return called_in(Context(), function)


def test_what_is_awaited_passes_through_in_both_directions() -> None:
    async def function() -> list[Any]:
        WHO.set("somebody")
        found = [await waits("one")]
        try:
            await waits("two")
        except OSError as error:
            found += [error.args, WHO.get()]
        return found

    steps = started(function)
    assert steps.send(None) == "one"
    assert steps.send(1) == "two"
    with pytest.raises(StopIteration) as end:
        steps.throw(OSError("down"))
    assert end.value.value == [1, ("down",), "somebody"]
    assert WHO.get() == NOBODY


def test_what_a_function_raises_passes_through() -> None:
    async def function() -> None:
        await waits("one")
        raise ValueError("found")

    steps = started(function)
    steps.send(None)
    with pytest.raises(ValueError, match="found"):
        steps.send(None)


def test_a_function_that_is_dropped_may_clean_up() -> None:
    cleaned: list[str] = []

    async def function() -> None:
        WHO.set("somebody")
        try:
            await waits("one")
        finally:
            cleaned.append(WHO.get())

    steps = started(function)
    steps.send(None)
    steps.close()
    assert cleaned == ["somebody"]


def test_nothing_that_was_set_is_there_anew() -> None:
    async def function() -> None:
        first = await anew()
        WHO.set("somebody")
        assert first[WHO] == "somebody"
        second = await anew()
        assert second is not first
        assert (WHO.get(), WHERE.get()) == (NOBODY, "here")
        await waits("one")
        WHERE.set("elsewhere")
        await anew()
        assert (WHO.get(), WHERE.get()) == (NOBODY, "here")

    context = Context()
    context.run(WHERE.set, "here")
    steps = called_in(context, function)
    assert steps.send(None) == "one"
    with pytest.raises(StopIteration):
        steps.send(None)


def test_a_copy_is_known_to_be_untouched_only_if_the_program_had_set_nothing() -> None:
    def sizes() -> list[int]:
        OWN.set(1)
        found = [untouched_size(OWN), len(copy_context())]
        WHO.set("somebody")
        return [*found, untouched_size(OWN)]

    assert Context().run(sizes) == [1, 1, -1]


# --- in process ----------------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [NOBODY, "".join(["no", "body"]), [1], [1], 1, 1.0, True]
"""Some of them are equal, and none is another one."""
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set and reset", "set twice, reset once", "fail"]), st.sampled_from([WHO, WHERE]), st.integers(0, 6)
    ),
    max_size=3,
)


def do(deed: str, variable: ContextVar[Any], value: int) -> None:
    token = variable.set(VALUES[value])
    if "twice" in deed:
        token = variable.set(VALUES[value - 1])
    if "reset" in deed:
        variable.reset(token)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    deeds=st.lists(DEEDS, min_size=1, max_size=10),
    before=st.none() | st.integers(0, 6),
    waits=st.booleans(),
    how=st.sampled_from([{}, {"timeout_ms": 60_000}, {"order": "none", "concurrency": 1}, {"batch": 1}]),
    on_asyncio=st.booleans(),
)
def test_no_handler_sees_what_another_has_set(
    deeds: list[list[Any]], before: int | None, waits: bool, how: dict[str, Any], on_asyncio: bool
) -> None:
    """Whether the program had set a variable before or not, and however alike the values are."""
    seen: list[tuple[int, Any, Any]] = []

    async def handle(given: Any) -> None:
        record: Record = given[0] if "batch" in how else given
        seen.append((record.offset, WHO.get(), WHERE.get()))
        for deed, variable, value in deeds[record.offset]:
            do(deed, variable, value)
            if waits:
                await anyio.lowlevel.checkpoint()
        if any(deed == "fail" for deed, _, _ in deeds[record.offset]):
            raise OSError("down")

    async def scenario() -> None:
        some = world()
        some.produce(len(deeds), keys=2)
        if before is not None:
            WHO.set(VALUES[before])
        async with processed(some, handle, on_failure="skip", **how):
            await until(lambda: len(seen) == len(deeds))
        assert some.committed() == len(deeds)

    def run() -> None:
        if on_asyncio:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:  # anyio would set a variable
                runner.run(scenario())
        else:
            run_virtual(scenario)

    Context().run(run)
    expected = NOBODY if before is None else VALUES[before]
    assert sorted(offset for offset, _, _ in seen) == list(range(len(deeds)))
    assert [each for each in seen if each[1] is not expected or each[2] is not NOBODY] == []
