"""Ranges of offsets, for whatever reads a part of a topic: Spark's tasks, scans.

planner.py      ranges into pieces of work
reading.py      one piece on its consumer: what is done about offsets that are gone, and about topics made anew
sizes.py        how many bytes a record has
offsets.py      what is said of offsets
"""
