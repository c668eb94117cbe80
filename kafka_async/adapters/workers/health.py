"""What the parent answers about its workers: ``/alive``, ``/ready`` and ``/metrics``.

``/ready`` is for rolling updates, so it does not go back while the group rebalances or a worker is replaced. ``/alive`` never
fails: the parent restarts what a restart helps.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from attrs import define, field

from ...application.lifecycle.descriptions import descriptions
from ..web.messages import RefusedRequest, Reply, WebRequest
from ..web.prometheus import KIND, Series, family
from ..web.server import HttpServer
from .team import Stage, Team

READERS: Final = ("GET", "HEAD")


@define(eq=False)
class Health:
    """Answers for a team."""

    team: Team
    clock: Callable[[], float]
    server: HttpServer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = HttpServer(check, self.answer)

    def answer(self, request: WebRequest) -> Reply:
        """Return the reply. Raises ``RefusedRequest``."""
        if request.path == "/alive":
            return Reply(b"alive\n")
        if request.path == "/ready":
            waiting = [str(slot.number) for slot in self.team.slots if not slot.assigned_once]
            if not waiting:
                return Reply(b"ready\n")
            text = f"not assigned partitions yet: worker {', '.join(waiting)}\n"
            return Reply(text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        if request.path == "/metrics":
            return Reply("".join(f"{line}\n" for line in exposition(self.team, self.clock())).encode(), KIND)
        raise RefusedRequest(HTTPStatus.NOT_FOUND, "there are /alive, /ready and /metrics")


def check(request: WebRequest) -> None:
    """Raise ``RefusedRequest`` for what does not read. Numbers are no secrets: a scraper may use any name of this machine."""
    if request.method not in READERS:
        raise RefusedRequest(HTTPStatus.METHOD_NOT_ALLOWED, "read only: GET and HEAD", {"Allow": "GET, HEAD"})


def exposition(team: Team, now: float) -> Iterator[str]:
    """Yield the lines for Prometheus: the workers, and the metrics of their consumers under the names that they have anywhere."""
    slots = [((("worker", str(slot.number)),), slot) for slot in team.slots]
    own = "kafka_async_worker_"
    yield from family(f"{own}up", "1 while the program runs.", ((at, float(slot.state is Stage.RUNNING)) for at, slot in slots))
    yield from family(
        f"{own}assigned_once", "1 once it was assigned partitions.", ((at, float(slot.assigned_once)) for at, slot in slots)
    )
    yield from family(f"{own}starts_total", "Processes that were started.", ((at, slot.starts) for at, slot in slots), "counter")
    yield from family(
        f"{own}rss_bytes", "Memory.", ((at, slot.report.rss if slot.report is not None else None) for at, slot in slots)
    )
    yield from family(
        f"{own}report_age_seconds",
        "Seconds since it reported that it needs no restart.",
        ((at, now - slot.heard_at if slot.has_process else None) for at, slot in slots),
    )
    found: dict[tuple[str, bool], list[Series]] = defaultdict(list)
    for at, slot in slots:
        for client_id, points in slot.report.measured if slot.report is not None else ():
            for point in points:
                found[point.name, point.total].append(((*at, ("client_id", client_id), *point.labels), point.value))
    known = descriptions()
    for (name, total), series in found.items():
        yield from family(name.replace(".", "_"), known.get(name, ""), series, "counter" if total else "gauge")
