"""What Redis knows of one live session: kept here as well, for a Redis that has lost it."""

import asyncio

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.session.effects import Record
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore
from lingua_scheduler.v1 import session_pb2


class SessionRecord:
    """Writes the record of a session that this gateway has. For what is raised see SessionStore.

    Args:
        store: where it is written.
        session_id: of the session.
        token: proof of ownership.
        opened: what the client asked for.
        opened_ms: when.
        epoch: this gateway's hold on it.
        past: what was before.
        most_cuts: as many as the store keeps.
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
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._token = token
        self._opened = opened
        self._opened_ms = opened_ms
        self._epoch = epoch
        self._cuts = {cut.utterance_index: cut for cut in past.cuts}
        self._next_index = past.next_index
        self._acked_seq = past.next_seq
        self._most_cuts = most_cuts

    def write(self, record: Record, last_chunk_ms: int) -> asyncio.Future[list[bytes]]:
        """Writes cuts down; the reply is for `wrote`. Raises DependencyDownError."""
        return self._store.record(
            session_id=self._session_id,
            epoch=self._epoch,
            cuts=record.cuts,
            first_index=record.first_index,
            acked_seq=record.acked_seq,
            seen=record.seen,
            results=record.results,
            missing=record.missing,
            last_chunk_ms=last_chunk_ms,
        )

    def wrote(self, record: Record, reply: list[bytes]) -> None:
        """Remembers what is written down; raises where the reply says that it is not."""
        self._store.check(self._session_id, reply[0])
        self._acked_seq = record.acked_seq
        for cut in record.cuts:
            self._cuts[cut.utterance_index] = cut
            self._next_index = cut.utterance_index + 1
        first = max(record.first_index, self._next_index - self._most_cuts)
        for index in [index for index in self._cuts if index < first]:
            del self._cuts[index]

    async def write_again(self) -> None:
        """Redis has lost it."""
        await self._store.open(
            session_id=self._session_id,
            token=self._token,
            opened=self._opened,
            epoch=self._epoch,
            opened_ms=self._opened_ms,
            next_index=self._next_index,
            acked_seq=self._acked_seq,
            cuts=list(self._cuts.values()),
        )

    async def leave(self, *, results: int, missing: int, last_chunk_ms: int) -> None:
        """The client has gone, and has seen so many: the session waits to be resumed."""
        try:
            await self._leave(results, missing, last_chunk_ms)
        except errors.SessionNotFoundError:
            await self.write_again()
            await self._leave(results, missing, last_chunk_ms)

    async def _leave(self, results: int, missing: int, last_chunk_ms: int) -> None:
        await self._store.leave(
            session_id=self._session_id,
            epoch=self._epoch,
            seen=results + missing,
            results=results,
            missing=missing,
            last_chunk_ms=last_chunk_ms,
        )

    async def end(self) -> None:
        """The session is over, and forgotten."""
        await self._store.end(session_id=self._session_id, epoch=self._epoch)
