"""The session gateway as the commands use it: one method a question."""

from functools import cached_property

from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.cli.service_client import ServiceClient
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc

# The most that one page may ask for.
_PAGE = 1000


class GatewayClient(ServiceClient):
    """Calls a session gateway. Sessions themselves are the SDK's."""

    service = "gateway"
    words = "session gateway"

    @cached_property
    def _stub(self) -> session_pb2_grpc.SessionGatewayStub:
        return session_pb2_grpc.SessionGatewayStub(self._channel)

    def list_sessions(self, *, tenant: str, limit: int) -> tuple[list[session_pb2.Session], bool]:
        """Up to `limit` sessions, newest first, each once; also whether there may be more."""
        request = session_pb2.ListSessionsRequest(tenant=tenant, page_size=min(limit, _PAGE))
        found: dict[str, session_pb2.Session] = {}
        more = False
        for page in self._pages(self._stub.ListSessions, request):
            found.update((session.session_id, session) for session in page.sessions)
            if len(found) >= limit:
                more = len(found) > limit or bool(page.next_page_token)
                break
        sessions = sorted(found.values(), key=lambda session: session.opened_ms, reverse=True)
        return sessions[:limit], more

    def get_session(self, session_id: str) -> session_pb2.GetSessionResponse:
        """One session."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        return self._call(self._stub.GetSession, request)

    def reach(self) -> None:
        """Returns if a gateway answers at all, in good health or not."""
        self._call(health_pb2_grpc.HealthStub(self._channel).Check, health_pb2.HealthCheckRequest())
