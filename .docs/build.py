"""The API reference, made from docstrings by pdoc. From the root of a clone::

    .venv/bin/pip install --editable '.[docs]'
    .venv/bin/python .docs/build.py            # writes .docs/reference/index.html; another folder may be named

Decides: which modules are public. A warning of pdoc, such as an annotation that it cannot read, is an error.

PySpark is not needed, which takes 490 MB, nor is what reads a scan: classes of theirs stand in annotations, and here only their
names count.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypedDict, get_origin, is_typeddict
from unittest.mock import patch

import pdoc

MODULES = (
    "kafka_async",
    "kafka_async.errors",
    "kafka_async.sync",
    "kafka_async.testing",
    "kafka_async.trace",
    "kafka_async.adapters.admin",
    "kafka_async.adapters.dead_letters",
    "kafka_async.adapters.otel",
    "kafka_async.adapters.retry_topics",
    "kafka_async.adapters.tables",
    "kafka_async.adapters.tracing",
    "kafka_async.spark",
)
"""What a program may import."""

OF_SPARK = {
    "pyspark": (),
    "pyspark.sql": ("SparkSession",),
    "pyspark.sql.streaming": (),
    "pyspark.sql.streaming.listener": ("StreamingQueryListener", "StreamingQueryProgress"),
}
"""The modules and classes of PySpark in annotations."""

OF_SCANS = ("duckdb", "pandas", "polars")
"""The modules of others in annotations; those that are installed are left as they are."""


class StandIn(ModuleType):
    """A module that has a class of any name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__module__": self.__name__})


def build(folder: Path, *, search: bool = True) -> None:
    """Write the reference into a folder. Raises a ``Warning`` for what pdoc complains of.

    The index for ``search`` is made by node if it is installed, and by the reader's browser if not.
    """
    pdoc.render.configure(docformat="restructuredtext", show_source=False, search=search, footer_text="kafka_async")
    shown = {"PDOC_DISPLAY_ENV_VARS": "1"}  # or a constant that equals an environment variable, such as 127.0.0.1, is a warning
    with warnings.catch_warnings(), patch.dict(os.environ, shown), stand_ins(), plain_bases():
        warnings.simplefilter("error")
        pdoc.pdoc(*MODULES, output_directory=folder)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Have the modules of ``OF_SPARK``, with nothing but their classes, in place of PySpark's; those of ``OF_SCANS`` if need be."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pyspark"}
    for name in before:
        del sys.modules[name]
    for name, classes in OF_SPARK.items():
        module = ModuleType(name)
        for each in classes:
            setattr(module, each, type(each, (), {"__module__": name}))
        sys.modules[name] = module
    missing = [name for name in OF_SCANS if find_spec(name) is None]
    sys.modules.update({name: StandIn(name) for name in missing})
    try:
        yield
    finally:
        for name in (*OF_SPARK, *missing):
            del sys.modules[name]
        sys.modules.update(before)


@contextmanager
def plain_bases() -> Iterator[None]:
    """Have a ``TypedDict`` name the one that it is made from without type arguments, since pdoc loses it otherwise."""
    with ExitStack() as stack:
        modules = [import_module(name) for name in MODULES]
        for options in filter(is_typeddict, (getattr(module, name) for module in modules for name in dir(module))):
            bases = tuple(get_origin(base) or base for base in options.__orig_bases__)
            if TypedDict not in bases:
                stack.enter_context(patch.object(options, "__orig_bases__", (*bases, TypedDict)))
        yield


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "reference"
    build(target)
    print(target / "index.html")  # noqa: T201  # a command
