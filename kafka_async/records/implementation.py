"""Which of the two decoders is used: chosen once, at import.

Decides: the compiled one if it was built, unless ``KAFKA_ASYNC_PURE=1`` is set; else the Python one. Owns the choice.
Must never choose twice.
"""

import os

from . import decode

Decoder: type[decode.Decoder] = decode.Decoder
measure = decode.measure
IMPLEMENTATION = "python"
"""``"cython"`` or ``"python"``."""

if os.environ.get("KAFKA_ASYNC_PURE") != "1":
    try:
        from . import _decode
    except ImportError:
        pass  # built without a compiler
    else:
        Decoder, measure, IMPLEMENTATION = _decode.Decoder, _decode.measure, "cython"
