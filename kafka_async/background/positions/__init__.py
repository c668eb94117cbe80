"""What is assigned, and where each partition is read next.

subscription.py       the state of each assigned partition
positions.py          how a partition gets a position; list_offsets.py: offsets by time, beginning and end
topic_follower.py     topics that are followed without a group
newcomers.py          partitions that have appeared since the application subscribed
stopped_ends.py       where the logs end of partitions that are not fetched
partition_outage.py   what fails partition by partition, and when that is over
"""
