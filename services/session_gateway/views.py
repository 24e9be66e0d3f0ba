"""Sessions for operators, read from the records that all gateways share."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from lingua_scheduler.services.runtime.contract.announcements import address_key
from lingua_scheduler.services.runtime.errors import InvalidMessageError, SessionNotFoundError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.record_pages import ids_of_members, read_page
from lingua_scheduler.services.session_gateway.session.speech import Direction, directions_of
from lingua_scheduler.v1 import common_pb2, session_pb2

_CUT = b"cut:"
# The fields of a record that a view shows. The others (what the client asked for, the cuts) may be
# large and are not read; the names of the cuts are enough.
_FIELDS = (
    *("token", "tenant", "gateway", "epoch", "opened_ms", "last_chunk_ms"),
    *("next", "seen", "results", "missing"),
)


class SessionViews:
    """Reads session records. Every method raises DependencyDownError."""

    def __init__(self, *, cells: Cells) -> None:
        self._cells = cells

    async def get(self, session_id: str, tenant: str = "") -> session_pb2.Session:
        """Returns one session of this tenant ("": of any). Raises SessionNotFoundError."""
        unknown = SessionNotFoundError(
            f"there is no session {session_id!r}, or its record has expired"
        )
        try:
            cell = self._cells.of_session(session_id)
        except InvalidMessageError:
            raise unknown from None
        session = await _read(cell, session_id)
        if session is None or tenant not in ("", session.tenant):
            raise unknown
        await _set_connected(cell, [session])
        opened = await cell.link.command("HGET", _key(cell, session_id), "opened")
        asked = session_pb2.NewSession.FromString(opened or b"")
        session.room_id = asked.room.room_id
        for direction in directions_of(asked):
            if turn := await _turn(cell, session, direction):
                session.turns.append(turn)
        return session

    async def list(
        self, tenant: str, page_size: int, page_token: str
    ) -> tuple[Sequence[session_pb2.Session], str]:
        """Returns a page of a tenant's sessions, newest first, and the token of the next page.

        The cost is proportional to the page, however many other sessions and keys exist. Sessions
        of cells that are away are left out.

        Args:
            tenant: "" for all.
            page_size: about how many; 0 for the default.
            page_token: from the previous page; "" for the first.
        """

        async def read(cell: Cell, session_id: str) -> tuple[Cell, session_pb2.Session] | None:
            session = await _read(cell, session_id)
            if session is None or tenant not in ("", session.tenant):
                return None
            return cell, session

        # The indexes of lua/lib/quota.lua and lua/lib/session.lua.
        found, following = await read_page(
            cells=self._cells.all,
            step=ids_of_members(f"tenant:{tenant}:sessions" if tenant else "sessions", page_size),
            read=read,
            page_token=page_token,
            page_size=page_size,
        )

        async def of_cell(cell: Cell) -> Sequence[session_pb2.Session]:
            sessions = [session for its_cell, session in found if its_cell is cell]
            await _set_connected(cell, sessions)
            return sessions

        sessions = [each for some in await self._cells.each(of_cell) for each in some]
        sessions.sort(key=lambda session: session.opened_ms, reverse=True)
        return sessions, following


def _key(cell: Cell, session_id: str) -> str:
    return f"{cell.prefix}:session:{session_id}"


async def _read(cell: Cell, session_id: str) -> session_pb2.Session | None:
    """Reads a record as lua/lib/session.lua describes it; None if the session has ended."""
    key = _key(cell, session_id)
    values, names = await asyncio.gather(
        cell.link.command("HMGET", key, *_FIELDS), cell.link.command("HKEYS", key)
    )
    return _session(session_id, dict(zip(_FIELDS, values, strict=True)), names)


async def _turn(
    cell: Cell, session: session_pb2.Session, direction: Direction
) -> session_pb2.SessionTurn | None:
    """The binding of a direction to a node, if any, as lua/lib/turn.lua describes it."""
    key = (
        f"{cell.prefix}:turn:{session.tenant}:{session.session_id}:{direction.src}:{direction.tgt}"
    )
    timeout, max_duration, holds = await cell.link.command(
        "HMGET", key, "timeout_node_id", "max_duration_node_id", "holds"
    )
    if not (timeout or max_duration or holds):
        return None
    return session_pb2.SessionTurn(
        direction=common_pb2.LanguagePair(src=direction.src, tgt=direction.tgt),
        node_id=(timeout or max_duration or b"").decode(),
        holds_in_row=int(holds or 0),
    )


async def _set_connected(cell: Cell, sessions: Sequence[session_pb2.Session]) -> None:
    """Says which sessions have a gateway that runs: one that died did not sign off."""
    named = sorted({each.gateway_instance for each in sessions if each.gateway_instance})
    found = await asyncio.gather(
        *(cell.link.command("EXISTS", address_key(cell.prefix, name)) for name in named)
    )
    running = {gateway for gateway, there in zip(named, found, strict=True) if there}
    for session in sessions:
        session.connected = session.gateway_instance in running
        if not session.connected:
            session.gateway_instance = ""


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
