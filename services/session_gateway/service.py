"""The gRPC service of the session gateway. `live.sessions` does the work."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.services.runtime.auth.principals import own_tenant
from lingua_scheduler.services.session_gateway.live.client import GrpcClient
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.views import SessionViews
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class SessionGatewayServicer(session_pb2_grpc.SessionGatewayServicer):
    """Every RPC of SessionGateway."""

    def __init__(self, *, sessions: Sessions, views: SessionViews) -> None:
        self._sessions = sessions
        self._views = views

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
