"""Draw the picture of the README: time per message over the number of subscriptions, from bench/results.json.

python -m bench.curves
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullLocator

from bench.headers_exchange import OURS, PEER

_FOLDER = Path(__file__).parent
PICTURE = _FOLDER.parent / "docs" / "images" / "cost-of-a-message.png"
_MICROSECONDS = 1e6
#: The curves of the left and the right half: colour, and offset of the name from the last point. A name with a
#: positive horizontal offset is left-aligned, the others are right-aligned.
_ROUTING = {OURS: ("#1f5fbf", (0, -14)), PEER: ("#c8501e", (0, 14))}
_MATCHING = {
    "W mixed, half of the groups only ranges": ("#0b7a6f", (0, 14)),
    "W mixed": ("#1f5fbf", (9, 0)),
    "W equal": ("#7a4fb5", (0, -14)),
}
_NAMES = {
    "W mixed, half of the groups only ranges": "half of the groups only ranges",
    "W mixed": "mixed",
    "W equal": "type and port",
}
_INK, _FAINT = "#24292f", "#d8dee4"


def draw() -> Path | None:
    """Draw the measured curves. Return None if there are none."""
    curves = _read_curves()
    if not curves:
        return None
    with pyplot.rc_context(
        {"font.family": "DejaVu Sans", "font.size": 10, "text.color": _INK, "axes.labelcolor": _INK}
    ):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
        _draw_panel(left, "Routed: in durable queues, confirmed (two cores)", _ROUTING, curves)
        _draw_panel(right, "Matched: in memory, batches of 10,000 (one core)", _MATCHING, curves)
        left.set_ylabel("time for a message")
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(PICTURE, dpi=150, facecolor="white", metadata={"Software": None})
        pyplot.close(figure)
    return PICTURE


def _read_curves() -> dict[str, dict[int, float]]:
    """Return every curve by its name. Its points come from several rows."""
    curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for row in json.loads((_FOLDER / "results.json").read_text()):
        for name, points in row.get("curves", {}).items():
            curves[name] |= {int(subscriptions): seconds for subscriptions, seconds in points.items()}
    return curves


def _draw_panel(
    axes: Any, title: str, styles: dict[str, tuple[str, tuple[int, int]]], curves: dict[str, dict[int, float]]
) -> None:
    axes.set_title(title, fontsize=11, loc="left", pad=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("subscriptions; a message meets about three")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _format_duration(value)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(color=_FAINT, linewidth=0.8)
    axes.tick_params(length=0, colors=_INK)
    axes.spines[:].set_visible(False)
    axes.margins(y=0.12)
    for name, (colour, offset) in styles.items():
        points = sorted(curves.get(name, {}).items())
        if not points:
            continue
        sizes, costs = zip(*((size, cost * _MICROSECONDS) for size, cost in points), strict=True)
        axes.plot(sizes, costs, color=colour, linewidth=2, marker="o", markersize=5)
        axes.annotate(
            _NAMES.get(name, name),
            (sizes[-1], costs[-1]),
            xytext=offset,
            textcoords="offset points",
            ha="left" if offset[0] > 0 else "right",
            va="center",
            color=colour,
            fontweight="bold",
        )


def _format_duration(microseconds: float) -> str:
    if microseconds >= 1_000:
        return f"{microseconds / 1_000:g} ms"
    return f"{microseconds:g} µs"


if __name__ == "__main__":
    draw()
