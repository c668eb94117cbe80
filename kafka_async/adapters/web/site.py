"""What is under which path.

Pure: what was seen last, and its age, are arguments.
"""

from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from attrs import frozen

from ..monitor import TOO_OLD, GroupView, Snapshot, Status
from . import pages
from .exposition import exposition
from .messages import HTML, RefusedRequest, Reply, WebRequest, as_json
from .prometheus import KIND

_SCRIPT: Final = "text/javascript; charset=utf-8"
_STYLE: Final = "text/css; charset=utf-8"
_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M1 13 6 7l3 3 6-8" fill="none" stroke="#888" '
    'stroke-width="2"/></svg>'
)


@frozen(kw_only=True)
class LastSeen:
    """What there is to show."""

    snapshot: Snapshot | None
    """``None``: the first poll has not ended."""
    age: float = 0.0
    """Seconds since the last poll."""


@cache
def _asset(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


@frozen
class Site:
    """Answers requests."""

    interval: float
    """Seconds between polls."""
    partitions: bool = False
    """Metrics have those of each partition."""

    def answer(self, request: WebRequest, seen: LastSeen) -> Reply:
        """Return the reply. Raises ``RefusedRequest``."""
        exact: Mapping[str, Callable[[WebRequest, LastSeen], Reply]] = {
            "/": self._overview,
            "/api/v1/groups": self._groups,
            "/api/v1/cluster": self._cluster,
            "/metrics": self._metrics,
            "/alive": lambda _, __: Reply(b"alive\n"),
            "/ready": self._ready,
            "/page.js": lambda _, __: Reply(_asset("page.js"), _SCRIPT),
            "/page.css": lambda _, __: Reply(_asset("page.css"), _STYLE),
            "/icon.svg": lambda _, __: Reply(_ICON.encode(), "image/svg+xml"),
        }
        if request.path in exact:
            return exact[request.path](request, seen)
        of_group: Mapping[str, Callable[[GroupView, WebRequest, LastSeen], Reply]] = {
            "/groups/": self._group_page,
            "/api/v1/groups/": lambda group, _, seen: as_json(self._known(group, seen).as_json()),
            "/keda/groups/": self._keda,
        }
        for prefix, answer in of_group.items():
            if request.path.startswith(prefix) and (name := request.path.removeprefix(prefix)):
                return answer(_found(seen, name), request, seen)
        raise RefusedRequest(HTTPStatus.NOT_FOUND, "there is nothing under this path")

    # --- pages -----------------------------------------------------------------------------------------------------------------

    def _overview(self, _request: WebRequest, seen: LastSeen) -> Reply:
        return Reply(pages.overview(seen.snapshot, self.interval).encode(), HTML)

    def _group_page(self, group: GroupView, _request: WebRequest, seen: LastSeen) -> Reply:
        return Reply(pages.group_page(_snapshot(seen), group, self.interval).encode(), HTML)

    # --- programs --------------------------------------------------------------------------------------------------------------

    def _groups(self, request: WebRequest, seen: LastSeen) -> Reply:
        snapshot = self._now(seen)
        wanted = request.query.get("status", "").upper()
        if wanted and wanted not in set(Status):
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, f"expected a status of {', '.join(Status)}")
        groups = [group for group in snapshot.groups if not wanted or group.status == wanted]
        shown = groups[: _natural(request, "limit", len(groups))]
        rows = [group.as_json() for group in shown]
        return as_json({"poll": snapshot.number, "total": len(groups), "groups": rows})

    def _cluster(self, _request: WebRequest, seen: LastSeen) -> Reply:
        snapshot = self._now(seen)
        counts = {status.value: number for status, number in snapshot.counts().items()}
        polls = {"poll": snapshot.number, "poll_seconds": round(snapshot.poll_seconds, 3), "age_seconds": round(seen.age, 3)}
        return as_json({**snapshot.cluster.as_json(), "groups": counts, **polls})

    def _metrics(self, _request: WebRequest, seen: LastSeen) -> Reply:
        snapshot = self._now(seen) if seen.snapshot is not None else None
        return Reply(exposition(snapshot, seen.age, partitions=self.partitions).encode(), KIND)

    def _ready(self, _request: WebRequest, seen: LastSeen) -> Reply:
        if seen.snapshot is None:
            return Reply(b"the first poll has not ended\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Reply(b"ready\n")

    def _keda(self, group: GroupView, request: WebRequest, seen: LastSeen) -> Reply:
        """Return the lag for KEDA's metrics-api scaler. 0 scales to nothing, so what is not known is not a number at all."""
        target = _natural(request, "target", 0)
        group = self._known(group, seen)
        if group.taken_at is None or TOO_OLD in group.notes:
            raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "the lag is too old to tell")
        if group.status is Status.UNKNOWN or group.lag is None or (group.lag == 0 and not group.complete):
            raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "the lag is not known")
        told = group.as_json()
        names = ("group", "type", "status", "lag", "lag_complete", "lag_seconds", "members", "age_seconds")
        found: dict[str, Any] = {name: told[name] for name in names}
        found["partitions"] = len(group.partitions)
        found["lagging_partitions"] = sum(bool(part.lag) for part in group.partitions)
        if target:  # more members than partitions have nothing to do, except in a share group
            most = group.lag if group.kind == "share" else len(group.partitions) * target
            found["scaled"] = min(group.lag, most)
        return as_json(found)

    def _now(self, seen: LastSeen) -> Snapshot:
        """Return what is known now."""
        return _snapshot(seen).known(seen.age)

    def _known(self, group: GroupView, seen: LastSeen) -> GroupView:
        """Return what is known of a group now."""
        return _snapshot(seen).known_of(group, seen.age)

    # --- events ----------------------------------------------------------------------------------------------------------------

    def event(self, request: WebRequest, before: Snapshot | None, now: Snapshot) -> dict[str, Any]:
        """Return what is to be told to a page: of all groups those that changed, of one group everything.

        ``all``: there are no other rows. ``texts``: what stands beside them, under the ids of the places.
        """
        if (name := request.query.get("group")) is not None:
            group = now.find(name)
            told = pages.event_gone() if group is None else pages.event_group(group, self.interval)
            return {**told, "all": True, "gone": [], "texts": {"cluster": pages.about(now)}}
        shown = {group.name: pages.event_row(group, self.interval) for group in now.groups[: pages.MOST]}
        old = {group.name: pages.event_row(group, self.interval) for group in before.groups[: pages.MOST]} if before else {}
        return {
            "rows": [row for name, row in shown.items() if old.get(name) != row],
            "all": before is None,
            "gone": sorted(old.keys() - shown.keys()),
            "texts": pages.overview_texts(now),
        }


def _snapshot(seen: LastSeen) -> Snapshot:
    if seen.snapshot is None:
        raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "the first poll has not ended")
    return seen.snapshot


def _found(seen: LastSeen, name: str) -> GroupView:
    group = _snapshot(seen).find(name)
    if group is None:
        raise RefusedRequest(HTTPStatus.NOT_FOUND, "there is no such group")
    return group


def _natural(request: WebRequest, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, f"{name}: expected a number")
    return int(text)
