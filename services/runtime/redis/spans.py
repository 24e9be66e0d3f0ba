"""Spans of script calls, by the OpenTelemetry conventions for Redis, without arguments."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import SpanContext, SpanKind

from lingua_scheduler.services.runtime.settings.redis_url import Address

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter

Reply = TypeVar("Reply")


async def with_span(
    writer: SpanWriter,
    parent: SpanContext,
    script: str,
    address: Address | None,
    call: Awaitable[Reply],
) -> Reply:
    """Waits for a call and writes its span. Raises what the call raises."""
    start_us, failure = time.time_ns() // 1000, None
    try:
        return await call
    except Exception as error:
        # Not the text of the error, which may quote arguments.
        failure = type(error).__name__
        raise
    finally:
        writer.write(
            f"EVALSHA {script}",
            writer.child(parent),
            parent=parent,
            start_us=start_us,
            end_us=time.time_ns() // 1000,
            kind=SpanKind.CLIENT,
            constant=_constant(script, address),
            attributes={"error.type": failure} if failure else {},
            failure=failure,
        )


@cache
def _constant(script: str, address: Address | None) -> Sequence[Any]:
    from lingua_scheduler.services.runtime.telemetry.span_writer import key_values

    attributes: dict[str, str | int] = {
        "db.system.name": "redis",
        "db.operation.name": "EVALSHA",
        "db.stored_procedure.name": script,
    }
    if address is not None:
        attributes |= {"server.address": address[0], "server.port": address[1]}
    return key_values(attributes)
