import logging
import re

import pytest

pytest.importorskip("typer")

import typer

from kafka_async.adapters.cli.shell import Output, natural, run, show_log
from kafka_async.errors import GroupIdNotFound, KafkaError


async def ends_with(outcome: int | BaseException) -> int:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    ("outcome", "code", "text"),
    [
        (0, 0, ""),
        (1, 1, ""),
        (KafkaError("no\nbroker  answers"), 1, "kafka-async: no broker answers\n"),
        (KafkaError("evil\x1b]0;owned\x07 \x9b"), 1, "kafka-async: evil\\x1b]0;owned\\x07 \\x9b\n"),
        (GroupIdNotFound("group 'g' does not exist"), 1, "kafka-async: group 'g' does not exist\n"),
        (OSError(), 1, "kafka-async: OSError\n"),
        (ImportError("ssl_keystore_location: stores need it"), 2, "kafka-async: ssl_keystore_location: stores need it\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_outcome_is_an_exit_code_and_at_most_one_line(
    capsys: pytest.CaptureFixture[str], outcome: int | BaseException, code: int, text: str
) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(ends_with(outcome), Output(debug=False))

    assert ended.value.exit_code == code
    assert capsys.readouterr() == ("", text)


def test_what_others_named_speaks_to_people_and_not_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output(debug=False).notify("% Group g\x1b[2J: assigned")

    assert capsys.readouterr().err == "% Group g\\x1b[2J: assigned\n"


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(ends_with(ZeroDivisionError()), Output(debug=False))


def test_the_log_is_shown_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    show_log(False)
    logging.getLogger("kafka_async").warning("unseen")
    show_log(True)
    logging.getLogger("kafka_async").warning("seen")

    assert "unseen" not in (err := capsys.readouterr().err)
    assert "WARNING seen" in err


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "\u0663", " 1"])
def test_only_ascii_digits_are_a_number(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        natural(text)


def test_whoever_follows_a_topic_is_told_of_outages(capsys: pytest.CaptureFixture[str]) -> None:
    show_log(False)
    Output(debug=False).show_outages()
    logger = logging.getLogger("kafka_async.network")
    logger.info("[reader] connected")
    logger.warning("[reader] no broker can be reached")
    logger.info("[reader] recovered: brokers, after 12.0 s and 9 failures")

    assert capsys.readouterr().err.splitlines() == [
        "% [reader] no broker can be reached",
        "% [reader] recovered: brokers, after 12.0 s and 9 failures",
    ]


@pytest.mark.parametrize("output", [Output(debug=True), Output(debug=False, quiet=True)])
def test_outages_are_not_told_beside_the_log_nor_to_who_wants_quiet(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    show_log(False)
    output.show_outages()
    logging.getLogger("kafka_async").warning("no broker can be reached")

    assert capsys.readouterr().err == ""
