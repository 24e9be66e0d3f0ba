"""Output of commands: times and names for people, JSON for tools."""

import base64
import json
import re
import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Any

import click
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

# If stdout is not a terminal and COLUMNS is not set.
DEFAULT_WIDTH = 100


def is_terminal() -> bool:
    """Whether a person looks at stdout; otherwise it is a pipe or a file."""
    return sys.stdout.isatty()


def terminal_width() -> int:
    """The maximum number of characters of a line."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def print_json(document: dict[str, Any]) -> None:
    """Print the document of a command."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON values, with the field names of the contract.

    Enums are names without their prefix (`READY`), numbers are numbers, and bytes are in base64.
    All fields are present except messages that are not set.
    """
    return {
        field.name: _field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        to = field.message_type.fields_by_name["value"]
        return {str(key): _single(to, each) for key, each in value.items()}
    if field.is_repeated:
        return [_single(field, each) for each in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return enum_name(field.enum_type, value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def enum_name(enum: EnumDescriptor, number: int) -> str:
    """`READY` for NODE_HEALTH_READY; the number if only a newer version knows it."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    known = enum.values_by_number.get(number)
    return known.name.removeprefix(prefix) if known else str(number)


def ago(time_ms: int, now_ms: int | None = None) -> str:
    """`3s ago`. Clocks of two machines differ, so a time in the future counts as now."""
    if time_ms == 0:
        return "never"
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return f"{span(now_ms - time_ms)} ago"


def span(length_ms: int) -> str:
    """A duration in its largest unit; 0s if it is negative."""
    seconds = max(0, length_ms) // 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def duration(length_ms: int) -> str:
    """A measured duration with three digits; 0ms if it is negative."""
    if length_ms < 1000:
        return f"{max(0, length_ms)}ms"
    if length_ms < 10_000:
        return f"{length_ms / 1000:.2f}s"
    return f"{length_ms / 1000:.1f}s" if length_ms < 120_000 else span(length_ms)


def moment(time_ms: int) -> str:
    """A time in UTC, for people."""
    if time_ms == 0:
        return "-"
    when = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{when.replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')} UTC"


def one_line(text: str) -> str:
    """Foreign text as one line without control characters for the terminal."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in line)
