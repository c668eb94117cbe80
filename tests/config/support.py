"""A configuration, and what it refuses without showing it."""

from typing import Any

import pytest

from kafka_async.config import ConsumerConfig

SECRET = "hunter2-is-not-shown"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
LOGIN: dict[str, Any] = {"sasl_plain_username": "user", "sasl_plain_password": SECRET}


def config(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.from_options(options)


def refusal(**options: Any) -> str:
    """Return why options are refused."""
    with pytest.raises(ValueError, match=r"(ssl|sasl)_") as caught:
        config(**options)
    assert SECRET not in f"{caught.value!r} {caught.value}"
    return str(caught.value)
