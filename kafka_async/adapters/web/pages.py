"""The pages: HTML with all values, made here, so that they work without JavaScript.

Names of groups, topics and clients come from strangers: everything goes through ``html.escape``, and nothing of it into a script.
Status is a word and a sign, and colour only comes in addition.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote

from ...trace import counted
from ..monitor import GroupView, PartitionView, Snapshot, Status
from ..monitor.numbers import NOTHING, behind, count, duration, rate

MOST: Final = 200
"""Groups on the page: the worst; the others are counted."""
GROUP_COLUMNS: Final = (
    ("status", "Status"),
    ("group", "Group"),
    ("type", "Type"),
    ("members", "Members"),
    ("lag", "Lag"),
    ("behind", "Behind"),
    ("in", "In/s"),
    ("out", "Out/s"),
    ("clear", "Clear in"),
    ("worst", "Worst partition"),
    ("trend", "Trend"),
)
PARTITION_COLUMNS: Final = (
    ("status", "Status"),
    ("partition", "Partition"),
    ("lag", "Lag"),
    ("behind", "Behind"),
    ("unmoved", "Unmoved"),
    ("committed", "Committed"),
    ("end", "End"),
    ("start", "Start"),
    ("in", "In/s"),
    ("out", "Out/s"),
    ("owner", "Owner"),
    ("note", "Note"),
)
FACTS: Final = (
    GROUP_COLUMNS[0],
    ("state", "State"),
    *(column for column in GROUP_COLUMNS[1:] if column[0] not in ("group", "worst", "trend")),
    ("rebalances", "Rebalances in the last hour"),
    ("retention", "Deleted unread in"),
    ("notes", "Notes"),
)
_WIDTH, _HEIGHT = 120, 24


def group_cells(group: GroupView) -> dict[str, str]:
    """Return what the row of a group says, as text."""
    members = count(len(group.members)) if group.members is not None else "?"
    lagging = group.worst if group.lag else None
    return {
        "status": f"{group.status.mark} {group.status.value}",
        "group": group.name,
        "type": group.kind or "?",
        "members": members,
        "lag": count(group.lag, group.complete),
        "behind": behind(group.age, group.lag),
        "in": rate(group.in_rate),
        "out": rate(group.out_rate),
        "clear": duration(group.clear_in) if group.status not in (Status.OK, Status.UNKNOWN) else NOTHING,
        "worst": str(lagging.partition) if lagging is not None else NOTHING,
    }


def group_facts(group: GroupView) -> dict[str, str]:
    """Return what the page of a group says about all of it, as text."""
    facts = {**group_cells(group), "state": group.state or "?", "rebalances": str(group.rebalances_hour)}
    return facts | {"retention": duration(group.retention_in), "notes": "; ".join(group.notes) or NOTHING}


def partition_cells(part: PartitionView) -> dict[str, str]:
    """Return what the row of a partition says, as text."""
    return {
        "status": f"{part.status.mark} {part.status.value}",
        "partition": str(part.partition),
        "lag": count(part.lag),
        "behind": behind(part.age, part.lag),
        "unmoved": duration(part.unmoved),
        "committed": count(part.committed) if part.committed is not None else NOTHING,
        "end": count(part.end),
        "start": count(part.start) if part.start is not None else NOTHING,
        "in": rate(part.in_rate),
        "out": rate(part.out_rate),
        "owner": part.owner or NOTHING,
        "note": part.note,
    }


def trend(history: Sequence[int], interval: float) -> dict[str, str]:
    """Return the lag of the last polls as the points of a line, and as words."""
    if len(history) < 2:
        return {"points": "", "label": "no trend yet"}
    most = max(*history, 1)
    step = _WIDTH / (len(history) - 1)
    points = " ".join(f"{place * step:.1f},{_HEIGHT - 1 - (_HEIGHT - 2) * lag / most:.1f}" for place, lag in enumerate(history))
    first, last = history[0], history[-1]
    word = "grew" if last > first else "went" if last < first else "stayed"
    how = f"at {last:,}" if word == "stayed" else f"from {first:,} to {last:,}"
    return {"points": points, "label": f"lag {word} {how} in {duration((len(history) - 1) * interval)}"}


def overview(snapshot: Snapshot | None, interval: float) -> str:
    """Return the page of all groups."""
    if snapshot is None:
        return _page("Groups", "", "<h1>Groups</h1><p>The first poll has not ended yet.</p>")
    rows = "".join(_group_row(group, interval) for group in snapshot.groups[:MOST])
    texts = overview_texts(snapshot)
    body = f"""<h1>Groups</h1>
{_about(texts["cluster"])}
<table id="rows" data-kind="groups">
<caption id="summary">{escape(texts["summary"])}</caption>
{_head(GROUP_COLUMNS)}
<tbody>{rows}</tbody>
</table>
<p id="others">{escape(texts["others"])}</p>"""
    return _page("Groups", "", body)


def group_page(snapshot: Snapshot, group: GroupView, interval: float) -> str:
    """Return the page of a group."""
    facts = group_facts(group)
    told = "".join(f'<dt>{escape(title)}</dt><dd data-fact="{name}">{escape(facts[name])}</dd>' for name, title in FACTS)
    parts = sorted(group.partitions, key=lambda part: (-part.status.severity, -(part.lag or 0), part.partition))
    rows = "".join(_row(str(part.partition), partition_cells(part), part.status, PARTITION_COLUMNS) for part in parts)
    members = "".join(f"<li>{escape(text)}</li>" for text in member_texts(group))
    body = f"""<p><a href="/">All groups</a></p>
<h1>{escape(group.name)}</h1>
{_about(about(snapshot))}
<dl>{told}<dt>Trend</dt><dd>{_sparkline(trend(group.history, interval))}</dd></dl>
<table id="rows" data-kind="partitions">
<caption>Partitions of {escape(group.name)}</caption>
{_head(PARTITION_COLUMNS)}
<tbody>{rows}</tbody>
</table>
<h2>Members</h2>
<ul id="members">{members}</ul>"""
    return _page(group.name, group.name, body)


def caption(groups: Sequence[GroupView]) -> str:
    """Return how many groups there are, and how many have which status."""
    return f"{counted(len(groups), 'group')}: {summary(groups)}"


def summary(groups: Iterable[GroupView]) -> str:
    """Return how many groups have which status, the worst first."""
    found = [group.status for group in groups]
    each = sorted(set(found), key=lambda status: -status.severity)
    return ", ".join(f"{found.count(status):,} {status.value}" for status in each) or "none"


def event_row(group: GroupView, interval: float) -> dict[str, Any]:
    """Return what a page needs to draw the row of a group again."""
    return {"key": group.name, "status": group.status.value, "cells": group_cells(group), "trend": trend(group.history, interval)}


def overview_texts(snapshot: Snapshot) -> dict[str, str]:
    """Return what the page of all groups says beside its rows, each text under the id of its place."""
    left = snapshot.groups[MOST:]
    others = f"{len(left):,} others: {summary(left)}" if left else ""
    return {
        "cluster": about(snapshot),
        "summary": caption(snapshot.groups),
        "others": others if snapshot.groups else "There are no groups.",
    }


def member_texts(group: GroupView) -> list[str]:
    """Return what the page of a group says about each member."""
    if group.members is None:
        return ["It is not known which there are."]
    told = [f"{member.owner}: {', '.join(map(str, member.partitions)) or 'no partitions'}" for member in group.members]
    return told or ["There are none."]


def event_group(group: GroupView, interval: float) -> dict[str, Any]:
    """Return what the page of a group needs to draw itself again."""
    return {
        "facts": group_facts(group),
        "trend": trend(group.history, interval),
        "members": member_texts(group),
        "rows": [
            {"key": str(part.partition), "status": part.status.value, "cells": partition_cells(part)} for part in group.partitions
        ],
    }


def event_gone() -> dict[str, Any]:
    """Return what the page of a group needs once the group is gone."""
    facts = {name: NOTHING for name, _ in FACTS} | {"status": "gone", "notes": "the group is gone"}
    return {"facts": facts, "trend": trend((), 0.0), "members": ["There are none."], "rows": []}


def about(snapshot: Snapshot) -> str:
    """Return what is to be known of the cluster, as text."""
    cluster = snapshot.cluster
    late = [f"broker {broker.node_id} does not answer: {broker.note}" for broker in cluster.brokers if broker.note]
    odd = [f"{counted(len(cluster.leaderless), 'partition')} without a leader"] if cluster.leaderless else []
    odd += [counted(len(cluster.under_replicated), "under-replicated partition")] if cluster.under_replicated else []
    return "; ".join([f"Cluster {cluster.cluster_id or '?'}, {counted(len(cluster.brokers), 'broker')}", *odd, *late])


def _about(text: str) -> str:
    return f"""<p id="cluster">{escape(text)}</p>
<p id="connection">As of the last load.</p>
<p id="changes" role="status" aria-live="polite"></p>"""


def _head(columns: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        f'<th scope="col" data-column="{name}">{escape(title)}</th>'
        if name == "trend"
        else f'<th scope="col" data-column="{name}"{_sorted(place)}><button type="button">{escape(title)}</button></th>'
        for place, (name, title) in enumerate(columns)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def _sorted(place: int) -> str:
    return ' aria-sort="descending"' if place == 0 else ' aria-sort="none"'


def _group_row(group: GroupView, interval: float) -> str:
    return _row(group.name, group_cells(group), group.status, GROUP_COLUMNS, trend(group.history, interval))


def _row(
    key: str, cells: dict[str, str], status: Status, columns: Sequence[tuple[str, str]], line: dict[str, str] | None = None
) -> str:
    parts = []
    for name, _ in columns:
        if name == "trend":
            parts.append(f'<td data-cell="trend">{_sparkline(line or {"points": "", "label": ""})}</td>')
        elif name == "group":
            link = f'<a href="/groups/{quote(key, safe="")}">{escape(key)}</a>'
            parts.append(f'<th scope="row" data-cell="group">{link}</th>')
        else:
            parts.append(f'<td data-cell="{name}">{escape(cells[name])}</td>')
    return f'<tr data-key="{escape(key)}" data-status="{status.value}">{"".join(parts)}</tr>\n'


def _sparkline(line: dict[str, str]) -> str:
    return (
        f'<svg class="trend" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(line["label"])}"><polyline points="{escape(line["points"])}"/></svg>'
    )


def _page(title: str, group: str, body: str) -> str:
    attribute = f' data-group="{escape(group)}"' if group else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} - kafka-async monitor</title>
<link rel="stylesheet" href="/page.css">
<link rel="icon" href="/icon.svg">
<noscript><meta http-equiv="refresh" content="10"></noscript>
<script src="/page.js" defer></script>
</head>
<body{attribute}>
<main>
{body}
</main>
<footer><p>Read only. <a href="/metrics">Metrics</a>, <a href="/api/v1/groups">JSON</a>.</p></footer>
</body>
</html>
"""
