"""Somebody who speaks to a room, without a session: outcomes are put into Redis by hand."""

import contextlib
import itertools
from collections.abc import AsyncIterator

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id, id_in_cell
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore, Spoken
from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    rooms_pb2,
    session_pb2,
    session_record_pb2,
)
from tests.support.audio import FORMAT
from tests.support.cells import cell_settings, open_cells

SPOKEN = "en"


class RoomVoice:
    """Speaks English. `say` cuts an utterance, `put` is its outcome in one language."""

    def __init__(self, cells: Cells, settings: Settings, room_id: str) -> None:
        self.rooms = RoomStore(cells=cells, settings=settings)
        self.room_id = room_id
        self._sessions = SessionStore(cells=cells, settings=settings)
        self._session_id = id_in_cell(f"voice-{room_id}", cell_of_id(room_id))
        self._cuts = itertools.count()

    async def open(self) -> None:
        """Begins to speak."""
        room = session_pb2.RoomSpeaker(room_id=self.room_id, language=SPOKEN)
        opened = session_pb2.NewSession(room=room, tenant="t")
        await self._sessions.open(session_id=self._session_id, token="x", opened=opened)

    async def cut(self) -> Spoken:
        """An utterance is cut; the room says what is wanted."""
        at = next(self._cuts)
        cut = session_record_pb2.Cut(
            utterance_index=at, direction=common_pb2.LanguagePair(src=SPOKEN)
        )
        reply = await self._sessions.record_spoken(
            session_id=self._session_id,
            epoch=1,
            cuts=[cut],
            first_index=at,
            acked_seq=0,
            seen=at,
            results=0,
            missing=0,
            last_chunk_ms=0,
            room_id=self.room_id,
            language=SPOKEN,
        )
        (spoken,) = self._sessions.spoken(self._session_id, self.room_id, reply)
        return spoken

    async def put(
        self,
        index: int,
        language: str,
        *,
        text: str = "",
        speech: bytes = b"",
        original: bytes = b"",
    ) -> None:
        """The outcome of an utterance in one language."""
        result = rooms_pb2.RoomResult(
            room_index=index,
            language=language,
            spoken_language=SPOKEN,
            session_id=self._session_id,
            speaker="Ana",
            kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
            texts=dispatcher_pb2.Texts(translated=text or f"{language} {index}"),
            speech_format=FORMAT if speech else None,
            original_format=FORMAT if original else None,
        )
        word = await self.rooms.put(
            room_id=self.room_id,
            language=language,
            index=index,
            event=rooms_pb2.RoomEvent(result=result).SerializeToString(),
            speech=speech,
            original=original,
        )
        assert word in (b"published", b"waiting"), word

    async def say(self, *, audio: bytes = b"") -> int:
        """An utterance with an outcome in every language that is wanted; returns its index.

        Args:
            audio: the speech in each language, and the speaker's own.
        """
        spoken = await self.cut()
        for language, _ in spoken.languages:
            await self.put(spoken.room_index, language, speech=audio, original=audio)
        return spoken.room_index


@contextlib.asynccontextmanager
async def room_voice(
    redis_url: str, prefix: str, room_id: str, **settings: int
) -> AsyncIterator[RoomVoice]:
    """Somebody who speaks to a room, at a gateway with these settings."""
    own = cell_settings(redis_url, prefix, instance_id="voice", **settings)
    async with open_cells(own) as cells:
        voice = RoomVoice(cells, own, room_id)
        await voice.open()
        yield voice
