"""Bodies and queries of requests, limited."""

import asyncio
import json
from typing import Any

from aiohttp import web

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal

MAX_BODY_BYTES = 16 * 1024
MAX_QUERY_BYTES = 2 * 1024
MAX_PARAMETERS = 32
# Seconds that a peer has to send the body of a request.
_BODY_WITHIN_S = 10.0

Query = tuple[tuple[str, str], ...]


def query_of(request: web.BaseRequest) -> Query:
    """The query in a normal form: sorted, without empty parameters.

    So requests for the same document are the same. Raises HttpRefusal.
    """
    if len(request.rel_url.raw_query_string) > MAX_QUERY_BYTES:
        raise HttpRefusal(414, "QUERY_TOO_LONG", f"the query has over {MAX_QUERY_BYTES} bytes")
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in found:
            problem = "is given more than once"
            error = InvalidMessageError(f"{name[:50]} {problem}", fields=[(name[:50], problem)])
            raise HttpRefusal.of(error)
        found[name] = value
    if len(found) > MAX_PARAMETERS:
        raise HttpRefusal.of(
            InvalidMessageError(f"the query has more than {MAX_PARAMETERS} parameters")
        )
    return tuple(sorted((name, value) for name, value in found.items() if value))


async def json_body(request: web.BaseRequest) -> dict[str, Any]:
    """The body, which has to be a JSON object; an empty body is an empty object.

    Raises HttpRefusal.
    """
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            body = await _read(request)
    except TimeoutError:
        raise HttpRefusal(408, "REQUEST_TIMEOUT", "the body did not come in time") from None
    if not body:
        return {}
    if request.content_type != "application/json":
        # A form of another site could send other types without asking first.
        raise HttpRefusal(
            415, "UNSUPPORTED_MEDIA_TYPE", "the body must have Content-Type: application/json"
        )
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HttpRefusal.of(InvalidMessageError("the body is not a JSON object"))
    return found


def text_field(body: dict[str, Any], name: str, *, most: int, default: str | None = None) -> str:
    """A field of a body that is text.

    Args:
        body: of the request.
        name: of the field.
        most: characters that it may have.
        default: its value if it is missing; None if it must not be.

    Raises:
        HttpRefusal: it is missing, no text, or too long.
    """
    value = body.get(name, default)
    if isinstance(value, str) and len(value) <= most and (value or default is not None):
        return value
    least = 1 if default is None else 0
    problem = f"must be text of {least} to {most} characters"
    raise HttpRefusal.of(InvalidMessageError(f"{name} {problem}", fields=[(name, problem)]))


async def _read(request: web.BaseRequest) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await request.content.readany():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
    return b"".join(parts)


def _too_large() -> HttpRefusal:
    return HttpRefusal(413, "BODY_TOO_LARGE", f"the body has over {MAX_BODY_BYTES} bytes")
