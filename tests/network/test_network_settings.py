"""``kafka_async.network.network_settings``"""

import re
import tomllib
from math import inf
from pathlib import Path

import pytest

from kafka_async.config import ConsumerConfig
from kafka_async.network.network_settings import SOFTWARE_NAME, SOFTWARE_VERSION, NetworkSettings


def test_milliseconds_become_seconds() -> None:
    settings = NetworkSettings.from_config(ConsumerConfig.from_options({"request_timeout_ms": 1500, "reconnect_backoff_ms": 20}))
    assert settings.request_timeout == 1.5
    assert settings.reconnect.initial == 0.02
    assert settings.max_idle == 540.0


def test_a_negative_idle_time_means_never() -> None:
    assert NetworkSettings.from_config(ConsumerConfig.from_options({"connections_max_idle_ms": -1})).max_idle == inf


def test_the_software_is_named_as_the_package_and_as_brokers_allow() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == (SOFTWARE_NAME, SOFTWARE_VERSION)
    assert re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", SOFTWARE_VERSION)


@pytest.mark.parametrize("value", [0, -2, True])
def test_connections_that_are_closed_before_they_are_of_use_cannot_be_asked_for(value: int) -> None:
    with pytest.raises(
        ValueError, match=r"connections_max_idle_ms=.*: expected an integer from -1 to 9223372036854775807 other than 0"
    ):
        ConsumerConfig.from_options({"connections_max_idle_ms": value})
