"""Classes with fields: attrs' ``define`` and ``frozen``, made in a twentieth of the time.

Decides: what such a class does. Owns nothing. Must never differ from attrs where our classes would notice; a test compares the two.

attrs compiles the methods of a class when the class is made. That takes half a millisecond, and a consumer has two hundred classes
when it is imported, so half of the import was that. Here a class is made with its slots at once, its ``__init__`` is compiled once
a few instances have been made (most parts of a consumer are made once), and all other methods are the same functions for all
classes.
Type checkers and editors see attrs itself, and ``attrs.evolve``, ``fields`` and ``asdict`` take such classes as their own.

There is what our classes use: ``eq``, ``kw_only``, and fields with ``default``, ``factory``, ``init``, ``repr``, ``eq``,
``metadata`` and, where they are frozen, ``converter`` and ``validator``. A class that has a base with fields, or calls ``super()``,
is made by attrs.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

if TYPE_CHECKING:
    from attrs import define as define
    from attrs import evolve as evolve
    from attrs import field as field
    from attrs import frozen as frozen


class _Nothing:
    """What a field has that has no default, and nobody has set."""

    def __repr__(self) -> str:
        return "NOTHING"


_NOTHING: Final = _Nothing()
_MADE_SLOWLY: Final = 4
"""Instances of a class that are made before its ``__init__`` is compiled: that takes as long as making twenty of them without."""


class _Field:
    """What a class says about one of its fields."""

    __slots__ = ("converter", "default_value", "eq", "factory", "init", "metadata", "name", "repr", "takes_self", "validator")
    name: str

    def __init__(
        self,
        *,
        default: Any = _NOTHING,
        factory: Callable[..., Any] | None = None,
        init: bool = True,
        repr: bool | Callable[[Any], str] = True,
        eq: bool = True,
        metadata: Mapping[str, Any] | None = None,
        converter: Callable[[Any], Any] | None = None,
        validator: Callable[[Any, Any, Any], None] | None = None,
    ) -> None:
        self.default_value, self.factory, self.takes_self = default, factory, False
        self.init, self.repr, self.eq, self.metadata = init, repr, eq, metadata
        self.converter, self.validator = converter, validator

    def default(self, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorate the method that makes the default from what is set before it."""
        self.factory, self.takes_self = method, True
        return method

    @property
    def has_default(self) -> bool:
        return self.factory is not None or self.default_value is not _NOTHING

    def made_default(self, instance: Any) -> Any:
        if self.factory is None:
            return self.default_value
        return self.factory(instance) if self.takes_self else self.factory()

    def made_by_attrs(self, annotation: Any, kw_only: bool) -> Any:
        """Return the same for attrs."""
        import attrs

        said: dict[str, Any] = {"init": self.init, "repr": self.repr, "eq": self.eq, "metadata": self.metadata}
        said |= {"converter": self.converter, "validator": self.validator}
        if self.factory is not None:
            said["default"] = attrs.Factory(self.factory, takes_self=True) if self.takes_self else attrs.Factory(self.factory)
        elif self.default_value is not _NOTHING:
            said["default"] = self.default_value
        return attrs.field(kw_only=kw_only, type=annotation, **said)


class _Attributes:
    """``__attrs_attrs__`` of a class, which is made when attrs asks for it."""

    __slots__ = ("cls",)
    cls: type

    def __get__(self, instance: object, owner: type) -> Any:
        made = _attributes(self.cls)
        type.__setattr__(self.cls, "__attrs_attrs__", made)  # two threads make it twice, and the same
        return made


class _Init:
    """``__init__`` of a class: what it does for the first instances, and the compiled one from then on."""

    __slots__ = ("cls", "left")
    cls: Any

    def __init__(self) -> None:
        self.left = _MADE_SLOWLY

    def __get__(self, instance: object, owner: type) -> Any:
        self.left -= 1
        if instance is not None and self.left >= 0:
            return partial(self.initialize, instance)
        made = self.compile()
        return made if instance is None else made.__get__(instance, owner)

    def compile(self) -> Any:
        """Put the compiled function in the place of this object."""
        made = _init(self.cls)
        type.__setattr__(self.cls, "__init__", made)  # two threads make it twice, and the same
        return made

    def initialize(self, instance: Any, /, *arguments: Any, **given: Any) -> None:
        """Set one field after the other. Arguments that do not fit are the compiled function's to refuse."""
        fields: Mapping[str, _Field] = self.cls.__fields__
        known = {name.lstrip("_"): field for name, field in fields.items() if field.init}
        named = dict(zip(known, arguments, strict=False))
        fits = len(named) == len(arguments) and not (arguments and self.cls.__kw_only__) and named.keys().isdisjoint(given)
        if not (fits and _are_all(named.keys() | given.keys(), known)):
            self.compile()(instance, *arguments, **given)
            return
        given |= named
        for name, field in fields.items():
            value = given.get(name.lstrip("_"), _NOTHING) if field.init else _NOTHING
            if value is _NOTHING:
                value = field.made_default(instance)
            if value is not _NOTHING:
                object.__setattr__(instance, name, value if field.converter is None else field.converter(value))
        for name, field in fields.items():
            if field.validator is not None:
                field.validator(instance, field, getattr(instance, name))
        if hasattr(self.cls, "__attrs_post_init__"):
            instance.__attrs_post_init__()


def _are_all(given: set[str], known: Mapping[str, _Field]) -> bool:
    """Whether there is everything that has no default, and nothing that is not known."""
    return given <= known.keys() and all(name in given or field.has_default for name, field in known.items())


def _frozen(cls: type | None = None, *, kw_only: bool = False, eq: bool = True) -> Any:
    """Make a class whose fields are set once; ``attrs.frozen``."""
    if cls is None:
        return lambda cls: _frozen(cls, kw_only=kw_only, eq=eq)
    methods: dict[str, Any] = {"__setattr__": _refuse, "__delattr__": _refuse}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash}
    return _make(cls, kw_only, methods)


def _define(cls: type | None = None, *, kw_only: bool = False, eq: bool = True) -> Any:
    """Make a class whose fields can be set; ``attrs.define``."""
    if cls is None:
        return lambda cls: _define(cls, kw_only=kw_only, eq=eq)
    return _make(cls, kw_only, {"__eq__": _eq, "__hash__": None} if eq else {})


def _evolve(instance: Any, /, **changes: Any) -> Any:
    """Return a copy with other values for these fields; ``attrs.evolve``."""
    cls = type(instance)
    for name, field in cls.__fields__.items():
        if field.init and (argument := name.lstrip("_")) not in changes:
            changes[argument] = getattr(instance, name)
    return cls(**changes)


if not TYPE_CHECKING:
    define, evolve, field, frozen = _define, _evolve, _Field, _frozen


def _make(cls: Any, kw_only: bool, methods: dict[str, Any]) -> type:
    """Return the class with slots for its fields, and these methods where it has none of its own."""
    if hasattr(cls, "__attrs_attrs__"):
        raise TypeError(f"{cls.__qualname__}: a base has fields; make both with attrs")
    fields = {name: _field_of(cls, name) for name, said in _annotations(cls).items() if not _is_class_variable(said)}
    own = {name: value for name, value in vars(cls).items() if name not in fields and name not in ("__dict__", "__weakref__")}
    compared = [name for name, field in fields.items() if field.eq] or ["__class__"]
    weak = () if any(base.__weakrefoffset__ for base in cls.__bases__) else ("__weakref__",)
    init, attributes = _Init(), _Attributes()
    made: type = type(cls)(
        cls.__name__,
        cls.__bases__,
        {
            "__repr__": _repr,
            "__getstate__": _getstate,
            "__setstate__": _setstate,
            "__match_args__": () if kw_only else tuple(name for name, field in fields.items() if field.init),
            **methods,
            "__init__": init,
            "__attrs_attrs__": attributes,
            **own,
            "__slots__": (*fields, *weak),
            "__fields__": fields,
            "__kw_only__": kw_only,
            "__compared__": attrgetter(*compared),
        },
    )
    init.cls = attributes.cls = made
    return made


def _field_of(cls: type, name: str) -> _Field:
    said = vars(cls).get(name, _NOTHING)
    field = said if isinstance(said, _Field) else _Field(default=said)
    field.name = name
    return field


if sys.version_info >= (3, 14):

    def _annotations(cls: type) -> Mapping[str, Any]:
        from annotationlib import Format, get_annotations

        return get_annotations(cls, format=Format.FORWARDREF)
else:

    def _annotations(cls: type) -> Mapping[str, Any]:
        found: Mapping[str, Any] = vars(cls).get("__annotations__", {})
        return found


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.removeprefix("typing.").startswith("ClassVar")
    return annotation is ClassVar or getattr(annotation, "__origin__", None) is ClassVar


def types_of(cls: type) -> Mapping[str, Any]:
    """Return the fields of a class and the type of each; cheaper than asking attrs."""
    annotations, fields = _annotations(cls), vars(cls)["__fields__"]
    return {name: annotations[name] for name in fields}


def defaults_of(cls: type) -> Mapping[str, Any]:
    """Return the fields of a class and the default of each."""
    fields: Mapping[str, _Field] = vars(cls)["__fields__"]
    return {name: field.default_value for name, field in fields.items()}


def _init(cls: Any) -> Any:
    """Return ``__init__``, compiled."""
    fields: Mapping[str, _Field] = cls.__fields__
    is_frozen = cls.__setattr__ is _refuse
    scope: dict[str, Any] = {"NOTHING": _NOTHING}
    parameters = ["self", "*"] if cls.__kw_only__ and any(field.init for field in fields.values()) else ["self"]
    lines = []
    for name, field in fields.items():
        if is_frozen:
            scope[f"set_{name}"] = vars(cls)[name].__set__
        elif field.converter is not None or field.validator is not None:
            raise TypeError(f"{cls.__qualname__}.{name}: only frozen classes convert and validate; make it with attrs")
        value = "{}" if field.converter is None else f"convert_{name}({{}})"
        set_to = f"set_{name}(self, {value})" if is_frozen else f"self.{name} = {value}"
        lines += _lines(name, field, set_to.format, parameters, scope)
    for name, field in fields.items():  # when all are set, as a validator may look at others
        if field.validator is not None:
            scope |= {f"validate_{name}": field.validator, f"field_{name}": field}
            lines.append(f"validate_{name}(self, field_{name}, self.{name})")
    if hasattr(cls, "__attrs_post_init__"):
        lines.append("self.__attrs_post_init__()")
    source = "\n    ".join([f"def __init__({', '.join(parameters)}):", *(lines or ["pass"])])
    exec(compile(source, f"<fields of {cls.__module__}.{cls.__qualname__}>", "exec"), scope)  # noqa: S102  # our own field names only
    made = scope["__init__"]
    made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    annotations = _annotations(cls)
    taken = {name.lstrip("_"): _taken(field, annotations[name]) for name, field in fields.items() if field.init}
    made.__annotations__ = taken | {"return": None}
    return made


def _taken(field: _Field, annotation: Any) -> Any:
    """Return the type of the argument: what a converter takes, where there is one."""
    return annotation if field.converter is None else next(iter(getattr(field.converter, "__annotations__", {}).values()), Any)


def _lines(name: str, field: _Field, set_to: Callable[[str], str], parameters: list[str], scope: dict[str, Any]) -> list[str]:
    """Return the lines that set one field, and add its parameter, and what they name, to the others."""
    argument = name.lstrip("_")
    scope |= {f"default_{name}": field.default_value, f"make_{name}": field.factory, f"convert_{name}": field.converter}
    made = f"make_{name}({'self' if field.takes_self else ''})"
    if not field.init:
        if field.factory is not None:
            return [set_to(made)]
        return [] if field.default_value is _NOTHING else [set_to(f"default_{name}")]
    if field.factory is not None:
        parameters.append(f"{argument}=NOTHING")
        return [set_to(f"{made} if {argument} is NOTHING else {argument}")]
    parameters.append(argument if field.default_value is _NOTHING else f"{argument}=default_{name}")
    return [set_to(argument)]


def _attributes(cls: Any) -> Any:
    """Return the fields as attrs describes them."""
    import attrs

    annotations = _annotations(cls)
    fields = {name: field.made_by_attrs(annotations[name], cls.__kw_only__) for name, field in cls.__fields__.items()}
    return attrs.fields(attrs.make_class(cls.__name__, fields, init=False, repr=False, eq=False))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ((field.name, repr if field.repr is True else field.repr) for field in self.__fields__.values() if field.repr)
    values = ", ".join(f"{name}={show(getattr(self, name, _NOTHING))}" for name, show in shown)
    return f"{type(self).__qualname__.rsplit('>.', 1)[-1]}({values})"


def _eq(self: Any, other: Any) -> Any:
    return self.__compared__(self) == self.__compared__(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    from attrs.exceptions import FrozenInstanceError

    raise FrozenInstanceError


def _getstate(self: Any) -> dict[str, Any]:
    return {name: getattr(self, name) for name in self.__fields__}


def _setstate(self: Any, state: Mapping[str, Any]) -> None:
    for name, value in state.items():
        object.__setattr__(self, name, value)
