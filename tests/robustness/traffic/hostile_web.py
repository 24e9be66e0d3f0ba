"""A hostile peer of the web entries, as a process of its own.

It comes from an address of its own (all of 127.0.0.0/8 is this machine), so limits by address are
its limits and not those of honest people.
"""

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

from tests.robustness.traffic.hostile_acts import Act, Records, run_acts, run_program
from tests.support.listening_node import audio_of
from tests.support.raw_client import new_session
from tests.support.raw_http import (
    BINARY,
    CLOSE,
    TEXT,
    RawConnection,
    frame,
    handshake,
    raw_connection,
    raw_socket,
    request,
)
from tests.support.web_attacks import (
    BAD_FRAMES,
    BAD_FRAMES_LATER,
    FLOODS,
    HANDSHAKES,
    NOT_HTTP,
    flood,
    large_frames,
    noise,
    open_frame,
)
from tests.support.web_client import audio_frame

SOURCE = "127.0.0.66"
TENANT = "hostile"
ANSWER_S = 2.0
FLOOD_S = 0.7
# More than one address may have.
CONNECTIONS = 300
SLOW = 40
# Connections that are left open when their act is over; the oldest give way to new ones.
LEFT = 120
# What only a bug answers.
INTERNAL = (500, 1011)


class BreachError(Exception):
    """A gateway did what it must not do, whatever else is wrong with the world."""


class HostileWeb:
    """Its acts.

    Args:
        gateways: addresses of web entries.
    """

    def __init__(self, gateways: list[str], rng: random.Random) -> None:
        self._gateways = gateways
        self._rng = rng
        self._left: list[contextlib.AsyncExitStack] = []

    def acts(self) -> dict[str, Act]:
        """All of them by name."""
        named: dict[str, Act] = {
            "bad first frames": self.bad_first_frames,
            "bad frames in a session": self.bad_frames_later,
            "frames in any order": self.any_order,
            "noise": self.noise,
            "large frames": self.large,
            "requests of other pages": self.wrong_handshakes,
            "requests behind a refused upgrade": self.smuggle,
            "what is not HTTP": self.not_http,
            "slow requests": self.slow_requests,
            "half-open sockets": self.half_open,
            "too many connections": self.many,
            "sessions opened and dropped": self.drop_sessions,
            "a client that does not read": self.do_not_read,
        }
        for kind in FLOODS:
            named[f"flood of {kind}"] = partial(self.flood, kind)
        return named

    # ---- frames ----

    async def bad_first_frames(self) -> str:
        """Each ends the connection with a code, and with no other than it should."""
        codes = []
        for name in self._rng.sample(sorted(BAD_FRAMES), 5):
            data, expected = BAD_FRAMES[name]
            async with self._socket() as peer:
                await peer.send(data)
                code = await self._code(peer)
                # Otherwise Redis or the gateway is away.
                if code not in (0, expected, 1001, 1013):
                    raise BreachError(f"{name}: closed with {code}")
                codes.append(code)
        return f"{codes}"

    async def bad_frames_later(self) -> str:
        """The same in sessions that are open."""
        codes = []
        for name in self._rng.sample(sorted(BAD_FRAMES_LATER), 3):
            async with self._session() as peer:
                await peer.send(BAD_FRAMES_LATER[name])
                codes.append(await self._code(peer))
        return f"{codes}"

    async def any_order(self) -> str:
        """Frames that are each well made, and make no sense in the order in which they come."""
        frames = [
            self._open(),
            frame(TEXT, b'{"open": {"resume": {"sessionId": "x", "resumeToken": "y"}}}'),
            frame(TEXT, b'{"close": {}}'),
            frame(TEXT, b'{"resultsSeen": 4294967295}'),
            frame(TEXT, b'{"playbackStarted": {}}'),
            frame(TEXT, b'{"playbackEnded": {}}'),
            frame(TEXT, b"{}"),
            *(frame(BINARY, audio_frame(seq, audio_of(2))) for seq in (0, 1, 2, 1000, 2**63)),
            frame(BINARY, audio_frame(3, final=True)),
        ]
        codes = []
        for _ in range(5):
            async with self._socket() as peer:
                if self._rng.random() < 0.6:
                    await peer.send(self._open())
                for data in self._rng.choices(frames, k=8):
                    await peer.send(data)
                with contextlib.suppress(TimeoutError):
                    codes.append(await self._code(peer, within=0.3))
        return f"{codes}"

    async def noise(self) -> None:
        """Bytes of any kind, on several connections at once."""

        async def disturb() -> None:
            async with self._connection() as peer:
                await peer.send(handshake(self._address()))
                await self._status(peer)
                if self._rng.random() < 0.7:
                    await peer.send(self._open())
                for _ in range(self._rng.randrange(1, 6)):
                    await peer.send(noise(self._rng))
                with contextlib.suppress(TimeoutError):
                    await self._code(peer, within=0.3)

        await asyncio.gather(*(disturb() for _ in range(5)))

    async def large(self) -> str:
        """Frames that are too large, each before and after a session is open."""
        codes = []
        for frames in large_frames().values():
            async with self._socket() as peer:
                if self._rng.random() < 0.5:
                    await peer.send(self._open())
                for data in frames:
                    await peer.send(data)
                codes.append(await self._code(peer))
        return f"{codes}"

    async def flood(self, kind: str) -> None:
        """Sends as fast as the gateway takes it."""
        async with self._session() as peer:
            await flood(peer, kind, FLOOD_S)

    # ---- requests ----

    async def wrong_handshakes(self) -> str:
        """Of pages that may not use the entry, or that are no handshakes: none becomes a socket."""
        statuses = []
        for headers, _ in self._rng.sample(HANDSHAKES, 8):
            address = self._address()
            async with self._connection(address) as peer:
                await peer.send(handshake(address, **headers))
                status = await self._status(peer)
                if status == 101:
                    raise BreachError(f"a WebSocket was opened with {headers}")
                statuses.append(status)
        return f"{statuses}"

    async def smuggle(self) -> None:
        """A second request behind one whose upgrade is refused must not be answered."""
        address = self._address()
        for headers in ({"Sec_WebSocket_Version": "12"}, {"Content_Length": "5"}, {"Upgrade": ""}):
            async with self._connection(address) as peer:
                refused = handshake(address, **headers)
                await peer.send(refused + request(address, "/v1/languages"))
                await self._status(peer)
                rest = await asyncio.wait_for(peer.reader.read(100_000), ANSWER_S)
                if b"HTTP/1.1" in rest:
                    raise BreachError(f"a request behind {headers} was answered")

    async def not_http(self) -> str:
        """Other protocols, and requests beyond the limits."""
        statuses = []
        for data in self._rng.sample(NOT_HTTP, 5):
            async with self._connection() as peer:
                await peer.send(data)
                with contextlib.suppress(TimeoutError):
                    statuses.append(await self._status(peer, within=0.3))
        return f"{statuses}"

    # ---- places ----

    async def slow_requests(self) -> None:
        """Requests that come byte by byte, and are never complete."""
        address = self._address()
        peers = [await self._leave(self._connection(address)) for _ in range(SLOW)]
        for byte in request(address)[:20]:
            for peer in peers:
                await peer.send(bytes([byte]))
            await asyncio.sleep(0.05)

    async def half_open(self) -> None:
        """Sessions whose clients have vanished without a word: pings are not answered."""
        for _ in range(5):
            peer = await self._leave(self._session())
            await peer.send(frame(BINARY, audio_frame(0, audio_of(2), final=True)))
            peer.stop_reading()

    async def many(self) -> str:
        """More connections than one address may have; the rest of them are refused."""
        address = self._address()
        statuses: Counter[int] = Counter()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(CONNECTIONS):
                await stack.enter_async_context(self._connection(address))
            for _ in range(5):
                peer = await stack.enter_async_context(self._connection(address))
                await peer.send(handshake(address))
                statuses[await self._status(peer)] += 1
        if statuses[101]:
            raise BreachError(f"{CONNECTIONS} connections of one address were served")
        return f"{dict(statuses)}"

    # ---- sessions ----

    async def drop_sessions(self) -> None:
        """Connections that end as soon as a session is asked for."""
        for _ in range(20):
            async with self._socket() as peer:
                await peer.send(self._open())

    async def do_not_read(self) -> None:
        """Speaks, and reads nothing of what it is told."""
        async with self._session(partial_interval_ms=1) as peer:
            peer.stop_reading()
            await peer.send(frame(BINARY, audio_frame(0, audio_of(2), final=True)))
            for _ in range(500):
                await peer.send(frame(TEXT, b'{"resultsSeen": 1000000}'))

    # ---- small things ----

    def _address(self) -> str:
        return self._rng.choice(self._gateways)

    def _connection(
        self, address: str = ""
    ) -> contextlib.AbstractAsyncContextManager[RawConnection]:
        return raw_connection(address or self._address(), source=SOURCE)

    def _socket(self) -> contextlib.AbstractAsyncContextManager[RawConnection]:
        return raw_socket(self._address(), source=SOURCE)

    @contextlib.asynccontextmanager
    async def _session(self, **options: int) -> AsyncIterator[RawConnection]:
        """A session inside the block."""
        async with self._socket() as peer:
            await peer.send(self._open(**options))
            opened = await peer.next_frame(ANSWER_S)
            assert b'"opened"' in opened[1], opened
            yield peer

    def _open(self, **options: int) -> bytes:
        new = new_session("en", "es", tenant=TENANT)
        for name, value in options.items():
            setattr(new.options, name, value)
        return open_frame(new)

    async def _leave(
        self, connection: contextlib.AbstractAsyncContextManager[RawConnection]
    ) -> RawConnection:
        """A connection that stays open after its act, until there are too many of them."""
        stack = contextlib.AsyncExitStack()
        peer = await stack.enter_async_context(connection)
        self._left.append(stack)
        while len(self._left) > LEFT:
            await self._left.pop(0).aclose()
        return peer

    async def _code(self, peer: RawConnection, within: float = ANSWER_S) -> int:
        """Of the close frame, which is not answered; 0 if the connection ends without one."""
        async with asyncio.timeout(within):
            opcode, content = await peer.next_frame()
            while opcode not in (CLOSE, -1):
                opcode, content = await peer.next_frame()
        code = int.from_bytes(content[:2], "big")
        if code in INTERNAL:
            raise BreachError(f"closed with {code}")
        return code

    async def _status(self, peer: RawConnection, within: float = ANSWER_S) -> int:
        status = await peer.status(within)
        if status in INTERNAL:
            raise BreachError(f"answered with {status}")
        return status


async def _run(rng: random.Random, records: Records) -> None:
    peer = HostileWeb(os.environ["HOSTILE_WEB"].split(","), rng)
    await run_acts(peer.acts(), rng, records)


def main() -> None:
    """Runs until it is told to end."""
    run_program(_run)
