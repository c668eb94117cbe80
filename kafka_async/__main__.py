"""``python -m kafka_async``: the command line, see ``adapters/cli/main.py``."""

from .adapters.cli.main import main

main()
