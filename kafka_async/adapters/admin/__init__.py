"""Requests about groups, for tools without a consumer; and changes to share groups, which no consumer can make.

::

    admin.py      groups: which there are, their members, their committed offsets
    client.py     single requests to brokers, over connections of their own
"""

from .admin import Admin, DescribedMember, Group, GroupListing, ShareOffset
from .client import Client

__all__ = ["Admin", "Client", "DescribedMember", "Group", "GroupListing", "ShareOffset"]
