"""Which offsets are committed, and how.

commits.py        the way of every commit
commit_calls.py   commits that the caller asks for
auto_commit.py    which offsets, and when they are committed without being asked
"""
