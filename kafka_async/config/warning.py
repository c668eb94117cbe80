"""Warnings about options, at the line of the program that gave them."""

import sys
import warnings


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line of the first caller outside this package."""
    level, frame = 1, sys._getframe()
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
