"""The home's side of the relay: one stream to each dispatcher that owns nodes of its jobs."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.stream import (
    AttemptKey,
    Responsible,
    attempt_key,
)
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.rpc.channels import Dialer, open_stream
from lingua_scheduler.services.runtime.rpc.client_stream import ClientStream
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.silence import Silence
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

_PING = dispatcher_pb2.RelayRequest(ping=True).SerializeToString()
_RELAY = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"].methods_by_name["Relay"]

# What may wait for a dispatcher that reads slowly; orders beyond that fail.
_MAX_EVENTS = 10_000
_MAX_BYTES = 64 * 1024 * 1024
# A dispatcher that cannot be reached is dead, and its nodes are about to connect elsewhere. If jobs
# were told at once, each would use up its misses on one of these nodes after the other.
_UNREACHABLE_S = 0.1


@dataclass(slots=True)
class _UnderWay:
    placement: pool_pb2.Placement
    # Whether the node may have it.
    written: bool = False


class _OwnerStream:
    """One stream to a dispatcher that owns nodes, from its first order to its end.

    Args:
        address: of the dispatcher.
        max_message_bytes: the most that a message may have.
        take: called with each report.
    """

    def __init__(
        self,
        address: str,
        max_message_bytes: int,
        take: Callable[["_OwnerStream", dispatcher_pb2.RelayReport], None],
    ) -> None:
        self._take = take
        self.address = address
        # Requests, serialized, and what each assigns. Concatenated they are one request, because
        # repeated fields append.
        self.outbox: Outbox[tuple[bytes, _UnderWay | None]] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        # What was sent and is not over: lost with the stream.
        self.under_way: dict[AttemptKey, _UnderWay] = {}
        self.reached = False

    def ask(self) -> None:
        """Asks the dispatcher to answer at once."""
        self.outbox.put((_PING, None), len(_PING), droppable=True, replaces="ping")

    async def read(self, stream: ClientStream) -> None:
        """Takes in reports until the dispatcher ends the stream."""
        silence: Silence | None = None
        while isinstance(message := await stream.read(), dispatcher_pb2.RelayResponse):
            if silence is not None:
                silence.heard = True
            elif message.pong:
                # Only now it is known that the dispatcher answers; older versions do not.
                silence = stream.watch(self.ask)
            for at, report in enumerate(message.reports):
                if should_yield(at):
                    await asyncio.sleep(0)
                self._take(self, report)

    async def write(self, stream: ClientStream) -> None:
        """Writes orders until the outbox is closed."""
        while requests := await self.outbox.take():
            # A write that fails may have got through all the same, unless it is the first: then
            # there never was a connection.
            _mark_written(requests, written=self.reached)
            await stream.write(b"".join([data for data, _ in requests]))
            self.reached = True
            _mark_written(requests, written=True)


def _mark_written(requests: list[tuple[bytes, _UnderWay | None]], *, written: bool) -> None:
    """Says of each assignment in these requests whether its node may have it."""
    for _, sent in requests:
        if sent is not None:
            sent.written = written


class RelayClients:
    """Sends orders to nodes that are connected to other dispatchers, and takes their reports.

    If an order cannot be delivered, because the owner or the node is gone, the responsible is told
    at once. If an owner cannot be reached, its nodes are reported to the pool as offline, so that
    no other job is sent there.

    These connections are not renewed: each goes to one instance, not to a name, and TLS checks
    certificates only when it connects.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        dialer: Dialer,
        pool: PoolClient,
        metrics: DispatcherMetrics,
        responsible: Responsible,
    ) -> None:
        self._settings = settings
        self._dialer = dialer
        self._pool = pool
        self._metrics = metrics
        self._responsible = responsible
        self._peers: dict[str, _OwnerStream] = {}
        self._tasks = BackgroundTasks()

    def order(
        self,
        placement: pool_pb2.Placement,
        request: dispatcher_pb2.RelayRequest,
        *,
        within_s: float = 0.0,
    ) -> None:
        """Queues the one order of a request for the owner of the node."""
        peer = self._peers.get(placement.owner_address)
        if peer is None:
            peer = _OwnerStream(
                placement.owner_address, self._settings.max_message_bytes, self._take
            )
            peer.ask()
            self._peers[placement.owner_address] = peer
            self._tasks.spawn(self._run(peer))
        order = request.orders[0]
        order.home_instance = self._settings.instance_id
        order.node_id = placement.node_id
        order.node_epoch = placement.node_epoch
        sent = _UnderWay(placement) if order.HasField("assign") else None
        data = request.SerializeToString()
        # One that is too large for a message would end the stream, which others share.
        fits = len(data) <= self._settings.max_message_bytes and peer.outbox.put(
            (data, sent), len(data), within_s=within_s
        )
        if sent is not None:
            self._metrics.relayed.inc()
            attempt = order.assign.attempt
            if fits:
                peer.under_way[attempt_key(attempt)] = sent
            else:
                self._metrics.backpressure.labels("relay").inc()
                why = "too much waits for the node's dispatcher, or the job is too large for it"
                # Later: the caller is in the middle of something.
                asyncio.get_running_loop().call_soon(
                    self._responsible.on_not_sent, placement.node_id, attempt, why
                )
        elif order.HasField("cancel"):
            # Nodes do not answer a cancel.
            peer.under_way.pop(attempt_key(order.cancel.attempt), None)

    async def close(self) -> None:
        """Ends all streams."""
        await self._tasks.cancel()

    async def _run(self, peer: _OwnerStream) -> None:
        try:
            async with self._dialer.channel(peer.address) as channel:
                stream = ClientStream(
                    open_stream(channel, _RELAY, self._dialer.metadata()),
                    silence_ms=self._settings.peer_silence_ms,
                )
                end = await stream.run(read=peer.read(stream), write=peer.write(stream))
            if not end.clean:
                facts = {"address": peer.address, "reason": end.reason}
                _log.warning("relay stream lost", extra=facts)
                if not peer.reached:
                    await asyncio.sleep(_UNREACHABLE_S)
        finally:
            self._gone(peer)

    def _take(self, peer: _OwnerStream, report: dispatcher_pb2.RelayReport) -> None:
        kind = report.WhichOneof("report")
        key = attempt_key(report.attempt)
        if kind in ("not_sent", "lost", "reject", "result", "failed"):
            peer.under_way.pop(key, None)
        if kind == "not_sent":
            why = report.not_sent.message
            self._responsible.on_not_sent(report.node_id, report.attempt, why)
        elif kind == "lost":
            self._responsible.on_lost(report.node_id, report.attempt)
        elif kind in ("ack", "reject", "partial", "result", "failed"):
            self._responsible.on_report(report.node_id, getattr(report, kind))

    def _gone(self, peer: _OwnerStream) -> None:
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]
        peer.outbox.close()
        told = set()
        for (job_id, number), sent in peer.under_way.items():
            node_id = sent.placement.node_id
            if node_id not in told:
                told.add(node_id)
                epoch = sent.placement.node_epoch
                self._pool.take_offline(node_id, epoch)
            attempt = common_pb2.AttemptRef(job_id=job_id, attempt=number)
            if sent.written:
                self._responsible.on_lost(node_id, attempt)
            else:
                why = "the node's dispatcher cannot be reached"
                self._responsible.on_not_sent(node_id, attempt, why)
