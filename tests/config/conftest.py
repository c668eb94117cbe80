"""Fixtures for tests of options."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """A function that writes a properties file and returns its path."""

    def write(text: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / "client.properties"
        path.write_bytes(text.encode(encoding))
        return path

    return write
