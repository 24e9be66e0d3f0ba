"""What a hostile member of rooms has at hand: a room of its own, tokens, streams and sockets."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2, session_pb2_grpc
from tests.robustness.traffic.hostile_web import SOURCE, BreachError
from tests.support.audio import FORMAT
from tests.support.listening_node import audio_of
from tests.support.raw_http import TEXT, RawConnection, frame, handshake, raw_connection, request

TENANT = "hostile"
ANSWER_S = 3.0
# Streams that stay open when their act is over; the oldest give way to new ones.
LEFT = 60
_BUGS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


class RoomPeer:
    """A member of a room of its own, and a stranger to all others.

    Args:
        gateways, web: addresses of gateways, and of their web entries.
    """

    def __init__(self, gateways: list[str], web: list[str], rng: random.Random) -> None:
        self._gateways = gateways
        self._web = web
        self._rng = rng
        self._channels = {
            address: grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),))
            for address in gateways
        }
        self._own: rooms_pb2.CreateRoomResponse | None = None
        self._left: list[contextlib.AsyncExitStack] = []

    async def post(self, call: str, body: dict[str, Any]) -> int:
        address, data = self._rng.choice(self._web), json.dumps(body).encode()
        async with raw_connection(address, source=SOURCE) as peer:
            headers = {"Content_Type": "application/json", "Content_Length": str(len(data))}
            await peer.send(request(address, f"/v1/rooms/{call}", "POST", **headers) + data)
            status = await peer.status(ANSWER_S)
        if status == 500:
            raise BreachError(f"{call} was answered with 500")
        return status

    # ---- rooms and tokens ----

    async def room(self) -> rooms_pb2.CreateRoomResponse:
        """Its own; made again if it is gone, as all else is that an empty Redis does not know."""
        if self._own is not None:
            asked = rooms_pb2.GetRoomRequest(
                room_id=self._own.room.room_id, token=self._own.host_token
            )
            if await self.code(self.stub().GetRoom, asked) != "NOT_FOUND":
                return self._own
        wanted = rooms_pb2.CreateRoomRequest(tenant=TENANT)
        self._own = await self.stub().CreateRoom(wanted, timeout=ANSWER_S)
        return self._own

    async def token(self, lifetime_s: int = 0) -> str:
        """A guest's token of its own room."""
        own = await self.room()
        asked = rooms_pb2.CreateJoinTokenRequest(
            room_id=own.room.room_id,
            host_token=own.host_token,
            role=rooms_pb2.ROOM_ROLE_LISTENER,
            lifetime_s=lifetime_s,
        )
        made = await self.stub().CreateJoinToken(asked, timeout=ANSWER_S)
        return str(made.join_token)

    async def honest_rooms(self) -> list[str]:
        """Without auth, anybody may list rooms."""
        listed = await self.stub().ListRooms(rooms_pb2.ListRoomsRequest(), timeout=ANSWER_S)
        others = [each.room_id for each in listed.rooms if each.tenant != TENANT]
        return self._rng.sample(others, min(2, len(others)))

    async def wrong(self, room_id: str) -> list[str]:
        """Tokens that are not right for a room."""
        own, guest = await self.room(), await self.token()
        parts = guest.split(".")
        as_host = ".".join([*parts[:2], "h", *parts[3:]])
        for_it = ".".join([parts[0], room_id, *parts[2:]])
        host = own.host_token.split(".")
        tokens = [
            "",
            guest[:-1],
            guest[: len(guest) // 2],
            guest + "x",
            as_host,
            ".".join([*parts[:3], "0", *parts[4:]]),
            ".".join([*parts[:5], ""]),
            "x" * 512,
            "room.",
        ]
        if room_id != own.room.room_id:
            tokens += [guest, own.host_token, for_it, ".".join([host[0], room_id, *host[2:]])]
        return self._rng.sample(tokens, 4)

    def attempts(self, room_id: str, token: str) -> dict[str, Callable[[], Any]]:
        """All that a token may open."""
        stub = self.stub()
        speaker = session_pb2.RoomSpeaker(room_id=room_id, join_token=token, language="en")
        invite = rooms_pb2.CreateJoinTokenRequest(
            room_id=room_id, host_token=token, role=rooms_pb2.ROOM_ROLE_SPEAKER
        )
        # With no token at all, and without auth, everybody is an operator.
        calls: dict[str, Callable[[], Any]] = {
            "listen": lambda: self.first("Listen", join_message(room_id, token)),
            "speak": lambda: self.first("Converse", speak_message(speaker)),
        }
        if token:
            calls |= {
                "invite": lambda: stub.CreateJoinToken(invite, timeout=ANSWER_S),
                "members": lambda: stub.ListMembers(
                    rooms_pb2.ListMembersRequest(room_id=room_id, token=token), timeout=ANSWER_S
                ),
                "get": lambda: stub.GetRoom(
                    rooms_pb2.GetRoomRequest(room_id=room_id, token=token), timeout=ANSWER_S
                ),
                "close": lambda: stub.CloseRoom(
                    rooms_pb2.CloseRoomRequest(room_id=room_id, host_token=token),
                    timeout=ANSWER_S,
                ),
            }
        return calls

    async def refused(self, what: str, attempt: Callable[[], Any]) -> str:
        """An attempt that must fail; returns how."""
        try:
            answer = await attempt()
        except grpc.aio.AioRpcError as error:
            if error.code() in _BUGS:
                raise BreachError(f"{what}: {error.code()}") from None
            return str(error.code().name)
        if isinstance(answer, rooms_pb2.RoomMessage | session_pb2.ServerMessage):
            kind = kind_of(answer)
            if kind not in ("joined", "opened"):
                return kind
        raise BreachError(f"{what} succeeded")

    async def first(self, method: str, message: Any) -> Any:
        """The first answer on a stream."""
        async with self.stream(method) as stream:
            await stream.write(message)
            answer = await asyncio.wait_for(stream.read(), ANSWER_S)
            if answer is grpc.aio.EOF:
                await stream
            return answer

    # ---- small things ----

    def stub(self) -> Any:
        return session_pb2_grpc.SessionGatewayStub(self._channels[self._rng.choice(self._gateways)])

    async def code(self, method: Callable[..., Any], asked: Any) -> str:
        call = method(asked, timeout=ANSWER_S)
        return str((await call.code()).name)

    @contextlib.asynccontextmanager
    async def stream(self, method: str) -> AsyncIterator[Any]:
        stream = getattr(self.stub(), method)()
        try:
            yield stream
        finally:
            stream.cancel()

    @contextlib.asynccontextmanager
    async def speaker(self, own: rooms_pb2.CreateRoomResponse) -> AsyncIterator[tuple[Any, str]]:
        """A session that speaks to its own room."""
        speaker = session_pb2.RoomSpeaker(
            room_id=own.room.room_id, join_token=own.host_token, language="en"
        )
        async with self.stream("Converse") as stream:
            await stream.write(speak_message(speaker))
            message = await asyncio.wait_for(stream.read(), ANSWER_S)
            assert kind_of(message) == "opened", message
            yield stream, message.events[0].opened.session_id

    async def say(self, speaker: Any, word: int, seq: int = 0) -> None:
        chunk = session_pb2.AudioChunk(seq=seq, data=audio_of(word), is_final=True)
        await speaker.write(session_pb2.ClientMessage(audio=chunk))

    async def speakers(self, own: rooms_pb2.CreateRoomResponse) -> set[str] | None:
        """Who speaks in its room; None if nobody answers."""
        asked = rooms_pb2.GetRoomRequest(room_id=own.room.room_id, token=own.host_token)
        with contextlib.suppress(grpc.aio.AioRpcError):
            found = await self.stub().GetRoom(asked, timeout=ANSWER_S)
            return {each.session_id for each in found.room.speakers}
        return None

    @contextlib.asynccontextmanager
    async def socket(self) -> AsyncIterator[RawConnection]:
        address = self._rng.choice(self._web)
        async with raw_connection(address, source=SOURCE) as peer:
            await peer.send(handshake(address, path="/v1/listen"))
            assert await peer.status(ANSWER_S) == 101
            yield peer

    async def leave(self, opened: contextlib.AbstractAsyncContextManager[Any]) -> Any:
        """A stream that stays open after its act, until there are too many of them."""
        stack = contextlib.AsyncExitStack()
        found = await stack.enter_async_context(opened)
        self._left.append(stack)
        while len(self._left) > LEFT:
            await self._left.pop(0).aclose()
        return found


def listening(language: str, *, speech: bool = False) -> rooms_pb2.Listening:
    return rooms_pb2.Listening(
        language=language, captions=True, speech=speech, original_audio=speech
    )


def join_message(
    room_id: str, token: str, *, language: str = "es", speech: bool = False, **more: Any
) -> rooms_pb2.ListenerMessage:
    join = rooms_pb2.JoinRoom(
        room_id=room_id, join_token=token, listening=listening(language, speech=speech), **more
    )
    return rooms_pb2.ListenerMessage(join=join)


def join_frame(room_id: str, token: str, *, speech: bool = False) -> bytes:
    listening = {"language": "es", "captions": True, "speech": speech, "originalAudio": speech}
    join = {"roomId": room_id, "joinToken": token, "listening": listening}
    return frame(TEXT, json.dumps({"join": join}).encode())


def speak_message(speaker: session_pb2.RoomSpeaker) -> session_pb2.ClientMessage:
    new = session_pb2.NewSession(room=speaker, audio_format=FORMAT)
    return session_pb2.ClientMessage(open=session_pb2.Open(new=new))


def kind_of(message: Any) -> str:
    """What the first event of a message is; of an error, its reason."""
    if message is grpc.aio.EOF or not message.events:
        return "nothing"
    event = message.events[0]
    kind = str(event.WhichOneof("event"))
    return common_pb2.ErrorReason.Name(event.error.reason) if kind == "error" else kind
