from .decode import Decoder as Decoder
from .decode import measure as measure
