"""The command line as a program beside a broker that wants a password: where it comes from, and that nothing shows it."""

from pathlib import Path

import pytest

pytest.importorskip("typer")

from .cli import kafka
from .secure import PASSWORD, Secure

pytestmark = pytest.mark.brokers


@pytest.fixture
def login(kafka_secure: Secure) -> tuple[str, ...]:
    settings = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.plain.username=alice"]
    settings += [f"ssl.cafile={kafka_secure.authority}"]
    return ("-b", kafka_secure.cluster.listener("TLSLOGIN"), *(word for setting in settings for word in ("-X", setting)))


def test_a_password_comes_from_a_file_and_not_from_the_arguments(login: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "client.properties").write_text(f"sasl.plain.password={PASSWORD}\n")

    with_value = kafka("topics", "list", *login, "-X", f"sasl.plain.password=@{tmp_path}/password")
    with_file = kafka("topics", "list", *login, "-F", str(tmp_path / "client.properties"))

    assert (with_value.returncode, with_file.returncode) == (0, 0), with_value.stderr + with_file.stderr


def test_a_wrong_or_mistyped_password_is_refused_and_not_shown(login: tuple[str, ...]) -> None:
    wrong = kafka("topics", "list", *login, "-X", "sasl.plain.password=hunter-2")
    blank = kafka("topics", "list", *login, "-X", f"sasl.plain.password= {PASSWORD}")  # blanks belong to it
    mistyped = kafka("topics", "list", *login, "-X", "sasl.plain.pasword=hunter-2")

    assert [done.returncode for done in (wrong, blank, mistyped)] == [1, 1, 2]
    assert "PLAIN: the broker refused the credentials: Authentication failed" in wrong.stderr
    assert not any(secret in done.stderr for done in (wrong, blank, mistyped) for secret in ("hunter-2", PASSWORD))
