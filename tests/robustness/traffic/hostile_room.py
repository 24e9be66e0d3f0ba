"""A hostile member of rooms, and a stranger to them, as a process of its own.

It has a room of its own, with a listener's token like any guest; rooms of honest people it knows by
their ids. Over the web entry it comes from an address of its own.
"""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from typing import Any

from lingua_scheduler.v1 import rooms_pb2
from tests.robustness.traffic.hostile_acts import REFUSED, Act, Records, run_acts, run_program
from tests.robustness.traffic.hostile_room_peer import (
    ANSWER_S,
    TENANT,
    RoomPeer,
    join_frame,
    join_message,
    kind_of,
    listening,
)
from tests.robustness.traffic.hostile_web import BreachError

# Of one act.
JOINS = 60
CHANGES = 1000
ROOMS = 60
WEB_ROOMS = 20
# A token is accepted for so long after it has expired, since clocks differ.
LEEWAY_S = 35.0
# More than a room may have.
LANGUAGES = [f"q{a}{b}" for a in "ab" for b in "abcdefghijklmn"]


class HostileRoom:
    """Its acts.

    Args:
        gateways, web: addresses of gateways, and of their web entries.
    """

    def __init__(self, gateways: list[str], web: list[str], rng: random.Random) -> None:
        self._peer = RoomPeer(gateways, web, rng)
        self._rng = rng
        self._expired = ""
        self._expires = 0.0

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
        own = await self._peer.room()
        rooms = [own.room.room_id, *await self._peer.honest_rooms()]
        refused: Counter[str] = Counter()
        for room_id in rooms:
            for token in await self._peer.wrong(room_id):
                for name, attempt in self._peer.attempts(room_id, token).items():
                    refused[await self._peer.refused(f"{name} of {room_id}", attempt)] += 1
        return f"{dict(refused)}"

    async def expired_token(self) -> str:
        """A token whose time is over."""
        own = await self._peer.room()
        if not self._expired:
            self._expired = await self._peer.token(lifetime_s=1)
            self._expires = time.monotonic() + 1 + LEEWAY_S
        if time.monotonic() < self._expires:
            return "not yet"
        for name, attempt in self._peer.attempts(own.room.room_id, self._expired).items():
            await self._peer.refused(f"{name} with an expired token", attempt)
        return "refused"

    async def act_as_host(self) -> None:
        """A guest may not speak, invite others, see who is there, or close the room."""
        own, token = await self._peer.room(), await self._peer.token()
        allowed = ("listen", "get")
        for name, attempt in self._peer.attempts(own.room.room_id, token).items():
            if name not in allowed:
                await self._peer.refused(f"{name} as a guest", attempt)

    async def others(self) -> str:
        """A guest cannot take the place of somebody else, not even of the one who speaks."""
        own, token = await self._peer.room(), await self._peer.token()
        room_id = own.room.room_id
        async with self._peer.speaker(own) as (speaker, session_id):
            for member_id in (session_id, "no-such-member", session_id.upper()):
                async with self._peer.stream("Listen") as listener:
                    with contextlib.suppress(*REFUSED):
                        await listener.write(
                            join_message(room_id, token, member_id=member_id, position=0)
                        )
                        await asyncio.wait_for(listener.read(), ANSWER_S)
            await self._peer.say(speaker, 2)
            named = await self._peer.speakers(own)
            if named is not None and session_id not in named:
                raise BreachError("a guest has taken the place of the one who speaks")
        return "the speaker is still there"

    # ---- floods ----

    async def flood_of_joins(self) -> None:
        """Many join at once, and are gone without a word."""
        own, token = await self._peer.room(), await self._peer.token()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(JOINS):
                stream = await stack.enter_async_context(self._peer.stream("Listen"))
                with contextlib.suppress(*REFUSED):
                    await stream.write(join_message(own.room.room_id, token))

    async def flood_of_changes(self) -> None:
        """One changes its language as often as it can."""
        own, token = await self._peer.room(), await self._peer.token()
        async with self._peer.stream("Listen") as stream:
            await stream.write(join_message(own.room.room_id, token))
            for number in range(CHANGES):
                language = LANGUAGES[number % 3]
                change = rooms_pb2.ChangeListening(listening=listening(language))
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
            created[await self._peer.code(self._peer.stub().CreateRoom, asked)] += 1
        return f"{dict(created)}"

    async def huge_names(self) -> str:
        """Names that are as long as they may be, and longer."""
        own, token = await self._peer.room(), await self._peer.token()
        told = []
        for name in ("字" * 64, "\U0001f600" * 64, "x" * 65, "x" * 1_000_000, "\n" * 64, "\0" * 10):
            async with self._peer.stream("Listen") as stream:
                with contextlib.suppress(*REFUSED):
                    await stream.write(join_message(own.room.room_id, token, name=name))
                    message = await asyncio.wait_for(stream.read(), ANSWER_S)
                    told.append(kind_of(message))
        return f"{told}"

    async def many_languages(self) -> str:
        """More languages than a room may have."""
        own, token = await self._peer.room(), await self._peer.token()
        told: Counter[str] = Counter()
        async with contextlib.AsyncExitStack() as stack:
            for language in LANGUAGES:
                stream = await stack.enter_async_context(self._peer.stream("Listen"))
                with contextlib.suppress(*REFUSED):
                    await stream.write(join_message(own.room.room_id, token, language=language))
                    told[kind_of(await asyncio.wait_for(stream.read(), ANSWER_S))] += 1
        return f"{dict(told)}"

    # ---- listeners that do nothing ----

    async def never_read(self) -> None:
        """They want all audio, and read nothing of it."""
        own, token = await self._peer.room(), await self._peer.token()
        for _ in range(5):
            stream = await self._peer.leave(self._peer.stream("Listen"))
            await stream.write(join_message(own.room.room_id, token, language="es", speech=True))
        async with self._peer.speaker(own) as (speaker, _):
            for seq in range(3):
                await self._peer.say(speaker, 2, seq)

    async def only_connect(self) -> None:
        """Streams without a word on them."""
        for _ in range(20):
            await self._peer.leave(self._peer.stream("Listen"))

    async def only_connect_web(self) -> None:
        """WebSockets without a word on them."""
        for _ in range(10):
            await self._peer.leave(self._peer.socket())

    async def never_read_web(self) -> None:
        """As never_read, over WebSockets."""
        own, token = await self._peer.room(), await self._peer.token()
        for _ in range(5):
            peer = await self._peer.leave(self._peer.socket())
            await peer.send(join_frame(own.room.room_id, token, speech=True))
            peer.stop_reading()
        async with self._peer.speaker(own) as (speaker, _):
            for seq in range(3):
                await self._peer.say(speaker, 2, seq)

    # ---- the web entry ----

    async def wrong_tokens_web(self) -> None:
        """Also over a WebSocket, no other token opens a room."""
        own = await self._peer.room()
        for room_id in [own.room.room_id, *await self._peer.honest_rooms()]:
            for token in await self._peer.wrong(room_id):
                async with self._peer.socket() as peer:
                    await peer.send(join_frame(room_id, token))
                    _, content = await peer.next_frame(ANSWER_S)
                    if b'"joined"' in content:
                        raise BreachError(f"{room_id} was joined with {token!r}")

    async def web_requests(self) -> str:
        """Calls with tokens that are not right; rooms made in numbers."""
        own = await self._peer.room()
        statuses: Counter[int] = Counter()
        # Without auth, a call with no token at all is that of an operator.
        wrong = self._rng.choice(
            [each for each in await self._peer.wrong(own.room.room_id) if each]
        )
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("token", {"hostToken": wrong, "role": "ROOM_ROLE_SPEAKER"}),
            ("members", {"token": wrong}),
            ("get", {"token": wrong}),
            ("close", {"hostToken": wrong}),
        ]
        for call, body in bodies:
            status = await self._peer.post(call, {"roomId": own.room.room_id, **body})
            if status == 200:
                raise BreachError(f"{call} was answered with {wrong!r}")
            statuses[status] += 1
        for _ in range(WEB_ROOMS):
            statuses[await self._peer.post("create", {"tenant": TENANT})] += 1
        return f"{dict(statuses)}"


async def _run(rng: random.Random, records: Records) -> None:
    given = os.environ
    peer = HostileRoom(given["HOSTILE_GATEWAYS"].split(","), given["HOSTILE_WEB"].split(","), rng)
    await run_acts(peer.acts(), rng, records)


def main() -> None:
    """Runs until it is told to end."""
    run_program(_run)
