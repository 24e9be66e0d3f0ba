"""A hostile member of rooms, and a stranger to them, as a process of its own.

It has a room of its own, with a listener's token like any guest; rooms of honest people it knows by
their ids. Over the web entry it comes from an address of its own.
"""

import asyncio
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2, session_pb2_grpc
from tests.robustness.traffic.hostile_acts import REFUSED, Act, Records, run_acts, run_program
from tests.robustness.traffic.hostile_web import SOURCE, BreachError
from tests.support.audio import FORMAT
from tests.support.listening_node import audio_of
from tests.support.raw_http import TEXT, RawConnection, frame, handshake, raw_connection, request

TENANT = "hostile"
ANSWER_S = 3.0
# Of one act.
JOINS = 60
CHANGES = 1000
ROOMS = 60
WEB_ROOMS = 20
# Streams that stay open when their act is over; the oldest give way to new ones.
LEFT = 60
# A token is accepted for so long after it has expired, since clocks differ.
LEEWAY_S = 35.0
# More than a room may have.
LANGUAGES = [f"q{a}{b}" for a in "ab" for b in "abcdefghijklmn"]

_CODES = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


class HostileRoom:
    """Its acts.

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
        self._expired = ""
        self._expires = 0.0
        self._left: list[contextlib.AsyncExitStack] = []

    def acts(self) -> dict[str, Act]:
        """All of them by name."""
        return {
            "tokens that are not right": self.wrong_tokens,
            "an expired token": self.expired_token,
            "a guest who acts as the host": self.act_as_host,
            "ids of other members": self.others,
            "a flood of joins": self.flood_of_joins,
            "a flood of changes": self.flood_of_changes,
            "a flood of rooms": self.flood_of_rooms,
            "huge names": self.huge_names,
            "too many languages": self.many_languages,
            "listeners that never read": self.never_read,
            "listeners that only connect": self.only_connect,
            "web: listeners that only connect": self.only_connect_web,
            "web: tokens that are not right": self.wrong_tokens_web,
            "web: listeners that never read": self.never_read_web,
            "web: requests": self.web_requests,
        }

    # ---- without the right to ----

    async def wrong_tokens(self) -> str:
        """No token but a room's own opens it, for anything."""
        own = await self._room()
        rooms = [own.room.room_id, *await self._honest_rooms()]
        refused: Counter[str] = Counter()
        for room_id in rooms:
            for token in await self._wrong(room_id):
                for name, attempt in self._attempts(room_id, token).items():
                    refused[await self._refused(f"{name} of {room_id}", attempt)] += 1
        return f"{dict(refused)}"

    async def expired_token(self) -> str:
        """A token whose time is over."""
        own = await self._room()
        if not self._expired:
            self._expired = await self._token(lifetime_s=1)
            self._expires = time.monotonic() + 1 + LEEWAY_S
        if time.monotonic() < self._expires:
            return "not yet"
        for name, attempt in self._attempts(own.room.room_id, self._expired).items():
            await self._refused(f"{name} with an expired token", attempt)
        return "refused"

    async def act_as_host(self) -> None:
        """A guest may not speak, invite others, see who is there, or close the room."""
        own, token = await self._room(), await self._token()
        allowed = ("listen", "get")
        for name, attempt in self._attempts(own.room.room_id, token).items():
            if name not in allowed:
                await self._refused(f"{name} as a guest", attempt)

    async def others(self) -> str:
        """A guest cannot take the place of somebody else, not even of the one who speaks."""
        own, token = await self._room(), await self._token()
        room_id = own.room.room_id
        async with self._speaker(own) as (speaker, session_id):
            for member_id in (session_id, "no-such-member", session_id.upper()):
                async with self._stream("Listen") as listener:
                    with contextlib.suppress(*REFUSED):
                        await listener.write(_join(room_id, token, member_id=member_id, position=0))
                        await asyncio.wait_for(listener.read(), ANSWER_S)
            await self._say(speaker, 2)
            named = await self._speakers(own)
            if named is not None and session_id not in named:
                raise BreachError("a guest has taken the place of the one who speaks")
        return "the speaker is still there"

    # ---- floods ----

    async def flood_of_joins(self) -> None:
        """Many join at once, and are gone without a word."""
        own, token = await self._room(), await self._token()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(JOINS):
                stream = await stack.enter_async_context(self._stream("Listen"))
                with contextlib.suppress(*REFUSED):
                    await stream.write(_join(own.room.room_id, token))

    async def flood_of_changes(self) -> None:
        """One changes its language as often as it can."""
        own, token = await self._room(), await self._token()
        async with self._stream("Listen") as stream:
            await stream.write(_join(own.room.room_id, token))
            for number in range(CHANGES):
                language = LANGUAGES[number % 3]
                change = rooms_pb2.ChangeListening(listening=_listening(language))
                await asyncio.wait_for(
                    stream.write(rooms_pb2.ListenerMessage(change=change)), ANSWER_S
                )

    async def flood_of_rooms(self) -> str:
        """Rooms that nobody joins, as large as they may be."""
        options = rooms_pb2.RoomOptions(
            name="字" * 100, languages=LANGUAGES * 2, max_members=1_000_000, max_languages=1000
        )
        created: Counter[str] = Counter()
        for _ in range(ROOMS):
            asked = rooms_pb2.CreateRoomRequest(options=options, tenant=TENANT)
            created[await self._code(self._stub().CreateRoom, asked)] += 1
        return f"{dict(created)}"

    async def huge_names(self) -> str:
        """Names that are as long as they may be, and longer."""
        own, token = await self._room(), await self._token()
        told = []
        for name in ("字" * 64, "\U0001f600" * 64, "x" * 65, "x" * 1_000_000, "\n" * 64, "\0" * 10):
            async with self._stream("Listen") as stream:
                with contextlib.suppress(*REFUSED):
                    await stream.write(_join(own.room.room_id, token, name=name))
                    message = await asyncio.wait_for(stream.read(), ANSWER_S)
                    told.append(_kind(message))
        return f"{told}"

    async def many_languages(self) -> str:
        """More languages than a room may have."""
        own, token = await self._room(), await self._token()
        told: Counter[str] = Counter()
        async with contextlib.AsyncExitStack() as stack:
            for language in LANGUAGES:
                stream = await stack.enter_async_context(self._stream("Listen"))
                with contextlib.suppress(*REFUSED):
                    await stream.write(_join(own.room.room_id, token, language=language))
                    told[_kind(await asyncio.wait_for(stream.read(), ANSWER_S))] += 1
        return f"{dict(told)}"

    # ---- listeners that do nothing ----

    async def never_read(self) -> None:
        """They want all audio, and read nothing of it."""
        own, token = await self._room(), await self._token()
        for _ in range(5):
            stream = await self._leave(self._stream("Listen"))
            await stream.write(_join(own.room.room_id, token, language="es", speech=True))
        async with self._speaker(own) as (speaker, _):
            for seq in range(3):
                await self._say(speaker, 2, seq)

    async def only_connect(self) -> None:
        """Streams without a word on them."""
        for _ in range(20):
            await self._leave(self._stream("Listen"))

    async def only_connect_web(self) -> None:
        """WebSockets without a word on them."""
        for _ in range(10):
            await self._leave(self._socket())

    async def never_read_web(self) -> None:
        """As never_read, over WebSockets."""
        own, token = await self._room(), await self._token()
        for _ in range(5):
            peer = await self._leave(self._socket())
            await peer.send(_join_frame(own.room.room_id, token, speech=True))
            peer.stop_reading()
        async with self._speaker(own) as (speaker, _):
            for seq in range(3):
                await self._say(speaker, 2, seq)

    # ---- the web entry ----

    async def wrong_tokens_web(self) -> None:
        """Also over a WebSocket, no other token opens a room."""
        own = await self._room()
        for room_id in [own.room.room_id, *await self._honest_rooms()]:
            for token in await self._wrong(room_id):
                async with self._socket() as peer:
                    await peer.send(_join_frame(room_id, token))
                    _, content = await peer.next_frame(ANSWER_S)
                    if b'"joined"' in content:
                        raise BreachError(f"{room_id} was joined with {token!r}")

    async def web_requests(self) -> str:
        """Calls with tokens that are not right; rooms made in numbers."""
        own = await self._room()
        statuses: Counter[int] = Counter()
        wrong = self._rng.choice(await self._wrong(own.room.room_id))
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("token", {"hostToken": wrong, "role": "ROOM_ROLE_SPEAKER"}),
            ("members", {"token": wrong}),
            ("get", {"token": wrong}),
            ("close", {"hostToken": wrong}),
        ]
        for call, body in bodies:
            status = await self._post(call, {"roomId": own.room.room_id, **body})
            if status == 200:
                raise BreachError(f"{call} was answered with {wrong!r}")
            statuses[status] += 1
        for _ in range(WEB_ROOMS):
            statuses[await self._post("create", {"tenant": TENANT})] += 1
        return f"{dict(statuses)}"

    async def _post(self, call: str, body: dict[str, Any]) -> int:
        address, data = self._rng.choice(self._web), json.dumps(body).encode()
        async with raw_connection(address, source=SOURCE) as peer:
            headers = {"Content_Type": "application/json", "Content_Length": str(len(data))}
            await peer.send(request(address, f"/v1/rooms/{call}", "POST", **headers) + data)
            status = await peer.status(ANSWER_S)
        if status == 500:
            raise BreachError(f"{call} was answered with 500")
        return status

    # ---- rooms and tokens ----

    async def _room(self) -> rooms_pb2.CreateRoomResponse:
        """Its own; made again if it is gone, as all else is that an empty Redis does not know."""
        if self._own is not None:
            asked = rooms_pb2.GetRoomRequest(
                room_id=self._own.room.room_id, token=self._own.host_token
            )
            if await self._code(self._stub().GetRoom, asked) != "NOT_FOUND":
                return self._own
        wanted = rooms_pb2.CreateRoomRequest(tenant=TENANT)
        self._own = await self._stub().CreateRoom(wanted, timeout=ANSWER_S)
        self._expired = ""
        return self._own

    async def _token(self, lifetime_s: int = 0) -> str:
        """A guest's token of its own room."""
        own = await self._room()
        asked = rooms_pb2.CreateJoinTokenRequest(
            room_id=own.room.room_id,
            host_token=own.host_token,
            role=rooms_pb2.ROOM_ROLE_LISTENER,
            lifetime_s=lifetime_s,
        )
        made = await self._stub().CreateJoinToken(asked, timeout=ANSWER_S)
        return str(made.join_token)

    async def _honest_rooms(self) -> list[str]:
        """Without auth, anybody may list rooms."""
        listed = await self._stub().ListRooms(rooms_pb2.ListRoomsRequest(), timeout=ANSWER_S)
        others = [each.room_id for each in listed.rooms if each.tenant != TENANT]
        return self._rng.sample(others, min(2, len(others)))

    async def _wrong(self, room_id: str) -> list[str]:
        """Tokens that are not right for a room."""
        own, guest = await self._room(), await self._token()
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

    def _attempts(self, room_id: str, token: str) -> dict[str, Callable[[], Any]]:
        """All that a token may open."""
        stub = self._stub()
        speaker = session_pb2.RoomSpeaker(room_id=room_id, join_token=token, language="en")
        invite = rooms_pb2.CreateJoinTokenRequest(
            room_id=room_id, host_token=token, role=rooms_pb2.ROOM_ROLE_SPEAKER
        )
        # With no token at all, and without auth, everybody is an operator.
        calls: dict[str, Callable[[], Any]] = {
            "listen": lambda: self._first("Listen", _join(room_id, token)),
            "speak": lambda: self._first("Converse", _speak(speaker)),
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

    async def _refused(self, what: str, attempt: Callable[[], Any]) -> str:
        """An attempt that must fail; returns how."""
        try:
            answer = await attempt()
        except grpc.aio.AioRpcError as error:
            if error.code() in _CODES:
                raise BreachError(f"{what}: {error.code()}") from None
            return str(error.code().name)
        if isinstance(answer, rooms_pb2.RoomMessage | session_pb2.ServerMessage):
            kind = _kind(answer)
            if kind not in ("joined", "opened"):
                return kind
        raise BreachError(f"{what} succeeded")

    async def _first(self, method: str, message: Any) -> Any:
        """The first answer on a stream."""
        async with self._stream(method) as stream:
            await stream.write(message)
            answer = await asyncio.wait_for(stream.read(), ANSWER_S)
            if answer is grpc.aio.EOF:
                await stream
            return answer

    # ---- small things ----

    def _stub(self) -> Any:
        return session_pb2_grpc.SessionGatewayStub(self._channels[self._rng.choice(self._gateways)])

    async def _code(self, method: Callable[..., Any], asked: Any) -> str:
        call = method(asked, timeout=ANSWER_S)
        return str((await call.code()).name)

    @contextlib.asynccontextmanager
    async def _stream(self, method: str) -> AsyncIterator[Any]:
        stream = getattr(self._stub(), method)()
        try:
            yield stream
        finally:
            stream.cancel()

    @contextlib.asynccontextmanager
    async def _speaker(self, own: rooms_pb2.CreateRoomResponse) -> AsyncIterator[tuple[Any, str]]:
        """A session that speaks to its own room."""
        speaker = session_pb2.RoomSpeaker(
            room_id=own.room.room_id, join_token=own.host_token, language="en"
        )
        async with self._stream("Converse") as stream:
            await stream.write(_speak(speaker))
            message = await asyncio.wait_for(stream.read(), ANSWER_S)
            assert _kind(message) == "opened", message
            yield stream, message.events[0].opened.session_id

    async def _say(self, speaker: Any, word: int, seq: int = 0) -> None:
        chunk = session_pb2.AudioChunk(seq=seq, data=audio_of(word), is_final=True)
        await speaker.write(session_pb2.ClientMessage(audio=chunk))

    async def _speakers(self, own: rooms_pb2.CreateRoomResponse) -> set[str] | None:
        """Who speaks in its room; None if nobody answers."""
        asked = rooms_pb2.GetRoomRequest(room_id=own.room.room_id, token=own.host_token)
        with contextlib.suppress(grpc.aio.AioRpcError):
            found = await self._stub().GetRoom(asked, timeout=ANSWER_S)
            return {each.session_id for each in found.room.speakers}
        return None

    @contextlib.asynccontextmanager
    async def _socket(self) -> AsyncIterator[RawConnection]:
        address = self._rng.choice(self._web)
        async with raw_connection(address, source=SOURCE) as peer:
            await peer.send(handshake(address, path="/v1/listen"))
            assert await peer.status(ANSWER_S) == 101
            yield peer

    async def _leave(self, opened: contextlib.AbstractAsyncContextManager[Any]) -> Any:
        """A stream that stays open after its act, until there are too many of them."""
        stack = contextlib.AsyncExitStack()
        found = await stack.enter_async_context(opened)
        self._left.append(stack)
        while len(self._left) > LEFT:
            await self._left.pop(0).aclose()
        return found


def _listening(language: str, *, speech: bool = False) -> rooms_pb2.Listening:
    return rooms_pb2.Listening(
        language=language, captions=True, speech=speech, original_audio=speech
    )


def _join(
    room_id: str, token: str, *, language: str = "es", speech: bool = False, **more: Any
) -> rooms_pb2.ListenerMessage:
    join = rooms_pb2.JoinRoom(
        room_id=room_id, join_token=token, listening=_listening(language, speech=speech), **more
    )
    return rooms_pb2.ListenerMessage(join=join)


def _join_frame(room_id: str, token: str, *, speech: bool = False) -> bytes:
    listening = {"language": "es", "captions": True, "speech": speech, "originalAudio": speech}
    join = {"roomId": room_id, "joinToken": token, "listening": listening}
    return frame(TEXT, json.dumps({"join": join}).encode())


def _speak(speaker: session_pb2.RoomSpeaker) -> session_pb2.ClientMessage:
    new = session_pb2.NewSession(room=speaker, audio_format=FORMAT)
    return session_pb2.ClientMessage(open=session_pb2.Open(new=new))


def _kind(message: Any) -> str:
    """What the first event of a message is; of an error, its reason."""
    if message is grpc.aio.EOF or not message.events:
        return "nothing"
    event = message.events[0]
    kind = str(event.WhichOneof("event"))
    return common_pb2.ErrorReason.Name(event.error.reason) if kind == "error" else kind


async def _run(rng: random.Random, records: Records) -> None:
    given = os.environ
    peer = HostileRoom(given["HOSTILE_GATEWAYS"].split(","), given["HOSTILE_WEB"].split(","), rng)
    await run_acts(peer.acts(), rng, records)


def main() -> None:
    """Runs until it is told to end."""
    run_program(_run)
