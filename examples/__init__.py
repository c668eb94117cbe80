"""Small complete programs. Run one as ``python -m examples.consume``; ``HOST:PORT TOPIC`` after it reads from your own brokers.

If a package is missing, the program prints what to install.
"""

import sys
from types import TracebackType
from typing import Final

_NEEDED: Final = {
    "confluent_kafka": "'confluent-kafka[schemaregistry,avro]'",
    "rich": "'.[demo]'",
    "typer": "'.[demo]'",
    "pyarrow": "'.[arrow]'",
    "pyspark": "'.[spark]'",
    "grpc": "'pyspark[pipelines]'",
    "yaml": "'pyspark[pipelines]'",
    "msgspec": "'.[json]'",
    "fastapi": "fastapi httpx uvicorn",
    "httpx": "fastapi httpx uvicorn",
    "uvicorn": "fastapi httpx uvicorn",
    "authlib": "'confluent-kafka[schemaregistry,avro]'",
    "cachetools": "'confluent-kafka[schemaregistry,avro]'",
    "fastavro": "'confluent-kafka[schemaregistry,avro]'",
}
"""What pip is to be given for each module that an example imports."""


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what to install if a module of another project is missing, in one line."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in _NEEDED:
        sys.__excepthook__(kind, error, trace)
        return
    where = " from a clone" if _NEEDED[name].startswith("'.") else ""
    print(f"this example needs {name}: pip install {_NEEDED[name]}{where}", file=sys.stderr)


if sys.argv[:1] == ["-m"]:  # Python is about to run one, rather than import it for a test
    sys.excepthook = _explain
