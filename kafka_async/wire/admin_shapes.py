"""Messages of tools whose older versions are built differently.

A module of its own, since consumers send none of them. DeleteTopics before v6 (KIP-516) has the names of topics, and no ids;
``versions.py`` has refused a topic without a name by then.
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from .messages import Request
from .messages.admin import DeleteTopicsRequest, DeleteTopicState
from .messages.base import Struct, int32
from .shapes import OldShape


@frozen(kw_only=True)
class _DeleteTopicsRequest(Struct):
    topic_names: tuple[str, ...]
    timeout_ms: int32


def _fold_delete_topics_request(new: DeleteTopicsRequest) -> Struct:
    return _DeleteTopicsRequest(topic_names=tuple(topic.name or "" for topic in new.topics), timeout_ms=new.timeout_ms)


def _unfold_delete_topics_request(old: _DeleteTopicsRequest, _: Request[Any] | None) -> Struct:
    return DeleteTopicsRequest(topics=tuple(DeleteTopicState(name=name) for name in old.topic_names), timeout_ms=old.timeout_ms)


OLD_SHAPES: Mapping[type[Struct], OldShape] = {
    DeleteTopicsRequest: OldShape(
        until=5, cls=_DeleteTopicsRequest, fold=_fold_delete_topics_request, unfold=_unfold_delete_topics_request
    ),
}
