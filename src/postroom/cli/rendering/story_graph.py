"""Draw the story of an orchestration instance as SVG: a line from top to bottom, in the order of time.

What it received comes from the left, what it sent and did is on the right, and what it waits for is below, dashed. The
colours follow the light or dark theme of the viewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from postroom.messagebox.instances import Instance
    from postroom.operations.orchestrations.story import Story, StoryLine, Wait

#: Maximum number of lines that are drawn. A longer picture cannot be read.
MAX_LINES = 500

_WIDTH, _AXIS = 1200, 630
_LEFT, _LEFT_WIDTH = 150, 430
_RIGHT, _RIGHT_WIDTH = 680, 500
_HEAD, _ROW, _BOX = 96, 60, 44
#: The approximate width of a character in a text of 13 pixels.
_CHARACTER = 7.2

#: The colours of each kind of node in the light and the dark theme. Not every viewer supports variables in CSS.
_COLOURS = {
    "received": ("#0969da", "#4493f8"),
    "message": ("#0969da", "#4493f8"),
    "sent": ("#1a7f37", "#3fb950"),
    "step": ("#8250df", "#ab7df8"),
    "timer": ("#9a6700", "#d29922"),
    "correlation": ("#57606a", "#9198a1"),
    "state": ("#57606a", "#9198a1"),
    "failed": ("#cf222e", "#f85149"),
}
_PAGE = {
    ".paper { fill: %s }": ("#ffffff", "#0d1117"),
    "text { fill: %s }": ("#1f2328", "#e6edf3"),
    "text.soft { fill: %s }": ("#656d76", "#8d96a0"),
    ".axis { stroke: %s; stroke-width: 2 }": ("#afb8c1", "#484f58"),
    ".box { fill: %s; stroke-width: 1.5 }": ("#f6f8fa", "#161b22"),
}


def _build_theme(theme: int) -> str:
    """Return the rules of the light theme (0) or the dark one (1)."""
    page = [rule % colours[theme] for rule, colours in _PAGE.items()]
    nodes = [
        f".{kind} .stroke {{ stroke: {colours[theme]} }} .{kind} .fill {{ fill: {colours[theme]} }}"
        for kind, colours in _COLOURS.items()
    ]
    return "\n".join([*page, *nodes])


_STYLE = f"""
svg {{ font: 13px system-ui, sans-serif }}
.soft {{ font-size: 11px }} .title {{ font-size: 17px; font-weight: 600 }}
.arrow {{ fill: none; stroke-width: 1.5 }} .waits .stroke {{ stroke-dasharray: 5 4 }}
{_build_theme(0)}
@media (prefers-color-scheme: dark) {{
{_build_theme(1)}
}}
"""


def draw_story(instance: Instance, story: Story) -> str:
    """Return the picture as an SVG document. ``story.story`` must not be None."""
    lines = story.story or ()
    drawn = lines[-MAX_LINES:]
    remarks = _list_remarks(story, hidden=len(lines) - len(drawn))
    rows = [*_draw_lines(drawn), *_draw_waits(story.waits_for)]
    if instance.error_description:
        rows.append(_draw_right("failed suspended", f"suspended: {instance.reason}", str(instance.error_code)))
    top = _HEAD + 18 * len(remarks)
    height = top + _ROW * len(rows) + 20
    title = f"{instance.display_name}, instance {instance.instance_id}"
    label = quoteattr(_clean(f"The story of {title}"))
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={label}>',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="20" y="34">{escape(_shorten(title, _WIDTH - 40))}</text>',
        f'<text x="20" y="58">{escape(instance.state.label)}</text>',
        *(f'<text class="soft" x="20" y="{78 + 18 * n}">{escape(text)}</text>' for n, text in enumerate(remarks)),
        f'<line class="axis" x1="{_AXIS}" y1="{top - 14}" x2="{_AXIS}" y2="{height - 20}"/>',
        *(f'<g transform="translate(0 {top + _ROW * number})">{row}</g>' for number, row in enumerate(rows)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _list_remarks(story: Story, *, hidden: int) -> list[str]:
    remarks = []
    if story.journals:
        remarks.append(f"It has started again with a fresh journal {story.journals:,} times. This is the last one.")
    if hidden:
        remarks.append(f"{hidden:,} earlier lines are not drawn.")
    if story.unreceived:
        remarks.append(f"Messages that it has not received yet: {story.unreceived:,}.")
    return remarks


def _draw_lines(lines: Sequence[StoryLine]) -> Iterator[str]:
    """Yield a row for each line. The time is shown where it changes, and the date at the first line and at the first
    line of each day."""
    before: list[datetime | None] = [None, *(line.time for line in lines)]
    for line, (earlier, time) in zip(lines, pairwise(before), strict=True):
        assert time is not None
        message = None if line.message_id is None else f"message {str(line.message_id)[:13]}"
        details = [line.place, message, _format_due(line.due)]
        small = " · ".join(filter(None, details))
        style = f"{line.kind}{' failed' if line.has_failed else ''}"
        box = (_draw_left if line.kind == "received" else _draw_right)(style, line.what, small)
        yield _draw_time(time, earlier) + box


def _draw_waits(waits: Sequence[Wait]) -> Iterator[str]:
    for number, wait in enumerate(waits):
        verb = "waits for" if wait.filter is None else "waits for messages that match"
        small = " · ".join(filter(None, [verb, wait.place, _format_due(wait.due)]))
        box = (_draw_left if wait.kind == "message" else _draw_right)(
            f"{wait.kind} waits", wait.filter or wait.what, small
        )
        yield (f'<text class="soft" x="20" y="{_BOX / 2 + 4:g}">now</text>' if number == 0 else "") + box


def _draw_time(time: datetime, earlier: datetime | None) -> str:
    if time == earlier:
        return ""
    time = time.astimezone(UTC)
    is_new_day = earlier is None or earlier.astimezone(UTC).date() != time.date()
    clock = f"{time:%H:%M:%S}.{time.microsecond // 1000:03}"
    date = f'<text class="soft" x="20" y="36">{time:%Y-%m-%d} UTC</text>' if is_new_day else ""
    return f'<text x="20" y="20">{clock}</text>{date}'


def _draw_left(style: str, text: str, small: str) -> str:
    """Draw a box at the left, with an arrow to the line."""
    end = _AXIS - 7
    arrow = f"M{_LEFT + _LEFT_WIDTH} {_BOX / 2:g}H{end}"
    head = f"M{end} {_BOX / 2:g}l-8 -5v10z"
    return _draw_box(style, _LEFT, _LEFT_WIDTH, text, small, arrow, head)


def _draw_right(style: str, text: str, small: str) -> str:
    """Draw a box at the right. What was sent has an arrow that leaves the line."""
    arrow = f"M{_AXIS + 5} {_BOX / 2:g}H{_RIGHT}"
    head = f"M{_RIGHT} {_BOX / 2:g}l-8 -5v10z" if style.startswith("sent") else ""
    return _draw_box(style, _RIGHT, _RIGHT_WIDTH, text, small, arrow, head)


def _draw_box(style: str, x: int, width: int, text: str, small: str, arrow: str, head: str) -> str:
    drawn_head = f'<path class="fill" d="{head}"/>' if head else ""
    return (
        f'<g class="node {style}"><title>{escape(_clean(text))}</title>'
        f'<rect class="box stroke" x="{x}" width="{width}" height="{_BOX}" rx="6"/>'
        f'<text x="{x + 10}" y="19">{escape(_shorten(text, width - 20))}</text>'
        f'<text class="soft" x="{x + 10}" y="35">{escape(_shorten(small, width - 20))}</text>'
        f'<path class="arrow stroke" d="{arrow}"/>{drawn_head}'
        f'<circle class="fill" cx="{_AXIS}" cy="{_BOX / 2:g}" r="5"/></g>'
    )


def _format_due(due: datetime | None) -> str | None:
    return None if due is None else f"due {due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _clean(text: str) -> str:
    """Return the text on one line, without the characters that XML does not allow."""
    return "".join(one if one.isprintable() else " " for one in text)


def _shorten(text: str, width: int) -> str:
    """Return as much of the text as fits."""
    text = _clean(text)
    limit = int(width / _CHARACTER)
    return text if len(text) <= limit else text[: limit - 1] + "…"
