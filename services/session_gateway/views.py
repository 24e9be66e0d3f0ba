"""Sessions as operators see them, from the record that every gateway shares."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from lingua_scheduler.services.runtime.errors import SessionNotFoundError
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.record_pages import (
    ids_of_keys,
    ids_of_members,
    read_page,
)
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, session_pb2

_CUT = b"cut:"
# The fields of a record that a view shows. All else (what the client asked for, the cuts) may be
# long, and stays in Redis; of the cuts their names say enough.
_FIELDS = (
    *("token", "tenant", "gateway", "epoch", "opened_ms", "last_chunk_ms"),
    *("next", "seen", "results", "missing"),
)


class SessionViews:
    """Reads session records. Every method raises DependencyDownError."""

    def __init__(self, *, link: RedisLink, settings: Settings) -> None:
        self._link = link
        self._prefix = f"{settings.redis_prefix}:session:"
        self._tenants = f"{settings.redis_prefix}:tenant:"
        self._turns = f"{settings.redis_prefix}:turn:"
        self._instances = f"{settings.redis_prefix}:instance:"

    async def get(self, session_id: str, tenant: str = "") -> session_pb2.Session:
        """One session, of this tenant where one is named. Raises SessionNotFoundError."""
        session = await self._read(session_id)
        if session is None or tenant not in ("", session.tenant):
            raise SessionNotFoundError(f"there is no session {session_id!r}, or it was forgotten")
        await self._say_who_is_there([session])
        opened = await self._link.command("HGET", self._prefix + session_id, "opened")
        for pair in _directions(session_pb2.NewSession.FromString(opened or b"")):
            if turn := await self._turn(session, pair):
                session.turns.append(turn)
        return session

    async def _turn(
        self, session: session_pb2.Session, pair: common_pb2.LanguagePair
    ) -> session_pb2.SessionTurn | None:
        """What binds a direction of a session, as lua/lib/turn.lua describes it."""
        key = f"{self._turns}{session.tenant}:{session.session_id}:{pair.src}:{pair.tgt}"
        timeout, max_duration, holds = await self._link.command(
            "HMGET", key, "timeout_node_id", "max_duration_node_id", "holds"
        )
        if not (timeout or max_duration or holds):
            return None
        return session_pb2.SessionTurn(
            direction=pair,
            node_id=(timeout or max_duration or b"").decode(),
            holds_in_row=int(holds or 0),
        )

    async def list(
        self, tenant: str, page_size: int, page_token: str
    ) -> tuple[Sequence[session_pb2.Session], str]:
        """A page of a tenant's sessions, the last opened first, and the token of the next page.

        What is read for a tenant is in proportion to the page, however many sessions others have.

        Args:
            tenant: "" for all.
            page_size: about how many; 0 for the usual number.
            page_token: from the page before; "" for the first.
        """

        async def read(session_id: str) -> session_pb2.Session | None:
            session = await self._read(session_id)
            wanted = session is not None and tenant in ("", session.tenant)
            return session if wanted else None

        if tenant:
            # The index of lua/lib/quota.lua.
            step = ids_of_members(self._link, f"{self._tenants}{tenant}:sessions", page_size)
        else:
            step = ids_of_keys(self._link, self._prefix, page_size)
        sessions, following = await read_page(
            step=step, read=read, page_token=page_token, page_size=page_size
        )
        await self._say_who_is_there(sessions)
        sessions.sort(key=lambda session: session.opened_ms, reverse=True)
        return sessions, following

    async def _read(self, session_id: str) -> session_pb2.Session | None:
        """A session from its record, as lua/lib/session.lua describes it; None if it has ended."""
        key = self._prefix + session_id
        values, names = await asyncio.gather(
            self._link.command("HMGET", key, *_FIELDS), self._link.command("HKEYS", key)
        )
        return _session(session_id, dict(zip(_FIELDS, values, strict=True)), names)

    async def _say_who_is_there(self, sessions: Sequence[session_pb2.Session]) -> None:
        """A gateway that died never said that it left: only one that runs has sessions."""
        named = sorted({each.gateway_instance for each in sessions if each.gateway_instance})
        found = await asyncio.gather(
            *(self._link.command("EXISTS", self._instances + gateway) for gateway in named)
        )
        running = {gateway for gateway, there in zip(named, found, strict=True) if there}
        for session in sessions:
            session.connected = session.gateway_instance in running
            if not session.connected:
                session.gateway_instance = ""


def _directions(opened: session_pb2.NewSession) -> list[common_pb2.LanguagePair]:
    if opened.WhichOneof("languages") == "direction":
        return [opened.direction]
    a, b = opened.conversation.a, opened.conversation.b
    return [common_pb2.LanguagePair(src=src, tgt=tgt) for src, tgt in ((a, b), (b, a))]


def _session(
    session_id: str, record: Mapping[str, bytes | None], names: Iterable[bytes]
) -> session_pb2.Session | None:
    if record["token"] is None:
        return None

    def number(name: str) -> int:
        return int(record[name] or 0)

    def text(name: str) -> str:
        return (record[name] or b"").decode()

    cuts = (int(name.removeprefix(_CUT)) for name in names if name.startswith(_CUT))
    return session_pb2.Session(
        session_id=session_id,
        tenant=text("tenant"),
        gateway_instance=text("gateway"),
        epoch=number("epoch"),
        opened_ms=number("opened_ms"),
        last_chunk_ms=number("last_chunk_ms"),
        next_utterance_index=number("next"),
        waiting=sorted(index for index in cuts if index >= number("seen")),
        results=number("results"),
        missing=number("missing"),
    )
