"""Reading ahead.

fetch_manager.py      the request manager
fetch_session.py      sessions with brokers; fetch_size.py: how many bytes
fetch_broker.py       the conversation with a broker; placement.py: which broker each partition is read from; share groups use both
"""
