"""A synchronous driver for the scripts of sessions, on the clock that tests move."""

from collections.abc import Mapping
from typing import NamedTuple

import redis

from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import Scripts, clocked_scripts

TTL_MS = 300_000
KEEP = 200
TOKEN = "token-of-s"

OK, NOT_FOUND, TAKEN_OVER = "ok", "SESSION_NOT_FOUND", "SESSION_TAKEN_OVER"

# Counts the words of every command that a script gives, and the values that it gets back.
_COUNTING = """
local real = redis
local redis = { sha1hex = real.sha1hex, call = function(...)
  local reply = real.call(...)
  local size = select('#', ...) + (type(reply) == 'table' and #reply or 0)
  real.call('INCRBY', KEYS[1] .. ':test:words', size)
  return reply
end }
"""


class Taken(NamedTuple):
    """A session as its next gateway gets it."""

    epoch: int
    opened: bytes
    opened_ms: int
    next_index: int
    seen: int
    results: int
    missing: int
    acked: int
    cuts: dict[int, bytes]


def cut(index: int) -> bytes:
    """What is kept of an utterance; not text, as protobuf is not."""
    return b"\x00\xffcut %d" % index


class SessionScripts(Scripts):
    """The scripts of sessions; where nothing is said it is about session s, which g1 has."""

    def open_session(
        self,
        session: str = "s",
        *,
        epoch: int = 1,
        token: str = TOKEN,
        gateway: str = "g1",
        opened_ms: int = 0,
        next_index: int = 0,
        acked: int = 0,
        cuts: Mapping[int, bytes] | None = None,
        tenant: str = "t1",
        most: int = 0,
        elsewhere: int = 0,
    ) -> str:
        """Writes a record."""
        reply = self.call(
            *script_calls.OpenSession(gateway=gateway, ttl_ms=TTL_MS).call(
                session=session,
                epoch=epoch,
                token=token,
                tenant=tenant,
                opened=b"\x00opened\xff",
                opened_ms=opened_ms,
                next_index=next_index,
                acked=acked,
                max_sessions=most,
                elsewhere=elsewhere,
                cuts=(cuts or {}).items(),
            )
        )
        return str(reply[0].decode())

    def take(
        self,
        session: str = "s",
        *,
        token: str = TOKEN,
        gateway: str = "g2",
        tenant: str = "",
        tries: int = 0,
    ) -> Taken | str:
        """Takes a session over; the word where it is refused."""
        take = script_calls.TakeSession(gateway=gateway, ttl_ms=TTL_MS)
        reply = self.call(*take.call(session=session, token=token, tenant=tenant, tries=tries))
        if reply[0] != b"ok":
            assert len(reply) == 1
            return str(reply[0].decode())
        assert list(reply[9::2]) == sorted(reply[9::2])
        return Taken(*reply[1:9], dict(zip(reply[9::2], reply[10::2], strict=True)))

    def taken(self, session: str = "s", *, gateway: str = "g2") -> Taken:
        """A take-over that must succeed."""
        answer = self.take(session, gateway=gateway)
        assert isinstance(answer, Taken), answer
        return answer

    def record(
        self,
        *indexes: int,
        session: str = "s",
        epoch: int = 1,
        seen: int = 0,
        results: int = 0,
        missing: int = 0,
        last_chunk_ms: int = 0,
        first: int | None = None,
        acked: int = 0,
        keep: int = KEEP,
    ) -> str:
        """Writes down the cuts of these indexes. What was seen is not needed, unless told so."""
        return self._word(
            script_calls.RecordCuts(ttl_ms=TTL_MS, keep=keep).call(
                session=session,
                epoch=epoch,
                seen=seen,
                results=results,
                missing=missing,
                last_chunk_ms=last_chunk_ms,
                first=seen if first is None else first,
                acked=acked,
                cuts=[(index, cut(index)) for index in indexes],
            )
        )

    def keep(self, *sessions: tuple[str, int], last_chunk_ms: int = 0) -> list[str]:
        """Renews sessions, each with its epoch."""
        call = script_calls.KeepSessions(ttl_ms=TTL_MS).call(
            sessions=[(session, epoch, last_chunk_ms) for session, epoch in sessions]
        )
        return [word.decode() for word in self.call(*call)]

    def leave(
        self,
        session: str = "s",
        *,
        epoch: int = 1,
        seen: int = 0,
        results: int = 0,
        missing: int = 0,
        last_chunk_ms: int = 0,
    ) -> str:
        """The client's stream has ended."""
        return self._word(
            script_calls.LeaveSession(ttl_ms=TTL_MS).call(
                session=session,
                epoch=epoch,
                seen=seen,
                results=results,
                missing=missing,
                last_chunk_ms=last_chunk_ms,
            )
        )

    def end(self, session: str = "s", *, epoch: int = 1) -> str:
        """Forgets a session."""
        return self._word(script_calls.EndSession(ttl_ms=TTL_MS).call(session=session, epoch=epoch))

    def fields(self, session: str = "s") -> dict[str, bytes]:
        """The record of a session, its cuts left out."""
        return {name: value for name, value in self._all(session).items() if ":" not in name}

    def cuts(self, session: str = "s") -> dict[int, bytes]:
        """The cuts that are kept of a session."""
        found = self._all(session).items()
        return {int(name[4:]): value for name, value in found if name.startswith("cut:")}

    def expires_ms(self, session: str = "s") -> int:
        """How long the record stays."""
        ends = self.client.zscore(self.key("test", "expires"), self.key("session", session))
        assert ends is not None, f"{session} has no lifetime"
        return int(ends) - self.now

    def listed(self) -> dict[str, int]:
        """The entries of the set of all sessions, those that have expired included."""
        found = self.client.zrange(self.key("sessions"), 0, -1, withscores=True)
        return {name.decode(): int(ends) for name, ends in found}

    def words(self) -> int:
        """The words that scripts have exchanged with Redis since the last question."""
        return int(self.client.getdel(self.key("test", "words")) or 0)

    def _all(self, session: str) -> dict[str, bytes]:
        found = self.client.hgetall(self.key("session", session))
        return {name.decode(): value for name, value in found.items()}

    def _word(self, call: script_calls.Call) -> str:
        (word,) = self.call(*call)
        return str(word.decode())


def counting_scripts(client: redis.Redis, prefix: str) -> SessionScripts:
    """The same, with `words`."""
    sources = {name: _COUNTING + source for name, source in clocked_scripts().items()}
    return SessionScripts(client, prefix, sources=sources)
