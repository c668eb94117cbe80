"""What a job says: the options of the source, where secrets are, and what Java's security options mean here.

source_options.py    names, meanings, and what is refused before anything runs
patterns.py          ``subscribePattern``: expressions that mean the same in Java and in Python
secrets.py           secrets by reference
"""
