"""What a live session says to its room."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore
from lingua_scheduler.services.session_gateway.session.effects import Publish
from lingua_scheduler.services.session_gateway.session.speaking.lane import Speaker
from lingua_scheduler.services.session_gateway.store.room_basics import room_refusal
from lingua_scheduler.services.session_gateway.store.session_record import SessionRecord
from lingua_scheduler.v1 import session_pb2

# Called with the error if an outcome could not be put.
Done = Callable[[errors.LinguaError | None], None]


class RoomSpeech:
    """Puts the outcomes of one session into its room.

    Args:
        record: of the session, which speaks to a room.
        store: of rooms.
    """

    def __init__(self, *, record: SessionRecord, store: RoomStore) -> None:
        room = record.opened.room
        self._store = store
        self.room_id = room.room_id
        """The room."""
        self.speaker = Speaker(record.session_id, room.name, room.language)
        """Who speaks, as listeners see it."""
        self.opened = session_pb2.NewSession()
        """What the session asks of its jobs: a job makes speech, unless nobody wants to hear it."""
        self.opened.CopyFrom(record.opened)
        self.opened.options.require_tts = True
        self.lanes: dict[str, str] = {}
        """The language of each job whose outcome the room does not have."""

    def publish(self, effect: Publish, cut_at_ms: int, done: Done) -> None:
        """Puts an outcome; `done` is called later.

        Args:
            effect: the outcome.
            cut_at_ms: when the utterance was cut, in ms since the epoch.
            done: called on the event loop.
        """
        event, result = effect.event, effect.event.result
        if event.HasField("result"):
            result.cut_at_ms, result.published_ms = cut_at_ms, int(time.time() * 1000)
        told = result if event.HasField("result") else event.missing
        try:
            put = self._store.put(
                room_id=self.room_id,
                language=effect.lane,
                index=told.room_index,
                event=event.SerializeToString(),
                speech=effect.speech,
                original=effect.original,
            )
        except errors.DependencyDownError as error:
            asyncio.get_running_loop().call_soon(done, error)
        else:
            put.add_done_callback(partial(self._on_reply, done))

    def _on_reply(self, done: Done, reply: asyncio.Future[bytes]) -> None:
        if reply.cancelled():
            return
        error = reply.exception()
        if error is not None:
            if not isinstance(error, errors.LinguaError):
                raise error
            done(error)
        elif reply.result().startswith(b"ROOM_"):
            done(room_refusal(self.room_id, reply.result()))
        else:
            done(None)
