"""What the one loop owns. Pure and synchronous, except the loop itself.

boundary.py    all that the application and the loop share
loop/          the loop, its turns, and how everything is put together
cluster/       what is known of the cluster, and asking it
positions/     what is assigned, and where each partition is read next
fetch/         reading ahead
group/         only for consumers with a group
share/         only for share consumers
by_topic.py    partitions by topic, as requests name them
"""
