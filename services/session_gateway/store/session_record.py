"""The record of one live session in Redis, with a copy to restore it if Redis loses it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.session.effects import Record
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.speaking.room_jobs import Place
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore, Spoken
from lingua_scheduler.v1 import session_pb2, session_record_pb2

# Called with the error if a write has failed, and in a room with the places of the cuts.
Done = Callable[[errors.LinguaError | None, Sequence[Place]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenTo:
    """The room that a session speaks to.

    Attributes:
        room_id: of the room.
        language: that is spoken.
        floor: returns the lowest room index that the next utterance may have.
        raise_floor: called when that is known to be higher.
    """

    room_id: str
    language: str
    floor: Callable[[], int]
    raise_floor: Callable[[int], None] = lambda _: None

    def place(self, cut: session_record_pb2.Cut, spoken: Spoken) -> Place:
        """The place of a cut, which is added to the cut unless it has one."""
        # Redis may lose the room in the next moment, and must not give this index to another cut.
        self.raise_floor(spoken.room_index + 1)
        if not cut.HasField("room_index") and spoken.room_index >= 0:
            cut.room_index = spoken.room_index
            del cut.languages[:]
            for language, speech in spoken.languages:
                cut.languages.add(language=language, speech=speech)
        return Place(
            cut.utterance_index,
            spoken.room_index,
            dict(spoken.languages),
            spoken.original,
            frozenset(each.language for each in cut.languages if each.is_held or each.is_missing),
        )


class SessionRecord:
    """Writes the record of a session that this gateway serves. SessionStore lists the errors.

    Args:
        store: where it is written.
        session_id: of the session.
        token: with which the client can resume it.
        opened: what the client asked for.
        opened_ms: when, in ms since the epoch.
        epoch: of the session at this gateway.
        past: what happened before this gateway served it.
        most_cuts: how many cuts the store keeps.
        room: that it speaks to; None if it is in none.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        session_id: str,
        token: str,
        opened: session_pb2.NewSession,
        opened_ms: int,
        epoch: int,
        past: Past,
        most_cuts: int,
        room: SpokenTo | None = None,
    ) -> None:
        self.session_id = session_id
        self.opened = opened
        self.epoch = epoch
        self.past = past
        self.room = room
        self._store = store
        self._token = token
        self._opened_ms = opened_ms
        self._most_cuts = most_cuts
        self._cuts = {cut.utterance_index: cut for cut in past.cuts}
        self._next_index = past.next_index
        self._acked_seq = past.next_seq
        self._writing: asyncio.Future[Any] | None = None

    # ---- cuts ----

    def write(self, record: Record, last_chunk_ms: int, done: Done) -> None:
        """Starts to write cuts. If Redis has lost the record, it is restored first.

        One write has to be done before the next begins.

        Args:
            record: the cuts.
            last_chunk_ms: when audio last arrived, in ms since the epoch; 0 if unchanged.
            done: called later, on the event loop.
        """
        try:
            self._writing = self._send(record, last_chunk_ms)
        except errors.DependencyDownError as error:
            asyncio.get_running_loop().call_soon(done, error, ())
        else:
            self._writing.add_done_callback(partial(self._on_reply, record, last_chunk_ms, done))

    def cancel(self) -> None:
        """Cancels a write that is not done."""
        if self._writing is not None:
            self._writing.cancel()

    def _send(self, record: Record, last_chunk_ms: int) -> asyncio.Future[list[Any]]:
        call: Callable[..., asyncio.Future[list[Any]]] = self._store.record
        if self.room is not None:
            call = partial(
                self._store.record_spoken,
                room_id=self.room.room_id,
                language=self.room.language,
                floor=self.room.floor(),
                only={
                    cut.utterance_index: [each.language for each in cut.languages]
                    for cut in record.cuts
                    if cut.languages and not cut.HasField("room_index")
                },
            )
        return call(
            session_id=self.session_id,
            epoch=self.epoch,
            cuts=record.cuts,
            first_index=record.first_index,
            acked_seq=record.acked_seq,
            seen=record.seen,
            results=record.results,
            missing=record.missing,
            last_chunk_ms=last_chunk_ms,
        )

    def _on_reply(
        self, record: Record, last_chunk_ms: int, done: Done, reply: asyncio.Future[list[Any]]
    ) -> None:
        if reply.cancelled():
            return
        try:
            places = self._written(record, reply.result())
        except errors.SessionNotFoundError:
            rewriting = self._restore_and_write(record, last_chunk_ms, done)
            self._writing = asyncio.get_running_loop().create_task(rewriting)
        except errors.LinguaError as error:
            done(error, ())
        else:
            done(None, places)

    async def _restore_and_write(self, record: Record, last_chunk_ms: int, done: Done) -> None:
        try:
            await self.restore()
            places = self._written(record, await self._send(record, last_chunk_ms))
        except errors.LinguaError as error:
            done(error, ())
        else:
            done(None, places)

    def _written(self, record: Record, reply: list[Any]) -> list[Place]:
        """Copies cuts that are written. Raises what the reply says if they are not."""
        places: list[Place] = []
        if self.room is None:
            self._store.check(self.session_id, reply[0])
        else:
            spoken = self._store.spoken(self.session_id, self.room.room_id, reply)
            places = list(map(self.room.place, record.cuts, spoken))
        self._acked_seq = record.acked_seq
        for cut in record.cuts:
            self._cuts[cut.utterance_index] = cut
            self._next_index = cut.utterance_index + 1
        first = max(record.first_index, self._next_index - self._most_cuts)
        for index in [index for index in self._cuts if index < first]:
            del self._cuts[index]
        return places

    # ---- the whole record ----

    async def restore(self) -> None:
        """Writes the whole record again, because Redis has lost it."""
        await self._store.open(
            session_id=self.session_id,
            token=self._token,
            opened=self.opened,
            epoch=self.epoch,
            opened_ms=self._opened_ms,
            next_index=self._next_index,
            acked_seq=self._acked_seq,
            cuts=list(self._cuts.values()),
        )

    async def leave(self, *, results: int, missing: int, last_chunk_ms: int) -> None:
        """Marks the session as left by its client, which has seen so many: it can be resumed."""
        try:
            await self._leave(results, missing, last_chunk_ms)
        except errors.SessionNotFoundError:
            await self.restore()
            await self._leave(results, missing, last_chunk_ms)

    async def _leave(self, results: int, missing: int, last_chunk_ms: int) -> None:
        await self._store.leave(
            session_id=self.session_id,
            epoch=self.epoch,
            seen=results + missing,
            results=results,
            missing=missing,
            last_chunk_ms=last_chunk_ms,
        )

    async def end(self) -> None:
        """Deletes the record of a session that is complete."""
        await self._store.end(session_id=self.session_id, epoch=self.epoch)
