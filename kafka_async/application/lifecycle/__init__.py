"""How a consumer starts, runs and ends, and what can be seen of it.

lifecycle.py       its phases, as one table
starting.py        how it begins; parting.py: how it ends
runtime.py         where the background loop runs
ownership.py       where a consumer may be used, and who reads from it alone
observing.py       trace events, statistics, the state
metrics.py         metrics; descriptions.py: what each means; otlp.py: metrics as telemetry sends them
"""
