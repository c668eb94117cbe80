from .iteration import HandOut as HandOut
from .iteration import RecordIterator as RecordIterator
