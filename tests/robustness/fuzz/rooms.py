"""Messages to rooms, over gRPC and the web entry: senseless, and mutated.

With a token of a room they get further than a stranger's: they are from a member.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format

from lingua_scheduler.v1 import rooms_pb2
from tests.robustness.fuzz.messages import broken, random_message
from tests.robustness.fuzz.web import VALUES, Frame, altered_json, text
from tests.support.raw_http import BINARY, PING, request

HUGE = 2**53
LISTEN = "/v1/listen"
CALLS = ("create", "token", "get", "members", "close")
_REQUESTS = {
    "create": rooms_pb2.CreateRoomRequest.DESCRIPTOR,
    "token": rooms_pb2.CreateJoinTokenRequest.DESCRIPTOR,
    "get": rooms_pb2.GetRoomRequest.DESCRIPTOR,
    "members": rooms_pb2.ListMembersRequest.DESCRIPTOR,
    "close": rooms_pb2.CloseRoomRequest.DESCRIPTOR,
}


def _said(**fields: Any) -> rooms_pb2.ListenerMessage:
    return rooms_pb2.ListenerMessage(**fields)


def _listening(language: str, **more: bool) -> rooms_pb2.Listening:
    return rooms_pb2.Listening(language=language, captions=True, **more)


def listener_messages(room_id: str = "no-such-room", token: str = "x") -> list[bytes]:
    """What a listener may say, the first of it first, and what none would."""

    def join(**more: Any) -> rooms_pb2.ListenerMessage:
        given = {"room_id": room_id, "join_token": token, "listening": _listening("qfx"), **more}
        return _said(join=rooms_pb2.JoinRoom(**given))

    def change(listening: rooms_pb2.Listening | None) -> rooms_pb2.ListenerMessage:
        return _said(change=rooms_pb2.ChangeListening(listening=listening))

    made = [
        join(),
        join(member_id="no-such-member", position=HUGE, status=True),
        join(member_id="no-such-member", position=0, name="字" * 64),
        join(listening=rooms_pb2.Listening(language="qfx")),
        join(listening=rooms_pb2.Listening()),
        join(join_token=token[:-1]),
        join(room_id="another-room"),
        join(name="x" * 10_000),
        _said(join=rooms_pb2.JoinRoom()),
        change(_listening("qfy")),
        change(_listening("qfx", speech=True, original_audio=True)),
        change(rooms_pb2.Listening(language="qfy")),
        change(_listening("x" * 40)),
        change(None),
        _said(leave=rooms_pb2.LeaveRoom()),
        _said(),
    ]
    return [each.SerializeToString() for each in made]


def listening(room_id: str, token: str, rng: random.Random) -> list[Frame]:
    """The frames of a listener that joins, changes its language, and leaves."""
    join = {
        "roomId": room_id,
        "joinToken": token,
        "name": "fuzzed",
        "listening": _wishes("qfx", rng),
        "status": rng.random() < 0.5,
    }
    changes = [
        text({"change": {"listening": _wishes(rng.choice(("qfx", "qfy")), rng)}})
        for _ in range(rng.randrange(1, 4))
    ]
    return [
        text({"join": join}),
        *changes,
        text({}),
        Frame(0x80 | PING, b"still there?"),
        text({"leave": {}}),
    ]


def _wishes(language: str, rng: random.Random) -> dict[str, Any]:
    wants = {each: rng.random() < 0.5 for each in ("speech", "originalAudio")}
    return {"language": language, "captions": True, **wants}


def other_listener_message(rng: random.Random) -> Frame:
    """A text frame with any message of a listener, or bytes where there should be none."""
    if rng.random() < 0.2:
        return Frame(0x80 | BINARY, rng.randbytes(40))
    made = random_message(rooms_pb2.ListenerMessage.DESCRIPTOR, rng)
    return text(json_format.MessageToDict(made))


def room_request(address: str, room_id: str, token: str, rng: random.Random) -> bytes:
    """A POST about a room, with something wrong in it, or nothing."""
    call = rng.choice(CALLS)
    body = _body(call, room_id, token, rng)
    headers = {
        "Content_Type": rng.choice(("application/json", "application/json", "text/plain", "")),
        "Content_Length": str(len(body) + rng.choice((0, 0, 0, 0, -1, 5, 10**6))),
        "Authorization": rng.choice(("", "", f"Bearer {token}", "Bearer x", "\xff")),
    }
    path = f"/v1/rooms/{rng.choice((call, call, call, call + '/', '', '../rooms/get', 'x' * 300))}"
    method = rng.choice(("POST", "POST", "POST", "GET", "PUT", "OPTIONS"))
    return request(address, path, method, **headers) + body


def _body(call: str, room_id: str, token: str, rng: random.Random) -> bytes:
    tokens = {"token": "hostToken", "close": "hostToken"}
    honest: dict[str, Any] = {"roomId": room_id, tokens.get(call, "token"): token}
    if call == "create":
        honest = {"options": {"name": "fuzzed"}, "tenant": "t"}
    elif call == "token":
        honest["role"] = "ROOM_ROLE_LISTENER"
    # Anybody may try to close this room, but not with the right token.
    if call == "close":
        honest["hostToken"] = token[:-1]
    match rng.randrange(5):
        case 0:
            return json.dumps(rng.choice(VALUES)).encode()
        case 1:
            return broken(json.dumps(honest).encode(), rng)
        case 2:
            message = random_message(_REQUESTS[call], rng)
            return json.dumps(json_format.MessageToDict(message)).encode()
        case 3:
            return json.dumps(altered_json(honest, rng)).encode()
        case _:
            return json.dumps(honest).encode()


def mutated_listening(frames: Sequence[Frame], rng: random.Random) -> list[Frame]:
    """The same, and some of the frames replaced by any message."""
    return [other_listener_message(rng) if rng.random() < 0.15 else each for each in frames]
