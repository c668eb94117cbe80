"""CRC-32C.

It is the function of the package ``crc32c``. That package also imports a command line and the tools that read a version out of
metadata (``argparse``, ``email``, ``csv``, ``zipfile``), which takes longer than anything else that a consumer imports; so only its
extension module is imported. A layout that is not known here costs that time, and nothing else.
"""

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Final

_NAME: Final = "crc32c._crc32c"


def _extension() -> ModuleType | None:
    """Return the extension module alone; ``None`` if it is not where it is expected."""
    known = sys.modules.get(_NAME)
    if known is not None:
        return known
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec(_NAME, package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        return None
    module = sys.modules[_NAME] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _function() -> Callable[[Any], int]:
    alone: Callable[[Any], int] | None = getattr(_extension(), "crc32c", None)
    if alone is not None:
        return alone
    from crc32c import crc32c as whole

    return whole


crc32c: Final = _function()
"""Takes bytes, returns their CRC-32C; releases the GIL for large ones."""
