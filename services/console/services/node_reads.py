"""Single nodes with their capabilities and leases, read while somebody asks for them."""

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.kept import Kept
from lingua_scheduler.v1 import pool_pb2

_KEEP_S = 2.0
# A node has up to a thousand leases.
_KEPT_NODES = 200


class NodeReads:
    """Reads nodes: what the fleet does not have, such as leases.

    Args:
        calls: makes the calls.
    """

    def __init__(self, *, calls: ServiceCalls) -> None:
        self._calls = calls
        self._nodes = Kept(self._get, keep_s=lambda _: _KEEP_S, most=_KEPT_NODES)

    async def get(self, node_id: str) -> pool_pb2.GetNodeResponse:
        """One node. Raises LinguaError."""
        return await self._nodes.get(node_id)

    async def _get(self, node_id: str) -> pool_pb2.GetNodeResponse:
        request = pool_pb2.GetNodeRequest(node_id=node_id)
        response: pool_pb2.GetNodeResponse = await self._calls.call("pool", "GetNode", request)
        return response
