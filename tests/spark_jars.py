"""Spark's own Kafka connector, to compare with: its jars, fetched once from Maven.

Decides: which versions. Owns a folder of the jar cache (``KAFKA_ASYNC_CACHE``). Must never be needed by the package itself.

The jars are named one by one and without what they depend on: Spark's parent POM names repositories that may be out of reach, and
all the rest comes with PySpark.
"""

import fcntl
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Final

from .cache import cache

_JARS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
_ITEM: Final = "<artifactItem><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></artifactItem>"
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>kafka-async</groupId><artifactId>jvm-connector</artifactId><version>1</version>
<build><plugins><plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
<configuration><outputDirectory>libs</outputDirectory><artifactItems>{}</artifactItems></configuration>
</plugin></plugins></build></project>
"""


class ConnectorMissingError(RuntimeError):
    """Maven could not fetch the connector; the message has the end of its output."""


def jvm_connector() -> str:
    """Return the connector's jars as ``spark.jars`` wants them, downloading them once. Raises ``ConnectorMissingError``."""
    folder = cache()
    pom = _POM.format("".join(_ITEM.format(*jar) for jar in _JARS))
    target = folder / f"spark-{zlib.crc32(pom.encode()):08x}"  # another list of jars is another folder
    with (folder / "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(pom, folder, target)
    return ",".join(str(jar) for jar in sorted(target.glob("*.jar")))


def _fetch(pom: str, folder: Path, target: Path) -> None:
    """Have Maven copy the jars to a folder of their own, which then gets its name in one step."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        (Path(work) / "pom.xml").write_text(pom)
        command = ["mvn", "-q", "-B", "dependency:copy"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)  # noqa: S603  # fixed words
        if done.returncode:
            raise ConnectorMissingError(f"Maven cannot fetch Spark's Kafka connector:\n{(done.stdout + done.stderr)[-4000:]}")
        (Path(work) / "libs").rename(target)
