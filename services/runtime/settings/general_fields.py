"""Settings of the process as a whole."""

import os
import re
import secrets
import socket
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator

from lingua_scheduler.services.runtime.contract.languages import parse_languages
from lingua_scheduler.services.runtime.settings.field_types import field, lower, whole

_MAX_ID_CHARS = 128
_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{_MAX_ID_CHARS}}}")

Profile = Literal["stable", "efficient"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "human"]


def _instance_id(value: str) -> str:
    if value == "":
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100] or "host"
        # The pid is 1 in most containers, hence the random end.
        return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"
    if not _ID.fullmatch(value):
        raise ValueError
    return value


def extended_id(instance_id: str, end: str) -> str:
    """An id for a part of this instance: `<instance_id>-<end>`.

    If that is too long, it loses its beginning: what makes it unique is usually at the end.
    """
    return f"{instance_id}-{end}"[-_MAX_ID_CHARS:]


def _languages(value: str) -> str:
    parse_languages(value)
    return value


Languages = Annotated[str, AfterValidator(_languages)]
InstanceId = Annotated[str, AfterValidator(_instance_id)]


class GeneralFields(BaseModel):
    """The process as a whole."""

    profile: Annotated[Profile, BeforeValidator(lower)] = field(
        "stable", "profile: the set of defaults", "must be stable or efficient"
    )
    instance_id: InstanceId = field(
        "",
        "name of this process in logs and Redis (empty: host, process id and 4 random digits)",
        "must be 1 to 128 characters of A-Z a-z 0-9 . _ -, or empty",
    )
    log_level: Annotated[LogLevel, BeforeValidator(lower)] = field(
        "info", "lowest level that is logged", "must be debug, info, warning or error"
    )
    log_format: Annotated[LogFormat, BeforeValidator(lower)] = field(
        "auto",
        "format of log lines (auto: human on a terminal, else json)",
        "must be auto, json or human",
    )
    log_lines_per_s: int = whole(
        50,
        0,
        1_000_000,
        "log lines of one kind per second, except debug lines; the next line of that kind "
        "counts the dropped ones in `left_out` (0: no limit)",
    )
    languages: Languages = field(
        "",
        "language codes that nodes and clients may use, separated by commas; `iso639` means "
        "all codes of ISO 639, also with a script or region (empty: iso639)",
        "must be language codes such as en or zh-hant, or iso639, with commas between",
    )
