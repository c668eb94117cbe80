"""``python -m kafka_async``: the command line, see ``adapters/cli.py``."""

from .adapters.cli import main

main()
