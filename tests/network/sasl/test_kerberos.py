"""The door to libkrb5, with a stand-in for the library; ``integration/test_kerberos_tickets.py`` has a real one."""

import sys
import threading
from enum import IntFlag
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_async.config import ConsumerConfig
from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from kafka_async.model import Node
from kafka_async.network.sasl.kerberos import contexts

NODE = Node(1, "broker.test", 9092)
UNREACHABLE = 2529639068
"""KRB5_KDC_UNREACH as the library gives it."""


class GssError(Exception):
    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.min_code = code


class Flag(IntFlag):
    mutual_authentication = 2
    replay_detection = 4
    out_of_sequence_detection = 8
    integrity = 32


class Library:
    """What of ``gssapi`` is used. ``made`` is what was asked for, ``fails`` what a step raises."""

    exceptions = SimpleNamespace(GSSError=GssError)
    RequirementFlag = Flag
    MechType = SimpleNamespace(kerberos="krb5")
    NameType = SimpleNamespace(hostbased_service="host", kerberos_principal="principal")

    def __init__(self, flags: Flag = Flag.mutual_authentication, fails: GssError | None = None) -> None:
        self.flags = flags
        self.fails = fails
        self.made: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []

    def Name(self, text: str, kind: str) -> tuple[str, str]:  # noqa: N802  # the library's name
        return kind, text

    def Credentials(self, **arguments: Any) -> str:  # noqa: N802  # the library's name
        self.made["credentials"] = arguments
        return "credentials"

    def SecurityContext(self, **arguments: Any) -> "Context":  # noqa: N802  # the library's name
        self.made |= arguments
        return Context(self)


class Context:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.complete = False
        self.actual_flags = Flag(0)

    def step(self, token: bytes | None) -> bytes | None:
        self.library.threads.append(threading.current_thread())
        if self.library.fails:
            raise self.library.fails
        if token is None:
            return b"first"
        self.complete, self.actual_flags = True, self.library.flags
        return None

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"signed " + message)

    def unwrap(self, token: bytes) -> Any:
        if not token.startswith(b"signed "):
            raise GssError("a token had an invalid signature")
        return SimpleNamespace(message=token.removeprefix(b"signed "))


def context(library: Library, **options: Any) -> Any:
    config = ConsumerConfig.from_options({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", **options})
    return contexts(config, library)(NODE)


async def test_a_context_is_made_on_threads_for_the_service_on_the_brokers_host() -> None:
    library = Library()
    made = context(library)
    assert await made.step(None) == b"first"
    assert not made.complete
    assert await made.step(b"theirs") == b""
    assert made.complete
    assert made.unwrap(made.wrap(b"x")) == b"x"
    assert library.made["name"] == ("host", "kafka@broker.test")
    assert library.made["mech"] == "krb5"
    assert library.made["usage"] == "initiate"
    assert library.made["creds"] is None
    assert Flag.mutual_authentication | Flag.integrity in library.made["flags"]
    assert threading.current_thread() not in library.threads


async def test_the_service_and_its_host_are_options() -> None:
    library = Library()
    await context(library, sasl_kerberos_service_name="stream", sasl_kerberos_domain_name="kafka.test").step(None)
    assert library.made["name"] == ("host", "stream@kafka.test")


async def test_a_keytab_keeps_its_tickets_in_memory() -> None:
    library = Library()
    await context(library, sasl_kerberos_principal="reader@TEST", sasl_kerberos_keytab=__file__).step(None)
    made = library.made["credentials"]
    assert made["name"] == ("principal", "reader@TEST")
    assert made["store"]["client_keytab"] == f"FILE:{__file__}"
    assert made["store"]["ccache"].startswith("MEMORY:")
    assert library.made["creds"] == "credentials"


async def test_the_tickets_of_a_client_that_is_gone_are_nobodys() -> None:
    """libkrb5 keeps them as long as the process lives, and does not ask the keytab of whoever comes with their name again."""

    async def place(**options: str) -> str:
        library = Library()
        await context(library, **options).step(None)
        return str(library.made["credentials"]["store"]["ccache"])

    places = [await place(sasl_kerberos_keytab="/a.keytab") for _ in range(50)]  # the file may be another one each time
    one, other = {"sasl_kerberos_principal": "one@TEST"}, {"sasl_kerberos_principal": "other@TEST"}
    first = await place(sasl_kerberos_keytab="/a.keytab", **one)
    places += [first, await place(sasl_kerberos_keytab="/a.keytab", **other), await place(sasl_kerberos_keytab="/b.keytab", **one)]
    assert len(set(places)) == 53
    assert await place(sasl_kerberos_keytab="/a.keytab", **one) == first, "they stay, so whoever comes again has them"


async def test_a_keytab_is_named_if_tickets_are_missing() -> None:
    with pytest.raises(AuthenticationFailedError, match=r"for kafka@broker\.test with the keytab '/nowhere/at\.all': no tickets"):
        await context(Library(fails=GssError("no tickets")), sasl_kerberos_keytab="/nowhere/at.all").step(None)


async def test_a_libkrb5_without_stores_of_credentials_is_said() -> None:
    class Heimdal(Library):
        def Credentials(self, **arguments: Any) -> str:  # noqa: N802  # the library's name
            raise NotImplementedError("no support for manipulating credential stores")

    with pytest.raises(AuthenticationFailedError, match=r"sasl_kerberos_keytab needs MIT's libkrb5: no support"):
        await context(Heimdal(), sasl_kerberos_keytab=__file__).step(None)


async def test_a_broker_that_does_not_prove_who_it_is_is_refused() -> None:
    made = context(Library(flags=Flag.integrity))
    await made.step(None)
    with pytest.raises(AuthenticationFailedError, match=r"kafka@broker\.test did not prove its identity"):
        await made.step(b"theirs")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(UNREACHABLE, KafkaConnectionError), (2529639053, AuthenticationFailedError), (0, AuthenticationFailedError)],
)
async def test_only_a_kdc_that_was_not_reached_is_worth_another_try(code: int, kind: type[KafkaError]) -> None:
    with pytest.raises(kind, match=r"Kerberos, for kafka@broker\.test: no tickets") as caught:
        await context(Library(fails=GssError("no tickets", code))).step(None)
    assert isinstance(caught.value.__cause__, GssError)


async def test_a_message_that_is_not_signed_is_refused() -> None:
    made = context(Library())
    await made.step(None)
    with pytest.raises(AuthenticationFailedError, match="invalid signature"):
        made.unwrap(b"anything")


def test_a_missing_gssapi_is_named_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    config = ConsumerConfig.from_options({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"})
    with pytest.raises(ImportError, match=r"package gssapi.* extra 'gssapi'.* pip install '/path/to/clone\[gssapi\]'"):
        contexts(config)
