"""The gRPC service of the session gateway. `live.sessions` does the work."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.services.runtime.auth.principals import own_tenant
from lingua_scheduler.services.session_gateway.live.client import GrpcClient
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.rooms.calls import RoomCalls
from lingua_scheduler.services.session_gateway.rooms.packing import Packed
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.services.session_gateway.views import SessionViews
from lingua_scheduler.v1 import rooms_pb2, session_pb2, session_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class SessionGatewayServicer(session_pb2_grpc.SessionGatewayServicer):
    """Every RPC of SessionGateway."""

    def __init__(
        self, *, sessions: Sessions, views: SessionViews, rooms: Rooms, calls: RoomCalls
    ) -> None:
        self._sessions = sessions
        self._views = views
        self._rooms = rooms
        self._calls = calls

    async def Converse(  # type: ignore[override]  # noqa: N802 - the contract's name, as below
        self, request_iterator: AsyncIterator[session_pb2.ClientMessage], context: Context
    ) -> None:
        await self._sessions.converse(request_iterator, GrpcClient(context))

    async def GetSession(  # noqa: N802
        self, request: session_pb2.GetSessionRequest, context: Context
    ) -> session_pb2.GetSessionResponse:
        session = await self._views.get(request.session_id, own_tenant())
        return session_pb2.GetSessionResponse(session=session)

    async def ListSessions(  # noqa: N802
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        tenant = own_tenant()
        if tenant and request.tenant not in ("", tenant):
            return session_pb2.ListSessionsResponse()
        sessions, token = await self._views.list(
            tenant or request.tenant, request.page_size, request.page_token
        )
        return session_pb2.ListSessionsResponse(sessions=sessions, next_page_token=token)

    async def CreateRoom(  # noqa: N802
        self, request: rooms_pb2.CreateRoomRequest, context: Context
    ) -> rooms_pb2.CreateRoomResponse:
        return await self._calls.create(request)

    async def CreateJoinToken(  # noqa: N802
        self, request: rooms_pb2.CreateJoinTokenRequest, context: Context
    ) -> rooms_pb2.CreateJoinTokenResponse:
        return await self._calls.create_join_token(request)

    async def GetRoom(  # noqa: N802
        self, request: rooms_pb2.GetRoomRequest, context: Context
    ) -> rooms_pb2.GetRoomResponse:
        return await self._calls.get(request)

    async def ListRooms(  # noqa: N802
        self, request: rooms_pb2.ListRoomsRequest, context: Context
    ) -> rooms_pb2.ListRoomsResponse:
        return await self._calls.list(request)

    async def ListMembers(  # noqa: N802
        self, request: rooms_pb2.ListMembersRequest, context: Context
    ) -> rooms_pb2.ListMembersResponse:
        return await self._calls.members(request)

    async def CloseRoom(  # noqa: N802
        self, request: rooms_pb2.CloseRoomRequest, context: Context
    ) -> rooms_pb2.CloseRoomResponse:
        return await self._calls.close(request)

    async def Listen(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[rooms_pb2.ListenerMessage], context: Context
    ) -> None:
        await self._rooms.listen(request_iterator, GrpcListener(context))


class GrpcListener:
    """The client of a Listen call."""

    transport = "grpc"

    def __init__(self, context: Context) -> None:
        self._write = context.write

    def write_now(self, packed: Packed) -> bool:
        """Not offered: a write of gRPC has to be awaited."""
        return False

    async def write(self, packed: Packed) -> None:
        """Sends a message. Returns when there is room for the next one."""
        await self._write(packed.proto)
