"""Log lines on stderr: JSON for machines, aligned text for a person at a terminal.

Every message of ours is an event: a constant in lower case. What differs from one occurrence to the
next is in `extra`: `_log.info("node connected", extra={"node_id": node_id})`. JSON lines have the
event in `event`, so a search for it finds all occurrences (docs/operations.md lists them).
"""

import json
import logging
import math
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace

from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.identity import Identity, identity_or

# Attributes that every record has; all others were given as `extra`.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

AUDIT = "lingua_scheduler.audit"
"""The logger of lines that say who did what. Those of things done are never left out."""

_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line, in ASCII, whatever the values are.

    Args:
        process: named by lines that no service of the process writes.
    """

    def __init__(self, *, process: Identity) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record with its extra fields, the trace it belongs to, and its exception."""
        service, instance = identity_or(self._process)
        line: dict[str, Any] = {
            "ts": _utc(record),
            "level": record.levelname.lower(),
            "service": service,
            "instance": instance,
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in _facts(record).items():
            # JSON cannot represent nan and infinity.
            finite = not isinstance(value, float) or math.isfinite(value)
            line.setdefault(key, value if finite else str(value))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str, skipkeys=True)


class HumanFormatter(logging.Formatter):
    """Local time, level, service, event and fields; tracebacks on separate lines.

    Args:
        process: named by lines that no service of the process writes.
        colour: whether to use colours of a terminal.
    """

    def __init__(self, *, process: Identity, colour: bool) -> None:
        super().__init__()
        self._process = process
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, plus its traceback if there is one."""
        service = identity_or(self._process).service
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = "".join(f" {key}={_plain(value)}" for key, value in _facts(record).items())
        level = self._paint(f"{record.levelname:<8}", _COLOURS.get(record.levelname, ""))
        head = f"{clock}.{int(record.msecs):03d} {level} {service:<10}"
        lines = [f"{head} {record.getMessage()}{self._paint(facts, '2')}"]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        if record.stack_info:
            lines.append(self.formatStack(record.stack_info))
        return "\n".join(lines)

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour and colour and text else text


class LineLimit(logging.Filter):
    """Limits the lines of one kind per second, so that no caller can fill a disk.

    A kind is a place in the code. The next line that passes has the number of dropped lines in
    `left_out`. Debug lines are not limited, because whoever enables them wants all of them, nor are
    audit lines of what was done, because only few may do it.
    """

    def __init__(self, per_s: int) -> None:
        super().__init__()
        self._per_s = per_s
        self._seconds: dict[tuple[str, int], _Second] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        is_audit = record.name == AUDIT and record.levelno == logging.INFO
        if record.levelno < logging.INFO or is_audit:
            return True
        place = (record.pathname, record.lineno)
        now = time.monotonic()
        second = self._seconds.get(place)
        if second is None or now - second.began >= 1:
            if second is not None and second.left_out:
                record.left_out = second.left_out
            second = self._seconds[place] = _Second(began=now)
        if second.written >= self._per_s:
            second.left_out += 1
            return False
        second.written += 1
        return True


class PeerGone(logging.Filter):
    """Drops gRPC's report that a call could not be answered because its peer has left.

    If a peer resets its call while the response is being sent, gRPC logs an error with a traceback.
    It looks like a bug of the service, but any stranger can cause it. Similar reports, such as of a
    response that is sent twice, are bugs and stay.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        if record.name != "grpc._cython.cygrpc" or not record.exc_info:
            return True
        error = record.exc_info[1]
        is_failed = type(error).__name__ == "ExecuteBatchError"
        return not (is_failed and str(error).startswith('Failed "execute_batch"'))


@dataclass(slots=True)
class _Second:
    """The lines of one kind within a second."""

    began: float
    written: int = 0
    left_out: int = 0


def configure_logs(settings: Settings, process: str) -> None:
    """Sends all logs and warnings of this process to stderr; replaces an earlier configuration.

    Args:
        settings: level, format and limits.
        process: the service of lines that are written outside of the context of a service.
    """
    identity = Identity(process, settings.instance_id)
    terminal = sys.stderr.isatty()
    formatter: logging.Formatter
    if settings.log_format == "human" or (settings.log_format == "auto" and terminal):
        formatter = HumanFormatter(
            process=identity, colour=terminal and not os.environ.get("NO_COLOR")
        )
    else:
        formatter = JsonFormatter(process=identity)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(PeerGone())
    if settings.log_lines_per_s:
        handler.addFilter(LineLimit(settings.log_lines_per_s))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        facts.setdefault("trace_id", trace.format_trace_id(span.trace_id))
    return facts


def _utc(record: logging.LogRecord) -> str:
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{clock}.{int(record.msecs):03d}Z"


def _plain(value: object) -> str:
    """The value on one line, quoted if it is empty or contains spaces."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text else json.dumps(text)
