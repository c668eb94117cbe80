"""Which offsets are read by which task, and what is asked of the cluster to find that out. On the driver."""
