"""Which offsets are committed, and how.

commits.py        the way of every commit
auto_commit.py    which offsets, and when they are committed without being asked
"""
