"""Pictures as SVG, written by hand so that the same numbers give the same bytes: bars, and a time line of lanes.

They are seen as images on a page, so they bring their own background, in a light and a dark version.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from attrs import frozen

WIDTH: Final = 760
LETTER: Final = 7.3
"""Pixels that a letter of 13 px takes at most, on average: texts are placed by it, since nothing here can measure a font."""
ROW: Final = 26
BAR: Final = 17

_STYLE: Final = """<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px }
.quiet { fill: #59636e }
.on { fill: #ffffff }
.back { fill: #ffffff; stroke: #d1d9e0 }
.ours { fill: #0969da } .other { fill: #9aa4af } .good { fill: #1a7f37 } .bad { fill: #bc4c00 }
.line { stroke: #59636e; stroke-width: 1.2; fill: none } .grid { stroke: #d1d9e0; stroke-width: 1 }
.step { stroke: #8250df; stroke-width: 2.2; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9198a1 } .on { fill: #ffffff }
.back { fill: #0d1117; stroke: #3d444d }
.ours { fill: #1f6feb } .other { fill: #5f6872 } .good { fill: #238636 } .bad { fill: #c2571a }
.line { stroke: #9198a1 } .grid { stroke: #262c36 } .step { stroke: #a371f7 }
}
</style>"""


@frozen(kw_only=True)
class Bar:
    """One bar: where it ends, the smallest and the largest of the rounds, and what is written beside it."""

    label: str
    value: float
    low: float
    high: float
    text: str
    ours: bool = False


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{classes} text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """Return a rectangle; ``title`` is shown under the mouse."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:g}" rx="2" class="{kind}">{inside}</rect>'


def line(points: Iterable[tuple[float, float]], kind: str) -> str:
    """Return a line through the points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def page(height: float, about: str, parts: Sequence[str]) -> str:
    """Return the whole picture. ``about`` says what it shows, for those who cannot see it."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}" role="img">'
    )
    back = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="6" class="back"/>'
    return "\n".join([head, f"<title>{escape(about)}</title>", _STYLE, back, *parts, "</svg>"]) + "\n"


def bars(title: str, note: str, groups: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Return bars in groups, each with a heading and a scale of its own. The whiskers go from the smallest round to the largest."""
    every = [bar for _, group in groups for bar in group]
    left = 20 + LETTER * max(len(bar.label) for bar in every)
    right = WIDTH - 28 - LETTER * max(len(bar.text) for bar in every)
    parts, y = [text(16, 28, title, "title"), text(16, 47, note, "quiet")], 58.0
    for heading, group in groups:
        if heading:
            y += 24
            parts.append(text(16, y - 5, heading))
        scale = (right - left) / max(bar.high for bar in group)
        for bar in group:
            middle = y + ROW / 2
            parts.append(text(left - 8, middle + 4.5, bar.label, "" if bar.ours else "quiet", "end"))
            spread = f"{bar.label}: {bar.text}"
            parts.append(box(left, middle - BAR / 2, bar.value * scale, BAR, "ours" if bar.ours else "other", spread))
            if bar.high > bar.low:
                parts.append(line(((left + bar.low * scale, middle), (left + bar.high * scale, middle)), "line"))
                parts += [
                    line(((left + end * scale, middle - 4), (left + end * scale, middle + 4)), "line")
                    for end in (bar.low, bar.high)
                ]
            parts.append(text(left + max(bar.value, bar.high) * scale + 7, middle + 4.5, bar.text, "" if bar.ours else "quiet"))
            y += ROW
    return page(y + 12, f"{title}. {note}", parts)


@frozen(kw_only=True)
class Stretch:
    """A handler at work on one record, in seconds; ``good``: it returned, else it raised."""

    lane: str
    label: str
    begin: float
    end: float
    good: bool = True


@frozen(kw_only=True)
class Timeline:
    """What ``process`` did: handlers by lane, and how far the partition was committed when."""

    title: str
    note: str
    seconds: float
    stretches: Sequence[Stretch]
    commits: Sequence[tuple[float, int]]
    """When, and the offset."""
    end: int
    """The offset after the last record."""


def lanes(drawn: Timeline) -> str:
    """Return the time line: a row for each lane, and under them the offset that is committed."""
    names = list(dict.fromkeys(stretch.lane for stretch in drawn.stretches))
    left, top, tall, deep = 24 + LETTER * max(map(len, [*names, "committed"])), 66.0, 30, 130
    scale = (WIDTH - 24 - left) / drawn.seconds
    bottom = top + tall * len(names)
    parts = [text(16, 28, drawn.title, "title"), text(16, 47, drawn.note, "quiet")]
    for second in range(int(drawn.seconds) + 1):
        x = left + second * scale
        parts += [line(((x, top - 4), (x, bottom + deep)), "grid"), text(x, bottom + deep + 17, f"{second} s", "quiet", "middle")]
    for row, name in enumerate(names):
        y = top + tall * row
        parts.append(text(left - 10, y + 19, name, "", "end"))
        for stretch in (each for each in drawn.stretches if each.lane == name):
            x, width = left + stretch.begin * scale, (stretch.end - stretch.begin) * scale
            parts.append(box(x + 0.8, y + 4, width - 1.6, tall - 8, "ours" if stretch.good else "bad", stretch.label))
            if width >= LETTER * len(stretch.label) + 4:
                parts.append(text(x + width / 2, y + 19.5, stretch.label, "on", "middle"))
    floor = bottom + deep - 6
    step = (deep - 34) / drawn.end
    points, level = [(left, floor)], 0
    for at, offset in drawn.commits:
        x = left + at * scale
        points += [(x, floor - level * step), (x, floor - offset * step)]
        if offset != level:
            parts.append(text(x - 6, floor - offset * step - 5, str(offset), "", "end"))
        level = offset
    points.append((left + drawn.seconds * scale, floor - level * step))
    parts += [line(points, "step"), text(left - 10, floor - 4, "committed", "", "end")]
    return page(bottom + deep + 30, f"{drawn.title}. {drawn.note}", parts)


def terminal(lines: Sequence[tuple[str, str]], columns: int) -> str:
    """Return lines of a terminal, each with its style: ``bold``, ``dim``, ``reverse``, or the colour of its status."""
    letter, row = 8.45, 20
    width, height = columns * letter + 32, len(lines) * row + 32
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        'role="img" aria-label="kafka-async top">',
        _SCREEN,
        f'<rect class="screen" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="6"/>',
    ]
    for place, (text, style) in enumerate(lines):
        top = 16 + place * row
        if style == "reverse":
            parts.append(f'<rect class="chosen" x="12" y="{top}" width="{columns * letter + 8:.0f}" height="{row}"/>')
        if not text:
            continue
        name = style.replace("bold red", "red")
        length = f' textLength="{len(text) * letter:.1f}"'
        parts.append(
            f'<text class="{name}" x="16" y="{top + 15}" text-anchor="start"{length} xml:space="preserve">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def browser(body: str, css: str) -> str:
    """Return a page of the monitor as a browser shows it: its own HTML, with its own style."""
    width, height = 1000, 345
    body = body.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')  # HTML knows it by itself, XML does not
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"
aria-label="kafka-async monitor">
<style><![CDATA[
{css}
body {{ margin: 0; padding: .2rem 1rem; font-size: 13px; }}
h1 {{ margin: .5rem 0; font-size: 1.4rem; }} p {{ margin: .4rem 0; }}
svg {{ background: var(--paper); }}
]]></style>
<foreignObject width="{width}" height="{height}">
<body xmlns="http://www.w3.org/1999/xhtml">
{body}</body>
</foreignObject>
</svg>
"""


_SCREEN: Final = """<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.screen { fill: #ffffff; stroke: #d1d9e0 } .chosen { fill: #1f2328 }
.bold { font-weight: 600 } .dim { fill: #59636e } .reverse { fill: #ffffff }
.red { fill: #cf222e } .yellow { fill: #7d4e00 } .green { fill: #1a7f37 } .magenta { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.screen { fill: #0d1117; stroke: #3d444d } .chosen { fill: #e6edf3 }
.dim { fill: #9198a1 } .reverse { fill: #0d1117 }
.red { fill: #ff7b72 } .yellow { fill: #e3b341 } .green { fill: #7ee787 } .magenta { fill: #d2a8ff }
}
</style>"""
