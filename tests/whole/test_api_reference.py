"""The API reference can be made from the docstrings, without a warning and without PySpark, and has what programs import."""

import importlib
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest

import kafka_async

pytest.importorskip("pdoc", reason="pdoc is not installed: pip install '.[docs]'")
COMMAND = Path(__file__).parents[2] / ".docs" / "build.py"


@pytest.mark.slow
def test_the_reference_has_every_public_name_and_costs_no_warning(tmp_path: Path) -> None:
    command = runpy.run_path(str(COMMAND))
    command["build"](tmp_path, search=False)
    page = (tmp_path / "kafka_async.html").read_text()
    assert [name for name in kafka_async.__all__ if not name.startswith("_") and f'<section id="{name}">' not in page] == []
    assert '<div id="KafkaConsumer.getmany"' in page
    assert '<section id="CommitFailedError">' in (tmp_path / "kafka_async" / "errors.html").read_text()
    assert '<div id="KafkaConsumer.getmany"' in (tmp_path / "kafka_async" / "sync.html").read_text()
    assert "SparkSession" in (tmp_path / "kafka_async" / "spark.html").read_text()
    assert [name for name in kafka_async.ConsumerOptions.__annotations__ if f'id="ConsumerConfig.{name}"' not in page] == []
    assert '<div id="ConsumerOptions.group_id"' in page
    for module in command["MODULES"]:
        names = getattr(importlib.import_module(module), "__all__", ()) if module != "kafka_async.spark" else ()  # without PySpark
        page = (tmp_path / module.replace(".", "/")).with_suffix(".html").read_text()
        assert [name for name in names if not name.startswith("_") and f'<section id="{name}">' not in page] == [], module
    assert '<section id="RetryTopics">' in (tmp_path / "kafka_async" / "adapters" / "retry_topics.html").read_text()
    built = (COMMAND.parents[1] / "kafka_async" / "README.md").read_text()
    assert set(re.findall(r"^\| `(kafka_async[.\w]*)` \|", built, re.MULTILINE)) <= set(command["MODULES"])


def test_the_reference_needs_no_pyspark_and_leaves_that_of_others_alone() -> None:
    extras = tomllib.loads((COMMAND.parent.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not any("spark" in needed for needed in extras["docs"])
    before = {name: module for name, module in sys.modules.items() if name.startswith("pyspark")}
    command = runpy.run_path(str(COMMAND))
    with command["stand_ins"]():
        assert {name for name in sys.modules if name.partition(".")[0] == "pyspark"} == set(command["OF_SPARK"])
    assert {name: module for name, module in sys.modules.items() if name.startswith("pyspark")} == before
