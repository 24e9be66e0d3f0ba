"""Settings of the operators' console."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel

from lingua_scheduler.services.runtime.settings.field_types import field, whole
from lingua_scheduler.services.runtime.settings.network_fields import (
    ListenOrOff,
    listens_or_off,
)
from lingua_scheduler.services.runtime.settings.web_fields import HostNames

TRACE_ID = "{trace_id}"
"""What a trace's id replaces in `console_trace_url`."""
_MAX_URL_CHARS = 2000


def _url(value: str) -> str:
    if not value:
        return value
    parts = urlsplit(value)
    is_plain = value.isascii() and value.isprintable() and not set(value) & set(" \"'<>\\")
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ValueError
    if parts.username is not None or parts.port == 0 or len(value) > _MAX_URL_CHARS:
        raise ValueError
    return value


def _trace_url(value: str) -> str:
    if value and TRACE_ID not in value:
        raise ValueError
    _url(value.replace(TRACE_ID, "0"))
    return value


class ConsoleFields(BaseModel):
    """Where the operators' console listens, what it keeps, and what it links to."""

    console_listen: ListenOrOff = listens_or_off(
        "127.0.0.1:7750", "where the console serves browsers (empty: `lingua up` runs none)"
    )
    console_metrics_listen: ListenOrOff = listens_or_off(
        "127.0.0.1:9750", "HTTP address of the console's /metrics (empty: off)"
    )
    console_health_listen: ListenOrOff = listens_or_off(
        "", "plain-text HTTP address of the console for probes only (empty: off)"
    )
    console_hosts: HostNames = field(
        "",
        "names by which browsers reach the console, separated by commas; IP addresses and "
        "localhost are always accepted (`*`: any name)",
        "must be host names without ports, with commas between, or *",
    )
    console_viewers_max: int = whole(
        200, 1, 10_000, "documents that browsers watch at once; one address may watch half"
    )
    console_jobs_max: int = whole(
        20_000, 100, 100_000, "recent jobs that the console keeps in memory"
    )
    console_grafana_url: Annotated[str, AfterValidator(_url)] = field(
        "",
        "address of Grafana, which the console links to (empty: no link)",
        "must be a URL such as https://grafana.example.com/d/lingua, or empty",
    )
    console_trace_url: Annotated[str, AfterValidator(_trace_url)] = field(
        "",
        f"address of a trace, with `{TRACE_ID}` for its id (empty: no links)",
        f"must be a URL that contains {TRACE_ID}, such as "
        f"https://traces.example.com/trace/{TRACE_ID}, or empty",
    )
