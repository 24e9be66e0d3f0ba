"""Rooms: some speak, others listen, come, go, and change their language; all is written down."""

import asyncio
import contextlib
import random
import time
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lingua_scheduler.sdk import Room, SdkError, Session
from tests.robustness.history import History, RoomHistory
from tests.robustness.traffic import ROOM, ROOM_LANGUAGES, WHO
from tests.robustness.traffic.client import Talker
from tests.robustness.traffic.room_listener import RoomListener, SdkListener
from tests.robustness.traffic.room_web_listener import WebListener
from tests.robustness.validate.rooms.delivery import delivered_is_heard

# How long those who stay may take to join, and after the last word to hear everything.
JOINED_S = 20.0
HEARD_S = 20.0
# And to be told that the room is closed.
CLOSED_S = 20.0
# Between two sentences: each is a job for each language, and conversations need slots as well.
PAUSE_S = (0.5, 1.5)
# Between two acts of somebody restless.
ACT_S = (0.8, 3.0)
# How long somebody who left is away.
AWAY_S = (0.3, 1.5)

STAYS, CHANGES, COMES_BACK, DROPS = "stays", "changes", "comes back", "drops"


@dataclass(frozen=True)
class Part:
    """One who listens.

    Attributes:
        does: what it does beside listening.
        language: that it listens to at first; "": any.
        web: whether over a WebSocket, by hand.
        wants: beside captions.
    """

    does: str
    language: str = ""
    web: bool = False
    wants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cast:
    """Who is in a room: the languages of those who speak, and those who listen."""

    speak: tuple[str, ...]
    listen: tuple[Part, ...]


CASTS = (
    Cast(
        ("en",),
        (
            Part(STAYS, "it", wants=("speech",)),
            Part(STAYS, "it", web=True),
            Part(STAYS, "de", wants=("original",)),
            Part(STAYS, "de", web=True, wants=("speech", "original")),
            Part(CHANGES),
            Part(CHANGES, web=True),
            Part(COMES_BACK),
            Part(DROPS, "it", web=True, wants=("speech",)),
        ),
    ),
    Cast(
        ("en", "it"),
        (
            Part(STAYS, "fr", web=True),
            Part(STAYS, "fr"),
            Part(STAYS, "en", wants=("speech",)),
            Part(CHANGES, "it"),
            Part(COMES_BACK, web=True),
            Part(DROPS, "fr", web=True),
        ),
    ),
)


class RoomTalker(Talker):
    """One who speaks to a room."""

    def __init__(self, name: str, room: Room, language: str, who: str, rng: random.Random) -> None:
        super().__init__(name, "", rng)
        self.pause_s = PAUSE_S
        self._room = room
        self._language = language
        self._who = who

    def session(self) -> Session:
        """Speaks to the room."""
        features = {WHO: self._who, ROOM: "yes"}
        return self._room.speak(language=self._language, name=self.history.name, features=features)


class LiveRoom:
    """A room from its creation to its end.

    Args:
        gateways: addresses for the SDK.
        web: addresses of web entries.

    Attributes:
        history: complete when `run` has returned.
    """

    def __init__(
        self, name: str, cast: Cast, gateways: str, web: Sequence[str], rng: random.Random
    ) -> None:
        self.history = RoomHistory(name=name)
        self._cast = cast
        self._gateways = gateways
        self._web = web
        self._rng = rng
        self._enough = asyncio.Event()
        self._talkers: list[RoomTalker] = []
        self._listeners: list[RoomListener] = []
        self._stays: list[asyncio.Task[None]] = []
        self._token = ""

    def stop(self) -> None:
        """Those who speak break off; the room closes when all has been heard."""
        self._enough.set()
        for each in self._talkers:
            each.stop()

    async def run(self) -> None:
        """From its creation to its end; whatever happens is written down."""
        try:
            room = await Room.create(self._gateways, name=self.history.name, timeout=JOINED_S)
            await self._gather(room)
        except SdkError as error:
            self.history.lost = str(error)
        except Exception:
            # A mistake of the suite, or somebody who never joined.
            self.history.lost = f"BROKE: {traceback.format_exc()}"
        finally:
            for stay in self._stays:
                stay.cancel()
            await asyncio.gather(*self._stays, return_exceptions=True)

    def is_heard(self, after: float) -> bool:
        """Whether all who speak and all who stay have had something since then, or are lost."""
        talkers = [each.history for each in self._talkers]
        for talker in talkers:
            came = any(each["what"] == "receipt" and each["t"] > after for each in talker.events)
            if not (came or talker.lost):
                return False
        staying = [
            each
            for each, part in zip(self._listeners, self._cast.listen, strict=False)
            if part.does == STAYS
        ]
        for listener in staying:
            outcomes = listener.history.outcomes()
            if not (listener.history.lost or (outcomes and outcomes[-1]["t"] > after)):
                return False
        return bool(talkers)

    # ---- what happens in it ----

    async def _gather(self, room: Room) -> None:
        self._token = await room.join_token("listener")
        restless = []
        for number, part in enumerate(self._cast.listen):
            listener = self._come(number, part, room.room_id)
            if part.does != STAYS:
                restless.append((number, part, listener))
        async with asyncio.timeout(JOINED_S):
            for each in self._listeners:
                await each.has_joined.wait()
        async with asyncio.TaskGroup() as tasks:
            talking = [tasks.create_task(self._talk(room, at)) for at in range(self._speakers)]
            acting = [
                tasks.create_task(self._act(number, part, listener, room.room_id))
                for number, part, listener in restless
            ]
            await asyncio.wait(talking)
            self._enough.set()
            await asyncio.wait(acting)
        await self._all_heard()
        await self._close(room)

    @property
    def _speakers(self) -> int:
        return len(self._cast.speak)

    async def _talk(self, room: Room, at: int) -> None:
        who = uuid.uuid4().hex
        name = f"{self.history.name} speaker-{at}"
        rng = random.Random(self._rng.random())
        token = await room.join_token("speaker")
        own = Room(self._gateways, room_id=room.room_id, token=token)
        talker = RoomTalker(name, own, self._cast.speak[at], who, rng)
        self._talkers.append(talker)
        self.history.speakers.append(talker.history)
        self.history.who[name] = who
        if self._enough.is_set():
            talker.stop()
        await talker.talk()

    def _come(self, number: int, part: Part, room_id: str) -> RoomListener:
        """Somebody joins."""
        name = f"{self.history.name} listener-{number}"
        stays = sum(each.history.name.startswith(name) for each in self._listeners)
        name += f" again-{stays}" if stays else ""
        language = part.language or self._rng.choice(ROOM_LANGUAGES)
        wants = ("captions", *part.wants)
        listener: RoomListener
        if part.web:
            join = {"roomId": room_id, "joinToken": self._token, "name": name}
            rng = random.Random(self._rng.random())
            listener = WebListener(name, self._web, join, language, wants, rng)
        else:
            guest = Room(self._gateways, room_id=room_id, token=self._token)
            listener = SdkListener(name, guest, language, wants)
        self._listeners.append(listener)
        self.history.listeners.append(listener.history)
        self._stays.append(asyncio.create_task(listener.stay()))
        return listener

    async def _act(self, number: int, part: Part, listener: RoomListener, room_id: str) -> None:
        """Does what the part says, again and again, until it is enough."""
        while not await self._pause(ACT_S) and not listener.history.lost:
            if part.does == CHANGES:
                others = [each for each in ROOM_LANGUAGES if each != listener.language]
                await listener.change(self._rng.choice(others))
            elif part.does == COMES_BACK:
                await listener.leave()
                await self._pause(AWAY_S)
                listener = self._come(number, part, room_id)
                await listener.has_joined.wait()
            elif isinstance(listener, WebListener):
                listener.drop()

    async def _pause(self, between: tuple[float, float]) -> bool:
        """Waits for a while; whether it is enough by then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._enough.wait(), self._rng.uniform(*between))
        return self._enough.is_set()

    async def _all_heard(self) -> None:
        """Returns when all who are there have heard all, or it takes too long."""
        deadline = time.monotonic() + HEARD_S
        this = History(name="", seed=0, rooms=[self.history])
        while time.monotonic() < deadline:
            if not any(delivered_is_heard(this)):
                return
            await asyncio.sleep(0.1)

    async def _close(self, room: Room) -> None:
        await room.close()
        staying = [each for each in self._stays if not each.done()]
        if staying:
            await asyncio.wait(staying, timeout=CLOSED_S)
        for listener, stay in zip(self._listeners, self._stays, strict=True):
            if not stay.done():
                listener.history.lost = f"STUCK: not told of the end within {CLOSED_S:.0f} s"
