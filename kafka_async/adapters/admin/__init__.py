"""Requests about groups, for tools without a consumer; and changes to share groups, which no consumer can make.

::

    admin.py      groups: which there are, their members, their committed offsets
    client.py     single requests to brokers, over connections of their own
"""

from .admin import LETTERS_TO, Admin, DeadLetterTopic, DescribedMember, Group, GroupListing, ShareOffset
from .client import Client

__all__ = ["LETTERS_TO", "Admin", "Client", "DeadLetterTopic", "DescribedMember", "Group", "GroupListing", "ShareOffset"]
