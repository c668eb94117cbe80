"""Requests about groups, for tools without a consumer; and changes to share groups, which no consumer can make.

::

    admin.py      groups: which there are, their members, their committed offsets
    batches.py    the same for many groups at once
    answers.py    what the responses mean
    client.py     single requests to brokers, over connections of their own
"""

from .admin import LETTERS_TO, Admin, DeadLetterTopic
from .answers import DescribedMember, Group, GroupListing, ShareOffset, certain
from .batches import EARLIEST, LATEST
from .client import Client

__all__ = [
    "EARLIEST",
    "LATEST",
    "LETTERS_TO",
    "Admin",
    "Client",
    "DeadLetterTopic",
    "DescribedMember",
    "Group",
    "GroupListing",
    "ShareOffset",
    "certain",
]
