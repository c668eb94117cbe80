"""What the application subscribed to, and what it is assigned.

subscribed.py     the subscription
assigned.py       the partitions that are assigned, as calls see them
rebalancing.py    carrying out assignments that the background proposes
unasked.py        the same, before the application has asked for anything
"""
