"""The session gateway as the commands use it: one method per call."""

from functools import cached_property

from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.cli.clients.service import ServiceClient
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc


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

    def reach(self) -> None:
        """Return if a gateway answers, healthy or not."""
        self._call(health_pb2_grpc.HealthStub(self._channel).Check, health_pb2.HealthCheckRequest())
