"""Questions to the cluster, for tools without a consumer; and share groups, which no consumer can move.

::

    admin.py      questions about groups: which there are, their members, their committed offsets
    client.py     single requests to brokers, over connections of their own
"""

from .admin import Admin, Group, GroupListing, Member, ShareOffset
from .client import Client

__all__ = ["Admin", "Client", "Group", "GroupListing", "Member", "ShareOffset"]
