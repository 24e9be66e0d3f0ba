"""docs/reference/settings.md, from the fields of the settings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lingua_scheduler.services.runtime.settings.groups import GROUPS, PROFILES
from lingua_scheduler.services.runtime.settings.quota_fields import WITHOUT_AUTH
from lingua_scheduler.services.runtime.settings.settings import (
    OF_COMMANDS,
    ORDERS,
    Order,
    Settings,
    variable_name,
)
from tools.reference.markdown import escaped, sentence, slug

SERVICES = Path(__file__).parents[2] / "services"

HEAD = """\
# Settings

<!-- Made by `make reference` from services/runtime/settings: edit that. -->

Every process reads its settings from environment variables when it starts. A value that is not
allowed ends the process with a message that names the variable, the value and what is allowed.
`lingua config` shows the settings of an environment and where each value comes from; `lingua
instances settings --differences` compares those of all instances.

- **Profiles.** `LINGUA_PROFILE=efficient` has shorter time-outs and hedging; both profiles are
  equally correct. A setting whose default differs says so.
- **Which service.** Each group says who uses it. All services of a deployment may have the same
  variables: a service ignores those that it does not use, and services that share a value then
  agree on it.
- **Text.** Names such as `off` and `on` may be in any case. For yes or no, `true`, `1` and `on`
  mean yes.
"""

OTHERS = """
## Variables of others

| variable | meaning |
|---|---|
| `OTEL_EXPORTER_OTLP_ENDPOINT` and other `OTEL_` variables | [traces](../operations.md#traces) |
| `TRACEPARENT` | the calls of a command continue this trace |
| `NO_COLOR` | if it is not empty, commands print without colours |

The SDKs read no variables: an app or a node passes addresses, tokens and certificates as arguments
([Python](../clients.md), [nodes](../nodes.md), [JavaScript](../javascript.md)).
"""

# The services that a group is about. Groups that are not named here are about all.
ABOUT = {
    "owners": "pool_service",
    "pool": "pool_service",
    "dispatcher": "dispatcher",
    "gateway": "session_gateway",
    "rooms": "session_gateway",
    "web": "session_gateway",
    "console": "console",
}
NAMES = {
    "pool_service": "pool service",
    "dispatcher": "dispatcher",
    "session_gateway": "session gateway",
    "console": "console",
}


def text() -> str:
    """The page."""
    return "\n".join(_lines()) + OTHERS


def _lines() -> Iterator[str]:
    yield HEAD
    for group, fields in GROUPS.items():
        names = ", ".join(
            f"[{variable_name(each)}](#{slug(variable_name(each))})" for each in fields.model_fields
        )
        yield f"- [{_title(group)}](#{slug(_title(group))}): {names}"
    code = {name: _code_of(SERVICES / name) for name in NAMES}
    for group, fields in GROUPS.items():
        about = ABOUT.get(group)
        users = f"the {NAMES[about]}" if about else "every service"
        yield from ("", f"## {_title(group)}", "", f"{_summary(fields)} Used by {users}.")
        for name in fields.model_fields:
            yield from _setting(name)
            readers = [NAMES[each] for each in NAMES if each != about and _reads(code[each], name)]
            if about and readers:
                yield f"- Also used by: {', '.join(readers)}"
    yield from ("", "## Variables of single commands", "")
    yield from ("| variable | meaning |", "|---|---|")
    yield from (f"| `{name}` | {meaning} |" for name, meaning in OF_COMMANDS.items())


def _setting(name: str) -> Iterator[str]:
    field = Settings.model_fields[name]
    extra: Any = field.json_schema_extra
    description = re.sub(r"^ms ", "milliseconds ", field.description or "")
    if not description:
        raise ValueError(f"the setting {name} has no description")
    yield from ("", f"### {variable_name(name)}", "", sentence(escaped(description)), "")
    yield f"- Default: {_defaults(name, field.default)}"
    yield f"- Allowed: {escaped(extra['allowed'].removeprefix('must be '))}"
    yield from (f"- {_order(order)}" for order in ORDERS if name in (order.lesser, order.greater))


def _defaults(name: str, default: object) -> str:
    found = [_value(default)]
    found += [
        f"{_value(values[name])} in the profile `{profile}`"
        for profile, values in PROFILES.items()
        if name in values
    ]
    if name in WITHOUT_AUTH:
        found.append(f"{_value(WITHOUT_AUTH[name])} if auth is off")
    return ", ".join(found)


def _value(value: object) -> str:
    if value == "":
        return "empty"
    if isinstance(value, bool):
        return "`yes`" if value else "`no`"
    return f"`{value}`"


def _order(order: Order) -> str:
    times = f"{order.times} times " if order.times > 1 else ""
    relation = "less than" if order.strictly else "at most"
    lesser, greater = variable_name(order.lesser), variable_name(order.greater)
    return f"{times}`{lesser}` must be {relation} `{greater}`: {order.why}".strip()


def _title(group: str) -> str:
    return {"grpc": "gRPC"}.get(group, group.capitalize())


def _summary(fields: type) -> str:
    return (fields.__doc__ or "").partition("\n")[0]


def _code_of(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*.py")))


def _reads(code: str, name: str) -> bool:
    return re.search(rf"settings\.{name}\b", code) is not None
