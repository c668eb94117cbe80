"""Which of the two decoders is used: the compiled one if it was built, unless ``KAFKA_ASYNC_PURE=1`` asks for the one in Python."""

import logging
import os
from functools import cache

from . import decode

Decoder: type[decode.Decoder] = decode.Decoder
measure = decode.measure
IMPLEMENTATION = "python"
"""``"cython"`` or ``"python"``."""
_missing: ImportError | None = None
"""Why the compiled one is not there although nobody asked for the other."""

if os.environ.get("KAFKA_ASYNC_PURE") != "1":
    try:
        from . import _decode
    except ImportError as error:  # built without a compiler, for another Python, or a copy of the source that was never built
        _missing = error
    else:
        Decoder, measure, IMPLEMENTATION = _decode.Decoder, _decode.measure, "cython"


@cache
def warn_if_slow() -> None:
    """Log one warning in this process if the compiled decoder is missing: everything works, so nobody would find out."""
    if _missing is not None:
        logging.getLogger("kafka_async").warning(
            "reading costs about ten times the CPU, because the compiled decoder cannot be imported (%s); install it where "
            "there is a C compiler, or from a wheel that was built there; KAFKA_ASYNC_PURE=1 turns this warning off (%s)",
            _missing,
            os.path.dirname(__file__),  # pathlib would be imported for this line alone
        )
