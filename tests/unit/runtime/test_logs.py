"""Log lines for machines and for people."""

import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider

from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.services.runtime.telemetry import logs
from lingua_scheduler.services.runtime.telemetry.logs import configure_logs

log = logging.getLogger("lingua_scheduler.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # configure_logs closes and drops what it finds; pytest's own handlers are put back.
    root.handlers = []
    yield
    logging.captureWarnings(False)
    root.handlers, root.level = handlers, level


def configure(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, **variables: str) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.delenv("NO_COLOR", raising=False)
    environ = {f"LINGUA_{name.upper()}": value for name, value in variables.items()}
    configure_logs(load_settings({"LINGUA_INSTANCE_ID": "pool-0", **environ}), "pool")


def json_lines(stderr: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stderr.getvalue().splitlines()]


def test_a_json_line_has_time_origin_event_and_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr)

    log.info("node %s joined", "n1", extra={"node_id": "n1", "utterance_index": 3})

    (line,) = json_lines(stderr)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("ts")))
    assert line == {
        "level": "info",
        "service": "pool",
        "instance": "pool-0",
        "logger": "lingua_scheduler.test",
        "event": "node n1 joined",
        "node_id": "n1",
        "utterance_index": 3,
    }


def test_an_exception_is_one_field_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr)

    try:
        raise ValueError("broken\nin two")
    except ValueError:
        log.exception("it failed")

    (line,) = json_lines(stderr)
    assert "Traceback" in str(line["exception"])
    assert "ValueError: broken\nin two" in str(line["exception"])


def test_values_that_json_cannot_represent_make_a_valid_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr)

    facts = {"load": float("nan"), "kind": ValueError, "text": "你好 \ud800", "level": "mine"}
    log.info("odd", extra=facts)

    (line,) = json_lines(stderr)
    assert "NaN" not in stderr.getvalue()
    assert line["load"] == "nan"
    assert line["text"] == "你好 \ud800"
    assert line["level"] == "info"


def test_a_line_within_a_span_names_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr)

    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("s") as s:
        log.info("inside")
    log.info("outside")

    inside, outside = json_lines(stderr)
    assert inside["trace_id"] == f"{s.get_span_context().trace_id:032x}"
    assert "trace_id" not in outside


def test_the_level_of_the_settings_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr, log_level="warning")

    log.info("unheard")
    log.warning("heard")

    assert [line["event"] for line in json_lines(stderr)] == ["heard"]


def test_python_warnings_are_log_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure(monkeypatch, stderr)
        warnings.warn("something is old", stacklevel=1)

    assert json_lines(stderr)[0]["logger"] == "py.warnings"


def test_lines_on_a_terminal_are_readable_and_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    configure(monkeypatch, stderr)

    log.warning("node joined", extra={"node_id": "n1", "reason": "two words"})

    plain = re.sub(r"\x1b\[[0-9;]*m", "", stderr.getvalue())
    assert plain != stderr.getvalue()
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d\.\d{3} WARNING  pool       node joined node_id=n1 reason="two words"\n',
        plain,
    )


def test_there_are_no_colours_in_files_or_with_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, terminal = io.StringIO(), Terminal()
    configure(monkeypatch, file, log_format="human")
    log.error("to a file")
    configure(monkeypatch, terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    configure_logs(load_settings({}), "pool")
    log.error("to a terminal")

    assert "to a file" in file.getvalue()
    assert "to a terminal" in terminal.getvalue()
    assert "\x1b" not in file.getvalue() + terminal.getvalue()


def test_a_terminal_can_have_json(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    configure(monkeypatch, stderr, log_format="json")

    log.info("hello")

    assert json_lines(stderr)[0]["event"] == "hello"


def test_a_readable_line_has_the_traceback_on_separate_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr, log_format="human")

    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")

    assert stderr.getvalue().splitlines()[1].startswith("Traceback")
    assert stderr.getvalue().splitlines()[-1] == "ValueError: broken"


def test_configuring_twice_does_not_double_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr)
    configure(monkeypatch, stderr)

    log.info("once")

    assert len(json_lines(stderr)) == 1


def test_lines_of_a_kind_are_limited_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr, log_lines_per_s="3", log_level="debug")
    now = 100.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)

    def say(number: int) -> None:
        log.info("call %d refused", number)
        log.debug("call %d", number)

    for number in range(10):
        say(number)
    log.info("another kind")
    now += 1
    say(10)
    say(11)

    lines = [each for each in json_lines(stderr) if each["level"] == "info"]
    assert [each["event"] for each in lines] == [
        "call 0 refused",
        "call 1 refused",
        "call 2 refused",
        "another kind",
        "call 10 refused",
        "call 11 refused",
    ]
    assert [each.get("left_out") for each in lines] == [None] * 4 + [7, None]
    assert len(json_lines(stderr)) == len(lines) + 12


def test_lines_can_be_unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr, log_lines_per_s="0")

    for number in range(1000):
        log.info("line %d", number)

    assert len(json_lines(stderr)) == 1000


class ExecuteBatchError(Exception):
    """Named as gRPC's own."""


@pytest.mark.parametrize(
    ("what", "is_written"),
    [
        ('Failed "execute_batch": (<SendStatusFromServerOperation>)', False),
        ("Failed grpc_call_start_batch: GRPC_CALL_ERROR_TOO_MANY_OPERATIONS", True),
    ],
    ids=["the peer has gone", "a bug"],
)
def test_a_peer_that_resets_its_call_is_not_logged_as_an_error(
    monkeypatch: pytest.MonkeyPatch, what: str, is_written: bool
) -> None:
    stderr = io.StringIO()
    configure(monkeypatch, stderr)

    for name in ("grpc._cython.cygrpc", "another"):
        try:
            raise ExecuteBatchError(what)
        except ExecuteBatchError:
            logging.getLogger(name).exception("raised in core")

    written = [each["logger"] for each in json_lines(stderr)]
    assert written == (["grpc._cython.cygrpc"] if is_written else []) + ["another"]
