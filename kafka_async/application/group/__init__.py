"""What the application subscribed to, and what it is assigned.

subscribed.py     the subscription
rebalancing.py    carrying out assignments that the background proposes
"""
