"""PLAIN: name and password as they are."""

from kafka_async.network.sasl.plain import Plain


def test_name_and_password_are_said_as_rfc_4616_wants_it() -> None:
    assert Plain("tim", "tanstaaftanstaaf").start() == b"\0tim\0tanstaaftanstaaf"


def test_a_password_outside_ascii_is_its_utf8() -> None:
    assert Plain("jürgen", "pässwörd\u00a0\ufb01").start() == "\0jürgen\0pässwörd\u00a0\ufb01".encode()


def test_the_password_does_not_show() -> None:
    mechanism = Plain("tim", "hunter2")
    assert "hunter2" not in repr(mechanism)
    assert mechanism.secrets == ("hunter2",)
