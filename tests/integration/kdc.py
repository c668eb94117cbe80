"""A real Kerberos KDC (Apache Kerby) on loopback.

Decides: realm and principals. Owns: the KDC's process and its directory. Must never touch the machine's own Kerberos settings: the
environment names ours while it runs. ``Kdc.java`` is the program, run from its source.
"""

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.brokers import BrokerStartError, free_ports, maven_jars

REALM: Final = "KAFKA.TEST"
SERVICE: Final = f"kafka/localhost@{REALM}"
READER: Final = f"reader@{REALM}"

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>kafka-async</groupId><artifactId>test-kdc</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kerby</groupId><artifactId>kerb-simplekdc</artifactId><version>{version}</version></dependency>
</dependencies></project>
"""
_VERSION: Final = "2.1.0"

# Names are taken as they are: nothing here is in a DNS. Kerby listens on TCP only.
_SETTINGS: Final = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""


@frozen(kw_only=True)
class Kdc:
    """A KDC that runs."""

    directory: Path

    @property
    def settings(self) -> Path:
        """The ``krb5.conf`` that leads to it."""
        return self.directory / "client.conf"

    @property
    def service_keytab(self) -> Path:
        """The key of ``SERVICE``."""
        return self.directory / "service.keytab"

    @property
    def reader_keytab(self) -> Path:
        """The key of ``READER``."""
        return self.directory / "reader.keytab"


def unavailable() -> str | None:
    """Return why this machine's Python cannot speak Kerberos, or ``None`` if it can."""
    return None if importlib.util.find_spec("gssapi") else "needs the extra gssapi, which needs libkrb5 to be built"


@contextmanager
def kdc(directory: Path) -> Iterator[Kdc]:
    """Run a KDC with ``SERVICE`` and ``READER`` in ``directory``; libkrb5 in this process asks it."""
    libs = maven_jars(f"kerby-{_VERSION}", _POM, _VERSION)
    (port,) = free_ports(1)
    made = Kdc(directory=directory)
    made.settings.write_text(_SETTINGS.format(realm=REALM, port=port))
    source = str(Path(__file__).with_name("Kdc.java"))
    principals = [made.service_keytab.name, SERVICE, made.reader_keytab.name, READER]
    command = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", f"{libs}/*", source, str(directory), REALM, str(port), *principals]
    log = directory / "kdc.log"
    before = os.environ.get("KRB5_CONFIG")
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, start_new_session=True) as process,  # noqa: S603  # ours
    ):
        assert process.stdout is not None
        if not any(line == b"ready\n" for line in process.stdout):
            raise BrokerStartError(f"the KDC ended:\n{log.read_text()[-4000:]}")
        os.environ["KRB5_CONFIG"] = str(made.settings)
        try:
            yield made
        finally:
            process.kill()
            if before is None:
                del os.environ["KRB5_CONFIG"]
            else:
                os.environ["KRB5_CONFIG"] = before
