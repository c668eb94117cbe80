"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat and nothing else.

consumer_membership.py    a member; states.py: its states, as one table
heartbeat.py              the contents of a heartbeat and of its answer
reconciliation.py         from the assignment that the coordinator wants to the one that the application has
group_settings.py         what the operators of the brokers have set
"""
