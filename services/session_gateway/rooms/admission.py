"""Who may do what in a room: tokens, and the languages that a room allows."""

import time

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import Role, caller
from lingua_scheduler.services.runtime.auth.room_tokens import (
    BadRoomTokenError,
    RoomTokenRole,
    is_signed,
    parse,
)
from lingua_scheduler.services.session_gateway.rooms.records import RoomFacts
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore
from lingua_scheduler.v1 import rooms_pb2

_HOST = frozenset({RoomTokenRole.HOST})
_SPEAKERS = _HOST | {RoomTokenRole.SPEAKER}
_ANYONE = frozenset(RoomTokenRole)
# A caller who does not know the room must not learn whether it exists.
_REFUSED = "the token is not valid for this room, has expired, or does not allow this"


class Door:
    """Checks who comes to a room.

    Args:
        store: of rooms.
    """

    def __init__(self, store: RoomStore) -> None:
        self._store = store

    async def to_host(self, room_id: str, token: str) -> RoomFacts:
        """Lets the host in, and operators. Raises as `_open`."""
        return await self._open(room_id, token, _HOST, frozenset({Role.OPERATOR}))

    async def to_see(self, room_id: str, token: str) -> RoomFacts:
        """Lets in whoever has a token of the room, operators and viewers. Raises as `_open`."""
        return await self._open(room_id, token, _ANYONE, _OPERATORS)

    async def to_see_members(self, room_id: str, token: str) -> RoomFacts:
        """Lets in speakers, the host, operators and viewers. Raises as `_open`."""
        return await self._open(room_id, token, _SPEAKERS, _OPERATORS)

    async def to_listen(self, room_id: str, token: str) -> RoomFacts:
        """Lets in whoever has a token of the room. Raises as `_open`."""
        return await self._open(room_id, token, _ANYONE, frozenset())

    async def to_speak(self, room_id: str, token: str) -> RoomFacts:
        """Lets in who may speak in the room. Raises as `_open`."""
        facts = await self._open(room_id, token, _ANYONE, frozenset())
        if facts.options.speak != rooms_pb2.SPEAK_POLICY_ANYONE:
            self._check(facts, token, _SPEAKERS)
        return facts

    async def _open(
        self,
        room_id: str,
        token: str,
        tokens: frozenset[RoomTokenRole],
        roles: frozenset[Role],
    ) -> RoomFacts:
        """Lets a caller in by its token of the room, or by its role.

        Raises:
            PermissionDeniedError: it has no such token; also if there is no such room, so that
                strangers learn nothing.
            RoomNotFoundError: there is no such room, and the caller may know.
            RoomClosedError: the same, for a room that was closed.
        """
        who = caller()
        # Without auth everybody is an operator, but members still need the token of their room.
        by_role = bool(roles) and (not token if who is None else who.role in roles)
        if by_role:
            return await self._store.facts(room_id)
        said = _token(token)
        try:
            claims = parse(said)
        except BadRoomTokenError:
            raise errors.PermissionDeniedError(_REFUSED) from None
        if claims.room_id != room_id or claims.has_expired(time.time()):
            raise errors.PermissionDeniedError(_REFUSED)
        try:
            facts = await self._store.facts(room_id)
        except errors.RoomNotFoundError:
            raise errors.PermissionDeniedError(_REFUSED) from None
        except errors.RoomClosedError:
            if not is_signed(said, await self._store.secret_of_closed(room_id)):
                raise errors.PermissionDeniedError(_REFUSED) from None
            raise
        self._check(facts, token, tokens)
        return facts

    @staticmethod
    def _check(facts: RoomFacts, token: str, tokens: frozenset[RoomTokenRole]) -> None:
        said = _token(token)
        if not is_signed(said, facts.secret) or parse(said).role not in tokens:
            raise errors.PermissionDeniedError(_REFUSED)


_OPERATORS = frozenset({Role.OPERATOR, Role.VIEWER})


def _token(token: str) -> str:
    """The token of a message, or else the one that the call itself has."""
    who = caller()
    return token or (who.room_token if who is not None else "")


def check_language(facts: RoomFacts, language: str, field: str) -> None:
    """Checks that a room allows a language. Raises InvalidMessageError."""
    allowed = [each.lower() for each in facts.options.languages]
    if allowed and language not in allowed:
        problem = f"{language!r} must be one of the languages of the room: {', '.join(allowed)}"
        raise errors.InvalidMessageError(f"{field}: {problem}", fields=[(field, problem)])
