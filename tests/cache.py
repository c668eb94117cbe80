"""The folder in which tests keep what takes long to make or to fetch, over all runs: ``KAFKA_ASYNC_CACHE`` names another."""

import os
from pathlib import Path


def cache() -> Path:
    """Return the folder, made if there is none."""
    folder = Path(os.environ.get("KAFKA_ASYNC_CACHE") or Path.home() / ".cache" / "kafka_async")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
