"""docs/reference/errors.md, from the contract and from how the web entry maps it."""

import re
from collections.abc import Iterator

from google.protobuf import descriptor_pb2 as pb

from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.web.refusals import STATUSES
from lingua_scheduler.services.session_gateway.web import close_codes
from lingua_scheduler.v1.common_pb2 import ErrorReason
from tools.reference.api import Comments, descriptors
from tools.reference.markdown import row, slug

PREFIX = "ERROR_REASON_"

HEAD = """\
# Errors

<!-- Made by `make reference` from protos/, services/runtime/errors.py and services/*/web: edit
those. -->

Every error has a reason, for programs, and a message, for people. Programs should decide by the
reason: messages change.

- **gRPC**: a failed call has a status with details: `ErrorInfo` (domain `lingua-scheduler`, and the
  reason), `RetryInfo` if a retry can help, and `BadRequest` for bad fields. On a stream the same is
  an [Error](../api.md#error) message.
- **HTTP**: a status and a [JSON document](../web.md#refusals).
- **WebSocket**: an `error` event, then a [close code](#websocket-close-codes).
- **Results**: an utterance without a translation is delivered as missing, with one of these
  reasons.

The SDKs retry by themselves if a retry helps. `lingua` prints the reason, and
[what to do](../operations.md#at-each-alert) at an alert begins with it.
"""

CLOSE_CODES = """
## WebSocket close codes

The text of the close frame is the reason. To retry is to resume the session, or to open one, as
[the web entry](../web.md#a-session) describes; the JavaScript SDK does that by itself.

| code | why | retry |
|---|---|---|"""

# Codes that stand for no reason, or for more than one thing.
OTHER_CODES = {
    "DONE": ("`closed` was sent", "no"),
    "SILENT": (
        "no first frame in time, or pings were not answered",
        "yes, if the client is still there",
    ),
    "TOO_LARGE": ("a frame is too large", "no"),
}
PROTOCOL = ("1002, 1007", "not WebSocket frames as RFC 6455 has them", "no: the client has a bug")


def text() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    comments, enum, path = _enum()
    reasons = [(at, value) for at, value in enumerate(enum.value) if value.number]
    yield from ("| reason | retry |", "|---|---|")
    advice = {}
    for at, value in reasons:
        name = value.name.removeprefix(PREFIX)
        about, retry, rest = _advice(name, comments.of(*path, 2, at))
        advice[name] = (about, retry, rest)
        yield row(f"[{name}](#{slug(name)})", retry)
    for _, value in reasons:
        name = value.name.removeprefix(PREFIX)
        about, retry, rest = advice[name]
        yield from ("", f"## {name}", "", _code(about), "")
        yield f"- Retry: {_code(' '.join(filter(None, (f'{retry}.', rest))))}"
        yield f"- {_transports(value.number)}"
    yield CLOSE_CODES
    yield from _close_codes({name: retry for name, (_, retry, _) in advice.items()})


def _enum() -> tuple[Comments, pb.EnumDescriptorProto, tuple[int, int]]:
    for file in descriptors():
        for at, enum in enumerate(file.enum_type):
            if enum.name == "ErrorReason":
                return Comments(file), enum, (5, at)
    raise LookupError("protos/ has no ErrorReason")


def _advice(name: str, comment: str) -> tuple[str, str, str]:
    """What a reason means, whether a retry helps, and what else to do."""
    found = re.fullmatch(r"(.+)\n\nRetry: ([^.]+)\.(?: (.+))?", comment, re.DOTALL)
    if found is None:
        raise ValueError(f"the comment of {name} must say what it means, then 'Retry: ...'")
    return found[1].replace("\n\n", " "), found[2], found[3] or ""


def _transports(reason: int) -> str:
    codes = {each.reason: each.code for each in LinguaError.__subclasses__()}
    found = [f"gRPC `{codes[reason].name}`"]  # type: ignore[index]
    if reason in STATUSES:
        found.append(f"HTTP {STATUSES[reason]}")  # type: ignore[index]
    if reason in close_codes.CLOSE_CODES:
        found.append(f"WebSocket {close_codes.CLOSE_CODES[reason]}")  # type: ignore[index]
    return ", ".join(found)


def _close_codes(retries: dict[str, str]) -> Iterator[str]:
    rows = {
        (str(getattr(close_codes, name)), why): then for name, (why, then) in OTHER_CODES.items()
    }
    rows[PROTOCOL[:2]] = PROTOCOL[2]
    for reason, code in close_codes.CLOSE_CODES.items():
        name = ErrorReason.Name(reason).removeprefix(PREFIX)
        rows[str(code), f"[{name}](#{slug(name)})"] = retries[name]
    internal = str(close_codes.INTERNAL)
    rows[internal, "[INTERNAL](#internal), and every other reason"] = retries["INTERNAL"]
    yield from (row(code, why, rows[code, why]) for code, why in sorted(rows))


def _code(text_: str) -> str:
    """Settings as links, and what is in backticks as it is."""
    return re.sub(
        r"LINGUA_[A-Z_]+", lambda found: f"[{found[0]}](settings.md#{slug(found[0])})", text_
    )
