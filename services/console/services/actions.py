"""What operators can change, each with the operator's own token."""

from lingua_scheduler.services.console.services.calls import ServiceCalls, bearer
from lingua_scheduler.services.runtime.errors import NodeNotFoundError
from lingua_scheduler.services.runtime.rpc.channels import Metadata
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, rooms_pb2


class Actions:
    """Makes the calls, with the rights of the person who asks: the services decide by their roles.

    All raise LinguaError. A `token` of None stands for a scheduler without auth.

    Args:
        calls: makes the calls.
    """

    def __init__(self, *, calls: ServiceCalls) -> None:
        self._calls = calls

    async def drain(self, node_id: str, token: str | None) -> None:
        """Gives a node no new jobs until `ready`."""
        await self._set_health(node_id, common_pb2.NODE_HEALTH_DRAINING, token)

    async def ready(self, node_id: str, token: str | None) -> None:
        """Lets a drained node take jobs again."""
        await self._set_health(node_id, common_pb2.NODE_HEALTH_READY, token)

    async def remove(self, node_id: str, token: str | None) -> None:
        """Takes a node out of all pools and forgets it."""
        request = pool_pb2.RemoveNodeRequest(node_id=node_id)
        response = await self._calls.call("pool", "RemoveNode", request, metadata=_of(token))
        if not response.removed:
            raise NodeNotFoundError(f"there is no node {node_id!r}")

    async def cancel(self, job_id: str, why: str, token: str | None) -> None:
        """Cancels a job. One that is over does not change."""
        request = dispatcher_pb2.CancelJobRequest(job_id=job_id, why=why)
        await self._calls.call("dispatcher", "CancelJob", request, metadata=_of(token))

    async def close_room(self, room_id: str, token: str | None) -> None:
        """Ends a room: its members are told, and nobody can join it again."""
        request = rooms_pb2.CloseRoomRequest(room_id=room_id)
        await self._calls.call("gateway", "CloseRoom", request, metadata=_of(token))

    async def _set_health(
        self, node_id: str, health: common_pb2.NodeHealth.ValueType, token: str | None
    ) -> None:
        request = pool_pb2.SetNodeHealthRequest(node_id=node_id, health=health, by_operator=True)
        await self._calls.call("pool", "SetNodeHealth", request, metadata=_of(token))


def _of(token: str | None) -> Metadata:
    # Never the console's own token: it must not lend its rights to anybody.
    return bearer(token) if token else ()
