from .iteration import Hand as Hand
from .iteration import HandOut as HandOut
from .iteration import Portion as Portion
from .iteration import RecordIterator as RecordIterator
from .turns import Turn as Turn
from .turns import Turns as Turns
