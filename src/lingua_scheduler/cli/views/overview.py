"""The overview of the console in a terminal: at most 80 columns, coloured by state."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lingua_scheduler.cli.views.output import ago, duration, moment, one_line
from lingua_scheduler.cli.views.states import colour_of

WIDTH = 80
_BARS = "▁▂▃▄▅▆▇█"
_SPARK_POINTS = 40
_NO_VALUE = -1
_HEALTHS = ("ready", "degraded", "draining", "offline", "ejected")
_LEVELS = ((0.0, "red"), (0.2, "yellow"))
_SHORTAGES = 6


def overview_view(document: dict[str, Any], *, now_ms: int, sparklines: bool) -> RenderableType:
    """Renders the document `overview`.

    Args:
        document: as the console makes it.
        now_ms: the time.
        sparklines: whether the output can show them.
    """
    parts: list[RenderableType] = [_head(document, now_ms)]
    parts += [_problem(source, each, now_ms) for source, each in document["problems"].items()]
    parts += [_nodes(document), Text(), _numbers(document, sparklines), Text()]
    parts.append(_shortages(document))
    if down := document["instances"]["down_list"]:
        parts.append(_down(down, now_ms))
    return Group(*parts)


def sparkline(values: Sequence[float], points: int = _SPARK_POINTS) -> str:
    """The last values as bars, from 0 to the largest; a gap if a value is not known."""
    last = values[-points:]
    top = max(last, default=0.0)
    return "".join(_bar(value, top) for value in last)


def _bar(value: float, top: float) -> str:
    if value == _NO_VALUE:
        return " "
    return _BARS[round(value / top * (len(_BARS) - 1))] if top > 0 else _BARS[0]


def _head(document: dict[str, Any], now_ms: int) -> Text:
    instances = document["instances"]
    head = Text.assemble(
        ("lingua top", "bold"),
        f"  {moment(now_ms)[:19]} UTC  instances: ",
        (f"{instances['serving']} serving", "green"),
    )
    if instances["draining"]:
        head.append(f", {instances['draining']} draining", "yellow")
    if instances["down"]:
        head.append(f", {instances['down']} down", "bold red")
    return head


def _problem(source: str, problem: dict[str, Any], now_ms: int) -> Text:
    since = ago(problem["since_ms"], now_ms)
    text = f"{source} not up to date since {since}: {one_line(problem['message'])}"
    return Text(text, "bold red", no_wrap=True, overflow="ellipsis")


def _nodes(document: dict[str, Any]) -> Text:
    nodes = document["totals"]["nodes"]
    line = Text.assemble(("nodes     ", "bold"))
    for health in _HEALTHS:
        colour = colour_of(health) if nodes[health] else "dim"
        line.append(f"{nodes[health]} {health}  ", colour)
    return line


def _numbers(document: dict[str, Any], sparklines: bool) -> Table:
    totals, rates, series = document["totals"], document["rates"], document["series"]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="cyan")
    free, slots = totals["free"], totals["slots"]
    rows = [
        ("slots free", Text(f"{free} of {slots}", _level(free, slots)), "free"),
        ("sessions", Text(str(totals["sessions"])), "sessions"),
        ("jobs", Text(str(totals["jobs"])), ""),
        ("jobs/s", Text(_number(rates["jobs_per_s"])), "jobs_per_s"),
        ("waiting", _bad(totals["queue"], "yellow"), "queue"),
        ("p50", Text(_time(rates.get("p50_ms"))), "p50_ms"),
        ("p99", Text(_time(rates.get("p99_ms"))), "p99_ms"),
        ("retries/s", _bad(rates["retries_per_s"], "yellow"), "retries_per_s"),
        ("failed/s", _bad(rates["failed_per_s"], "red"), ""),
        ("missing/s", _bad(rates["missing_per_s"], "red"), "missing_per_s"),
    ]
    for name, value, drawn in rows:
        bars = sparkline(series[drawn]) if drawn and sparklines else ""
        table.add_row(name, value, bars)
    return table


def _shortages(document: dict[str, Any]) -> RenderableType:
    left_out = document["matrix"]["left_out_nodes"]
    rows = document["shortages"][:_SHORTAGES]
    kind = document["matrix"]["kind"]
    if not rows:
        return Text(f"no {kind} directions", "dim")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(f"least room ({kind})", "bold"), Text("free of slots", "bold"))
    for row in rows:
        room = Text(f"{row['free']} of {row['slots']}", _level(row["free"], row["slots"]))
        table.add_row(f"{row['src']} to {row['tgt']}", room)
    if left_out:
        table.add_row(Text(f"{left_out} nodes are not included", "dim"), "")
    return table


def _down(down: Sequence[dict[str, Any]], now_ms: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=40)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(Text("instances down", "bold red"), "", "")
    for each in down:
        table.add_row(each["id"], each["service"], f"last seen {ago(each['announced_ms'], now_ms)}")
    return table


def _level(free: int, slots: int) -> str:
    """The colour of a share of free slots."""
    share = free / slots if slots else 0.0
    return next((colour for most, colour in _LEVELS if share <= most), "green")


def _bad(value: float, colour: str) -> Text:
    return Text(_number(value), colour if value else "")


def _number(value: float) -> str:
    return f"{value:g}" if value < 100 else f"{value:.0f}"


def _time(value: int | None) -> str:
    return "-" if value is None else duration(value)
