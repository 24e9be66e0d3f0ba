"""Messages and exit codes for exceptions from below the commands."""

import os
import sys
import traceback

import click

from lingua_scheduler.cli.failures import FAILED, UNREACHABLE, USAGE, Failure
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    LinguaError,
    SettingsError,
    reason_name,
)
from lingua_scheduler.services.runtime.redis.embedded.binary import EmbeddedRedisError


def explain(error: Exception) -> Failure:
    """Translate an exception into a failure for the person who ran the command."""
    if isinstance(error, SettingsError):
        tip = "set or correct these variables; 'lingua config' then shows all settings"
        return Failure(str(error), reason="SETTINGS", exit_code=USAGE, tip=tip)
    if isinstance(error, LinguaError):
        down = isinstance(error, DependencyDownError)
        code = UNREACHABLE if down else FAILED
        return Failure(error.message, reason=reason_name(error.reason), exit_code=code)
    if isinstance(error, EmbeddedRedisError):
        return Failure(f"the embedded Redis failed: {error}", reason="EMBEDDED_REDIS")
    # Callers have no package for Redis, and it cannot fail then.
    redis = sys.modules.get("redis.exceptions")
    if redis is not None and isinstance(error, redis.RedisError):
        return Failure(f"Redis refused the call: {error}", reason="REDIS")
    if isinstance(error, ModuleNotFoundError) and _is_of_others(error.name or ""):
        return Failure(
            f"this command needs packages of the services, such as {error.name}: "
            "pip install 'lingua-scheduler[server]'",
            reason="NOT_INSTALLED",
        )
    if isinstance(error, OSError):
        return Failure(str(error), reason="SYSTEM")
    if os.environ.get("LINGUA_LOG_LEVEL", "").strip().lower() == "debug":
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    return Failure(
        f"internal error: {type(error).__name__}: {error}",
        reason="INTERNAL",
        hint="This is a bug in lingua; please report it. LINGUA_LOG_LEVEL=debug shows the "
        "traceback",
    )


def _is_of_others(module: str) -> bool:
    return module != "" and not module.startswith("lingua_scheduler")
