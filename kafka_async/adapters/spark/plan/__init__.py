"""Which offsets are read by which task, and what is asked of the cluster to find that out. On the driver.

offsets.py      offsets as people and checkpoints write them
lookup.py       which partitions there are, and where they begin and end
admission.py    how much a micro-batch takes; volume.py: in bytes
"""
