"""Types of the compiled decoder: those of the Python one."""

from .decode import Decoder as Decoder
from .decode import measure as measure
