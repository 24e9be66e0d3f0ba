"""Line charts as plain SVG, for `growth.py` and `cells.py`."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 48
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#6a4c93", "#5c5c5c")
TICKS = 5


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    xs: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    log_x: bool = False,
) -> str:
    """A chart with one line per name; the y axis begins at zero."""
    top = _round_up(max((value for line in lines.values() for value in line), default=1.0))

    def x_of(value: float) -> float:
        low, high, at = xs[0], xs[-1], value
        if log_x:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return LEFT + (at - low) / (high - low or 1) * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, size=15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, anchor="middle"),
        f'<g transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">'
        f"{_text(0, 0, y_label, anchor='middle')}</g>",
    ]
    for at in range(TICKS + 1):
        value = top * at / TICKS
        y = y_of(value)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "#dddddd"))
        parts.append(_text(LEFT - 6, y + 4, f"{value:.4g}", anchor="end"))
    for x in xs:
        parts.append(_line(x_of(x), HEIGHT - BOTTOM, x_of(x), HEIGHT - BOTTOM + 5, "#888888"))
        parts.append(_text(x_of(x), HEIGHT - BOTTOM + 19, f"{x:,g}", anchor="middle"))
    names = sorted(lines, key=lambda name: -lines[name][-1])
    labels = _apart([y_of(lines[name][-1]) + 4 for name in names])
    for name, label_y, colour in zip(names, labels, _colours(len(names)), strict=True):
        points = [(x_of(x), y_of(y)) for x, y in zip(xs, lines[name], strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        last = f"{name}: {lines[name][-1]:.3g}"
        parts.append(_text(WIDTH - RIGHT + 10, label_y, last, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _colours(count: int) -> list[str]:
    return [COLOURS[at % len(COLOURS)] for at in range(count)]


def _apart(ys: list[float], least: float = 15) -> list[float]:
    """The heights from the top, moved down if labels would overlap."""
    placed: list[float] = []
    for y in ys:
        placed.append(max(y, placed[-1] + least) if placed else y)
    below = placed[-1] - (HEIGHT - BOTTOM + 4) if placed else 0
    return [y - max(0.0, below) for y in placed]


def _round_up(value: float) -> float:
    """The next round number."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(
        step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if step * power >= value
    )


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, colour: str = "black"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{colour}">{escape(words)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
