"""Reading ahead.

fetch_manager.py      the request manager
fetch_session.py      sessions with brokers; fetch_size.py: how many bytes
"""
