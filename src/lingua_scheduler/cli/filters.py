"""Values of options: languages, directions, times."""

import re
import time

import click

from lingua_scheduler.v1 import common_pb2

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def language(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A language code such as en or zh-hant."""
    if value is None:
        return None
    # Not at the top: commands that only filter lists do not need the SDK.
    from lingua_scheduler.sdk.validate import check_language

    try:
        return check_language(parameter.opts[0], value)
    except ValueError as error:
        raise click.BadParameter(str(error).partition(": ")[2]) from None


def languages(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Several language codes."""
    for each in value:
        language(context, parameter, each)
    return value


def lifetime_s(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """A duration such as 90s, 12h or 30d, in seconds; 0 without one."""
    if value is None:
        return 0
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", value)
    seconds = int(found[1]) * _UNITS_MS[found[2]] // 1000 if found else 0
    if not seconds:
        raise click.BadParameter(f"{value!r} must be a duration such as 90s, 12h or 30d")
    return seconds


def pair(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> common_pb2.LanguagePair | None:
    """A direction such as zh:en."""
    if value is None:
        return None
    src, _, tgt = value.partition(":")
    if not (src and tgt):
        raise click.BadParameter(f"{value!r} must be two languages such as zh:en")
    return common_pb2.LanguagePair(src=src, tgt=tgt)


def since(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """The time before now by a duration such as 10m, in ms since the epoch; 0 without one."""
    if value is None:
        return 0
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", value)
    if not found:
        raise click.BadParameter(f"{value!r} must be a duration such as 30s, 10m, 2h or 1d")
    return max(1, time.time_ns() // 1_000_000 - int(found[1]) * _UNITS_MS[found[2]])
