"""What the one loop owns. Pure and synchronous, except ``loop.py``.

loop.py               the loop; life.py: how far it has come
boundary.py           all that the application and the loop share
environment.py        what the loop gives to the parts that decide: the network, randomness, the wall clock
assembly.py           makes every part, and gives it the objects that it talks to
dispatch.py           carries out the application's events; deadlines.py: the calls that wait
agenda.py             when the managers are polled
request_manager.py    what a manager is, and the backoff that all share
metadata.py           asking the cluster about itself; metadata_schedule.py: when; interests.py: about which topics
cluster.py            the known state of the cluster; news.py: what of it is published to the application
incarnations.py       topics that were deleted and created again
subscription.py       what is assigned and where each partition is read next
follow.py             topics that are followed without a group
positions.py          how a partition gets a position; list_offsets.py: offsets by time, beginning and end
newcomers.py          partitions that have appeared since the application subscribed
fetch.py              reading ahead; fetch_session.py: sessions with brokers; fetch_size.py: how many bytes
ends.py               where the logs end of partitions that are not fetched
grouping.py           partitions by topic, as requests name them
partition_outage.py   what fails partition by partition, and when that is over
telemetry.py          metrics for the operators of the cluster
group/                only for consumers with a group
share/                only for share consumers
"""
