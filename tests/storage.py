"""What Kafka's StorageTool writes for brokers, kept, and laid out for others with other ports.

Decides: which of the written bytes belong to one cluster alone, and where they are. Must never write what a broker that has run
would have to read back: only what lies in a directory before its first start.

StorageTool is a process of Java's for each broker, which takes half as long as a start does. What it writes depends on Kafka's
version, on the features and credentials, and on the voters: their number, the ids of their directories, and their ports. Sources:
KIP-853 (VotersRecord), KIP-98 (batches), ``org.apache.kafka.metadata.properties.MetaProperties``.
"""

import base64
import struct
from collections.abc import Sequence
from pathlib import Path

from kafka_async.records.checksum import crc32c

_HOST = b"\x0a127.0.0.1"
"""A compact string, as in a voter's endpoint; its port follows."""
_CRC_AT, _CRC_FROM = 17, 21
"""Where the checksum of a batch lies, and from where on it counts."""


def directory_id(broker: int) -> str:
    """Return the id of a broker's directory, the same in every cluster: only the voters of one cluster tell theirs apart by it."""
    return base64.urlsafe_b64encode(b"%015d%d" % (0, broker)).decode().rstrip("=")


def nominal_port(broker: int) -> int:
    """Return the port of a broker's controller for which storage is formatted."""
    return 1 + broker


def voters(ports: Sequence[int]) -> str:
    """Return the brokers whose controllers listen at ``ports``, as StorageTool is told of them."""
    return ",".join(f"{broker}@127.0.0.1:{port}:{directory_id(broker)}" for broker, port in enumerate(ports))


def lay_out(formatted: Path, data: Path, *, cluster_id: str, broker: int, ports: Sequence[int]) -> None:
    """Write the storage of a ``broker`` that has not run yet to the new directory ``data``.

    ``formatted``: what StorageTool wrote for as many voters at their ``nominal_port``. ``ports``: those of the controllers here.
    """
    data.mkdir()
    properties = {"version": "1", "cluster.id": cluster_id, "node.id": str(broker), "directory.id": directory_id(broker)}
    (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    for source in formatted.rglob("*.checkpoint"):
        target = data / source.relative_to(formatted)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(_with_ports(source.read_bytes(), ports))


def _with_ports(checkpoint: bytes, ports: Sequence[int]) -> bytes:
    """Return batches of records with the real ports in place of the nominal ones."""
    changed = bytearray(checkpoint)
    for broker, port in enumerate(ports):
        nominal = _HOST + struct.pack(">H", nominal_port(broker))
        if (at := checkpoint.find(nominal)) >= 0:  # only one of the files names the voters
            changed[at : at + len(nominal)] = _HOST + struct.pack(">H", port)
    start = 0
    while start < len(changed):
        end = start + 12 + int.from_bytes(changed[start + 8 : start + 12])
        changed[start + _CRC_AT : start + _CRC_FROM] = struct.pack(">I", crc32c(bytes(changed[start + _CRC_FROM : end])))
        start = end
    return bytes(changed)
