"""What is known of the cluster.

metadata.py           asking the cluster about itself; metadata_schedule.py: when; wanted_topics.py: about which topics
late_answers.py       asking about leaders that do not answer
cluster_view.py       its known state; cluster_reports.py: what of it is published to the application
incarnations.py       topics that were deleted and created again
telemetry.py          metrics for its operators; metrics_source.py: where they come from
"""
