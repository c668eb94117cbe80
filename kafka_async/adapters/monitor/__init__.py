"""Who is behind, by how long, since when, and why: the core of ``kafka-async top`` and ``kafka-async monitor``.

::

    status.py     what is said of a group in one word
    rules.py      Burrow's rules, to the letter
    times.py      lag in time
    window.py     one partition of one group over the last polls, and its status
    views.py      what is shown, as values and as JSON
    book.py       all groups, poll after poll
    numbers.py    lag and times as people read them
    survey.py     asks the brokers, which is all that is not pure here

Nothing here knows a terminal or HTTP.
"""

from .book import Book
from .status import Status, worst
from .survey import Survey
from .times import Age, Certainty
from .views import TOO_OLD, BrokerView, ClusterOverview, GroupView, Heard, MemberView, PartitionView, Snapshot

__all__ = [
    "TOO_OLD",
    "Age",
    "Book",
    "BrokerView",
    "Certainty",
    "ClusterOverview",
    "GroupView",
    "Heard",
    "MemberView",
    "PartitionView",
    "Snapshot",
    "Status",
    "Survey",
    "worst",
]
