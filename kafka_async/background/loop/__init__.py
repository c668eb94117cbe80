"""The loop.

loop.py               the loop; loop_state.py: how far it has come
environment.py        what the loop gives to the parts that decide: the network, randomness, the wall clock
assembly.py           makes every part, and gives it the objects that it talks to
dispatch.py           carries out the application's events; deadlines.py: the calls that wait
agenda.py             when the managers are polled
request_manager.py    what a manager is, and the backoff that all share
"""
