"""People who talk: sessions of the SDK, which write down every word and every event.

Words count up from 2 by 2 within a session, so what comes back can be laid beside what was said;
they are even, since a pause after an odd one would look unfinished to the nodes.
"""

import asyncio
import contextlib
import itertools
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

import aiohttp

from lingua_scheduler.sdk import (
    Accepted,
    Event,
    Finalized,
    Missing,
    PartialText,
    Problem,
    Receipt,
    Reconnecting,
    Result,
    Resumed,
    Retrying,
    SdkError,
    Session,
)
from tests.robustness.history import ClientHistory
from tests.robustness.traffic import WHO
from tests.support.listening_node import WORD_MS, audio_of
from tests.support.raw_client import new_session
from tests.support.records import Record
from tests.support.web_client import web_client

# Words of a sentence; an utterance has 15 at most, so some are cut in the middle.
LENGTHS = (5, 18, 8, 12, 31, 6, 9)


class Talker:
    """One person, who talks at the pace of speech until told to stop."""

    def __init__(
        self, name: str, gateways: str, rng: random.Random, *, partial_interval_ms: int = 0
    ) -> None:
        self.history = ClientHistory(name=name, partial_interval_ms=partial_interval_ms)
        self._gateways = gateways
        self._rng = rng
        self._enough = asyncio.Event()
        self._word = 0
        self.pause_s = (0.0, 0.0)
        """Between two sentences, drawn each time."""

    def stop(self) -> None:
        """Breaks off; that ends the sentence."""
        self._enough.set()

    async def talk(self) -> None:
        """From opening the session to its last result; whatever happens is written down."""
        hearing: asyncio.Task[None] | None = None
        try:
            async with self.session() as session:
                self.history.session = session.session_id
                hearing = asyncio.create_task(self._hear(session))
                await self._speak(session)
        except SdkError as error:
            self.history.lost = str(error)
        finally:
            if hearing is not None:
                with contextlib.suppress(SdkError):
                    await hearing

    def session(self) -> Session:
        """In which to talk."""
        return Session(
            self._gateways,
            src="en",
            tgt="es",
            partial_interval_ms=self.history.partial_interval_ms,
            features={WHO: uuid.uuid4().hex},
        )

    async def _speak(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        first = self._rng.randrange(len(LENGTHS))
        due = loop.time() + self._rng.random()
        for length in itertools.islice(itertools.cycle(LENGTHS), first, None):
            for _ in range(length):
                await asyncio.sleep(due - loop.time())
                due = max(due, loop.time() - 1.0) + WORD_MS / 1000
                self._word += 2
                self.history.said.append((time.monotonic(), self._word))
                await session.send(audio_of(self._word))
                if self._enough.is_set():
                    break
            await session.finish()
            if self.pause_s[1]:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), self._rng.uniform(*self.pause_s))
                due = max(due, loop.time())
            if self._enough.is_set():
                return

    async def _hear(self, session: Session) -> None:
        async for event in session.events():
            self.history.events.append({"t": time.monotonic(), **as_record(event)})


class _Vanished(Exception):  # noqa: N818 - not an error
    """Leaving a session by an exception drops its connection at once."""


async def vanish(gateways: str, rng: random.Random, after: float) -> None:
    """Opens a session after so many seconds, says a few words, and is gone without Close."""
    await asyncio.sleep(after)
    with contextlib.suppress(_Vanished, SdkError):
        async with Session(gateways, src="en", tgt="es") as session:
            for word in range(2, 2 * rng.randint(2, 20), 2):
                await session.send(audio_of(word))
            if rng.random() < 0.5:
                await session.finish()
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            raise _Vanished


async def vanish_from_web(gateways: Sequence[str], rng: random.Random, after: float) -> None:
    """The same over a WebSocket: no close frame is sent either."""
    await asyncio.sleep(after)
    new = new_session("en", "es")
    with contextlib.suppress(AssertionError, aiohttp.ClientError, OSError):
        async with web_client(rng.choice(gateways)) as web:
            await web.open(new)
            words = rng.randint(2, 20)
            for seq in range(words):
                is_final = seq == words - 1 and rng.random() < 0.5
                await web.chunk(seq, audio_of(2 * seq + 2), final=is_final)
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            web.cut()


def as_record(event: Event) -> Record:
    """An event of the SDK as a plain fact."""
    match event:
        case Receipt():
            return {
                "what": "receipt",
                "index": event.index,
                "room_index": event.room_index,
                "delivered": list(event.delivered),
                "missing": [(each.language, each.reason, each.message) for each in event.missing],
            }
        case Result():
            return {
                "what": "result",
                "index": event.index,
                "kind": event.kind.name,
                "words": event.texts.source.split(),
                "joined": list(event.joined),
                "lost": list(event.lost),
                "node": event.node_id,
                "attempts": event.attempts,
            }
        case Missing():
            more: dict[str, Any] = {"reason": event.reason, "message": event.message}
            return {"what": "missing", "index": event.index, **more}
        case PartialText():
            return {"what": "partial", "index": event.index}
        case Finalized():
            more = {"reason": event.reason.name, "audio_ms": event.audio_ms}
            return {"what": "finalized", "index": event.index, **more}
        case Accepted():
            more = {"node": event.node_id, "attempt": event.attempt}
            return {"what": "accepted", "index": event.index, **more}
        case Retrying():
            more = {"reason": event.reason, "message": event.message}
            return {"what": "retrying", "index": event.index, **more}
        case Problem():
            return {"what": "problem", "reason": event.reason, "message": event.message}
        case Reconnecting():
            return {"what": "reconnecting", "why": event.why}
        case Resumed():
            return {"what": "resumed", "away": event.away, "again": event.chunks_again}
        case _:
            return {"what": type(event).__name__.lower()}
