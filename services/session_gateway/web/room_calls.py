"""The calls about rooms over HTTP: a POST with the request in JSON, and the response in JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import Message

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal
from lingua_scheduler.services.session_gateway.rooms.calls import RoomCalls
from lingua_scheduler.services.session_gateway.web.frames import read_message
from lingua_scheduler.v1 import rooms_pb2

_JSON = "application/json"
# The largest request has 64 languages, and texts of some hundred characters.
MAX_BODY_BYTES = 16 * 1024
# Seconds for a body to arrive.
_BODY_WITHIN_S = 10.0


class RoomCall(NamedTuple):
    """A call of the contract."""

    name: str
    """Of the method of SessionGateway."""
    request: type[Message]
    make: Callable[[Any], Awaitable[Message]]


def calls_by_path(calls: RoomCalls) -> dict[str, RoomCall]:
    """The calls by their path."""
    rows = {
        "create": RoomCall("CreateRoom", rooms_pb2.CreateRoomRequest, calls.create),
        "token": RoomCall(
            "CreateJoinToken", rooms_pb2.CreateJoinTokenRequest, calls.create_join_token
        ),
        "get": RoomCall("GetRoom", rooms_pb2.GetRoomRequest, calls.get),
        "members": RoomCall("ListMembers", rooms_pb2.ListMembersRequest, calls.members),
        "close": RoomCall("CloseRoom", rooms_pb2.CloseRoomRequest, calls.close),
    }
    return {f"/v1/rooms/{word}": call for word, call in rows.items()}


async def answered(call: RoomCall, request: web.BaseRequest) -> web.Response:
    """Makes a call. The caller has been admitted.

    Raises:
        HttpRefusal: there is no body that could be a request.
        LinguaError: it is not one, or the call has failed.
    """
    message = call.request()
    read_message(await _body(request), message)
    response = await call.make(message)
    return web.json_response(json_format.MessageToDict(response))


async def _body(request: web.BaseRequest) -> str:
    # A page of another origin can send other types without asking first.
    if request.content_type != _JSON:
        raise HttpRefusal(415, "UNSUPPORTED_MEDIA_TYPE", f"the body has to be {_JSON}")
    body = b""
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            while len(body) <= MAX_BODY_BYTES:
                part = await request.content.readany()
                if not part:
                    return body.decode()
                body += part
    except TimeoutError:
        raise HttpRefusal(408, "TIMEOUT", f"no body within {_BODY_WITHIN_S:g} s") from None
    except UnicodeDecodeError:
        raise InvalidMessageError("the body is not UTF-8") from None
    raise HttpRefusal(413, "TOO_LARGE", f"the body has more than {MAX_BODY_BYTES} bytes")
