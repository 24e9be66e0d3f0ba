"""The owner's side of the relay: orders of other homes for nodes that are connected here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes
from lingua_scheduler.services.dispatcher.nodes.incoming import too_large
from lingua_scheduler.services.dispatcher.nodes.stream import Report, Responsible
from lingua_scheduler.services.dispatcher.nodes.unconfirmed import UnconfirmedReports
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes, between_services
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_MAX_EVENTS = 10_000
_MAX_BYTES = 64 * 1024 * 1024
_LOOK_EVERY_S = 0.5

_FIELDS: dict[type[Any], str] = {
    dispatcher_pb2.JobAck: "ack",
    dispatcher_pb2.JobReject: "reject",
    dispatcher_pb2.JobPartial: "partial",
    dispatcher_pb2.JobResult: "result",
    dispatcher_pb2.JobFailed: "failed",
}

_PONG = dispatcher_pb2.RelayResponse(pong=True).SerializeToString()

Context = grpc.aio.ServicerContext[Any, Any]


class HomeStream:
    """The stream of one home. It answers for the attempts that the home gave to nodes here."""

    def __init__(
        self,
        metrics: DispatcherMetrics,
        max_message_bytes: int,
        give_up: Callable[[str, Report], None],
    ) -> None:
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.unconfirmed = UnconfirmedReports(max_bytes=_MAX_BYTES, give_up=give_up)
        self._largest = between_services(max_message_bytes)
        # Responses, serialized. Concatenated they are one response, because repeated fields append.
        self.outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )

    def on_report(self, node_id: str, report: Report) -> None:
        """Passes on a report of a node."""
        response = _response(node_id, report.attempt)
        getattr(response.reports[0], _FIELDS[type(report)]).CopyFrom(report)
        data = response.SerializeToString()
        if len(data) > self._largest:
            # It would end the stream, which other attempts share.
            self._metrics.too_large.labels("relay").inc()
            response.reports[0].failed.CopyFrom(too_large(report, self._largest))
            data = response.SerializeToString()
        elif isinstance(report, dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed):
            self.unconfirmed.add(self._loop.time(), node_id, report, len(data))
        self._put(data, droppable=isinstance(report, dispatcher_pb2.JobPartial))

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """Passes on that the node is not here, or does not read."""
        response = _response(node_id, attempt)
        response.reports[0].not_sent.CopyFrom(errors.to_proto(errors.NodeNotFoundError(why)))
        self._put(response.SerializeToString())

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """Passes on that the node's connection is gone."""
        response = _response(node_id, attempt)
        response.reports[0].lost.SetInParent()
        self._put(response.SerializeToString())

    def pong(self) -> None:
        """Answers a ping of the home."""
        self.outbox.put(_PONG, len(_PONG), droppable=True, replaces="pong")

    def _put(self, data: bytes, *, droppable: bool = False) -> None:
        if not self.outbox.put(data, len(data), droppable=droppable) and not droppable:
            # The home does not read. With a new stream it will ask again.
            self.outbox.close()


def _response(node_id: str, attempt: common_pb2.AttemptRef) -> dispatcher_pb2.RelayResponse:
    response = dispatcher_pb2.RelayResponse()
    report = response.reports.add()
    report.node_id = node_id
    report.attempt.CopyFrom(attempt)
    return response


class RelayServer:
    """Serves Relay.

    Args:
        fallback: hears of results and failures that their home does not confirm.
        silence_ms: how long a home may take to confirm them.
    """

    def __init__(
        self,
        *,
        nodes: ConnectedNodes,
        metrics: DispatcherMetrics,
        max_message_bytes: int,
        fallback: Responsible,
        silence_ms: float,
    ) -> None:
        self._nodes = nodes
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._fallback = fallback
        self._silence_s = silence_ms / 1000
        self._homes: set[HomeStream] = set()
        self._draining = False

    async def relay(
        self, requests: AsyncIterator[dispatcher_pb2.RelayRequest], context: Context
    ) -> None:
        """Serves one home until its stream ends."""
        home = HomeStream(self._metrics, self._max_message_bytes, self._fallback.on_report)
        self._homes.add(home)
        if self._draining:
            home.outbox.close()

        async def write() -> None:
            while responses := await home.outbox.take():
                await context.write(b"".join(responses))

        async def read() -> None:
            async for request in requests:
                if request.ping:
                    home.pong()
                for at, order in enumerate(request.orders):
                    if should_yield(at):
                        await asyncio.sleep(0)
                    self._carry_out(home, order)

        try:
            await run_duplex(read=read(), write=write())
        finally:
            self._homes.discard(home)
            self._nodes.abandon(home)
            home.unconfirmed.give_up_all()

    async def run(self) -> None:
        """Gives up reports that homes do not confirm, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for home in self._homes:
                home.unconfirmed.give_up_older(loop.time() - self._silence_s)

    def drain(self) -> None:
        """Ends the streams, which homes would keep open forever, after the nodes have gone."""
        self._draining = True
        for home in self._homes:
            home.outbox.close()

    def _carry_out(self, home: HomeStream, order: dispatcher_pb2.RelayOrder) -> None:
        match order.WhichOneof("order"):
            case "assign":
                message = dispatcher_pb2.DispatcherMessage()
                message.events.add().job_assign.CopyFrom(order.assign)
                why = self._nodes.assign(order.node_id, order.node_epoch, message, home)
                if why:
                    home.on_not_sent(order.node_id, order.assign.attempt, why)
            case "cancel":
                home.unconfirmed.confirm(order.node_id, order.cancel.attempt)
                self._nodes.cancel(order.node_id, order.cancel)
            case "result_received":
                home.unconfirmed.confirm(order.node_id, order.result_received.attempt)
                self._nodes.confirm(order.node_id, order.result_received.attempt)
