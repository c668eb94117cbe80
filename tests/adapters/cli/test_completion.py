"""Shells complete commands and options, those of modules that are imported only then too."""

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from kafka_async.adapters.cli.commands import MODULES, app


def completed(line: str, word: int) -> list[str]:
    asked = {"_KAFKA_ASYNC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word)}
    return CliRunner().invoke(app, [], env=asked, prog_name="kafka-async").output.split()


@pytest.mark.slow
def test_bash_completes_commands_and_options() -> None:
    assert completed("kafka-async ", 1) == list(MODULES)
    assert completed("kafka-async gr", 1) == ["groups"]
    assert {"describe", "delete"} <= set(completed("kafka-async groups d", 2))
    assert completed("kafka-async consume --isol", 2) == ["--isolation-level"]


@pytest.mark.parametrize("line", ["kafka-async topic ", "kafka-async consum --isol"])
def test_to_complete_what_is_mistyped_is_no_error(line: str) -> None:
    asked = {"_KAFKA_ASYNC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, [], env=asked, prog_name="kafka-async")
    assert result.exit_code == 0, result.exception
    assert not set(result.output.split()) - set(MODULES)


def test_completion_can_be_installed() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in shown
