"""The records of sessions in Redis, which all gateways share (decision 11)."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth import quotas
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.cells.quotas import QuotaOverCells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.store.room_basics import (
    due_ms,
    room_kept_ms,
    room_refusal,
)
from lingua_scheduler.v1 import session_pb2, session_record_pb2

# Sessions that one script renews, which takes Redis 1 to 2 ms.
_RENEWED_AT_ONCE = 500
# The answer of a script that has succeeded.
_OK = b"ok"


@dataclass(frozen=True, kw_only=True)
class TakenOverSession:
    """A session as its previous gateway left it; its cuts are in the order of their indexes."""

    epoch: int
    opened: session_pb2.NewSession
    opened_ms: int
    next_index: int
    seen: int
    results: int
    missing: int
    acked_seq: int
    cuts: tuple[session_record_pb2.Cut, ...]


class Renewal(NamedTuple):
    """Extends the lifetime of a session's record."""

    session_id: str
    epoch: int
    # When audio last arrived, in ms since the epoch; 0 if unchanged.
    last_chunk_ms: int = 0


class Spoken(NamedTuple):
    """What a room made of a cut.

    Attributes:
        room_index: -1 for a late repeat of a cut that is no longer needed.
        languages: those that were wanted when it was cut, and whether somebody wants speech.
        original: whether somebody wants the original audio.
    """

    room_index: int
    languages: tuple[tuple[str, bool], ...]
    original: bool


class SessionStore:
    """Reads and writes the records of sessions, each in the cell that its id names.

    A record belongs to the epoch that its gateway got from `open` or `take_over`. Every method
    raises

    - SessionTakenOverError if another gateway has taken the session over since,
    - SessionNotFoundError if the record has expired, Redis has lost it, or its id names a cell
      that does not exist,
    - DependencyDownError if Redis does not answer. The change may have happened; all methods can be
      repeated.
    """

    def __init__(self, *, cells: Cells, settings: Settings) -> None:
        self._cells = cells
        self._quota = QuotaOverCells(cells, "sessions")
        self._ttl_ms = ttl_ms = settings.resume_within_ms
        gateway = settings.instance_id
        self._open_session = script_calls.OpenSession(gateway=gateway, ttl_ms=ttl_ms).call
        self._take_session = script_calls.TakeSession(gateway=gateway, ttl_ms=ttl_ms).call
        self._record_cuts = script_calls.RecordCuts(
            ttl_ms=ttl_ms, keep=settings.result_queue_max
        ).call
        self._record_spoken = script_calls.RecordSpoken(
            ttl_ms=ttl_ms,
            keep=settings.result_queue_max,
            due_ms=due_ms(settings),
            lease_ms=settings.room_lease_ms,
            idle_ms=room_kept_ms(settings),
        ).call
        self._keep_sessions = script_calls.KeepSessions(ttl_ms=ttl_ms).call
        self._leave_session = script_calls.LeaveSession(ttl_ms=ttl_ms).call
        self._end_session = script_calls.EndSession(ttl_ms=ttl_ms).call

    async def open(
        self,
        *,
        session_id: str,
        token: str,
        opened: session_pb2.NewSession,
        epoch: int = 1,
        opened_ms: int = 0,
        next_index: int = 0,
        acked_seq: int = 0,
        cuts: Iterable[session_record_pb2.Cut] = (),
        most_sessions: int = 0,
    ) -> None:
        """Writes the record of a session that this gateway serves.

        Without the five arguments from `epoch` on, the session is new. With them it is a live one
        whose record Redis has lost: the next `record` adds what the client has seen.

        Args:
            session_id: of the session.
            token: with which the client can resume it.
            opened: what the client asked for.
            epoch: of the session at this gateway.
            opened_ms: when it was opened, in ms since the epoch.
            next_index: the index of the next utterance.
            acked_seq: all chunks below are acknowledged.
            cuts: in the order of their indexes.
            most_sessions: how many sessions the tenant may have; 0 for any number.

        Raises:
            QuotaExceededError: the tenant has reached its quota of sessions.
        """
        cell, tenant = self._cell(session_id), opened.tenant
        async with self._quota.elsewhere(tenant, most_sessions, cell) as elsewhere:
            reply = await cell.link.call(
                *self._open_session(
                    session=session_id,
                    epoch=epoch,
                    token=_hashed(token),
                    tenant=tenant,
                    opened=opened.SerializeToString(),
                    opened_ms=opened_ms,
                    next_index=next_index,
                    acked=acked_seq,
                    max_sessions=most_sessions,
                    elsewhere=elsewhere,
                    cuts=_pairs(cuts),
                )
            )
        if reply[0] == quotas.REFUSED:
            raise quotas.quota_error(reply)
        self.check(session_id, reply[0])

    async def take_over(
        self, *, session_id: str, token: str, tenant: str = "", tries: int = 0
    ) -> TakenOverSession:
        """Takes a session over: earlier gateways can no longer change it or create jobs.

        Args:
            session_id: of the session.
            token: which the client got when it opened the session.
            tenant: to which the session must belong; "" for any.
            tries: how often the client has tried to resume since it was last connected.

        Raises:
            SessionNotFoundError: also if the token or the tenant is wrong, with the same message.
            SessionTakenOverError: a later try of the same client has arrived before this one.
        """
        reply = await self._cell(session_id).link.call(
            *self._take_session(
                session=session_id, token=_hashed(token), tenant=tenant, tries=tries
            )
        )
        self.check(session_id, reply[0])
        epoch, opened, opened_ms, next_index, seen, results, missing, acked_seq = reply[1:9]
        return TakenOverSession(
            epoch=epoch,
            opened=session_pb2.NewSession.FromString(opened),
            opened_ms=opened_ms,
            next_index=next_index,
            seen=seen,
            results=results,
            missing=missing,
            acked_seq=acked_seq,
            cuts=tuple(session_record_pb2.Cut.FromString(cut) for cut in reply[10::2]),
        )

    def record(
        self,
        *,
        session_id: str,
        epoch: int,
        cuts: Iterable[session_record_pb2.Cut],
        first_index: int,
        acked_seq: int,
        seen: int,
        results: int,
        missing: int,
        last_chunk_ms: int,
    ) -> asyncio.Future[list[bytes]]:
        """Records cuts, and how many results the client has seen; `cuts` may be empty.

        Cuts below `first_index` are deleted, and so are the lowest if there are more than
        `result_queue_max`. A last_chunk_ms of 0 changes nothing.

        Every utterance passes here, so this is not a coroutine. The future has the reply, whose
        first word is for `check`, or DependencyDownError, which may also be raised at once.
        """
        return self._cell(session_id).link.send(
            *self._record_cuts(
                session=session_id,
                epoch=epoch,
                seen=seen,
                results=results,
                missing=missing,
                last_chunk_ms=last_chunk_ms,
                first=first_index,
                acked=acked_seq,
                cuts=_pairs(cuts),
            )
        )

    def record_spoken(
        self,
        *,
        session_id: str,
        epoch: int,
        cuts: Iterable[session_record_pb2.Cut],
        first_index: int,
        acked_seq: int,
        seen: int,
        results: int,
        missing: int,
        last_chunk_ms: int,
        room_id: str,
        language: str,
        floor: int = 0,
        only: Mapping[int, Iterable[str]] | None = None,
    ) -> asyncio.Future[list[Any]]:
        """As `record`, for a session that speaks to a room: a new cut also gets its room index.

        The reply is for `spoken`. If all cuts are repeats, or there are none, the room may be gone.

        Args:
            session_id: as in `record`, and so are those up to `last_chunk_ms`.
            epoch: of the session at this gateway.
            cuts: may be empty.
            first_index: the first cut that is needed.
            acked_seq: chunks below are safe.
            seen: how many results the client has seen.
            results: how many of the results were no losses.
            missing: how many were.
            last_chunk_ms: 0 if unchanged.
            room_id: of the room.
            language: that is spoken.
            floor: the lowest room index that the next utterance may have.
            only: by utterance index, the languages to which a cut is restricted; others go to all
                that are wanted.
        """
        only = only or {}
        return self._cell(session_id).link.send(
            *self._record_spoken(
                session=session_id,
                epoch=epoch,
                seen=seen,
                results=results,
                missing=missing,
                last_chunk_ms=last_chunk_ms,
                first=first_index,
                acked=acked_seq,
                room=room_id,
                src=language,
                floor=floor,
                cuts=[(index, cut, " ".join(only.get(index, ()))) for index, cut in _pairs(cuts)],
            )
        )

    def spoken(self, session_id: str, room_id: str, reply: Sequence[Any]) -> list[Spoken]:
        """Reads the reply of `record_spoken`: one for each cut, in order.

        Raises:
            SessionTakenOverError: or SessionNotFoundError, as `check`.
            RoomNotFoundError: or RoomClosedError; nothing was changed, also not in the session.
        """
        if reply[0].startswith(b"ROOM_"):
            raise room_refusal(room_id, reply[0])
        self.check(session_id, reply[0])
        return [
            _spoken(index, words) for index, words in zip(reply[1::2], reply[2::2], strict=True)
        ]

    async def renew(
        self, cell: Cell, renewals: Sequence[Renewal]
    ) -> list[errors.LinguaError | None]:
        """Extends the lifetime of many records of a cell.

        Returns for each the error that another method would raise, or None. Raises only
        DependencyDownError.
        """
        parts = [
            renewals[at : at + _RENEWED_AT_ONCE] for at in range(0, len(renewals), _RENEWED_AT_ONCE)
        ]
        replies = await asyncio.gather(
            *(cell.link.call(*self._keep_sessions(sessions=part)) for part in parts)
        )
        words = [word for reply in replies for word in reply]
        return [
            None if word == _OK else self._refusal(session_id, word)
            for (session_id, _, _), word in zip(renewals, words, strict=True)
        ]

    async def leave(
        self,
        *,
        session_id: str,
        epoch: int,
        seen: int,
        results: int,
        missing: int,
        last_chunk_ms: int = 0,
    ) -> None:
        """Marks a session whose stream has ended as free to be resumed.

        A last_chunk_ms of 0 changes nothing.
        """
        reply = await self._cell(session_id).link.call(
            *self._leave_session(
                session=session_id,
                epoch=epoch,
                seen=seen,
                results=results,
                missing=missing,
                last_chunk_ms=last_chunk_ms,
            )
        )
        self.check(session_id, reply[0])

    async def end(self, *, session_id: str, epoch: int) -> None:
        """Deletes the record of a session. It is not an error if there is none."""
        reply = await self._cell(session_id).link.call(
            *self._end_session(session=session_id, epoch=epoch)
        )
        self.check(session_id, reply[0])

    def check(self, session_id: str, word: bytes) -> None:
        """Raises the error that the first word of a script's reply stands for."""
        if word != _OK:
            raise self._refusal(session_id, word)

    def _cell(self, session_id: str) -> Cell:
        try:
            return self._cells.of_session(session_id)
        except errors.InvalidMessageError:
            raise self._refusal(session_id, b"SESSION_NOT_FOUND") from None

    def _refusal(self, session_id: str, word: bytes) -> errors.LinguaError:
        match word:
            case b"SESSION_NOT_FOUND":
                return errors.SessionNotFoundError(
                    f"no session {session_id!r} for this token; it may have ended, or was "
                    f"not resumed within {self._ttl_ms / 1000:g} s",
                    metadata={"session_id": session_id},
                )
            case b"SESSION_TAKEN_OVER":
                return errors.SessionTakenOverError(
                    f"another gateway has taken session {session_id!r} over",
                    metadata={"session_id": session_id},
                )
        return errors.InternalError(f"unexpected reply of a script: {word!r}")


def _hashed(token: str) -> str:
    """The hash of a token: somebody who reads it in Redis cannot resume the session."""
    return hashlib.sha256(token.encode()).hexdigest()


def _pairs(cuts: Iterable[session_record_pb2.Cut]) -> list[tuple[int, bytes]]:
    return [(cut.utterance_index, cut.SerializeToString()) for cut in cuts]


def _spoken(room_index: int, languages: bytes) -> Spoken:
    words = languages.decode().split()
    wanted = [(word.removesuffix("+"), word.endswith("+")) for word in words if word != "*"]
    return Spoken(room_index, tuple(wanted), "*" in words)
