"""The home's side of the relay: one stream to each dispatcher that owns nodes we use."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.responsible import Responsible
from lingua_scheduler.services.dispatcher.nodes.stream import AttemptKey, attempt_key
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime.give_way import is_turn_of_others
from lingua_scheduler.services.runtime.rpc.channels import Lines, open_stream
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

_PING = dispatcher_pb2.RelayRequest(ping=True).SerializeToString()
_RELAY = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"].methods_by_name["Relay"]

# What may wait for another dispatcher that reads slowly; beyond that, orders fail.
_MAX_EVENTS = 10_000
_MAX_BYTES = 64 * 1024 * 1024
# A dispatcher that cannot be reached is dead, and its nodes are about to connect elsewhere. If it
# were told at once, a job would use up all that it may miss on one after the other of them.
_UNREACHABLE_S = 0.1


@dataclass(slots=True)
class _UnderWay:
    placement: pool_pb2.Placement
    # Whether the node may have it.
    written: bool = False


class _Peer:
    """One stream, from its first order to its end."""

    def __init__(self, address: str, max_message_bytes: int) -> None:
        self.address = address
        # Requests, serialized, and what was assigned by each. One after the other they are one.
        self.outbox: Outbox[tuple[bytes, _UnderWay | None]] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        # What was sent and is not over: lost with the stream.
        self.under_way: dict[AttemptKey, _UnderWay] = {}
        self.reached = False
        self.task: asyncio.Task[None] | None = None
        self.cut = asyncio.Event()
        # From when it is known that the other side answers; older versions do not.
        self.watch: StreamWatch | None = None

    def ask(self) -> None:
        """Asks whether somebody is there."""
        self.outbox.put((_PING, None), len(_PING), droppable=True, replaces="ping")

    def be_frozen(self, why: str) -> None:
        """Ends the stream: nobody answers."""
        _log.warning("relay to %s ended: %s", self.address, why)
        self.cut.set()

    @staticmethod
    def mark_written(requests: list[tuple[bytes, _UnderWay | None]], *, written: bool) -> None:
        """Says of each assignment in these requests whether its node may have it."""
        for _, sent in requests:
            if sent is not None:
                sent.written = written


class RelayClients:
    """Orders to nodes that are connected elsewhere, and what comes back.

    An order that cannot be delivered, because the owner is gone or the node is no longer there, is
    told to the responsible at once. A dispatcher that cannot be reached takes its node along: the
    pool is told, so that no other job is sent there.

    These connections are not made anew while they last: each goes to one instance, which no name
    stands for, and TLS looks at certificates only when it connects.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        lines: Lines,
        pool: PoolClient,
        metrics: DispatcherMetrics,
        responsible: Responsible,
    ) -> None:
        self._settings = settings
        self._lines = lines
        self._pool = pool
        self._metrics = metrics
        self._responsible = responsible
        self._peers: dict[str, _Peer] = {}

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
            peer = _Peer(placement.owner_address, self._settings.max_message_bytes)
            peer.ask()
            self._peers[placement.owner_address] = peer
            peer.task = asyncio.create_task(self._run(peer))
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
                # Later: whoever asks is in the middle of something.
                asyncio.get_running_loop().call_soon(
                    self._responsible.on_not_sent, placement.node_id, attempt, why
                )
        elif order.HasField("cancel"):
            # Nodes do not answer that.
            peer.under_way.pop(attempt_key(order.cancel.attempt), None)

    async def close(self) -> None:
        """Ends all streams."""
        tasks = [peer.task for peer in self._peers.values() if peer.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, peer: _Peer) -> None:
        try:
            async with self._lines.channel(peer.address) as channel:
                metadata = self._lines.metadata()
                stream = open_stream(channel, _RELAY, dispatcher_pb2.RelayResponse, metadata)
                read, write = self._read(peer, stream), self._write(peer, stream)
                await run_duplex(read=read, write=write, cut=peer.cut)
        except grpc.aio.AioRpcError as error:
            _log.warning("relay to %s ended: %s", peer.address, error.details())
            if not peer.reached:
                await asyncio.sleep(_UNREACHABLE_S)
        finally:
            if peer.watch is not None:
                peer.watch.stop()
            self._gone(peer)

    async def _read(self, peer: _Peer, stream: Any) -> None:
        async for message in stream:
            if peer.watch is not None:
                peer.watch.silence.heard = True
            elif message.pong:
                peer.watch = StreamWatch(
                    silence_ms=self._settings.peer_silence_ms, ask=peer.ask, cut=peer.be_frozen
                )
            for at, report in enumerate(message.reports):
                if is_turn_of_others(at):
                    await asyncio.sleep(0)
                self._take(peer, report)

    @staticmethod
    async def _write(peer: _Peer, stream: Any) -> None:
        try:
            while requests := await peer.outbox.take():
                # A write that fails may have got through all the same, unless it is the first: then
                # there never was a connection.
                peer.mark_written(requests, written=peer.reached)
                await stream.write(b"".join(data for data, _ in requests))
                peer.reached = True
                peer.mark_written(requests, written=True)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The stream is over, and the reader learns why.
            await peer.cut.wait()

    def _take(self, peer: _Peer, report: dispatcher_pb2.RelayReport) -> None:
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

    def _gone(self, peer: _Peer) -> None:
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
