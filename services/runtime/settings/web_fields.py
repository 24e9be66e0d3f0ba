"""Settings of the web entry of the session gateway."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel

from lingua_scheduler.services.runtime.settings.field_types import field, whole

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def _hosts(value: str) -> str:
    for name in filter(None, value.split(",")):
        if name != "*" and not _NAME.fullmatch(name):
            raise ValueError
    return value


def _origins(value: str) -> str:
    for origin in filter(None, value.split(",")):
        parts = urlsplit(origin)
        is_plain = (
            parts.scheme in ("http", "https") and origin == f"{parts.scheme}://{parts.netloc}"
        )
        # The port is checked when it is asked for.
        if origin != "*" and not (is_plain and parts.hostname and parts.port != 0):
            raise ValueError
    return value


HostNames = Annotated[str, AfterValidator(_hosts)]
"""Names of hosts with commas between, or "*"."""


class WebFields(BaseModel):
    """What the web entry of the session gateway accepts."""

    talk_page: bool = field(
        True,
        "whether the web entry serves the talk page, for two people at one device",
        "must be yes or no",
    )
    web_hosts: HostNames = field(
        "",
        "names by which browsers reach the web entry, separated by commas; IP addresses and "
        "localhost are always accepted (`*`: any name)",
        "must be host names without ports, with commas between, or *",
    )
    web_origins: Annotated[str, AfterValidator(_origins)] = field(
        "",
        "origins whose pages may use the web entry besides its own, separated by commas (`*`: "
        "any page)",
        "must be origins such as https://example.com, with commas between, or *",
    )
    web_connections_max: int = whole(
        2000, 1, 1_000_000, "connections to the web entry of one gateway"
    )
    web_connections_per_address: int = whole(
        256,
        0,
        1_000_000,
        "such connections from one address (0: no limit, for a gateway behind a proxy)",
    )
    web_frames_per_s: int = whole(
        200, 10, 100_000, "frames per second that are read from one WebSocket"
    )
    web_frames_burst: int = whole(
        1000, 1, 1_000_000, "frames that are read at once from a WebSocket that was quiet"
    )
