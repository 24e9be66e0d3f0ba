"""Sessions in Redis, as gateways write them down for each other (decision 11)."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth import quotas
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import session_pb2, session_record_pb2

# Sessions that one script renews: 1 to 2 ms of Redis.
_KEPT_AT_ONCE = 500
# What a script answers where it has done what it was asked.
_OK = b"ok"


@dataclass(frozen=True, kw_only=True)
class TakenSession:
    """A session as its last gateway left it; `cuts` have rising indexes."""

    epoch: int
    opened: session_pb2.NewSession
    opened_ms: int
    next_index: int
    seen: int
    results: int
    missing: int
    acked_seq: int
    cuts: tuple[session_record_pb2.Cut, ...]


class KeptSession(NamedTuple):
    """A session whose record is renewed."""

    session_id: str
    epoch: int
    # Time at which audio last came; 0: as the record has it.
    last_chunk_ms: int = 0


class SessionStore:
    """Reads and writes the records of sessions.

    A record belongs to the epoch that its gateway got from `open` or `take`. Every method raises

    - SessionTakenOverError where another gateway has taken the session since: let go of it,
    - SessionNotFoundError where the record is gone: its time was over, or Redis has lost it,
    - DependencyDownError where Redis does not answer: it may have happened, and may be repeated.
    """

    def __init__(self, *, link: RedisLink, settings: Settings) -> None:
        self._link = link
        self._gateway = settings.instance_id
        self._ttl_ms = settings.resume_within_ms
        self._keep = settings.result_queue_max

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
        """Writes the record of a session that this gateway has.

        Without the five arguments from `epoch` on it is a new one. With them it is a live one whose
        record Redis has lost: what the client has seen comes back with the next `record`.

        most_sessions: how many its tenant may have; 0: any number.

        Raises:
            QuotaExceededError: the tenant has as many sessions as it may.
        """
        reply = await self._link.call(
            "open_session",
            session_id,
            epoch,
            _hashed(token),
            self._gateway,
            opened.tenant,
            opened.SerializeToString(),
            opened_ms,
            next_index,
            acked_seq,
            self._ttl_ms,
            most_sessions,
            *_pairs(cuts),
        )
        if reply[0] == quotas.REFUSED:
            raise quotas.quota_error(reply)
        self.check(session_id, reply[0])

    async def take(
        self, *, session_id: str, token: str, tenant: str = "", tries: int = 0
    ) -> TakenSession:
        """Takes a session over: from now on no older gateway can change it, nor create jobs.

        SessionNotFoundError is raised for a wrong token as well, with the same words, and for a
        session of another tenant than the one that is named, if any. SessionTakenOverError: a later
        try of the same client has come before this one.
        """
        reply = await self._link.call(
            "take_session",
            session_id,
            _hashed(token),
            self._gateway,
            self._ttl_ms,
            tenant,
            tries,
        )
        self.check(session_id, reply[0])
        epoch, opened, opened_ms, next_index, seen, results, missing, acked_seq = reply[1:9]
        return TakenSession(
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
        """Writes down cuts, and how far the client has got; with no cut only the latter.

        Cuts below `first_index` are forgotten, and so are the lowest where there are more than
        `result_queue_max`. A last_chunk_ms of 0 changes nothing.

        Every utterance comes by here, so this is no coroutine: the future has the reply, whose
        first word is for `check`, or DependencyDownError, which may as well be raised at once.
        """
        return self._link.send(
            "record_cuts",
            session_id,
            epoch,
            self._ttl_ms,
            seen,
            results,
            missing,
            last_chunk_ms,
            first_index,
            acked_seq,
            self._keep,
            *_pairs(cuts),
        )

    async def keep(self, sessions: Sequence[KeptSession]) -> list[errors.LinguaError | None]:
        """Renews the lifetime of many sessions.

        Returns for each what another method would raise, or None. Raises DependencyDownError only.
        """
        parts = [sessions[at : at + _KEPT_AT_ONCE] for at in range(0, len(sessions), _KEPT_AT_ONCE)]
        replies = await asyncio.gather(
            *(
                self._link.call(
                    "keep_sessions", self._ttl_ms, *(word for session in part for word in session)
                )
                for part in parts
            )
        )
        words = [word for reply in replies for word in reply]
        return [
            None if word == _OK else self._refusal(session_id, word)
            for (session_id, _, _), word in zip(sessions, words, strict=True)
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
        """The client's stream has ended: from now on the session waits to be taken.

        A last_chunk_ms of 0 changes nothing.
        """
        reply = await self._link.call(
            "leave_session",
            session_id,
            epoch,
            self._ttl_ms,
            seen,
            results,
            missing,
            last_chunk_ms,
        )
        self.check(session_id, reply[0])

    async def end(self, *, session_id: str, epoch: int) -> None:
        """Forgets a session. One that is gone already is no error."""
        reply = await self._link.call("end_session", session_id, epoch, self._ttl_ms)
        self.check(session_id, reply[0])

    def check(self, session_id: str, word: bytes) -> None:
        """Raises what the first word of a script's reply says."""
        if word != _OK:
            raise self._refusal(session_id, word)

    def _refusal(self, session_id: str, word: bytes) -> errors.LinguaError:
        match word:
            case b"SESSION_NOT_FOUND":
                return errors.SessionNotFoundError(
                    f"no session {session_id!r} that this token opens; it may have ended, or was "
                    f"not resumed within {self._ttl_ms / 1000:g} s",
                    metadata={"session_id": session_id},
                )
            case b"SESSION_TAKEN_OVER":
                return errors.SessionTakenOverError(
                    f"another gateway has taken session {session_id!r} over",
                    metadata={"session_id": session_id},
                )
        return errors.InternalError(f"a script answered {word!r}, which nobody expects")


def _hashed(token: str) -> str:
    """What Redis knows of a token: who reads it there can resume nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def _pairs(cuts: Iterable[session_record_pb2.Cut]) -> list[int | bytes]:
    return [word for cut in cuts for word in (cut.utterance_index, cut.SerializeToString())]
