"""The reference of the options, printed from the docstrings in ``options.py``.

``docstrings.py`` reads them.

``python -m kafka_async.config.reference`` prints the page that is kept as ``OPTIONS.md``.
"""

import re
from collections.abc import Iterator
from typing import Final

from .consumer_config import nearest_option
from .docstrings import Option, options_by_name

_TITLE: Final = """\
# Options of a consumer

Every option of `KafkaConsumer(...)`, `ConsumerConfig.of(...)`, `ConsumerConfig.from_env()` and `ConsumerConfig.from_properties()`.
Names are Kafka's configuration keys with `_` for `.`; times are in milliseconds, sizes in bytes. `kafka-async options NAME` prints
one of them. A share consumer takes most of them and three of its own; `kafka_async.ShareOptions` lists them.
This page is printed from the docstrings in [`options.py`](options.py) by `python -m kafka_async.config.reference`.
"""


def find(name: str) -> Option:
    """Return an option; its name may be written with dots. Raises ``KeyError`` that names the nearest known one."""
    found = options_by_name().get(name.strip().replace(".", "_").lower())
    if found is None:
        raise KeyError(f"unknown option {name!r}{nearest_option(name)}")
    return found


def described(name: str) -> str:
    """Return what is known of one option, as text for a terminal. Raises ``KeyError`` as ``find`` does."""
    option = find(name)
    return f"{option.name}: {option.type}\n\n{option.text.replace('``', '')}\n"


def listed() -> str:
    """Return the names of all options by section, each with the first sentence of its meaning, as text for a terminal."""
    return "\n".join(_listed_lines()).replace("``", "") + "\n"


def _listed_lines() -> Iterator[str]:
    section = ""
    for option in options_by_name().values():
        if option.section != section:
            yield f"\n{option.section}" if section else option.section
            section = option.section
        yield f"  {option.name} = {option.fact('Default')}"
        yield f"      {first_sentence(option.meaning)}"


def first_sentence(text: str) -> str:
    """Return ``text`` up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[.]) (?=[A-Z`])", text, maxsplit=1)[0]


def page(name: str | None = None) -> str:
    """Return the page of all options in Markdown, or what stands there about one. Raises ``KeyError`` as ``find`` does."""
    if name is not None:
        return _entry(find(name))
    parts, section = [_TITLE], ""
    for option in options_by_name().values():
        if option.section != section:
            section = option.section
            parts.append(f"## {section}\n")
        parts.append(_entry(option))
    return "\n".join(parts)


def _entry(option: Option) -> str:
    prose, _, facts = option.text.rpartition("\n\n")
    rows = "\n".join(f"- {line}" for line in (f"Type: ``{option.type}``.", *facts.splitlines()))
    return f"### {option.name}\n\n{prose}\n\n{rows}\n".replace("``", "`")


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
