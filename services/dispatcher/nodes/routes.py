"""The way to a node: its stream if it is connected here, otherwise the relay to its owner."""

import asyncio

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes
from lingua_scheduler.services.dispatcher.nodes.relay_client import RelayClients
from lingua_scheduler.services.dispatcher.nodes.stream import Responsible
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2


class Routes:
    """Sends a home's orders to nodes, wherever they are connected.

    Args:
        nodes: the nodes that are connected here.
        responsible: the home. It hears what nodes say, and which orders did not get through.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        dialer: Dialer,
        pool: PoolClient,
        metrics: DispatcherMetrics,
        nodes: ConnectedNodes,
        responsible: Responsible,
    ) -> None:
        self._instance_id = settings.instance_id
        self._nodes = nodes
        self._relays = RelayClients(
            settings=settings, dialer=dialer, pool=pool, metrics=metrics, responsible=responsible
        )
        self._responsible = responsible

    async def close(self) -> None:
        """Ends the streams to other dispatchers."""
        await self._relays.close()

    def assign(
        self, placement: pool_pb2.Placement, message: dispatcher_pb2.DispatcherMessage
    ) -> None:
        """Gives a node an attempt, the `job_assign` of this message.

        If that fails, the responsible hears of it later.
        """
        assign = message.events[0].job_assign
        if not self.is_here(placement):
            request = dispatcher_pb2.RelayRequest()
            request.orders.add().assign.CopyFrom(assign)
            self._relays.order(placement, request)
            return
        why = self._nodes.assign(
            placement.node_id, placement.node_epoch, message, self._responsible
        )
        if why:
            # Later: the caller is in the middle of something.
            asyncio.get_running_loop().call_soon(
                self._responsible.on_not_sent, placement.node_id, assign.attempt, why
            )

    def cancel(self, placement: pool_pb2.Placement, cancel: dispatcher_pb2.JobCancel) -> None:
        """Tells a node to stop an attempt. The order may get lost without harm."""
        if self.is_here(placement) or placement.node_id in self._nodes:
            self._nodes.cancel(placement.node_id, cancel)
        else:
            request = dispatcher_pb2.RelayRequest()
            request.orders.add().cancel.CopyFrom(cancel)
            self._relays.order(placement, request)

    def confirm(self, placement: pool_pb2.Placement, attempt: common_pb2.AttemptRef) -> None:
        """Tells a node that it may forget a result."""
        # The node may have connected here since.
        if self.is_here(placement) or placement.node_id in self._nodes:
            self._nodes.confirm(placement.node_id, attempt)
        else:
            request = dispatcher_pb2.RelayRequest()
            request.orders.add().result_received.attempt.CopyFrom(attempt)
            self._relays.order(placement, request, within_s=SHARE_WITHIN_S)

    def serves(self, node_id: str) -> frozenset[str]:
        """The pools that a node is in, as far as this dispatcher knows."""
        return self._nodes.serves(node_id)

    def is_here(self, placement: pool_pb2.Placement) -> bool:
        """Whether the node is connected to this dispatcher, as far as the pool knew."""
        return placement.owner_instance in ("", self._instance_id)
