"""Every log line is a constant event, and docs/operations.md lists the events of the services."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LOGGED = ("services", "sdk", "src/lingua_scheduler/cli")
LOGGERS = {"_audit", "_log", "log", "logger"}
LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
}
EVENT = re.compile(r"[a-z][a-z0-9 /()-]*[a-z0-9)]")
# By folder, what the document calls the source of an event.
SOURCES = {
    "services/session_gateway": "gateway",
    "services/dispatcher": "dispatcher",
    "services/pool_service": "pool",
    "services/console": "console",
    "services/runtime": "all",
}


class Line(NamedTuple):
    """A place that logs."""

    place: str
    level: str
    message: ast.expr
    has_more: bool
    """More arguments follow the message, for % formatting."""

    @property
    def event(self) -> str | None:
        """The message, if it is a constant."""
        is_constant = isinstance(self.message, ast.Constant) and not self.has_more
        return str(self.message.value) if is_constant else None  # type: ignore[attr-defined]


def lines() -> Iterator[Line]:
    for folder in LOGGED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from lines_of(str(path.relative_to(ROOT)), ast.parse(path.read_text()))


def lines_of(file: str, tree: ast.Module) -> Iterator[Line]:
    """Calls of loggers, and of methods of the same file that log their parameter `event: str`."""
    wrappers = {
        each.name: [ast.unparse(argument) for argument in each.args.args if argument.arg != "self"]
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and "event: str" in map(ast.unparse, each.args.args)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name, place = node.func.value, node.func.attr, f"{file}:{node.lineno}"
        if not isinstance(owner, ast.Name):
            continue
        if owner.id == "self" and name in wrappers:
            at = wrappers[name].index("event: str")
            yield Line(place, level_of(node.args[0]), node.args[at], has_more=False)
        elif owner.id in LOGGERS and name == "log":
            yield Line(place, level_of(node.args[0]), node.args[1], has_more=len(node.args) > 2)
        elif owner.id in LOGGERS and name in LEVELS:
            yield Line(place, LEVELS[name], node.args[0], has_more=len(node.args) > 1)


def level_of(argument: ast.expr) -> str:
    """The level that an argument such as `logging.INFO` names."""
    return argument.attr.lower() if isinstance(argument, ast.Attribute) else "varies"


def is_passed_on(line: Line) -> bool:
    """Whether the message is an event that was given elsewhere as a constant."""
    name = line.message
    is_parameter = isinstance(name, ast.Name) and name.id == "event"
    return is_parameter or (isinstance(name, ast.Attribute) and name.attr == "event")


LINES = [line for line in lines() if not is_passed_on(line)]


def logged() -> set[tuple[str, str, str]]:
    """Event, level and source of every log line of a service."""
    return {
        (line.event or "?", line.level, source)
        for line in LINES
        for folder, source in SOURCES.items()
        if line.place.startswith(f"{folder}/")
    }


def documented() -> set[tuple[str, str, str]]:
    text = (ROOT / "docs/operations.md").read_text()
    section = text.partition("\n## Logs\n")[2].partition("\n## ")[0]
    rows: list[tuple[str, str, str]] = re.findall(
        r"^\| `([^`]+)` \| (\w+) \| (\w+) \|", section, re.MULTILINE
    )
    return set(rows)


def test_lines_are_found() -> None:
    assert len(LINES) > 50


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.place)
def test_a_log_line_is_a_constant_event(line: Line) -> None:
    assert line.event is not None, "the message must be a constant; put values into extra"
    assert EVENT.fullmatch(line.event), f"{line.event!r} must be a short phrase in lower case"


def test_the_events_of_the_services_are_documented() -> None:
    missing, stale = logged() - documented(), documented() - logged()
    rows = "\n".join(f"| `{event}` | {level} | {source} |" for event, level, source in missing)
    assert not missing, f"missing in the table under 'Logs' in docs/operations.md:\n{rows}"
    assert not stale, f"stale in the table under 'Logs' in docs/operations.md: {sorted(stale)}"
