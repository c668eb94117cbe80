"""Classes with fields behave as those that attrs makes."""

import copy
import inspect
import pickle
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import attrs
import pytest

from kafka_async import values

T = TypeVar("T")


class Named(Protocol):
    """What a class may say that it is."""

    def name(self) -> str: ...


class Counted(ABC):
    """A base with something to do for those who derive from it."""

    __slots__ = ()

    @abstractmethod
    def count(self) -> int: ...


@values.frozen(kw_only=True)
class Message(Generic[T]):
    """All that a message may have."""

    api: ClassVar[int] = 3
    topic: str
    partitions: tuple[int, ...] = ()
    secret: str = values.field(default="x", repr=False)
    tags: dict[str, T] = values.field(factory=dict, eq=False)


@attrs.frozen(kw_only=True)
class AttrsMessage(Generic[T]):
    """The same, made by attrs."""

    api: ClassVar[int] = 3
    topic: str
    partitions: tuple[int, ...] = ()
    secret: str = attrs.field(default="x", repr=False)
    tags: dict[str, T] = attrs.field(factory=dict, eq=False)


@values.define(eq=False)
class Part(Counted, Named):
    """All that a part may have."""

    _limit: int
    names: list[str] = values.field(factory=list)
    _seen: int = values.field(default=0, init=False)
    _open: bool = values.field(init=False, repr=False)
    _double: int = values.field(init=False, metadata={"writer": "itself"})

    @_double.default
    def _find_double(self) -> int:
        return 2 * self._limit

    def __attrs_post_init__(self) -> None:
        self.names.append("post")

    def count(self) -> int:
        return self._seen

    def name(self) -> str:
        return self.names[0]


@attrs.define(eq=False)
class AttrsPart(Counted, Named):
    """The same, made by attrs."""

    _limit: int
    names: list[str] = attrs.field(factory=list)
    _seen: int = attrs.field(default=0, init=False)
    _open: bool = attrs.field(init=False, repr=False)
    _double: int = attrs.field(init=False, metadata={"writer": "itself"})

    @_double.default
    def _find_double(self) -> int:
        return 2 * self._limit

    def __attrs_post_init__(self) -> None:
        self.names.append("post")

    def count(self) -> int:
        return self._seen

    def name(self) -> str:
        return self.names[0]


@values.frozen
class Pair:
    """A value whose fields have an order."""

    left: Any
    right: Any = None


@values.define
class Open:
    """A value that changes."""

    number: int


@values.frozen
class Nothing:
    """A value without fields."""


@values.define(eq=False)
class Ring:
    """Holds itself."""

    next: Any = None


@values.frozen
class Told:
    """Says itself how it is shown."""

    number: int

    def __repr__(self) -> str:
        return f"<{self.number}>"


PAIRS: list[tuple[Any, Any]] = [(Message, AttrsMessage), (Part, AttrsPart)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_the_fields_and_the_signature_are_those_of_attrs(ours: Any, theirs: Any) -> None:
    said = [
        [
            (each.name, each.init, each.repr, each.eq, each.alias, each.kw_only, each.type, each.metadata)
            for each in attrs.fields(cls)
        ]
        for cls in (ours, theirs)
    ]
    assert said[0] == said[1]
    assert [type(each.default) for each in attrs.fields(ours)] == [type(each.default) for each in attrs.fields(theirs)]
    ours_parameters, theirs_parameters = (inspect.signature(cls).parameters for cls in (ours, theirs))
    assert list(ours_parameters) == list(theirs_parameters)
    assert [each.kind for each in ours_parameters.values()] == [each.kind for each in theirs_parameters.values()]
    assert ours.__init__.__annotations__ == theirs.__init__.__annotations__
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__


def test_an_instance_is_shown_as_attrs_shows_it() -> None:
    assert repr(Message(topic="t", tags={"a": 1})) == repr(AttrsMessage(topic="t", tags={"a": 1})).removeprefix("Attrs")
    assert repr(Part(3)) == repr(AttrsPart(3)).removeprefix("Attrs")


def test_one_that_holds_itself_is_shown_all_the_same() -> None:
    ring = Ring()
    ring.next = ring
    assert repr(ring) == "Ring(next=...)"


def test_a_class_may_say_how_it_is_shown() -> None:
    assert repr(Told(3)) == "<3>"


def test_defaults_are_made_in_order_and_what_is_done_after_them_too() -> None:
    first, second = Part(3), Part(4, ["a"])
    assert (first.count(), first.names, second.names) == (0, ["post"], ["a", "post"])
    assert "_double=6" in repr(first)
    assert not hasattr(first, "_open")


def test_values_are_equal_if_their_fields_are_and_hash_alike() -> None:
    one, same, other = Message(topic="t", tags={"a": 1}), Message[int](topic="t"), Message[int](topic="t", partitions=(1,))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert Nothing() == Nothing()
    assert Pair(1) != object()
    assert (Open(1) == Open(1), Open(1) == Open(2)) == (True, False)


def test_what_changes_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable type"):
        hash(Open(1))


def test_parts_are_equal_only_to_themselves() -> None:
    part = Part(1)
    assert part == part
    assert part != Part(1)
    assert len({part, Part(1)}) == 2


def test_a_frozen_field_is_neither_set_nor_deleted() -> None:
    pair: Any = Pair(1, 2)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        pair.left = 3
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        del pair.left
    assert pair.left == 1


def test_evolve_asdict_and_match_take_them_as_their_own() -> None:
    assert attrs.evolve(Message[int](topic="t"), topic="u").topic == "u"
    assert attrs.asdict(Pair(Pair(1), 2)) == {"left": {"left": 1, "right": None}, "right": 2}
    match Pair(1, 2):
        case Pair(left, right):
            assert (left, right) == (1, 2)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])  # noqa: S301
def test_they_are_copied_and_pickled(again: Any) -> None:
    assert again(Pair(1, (2,))) == Pair(1, (2,))
    assert again(Message(topic="t", tags={"a": 1})).tags == {"a": 1}


def test_an_argument_that_is_missing_or_unknown_is_a_type_error_that_names_the_class() -> None:
    cls: Any = Message
    with pytest.raises(TypeError, match=r"Message.__init__\(\) missing 1 required keyword-only argument: 'topic'"):
        cls()
    with pytest.raises(TypeError, match="unexpected keyword argument 'topics'"):
        cls(topic="t", topics=())


def test_an_abstract_class_is_not_made() -> None:
    @values.define(eq=False)
    class Abstract(Counted):
        number: int

    cls: Any = Abstract
    with pytest.raises(TypeError, match="abstract"):
        cls(1)


def test_a_converter_makes_no_call_of_each_change() -> None:
    """It would be made for every field of the class, several times for each record that is handled."""

    @values.define
    class Converting:
        number: int = values.field(converter=int)
        other: int = 0

    made = Converting("1")
    assert made.number == 1
    assert "__setattr__" not in vars(Converting)
