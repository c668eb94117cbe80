"""The options of ``process``: what help shows, what type checkers know, and what is checked, are the same."""

import inspect
import re
from typing import Any, get_type_hints

import pytest

import kafka_async.sync
from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.application.processing.process_options import ProcessOptions
from kafka_async.application.processing.process_settings import DEFAULTS, OF_OFFSETS
from kafka_async.application.processing.retry import ONCE
from kafka_async.application.share.options import ShareProcessOptions

OF_SHARED = DEFAULTS.keys() - OF_OFFSETS.keys()
"""The options that share groups have."""


def documented(consumer: type) -> dict[str, str]:
    """Return the options that ``help`` describes, with the default of each."""
    text = inspect.getdoc(consumer.process) or ""  # type: ignore[attr-defined]  # both have it
    bullets = [line for line in text.splitlines() if line.startswith("- ``")]
    return {name: default for line in bullets for name, default in re.findall(r"``(\w+)`` \(([^)]+)\)", line)}


@pytest.mark.parametrize(("consumer", "names"), [(KafkaConsumer, DEFAULTS.keys()), (ShareConsumer, OF_SHARED)])
def test_help_describes_each_option_with_its_default(consumer: type, names: set[str]) -> None:
    found = documented(consumer)
    assert found.keys() == names
    assert DEFAULTS["retry"] is ONCE
    assert found.pop("retry").startswith("ONCE")
    assert {name: DEFAULTS[name] for name in found} == {name: eval(text) for name, text in found.items()}  # noqa: S307  # our own text


@pytest.mark.parametrize(("options", "names"), [(ProcessOptions, DEFAULTS.keys()), (ShareProcessOptions, OF_SHARED)])
def test_type_checkers_know_each_option(options: type, names: set[str]) -> None:
    assert get_type_hints(options).keys() == names


@pytest.mark.parametrize("consumer", [KafkaConsumer, kafka_async.sync.KafkaConsumer])
def test_an_unknown_option_is_refused_with_the_one_that_may_be_meant(consumer: Any) -> None:
    made = consumer("t", bootstrap_servers="nowhere:1")
    with pytest.raises(TypeError, match="unknown option of process: 'concurency'; did you mean 'concurrency'"):
        made.processing(print, concurency=3)
    with pytest.raises(TypeError, match="unknown option of process: 'shared'"):
        made.processing(print, shared=True)


@pytest.mark.parametrize("consumer", [ShareConsumer, kafka_async.sync.ShareConsumer])
@pytest.mark.parametrize("name", sorted(OF_OFFSETS))
def test_share_groups_have_no_order_no_offsets_and_no_delays(consumer: Any, name: str) -> None:
    made = consumer("t", bootstrap_servers="nowhere:1", group_id="workers")
    with pytest.raises(TypeError, match=f"'{name}'; {OF_OFFSETS[name]}"):
        made.processing(print, **{name: DEFAULTS[name]})
    assert made.processing(print, on_failure="release")
