"""Words and exit codes for what was raised below the commands."""

import os
import traceback

import click
from redis.exceptions import RedisError

from lingua_scheduler.cli.failures import FAILED, UNREACHABLE, USAGE, Failure
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    LinguaError,
    SettingsError,
    reason_name,
)
from lingua_scheduler.services.runtime.redis.server_binary import EmbeddedRedisError


def explain(error: Exception) -> Failure:
    """The failure that an exception means for the person who typed the command."""
    if isinstance(error, SettingsError):
        return Failure(str(error), reason="SETTINGS", exit_code=USAGE)
    if isinstance(error, LinguaError):
        down = isinstance(error, DependencyDownError)
        code = UNREACHABLE if down else FAILED
        return Failure(error.message, reason=reason_name(error.reason), exit_code=code)
    if isinstance(error, EmbeddedRedisError):
        return Failure(f"the embedded Redis failed: {error}", reason="EMBEDDED_REDIS")
    if isinstance(error, RedisError):
        return Failure(f"Redis refused: {error}", reason="REDIS")
    if isinstance(error, OSError):
        return Failure(str(error), reason="SYSTEM")
    if os.environ.get("LINGUA_LOG_LEVEL", "").strip().lower() == "debug":
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    return Failure(
        f"a fault of lingua itself: {type(error).__name__}: {error}. "
        "LINGUA_LOG_LEVEL=debug shows where; please report it",
        reason="INTERNAL",
    )
