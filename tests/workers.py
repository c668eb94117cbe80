"""Which worker of pytest-xdist takes which file of tests.

Decides: that a worker stays with one kind of test while there are files of it. Then a cluster of a kind seldom runs twice at a
time, and a worker that waits for brokers runs beside one that computes. Must never decide what a test does: whatever is guessed
wrong here costs time only.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

_SIGNS: Final = (("spark", "mark.spark"), ("three brokers", "kafka_cluster3"), ("brokers", "mark.brokers"))
"""Kinds of files, each with a text by which it is recognized; the first that is found counts."""
COMPUTES: Final = "fast"
"""Files without any sign."""
_ROOT: Final = Path(__file__).parents[1]


@cache
def kind_of(file: str) -> str:
    """Return the kind of tests in a file, recognized by its text, since this process collects no tests.

    ``file``: as in a test's id.
    """
    try:
        text = (_ROOT / file).read_text()
    except OSError:
        return COMPUTES
    return next((kind for kind, sign in _SIGNS if re.search(rf"\b{sign}\b", text)), COMPUTES)


class ByKind(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no type hints
    """Hands files to workers in their order, but each worker files of the kind that it is at.

    A worker without one takes the kind with most files left, of those that fewest workers are at. Files that compute wait until a
    worker has no other ones left, and others join it only at the end: the longer they last, the fewer tests wait side by side
    while nothing computes.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._at: dict[Any, str] = {}

    def _assign_work_unit(self, node: Any) -> None:
        """Take over the place where xdist takes the first file of its queue: put the right one there."""
        left = Counter(map(kind_of, self.workqueue))
        if self._at.get(node) not in left:
            self._at[node] = self._kind_for(node, left)
        self.workqueue.move_to_end(next(file for file in self.workqueue if kind_of(file) == self._at[node]), last=False)
        super()._assign_work_unit(node)

    def _kind_for(self, node: Any, left: Counter[str]) -> str:
        others = Counter(self._at.values())
        waiting = [kind for kind in left if kind != COMPUTES]
        if not waiting or (node in self._at and COMPUTES in left and not others[COMPUTES]):
            return COMPUTES
        return min(waiting, key=lambda kind: (others[kind], -left[kind]))

    # ---- a worker that dies: xdist would run what killed it again, ask workers that have not collected, and hold a last test back

    def remove_node(self, node: Any) -> str | None:
        """Hand out again what a worker has left, but for the test in which it died. Return that test."""
        units: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        self._at.pop(node, None)
        left = [(file, test) for file, unit in units.items() for test, is_done in unit.items() if not is_done]
        if not left:
            return None
        file, died = left[0]
        units[file][died] = True
        self.workqueue.update({file: unit for file, unit in units.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return died

    def schedule(self) -> None:
        super().schedule()
        for node in self.nodes:  # a worker runs its last test once it knows what follows, if only the end
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:
            super()._reschedule(node)
