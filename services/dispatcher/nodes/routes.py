"""The way to a node: straight to its stream where it is connected here, else through its owner."""

import asyncio

from lingua_scheduler.services.dispatcher.nodes.relay_client import RelayClients
from lingua_scheduler.services.dispatcher.nodes.responsible import Responsible
from lingua_scheduler.services.dispatcher.nodes.streams import NodeStreams
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2


class Routes:
    """Sends a home's orders to nodes, wherever they are connected.

    Args:
        responsible: hears what nodes say, and which orders did not get through.
    """

    def __init__(
        self,
        *,
        instance_id: str,
        nodes: NodeStreams,
        relays: RelayClients,
        responsible: Responsible,
    ) -> None:
        self._instance_id = instance_id
        self._nodes = nodes
        self._relays = relays
        self._responsible = responsible

    def assign(
        self, placement: pool_pb2.Placement, message: dispatcher_pb2.DispatcherMessage
    ) -> None:
        """Gives a node an attempt, the `job_assign` of this message.

        Where that fails, the responsible hears of it, in time.
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
            # Later: whoever asks is in the middle of something.
            asyncio.get_running_loop().call_soon(
                self._responsible.on_not_sent, placement.node_id, assign.attempt, why
            )

    def cancel(self, placement: pool_pb2.Placement, cancel: dispatcher_pb2.JobCancel) -> None:
        """Tells a node to stop an attempt. Whether it hears that does not matter."""
        if self.is_here(placement) or placement.node_id in self._nodes:
            self._nodes.cancel(placement.node_id, cancel)
        else:
            request = dispatcher_pb2.RelayRequest()
            request.orders.add().cancel.CopyFrom(cancel)
            self._relays.order(placement, request)

    def confirm(self, placement: pool_pb2.Placement, attempt: common_pb2.AttemptRef) -> None:
        """Tells a node that it may forget a result."""
        # A node that has come here since then is told here.
        if self.is_here(placement) or placement.node_id in self._nodes:
            self._nodes.confirm(placement.node_id, attempt)
        else:
            request = dispatcher_pb2.RelayRequest()
            request.orders.add().result_received.attempt.CopyFrom(attempt)
            self._relays.order(placement, request, within_s=SHARE_WITHIN_S)

    def serves(self, node_id: str) -> frozenset[str]:
        """The pools that a node is in, as far as this instance knows."""
        return self._nodes.serves(node_id)

    def is_here(self, placement: pool_pb2.Placement) -> bool:
        """Whether the node is connected to this instance, as far as the pool knew."""
        return placement.owner_instance in ("", self._instance_id)
