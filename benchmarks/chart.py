"""Charts as SVG text: waiting times (two bars a row on a logarithmic scale), and plain bars from zero."""

from dataclasses import dataclass
from math import log10
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 860
LEFT: Final = 230
RIGHT: Final = 70
BAR: Final = 13
GAP: Final = 16
TOP: Final = 74
TICKS_S: Final = (0.1, 1, 10, 60, 600, 3_600, 36_000, 360_000)
COLOURS: Final = {"ours": "#1f6f8b", "fifo": "#c9a66b", "ink": "#222222", "grid": "#dddddd"}
FONT: Final = 'font-family="system-ui, sans-serif"'


@dataclass(slots=True, frozen=True)
class Row:
    """One group: median and 95th percentile of its waiting time in seconds, by Fleetlog and first in first out."""

    label: str
    ours: tuple[float, float]
    fifo: tuple[float, float]


def chart(title: str, subtitle: str, rows: list[Row]) -> str:
    """The bar is the median, the line goes on to the 95th percentile."""
    most_s = max((p95 for row in rows for _, p95 in (row.ours, row.fifo)), default=1.0)
    ticks = [tick for number, tick in enumerate(TICKS_S) if number < 2 or TICKS_S[number - 1] < most_s]
    height = TOP + len(rows) * (2 * BAR + GAP) + 44

    def x(seconds: float) -> float:
        share = log10(max(seconds, ticks[0]) / ticks[0]) / log10(ticks[-1] / ticks[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 26, title, 17, bold=True),
        _text(16, 46, subtitle, 12),
    ]
    for seconds in ticks:
        line = f'x1="{x(seconds):.1f}" x2="{x(seconds):.1f}" y1="{TOP - 8}" y2="{height - 38}"'
        parts.append(f'<line {line} stroke="{COLOURS["grid"]}"/>')
        parts.append(_text(x(seconds), height - 22, said(seconds), 11, "middle"))
    for number, row in enumerate(rows):
        y = TOP + number * (2 * BAR + GAP)
        parts.append(_text(LEFT - 10, y + BAR + 4, row.label, 12, "end"))
        for name, (p50, p95), top in (("ours", row.ours, y), ("fifo", row.fifo, y + BAR)):
            middle, colour = top + BAR / 2, COLOURS[name]
            size = f'width="{max(1.0, x(p50) - LEFT):.1f}" height="{BAR - 2}"'
            parts.append(f'<rect x="{LEFT}" y="{top + 1}" {size} fill="{colour}"/>')
            ends = f'x1="{x(p50):.1f}" x2="{x(p95):.1f}" y1="{middle}" y2="{middle}"'
            parts.append(f'<line {ends} stroke="{colour}" stroke-width="2"/>')
            parts.append(_text(x(p95) + 5, middle + 4, said(p50), 10))
    for name, label, left in (("ours", "Fleetlog", LEFT), ("fifo", "first in first out", LEFT + 90)):
        parts.append(f'<rect x="{left}" y="{height - 13}" width="10" height="10" fill="{COLOURS[name]}"/>')
        parts.append(_text(left + 15, height - 4, label, 11))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, size: int, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}'
    return f'<text {place} {FONT} fill="{COLOURS["ink"]}">{escape(text)}</text>'


def said(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, length_s in (("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= length_s:
            return f"{seconds / length_s:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.1f} s"


# ---- bars ----


@dataclass(slots=True, frozen=True)
class Bar:
    """One row of `bars`: a bar a value, coloured as ours or as somebody else's."""

    label: str
    values: tuple[float, ...]
    ours: bool = False


def bars(title: str, subtitle: str, rows: list[Bar], digits: int) -> str:
    """Horizontal bars from zero, as SVG text; values are said with so many digits after the point."""
    most = max((value for row in rows for value in row.values), default=0.0) or 1.0
    height = TOP + sum(len(row.values) * BAR + GAP for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 26, title, 17, bold=True),
        _text(16, 46, subtitle, 12),
    ]
    y = TOP
    for row in rows:
        colour = COLOURS["ours" if row.ours else "fifo"]
        parts.append(_text(LEFT - 10, y + len(row.values) * BAR / 2 + 4, row.label, 12, "end"))
        for value in row.values:
            width = max(1.0, value / most * (WIDTH - LEFT - RIGHT))
            parts.append(f'<rect x="{LEFT}" y="{y + 1}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            parts.append(_text(LEFT + width + 5, y + BAR - 3, f"{value:,.{digits}f}", 10))
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>"]) + "\n"
