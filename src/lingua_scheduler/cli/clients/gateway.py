"""The session gateway as the commands use it: one method per call."""

from functools import cached_property

from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.cli.clients.service import MAX_PAGE, ServiceClient
from lingua_scheduler.v1 import rooms_pb2, session_pb2, session_pb2_grpc

# Who may ask about a room, for messages.
_HOST = (
    "The host of the room may do this, with the token that 'lingua rooms create' printed "
    "(--host-token or LINGUA_HOST_TOKEN), and so may operators"
)
_MEMBER = (
    "Members of the room may do this, with a token of the room (--room-token or "
    "LINGUA_ROOM_TOKEN), and so may operators"
)


class GatewayClient(ServiceClient):
    """Calls a session gateway. The SDK handles the sessions themselves."""

    service = "gateway"
    words = "session gateway"

    @cached_property
    def _stub(self) -> session_pb2_grpc.SessionGatewayStub:
        return session_pb2_grpc.SessionGatewayStub(self._channel)

    def list_sessions(self, *, tenant: str, limit: int) -> tuple[list[session_pb2.Session], bool]:
        """Up to `limit` sessions, newest first, each once, and whether there may be more."""
        return self._newest(
            self._stub.ListSessions,
            session_pb2.ListSessionsRequest(tenant=tenant),
            lambda page: page.sessions,
            name=lambda session: session.session_id,
            made_ms=lambda session: session.opened_ms,
            limit=limit,
        )

    def get_session(self, session_id: str) -> session_pb2.GetSessionResponse:
        """One session."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        return self._call(self._stub.GetSession, request)

    # ---- rooms ----

    def create_room(self, request: rooms_pb2.CreateRoomRequest) -> rooms_pb2.CreateRoomResponse:
        """Create a room."""
        return self._call(self._stub.CreateRoom, request)

    def create_join_token(
        self, request: rooms_pb2.CreateJoinTokenRequest
    ) -> rooms_pb2.CreateJoinTokenResponse:
        """Make a token with which others can join a room."""
        return self._call(
            self._stub.CreateJoinToken, request, or_token=request.host_token, may_call=_HOST
        )

    def list_rooms(self, *, tenant: str, limit: int) -> tuple[list[rooms_pb2.Room], bool]:
        """Up to `limit` rooms, newest first, each once, and whether there may be more."""
        return self._newest(
            self._stub.ListRooms,
            rooms_pb2.ListRoomsRequest(tenant=tenant),
            lambda page: page.rooms,
            name=lambda room: room.room_id,
            made_ms=lambda room: room.created_ms,
            limit=limit,
        )

    def get_room(self, room_id: str, token: str) -> rooms_pb2.Room:
        """One room. Operators need no token of it."""
        request = rooms_pb2.GetRoomRequest(room_id=room_id, token=token)
        return self._call(self._stub.GetRoom, request, or_token=token, may_call=_MEMBER).room

    def list_members(
        self, room_id: str, token: str, *, limit: int
    ) -> tuple[list[rooms_pb2.Member], bool]:
        """Up to `limit` members of a room, and whether there may be more."""
        request = rooms_pb2.ListMembersRequest(
            room_id=room_id, token=token, page_size=min(limit, MAX_PAGE)
        )
        found: list[rooms_pb2.Member] = []
        while True:
            page = self._call(self._stub.ListMembers, request, or_token=token, may_call=_MEMBER)
            found += page.members
            if len(found) >= limit or not page.next_page_token:
                return found[:limit], len(found) > limit or bool(page.next_page_token)
            request.page_token = page.next_page_token

    def close_room(self, room_id: str, host_token: str) -> rooms_pb2.CloseRoomResponse:
        """End a room for everybody in it. Operators need no token of it."""
        request = rooms_pb2.CloseRoomRequest(room_id=room_id, host_token=host_token)
        return self._call(self._stub.CloseRoom, request, or_token=host_token, may_call=_HOST)

    def reach(self) -> None:
        """Return if a gateway answers, healthy or not."""
        self._call(health_pb2_grpc.HealthStub(self._channel).Check, health_pb2.HealthCheckRequest())
