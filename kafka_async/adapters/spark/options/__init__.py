"""The options of a job: those of the source, references to secrets, and Java's security options.

source_options.py    names, meanings, and what is refused before anything runs
patterns.py          ``subscribePattern``: expressions that mean the same in Java and in Python
secrets.py           secrets by reference
"""
