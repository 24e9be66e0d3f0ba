"""Spans for operations of the Operate stream, if the caller is sampled."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import SpanKind

from lingua_scheduler.services.runtime.errors import LinguaError, reason_name
from lingua_scheduler.services.runtime.telemetry.traces import span_of
from lingua_scheduler.v1 import pool_pb2

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter

_SERVICE = pool_pb2.DESCRIPTOR.services_by_name["PoolService"].full_name

Response = TypeVar("Response")


async def with_span(
    writer: SpanWriter, name: str, traceparent: str, operation: Awaitable[Response]
) -> Response:
    """Carries out an operation within a span. Raises what the operation raises."""
    parent = span_of(traceparent)
    if parent is None or not parent.trace_flags.sampled:
        return await operation
    span = writer.child(parent)
    start_us, failure, attributes = time.time_ns() // 1000, None, {}
    try:
        with writer.current(span):
            return await operation
    except LinguaError as error:
        attributes["error.type"] = reason_name(error.reason)
        attributes["rpc.response.status_code"] = error.code.name
        raise
    except Exception as error:
        failure = attributes["error.type"] = type(error).__name__
        raise
    finally:
        writer.write(
            f"pool {name}",
            span,
            parent=parent,
            start_us=start_us,
            end_us=time.time_ns() // 1000,
            kind=SpanKind.SERVER,
            constant=_constant(name),
            attributes=attributes or _OK,
            failure=failure,
        )


_OK = {"rpc.response.status_code": "OK"}


@cache
def _constant(operation: str) -> Sequence[Any]:
    """Returns the same attributes as the unary call of the operation."""
    from lingua_scheduler.services.runtime.telemetry.span_writer import key_values

    method = "".join(word.capitalize() for word in operation.split("_"))
    return key_values({"rpc.system.name": "grpc", "rpc.method": f"{_SERVICE}/{method}"})
