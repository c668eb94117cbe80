"""The first batch of columns: pyarrow is a large import, and pandas, which it looks for, a larger one."""

import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")


@pytest.mark.brokers
def test_the_first_batch_of_columns_imports_pyarrow_beside_the_event_loop_and_no_pandas() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.application.reading.reading_columns"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "10 {'pyarrow': False}"
