"""Serves Connect: the stream of each node, from Hello to its end."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.nodes.admission import Admission, first_message
from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes, node_message
from lingua_scheduler.services.dispatcher.nodes.heartbeats import Heartbeats
from lingua_scheduler.services.dispatcher.nodes.incoming import IncomingReports
from lingua_scheduler.services.dispatcher.nodes.stream import NodeStream
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import dispatcher_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class NodeStreams:
    """Reads what nodes send, and writes what waits for them."""

    def __init__(
        self,
        *,
        nodes: ConnectedNodes,
        admission: Admission,
        heartbeats: Heartbeats,
        reports: IncomingReports,
    ) -> None:
        self._nodes = nodes
        self._admission = admission
        self._heartbeats = heartbeats
        self._reports = reports

    async def connect(
        self, messages: AsyncIterator[dispatcher_pb2.NodeMessage], context: Context
    ) -> None:
        """Serves one stream from Hello to its end."""
        stream: NodeStream | None = None
        try:
            first = await first_message(messages)
            stream = await self._admission.admit(first.events[0].hello)
            # The writer ends when the outbox is closed: replaced, or silent for too long.
            await run_duplex(
                read=self._read(stream, first, messages),
                write=_write(stream, context),
                cut=stream.cut,
            )
        except errors.LinguaError as error:
            # Said twice: nodes may look for the error here or in the status.
            await context.write(node_message(error=errors.to_proto(error)))
            raise
        finally:
            if stream is not None:
                self._nodes.remove(stream)
                stream.outbox.close()
        if stream.ended_for is not None:
            why, stream.ended_for = stream.ended_for, None
            try:
                raise why
            finally:
                del why  # its traceback holds this frame

    async def _read(
        self,
        stream: NodeStream,
        first: dispatcher_pb2.NodeMessage,
        messages: AsyncIterator[dispatcher_pb2.NodeMessage],
    ) -> None:
        await self._take_all(stream, first.events[1:])
        async for message in messages:
            stream.heard_ms = now_ms()
            await self._take_all(stream, message.events)
            if stream.said_bye:
                return

    async def _take_all(
        self, stream: NodeStream, events: Sequence[dispatcher_pb2.NodeEvent]
    ) -> None:
        for at, event in enumerate(events):
            if should_yield(at):
                await asyncio.sleep(0)
            self._take(stream, event)

    def _take(self, stream: NodeStream, event: dispatcher_pb2.NodeEvent) -> None:
        kind = event.WhichOneof("event")
        match kind:
            case "heartbeat":
                self._heartbeats.take(stream, event.heartbeat)
            case "job_ack" | "job_reject" | "job_partial" | "job_result" | "job_failed":
                self._reports.take(stream, kind, getattr(event, kind))
            case "audio_held":
                self._reports.take_held(stream, event.audio_held)
            case "bye":
                stream.said_bye = True
            case _:
                raise errors.InvalidMessageError(
                    f"events: {kind or 'an empty event'} is not expected here",
                    fields=[("events", "an unknown, empty or repeated first event")],
                )


async def _write(stream: NodeStream, context: Context) -> None:
    while written := await stream.outbox.take():
        await context.write(b"".join([data for data, _ in written]))
        now_us = time.time_ns() // 1000
        for _, assignment in written:
            if assignment is not None:
                assignment.sent_us = now_us
