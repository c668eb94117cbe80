"""``kafka_async.network.settings``"""

import re
import tomllib
from math import inf
from pathlib import Path

from kafka_async.config import ConsumerConfig
from kafka_async.network.settings import SOFTWARE_NAME, SOFTWARE_VERSION, NetworkSettings


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
