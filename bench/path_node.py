"""Nodes that answer at once, for `path.py`: acknowledgement and result in one message.

`path.py` runs this as a process. It prints READY when all nodes are connected. On SIGTERM it writes
one line per job, `job assigned_ns answered_ns` by the machine's monotonic clock, and
ends.
"""

import argparse
import asyncio
import random
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import grpc
import uvloop

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc

RESULT = dispatcher_pb2.JobResult.KIND_TRANSLATED
TEXTS = dispatcher_pb2.Texts(source="hello", repaired="hello", translated="hola")
Stream: TypeAlias = (
    "grpc.aio.StreamStreamCall[dispatcher_pb2.NodeMessage, dispatcher_pb2.DispatcherMessage]"
)
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)
# Nodes that connect at the same time; a real fleet does not connect all at once either.
CONNECTING = 50
AGAIN_S = 1.0


class AtOnce:
    """One node."""

    def __init__(self, node_id: str, slots: int, seen: list[tuple[str, int, int]]) -> None:
        self._hello = dispatcher_pb2.Hello(
            node_id=node_id,
            incarnation=secrets.token_hex(8),
            max_concurrent_jobs=slots,
            capabilities=common_pb2.NodeCapabilities(
                asr_langs=["en"], semantic_langs=["en"], tts_langs=["es"]
            ),
        )
        self._seen = seen
        self._beats = 0
        # gRPC allows one write at a time.
        self._writing = asyncio.Lock()
        self.connected = asyncio.Event()

    async def run(self, channel: grpc.aio.Channel) -> None:
        """Serve until cancelled; retry if refused, as may happen on a busy machine."""
        while not self.connected.is_set():
            await self._serve(dispatcher_pb2_grpc.DispatcherStub(channel).Connect())
            await asyncio.sleep(AGAIN_S)
        sys.exit("the stream of a node has ended")

    async def _serve(self, stream: Stream) -> None:
        await stream.write(_message(dispatcher_pb2.NodeEvent(hello=self._hello)))
        async for message in _messages(stream):
            answers = []
            now = time.monotonic_ns()
            for event in message.events:
                if event.HasField("job_assign"):
                    answers += self._answer(event.job_assign, now)
                elif event.HasField("welcome"):
                    every_s = event.welcome.heartbeat_interval_ms / 1000
                    self._beating = asyncio.create_task(self._beat(stream, every_s))
                    self.connected.set()
                elif event.HasField("error"):
                    print(f"node refused: {event.error.message}", file=sys.stderr)
            if answers:
                async with self._writing:
                    await stream.write(dispatcher_pb2.NodeMessage(events=answers))

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self._beating.cancel()

    def _answer(self, assign: dispatcher_pb2.JobAssign, now: int) -> list[dispatcher_pb2.NodeEvent]:
        result = dispatcher_pb2.JobResult(attempt=assign.attempt, kind=RESULT, texts=TEXTS)
        ack = dispatcher_pb2.JobAck(attempt=assign.attempt)
        self._seen.append((assign.attempt.job_id, now, time.monotonic_ns()))
        return [
            dispatcher_pb2.NodeEvent(job_ack=ack),
            dispatcher_pb2.NodeEvent(job_result=result),
        ]

    async def _beat(self, stream: Stream, every_s: float) -> None:
        # Spreads the heartbeats of thousands of nodes that started together.
        await asyncio.sleep(random.uniform(0, every_s))
        while True:
            self._beats += 1
            beat = dispatcher_pb2.Heartbeat(seq=self._beats, health=common_pb2.NODE_HEALTH_READY)
            async with self._writing:
                await stream.write(_message(dispatcher_pb2.NodeEvent(heartbeat=beat)))
            await asyncio.sleep(every_s)


def _message(event: dispatcher_pb2.NodeEvent) -> dispatcher_pb2.NodeMessage:
    return dispatcher_pb2.NodeMessage(events=[event])


async def _messages(
    stream: Stream,
) -> AsyncIterator[dispatcher_pb2.DispatcherMessage]:
    while isinstance(message := await stream.read(), dispatcher_pb2.DispatcherMessage):
        yield message


async def main(
    addresses: list[str],
    count: int,
    slots: int,
    prefix: str,
    make: Callable[[str, int, list[tuple[str, int, int]]], AtOnce] = AtOnce,
) -> None:
    """Connect all nodes and serve until SIGTERM."""
    seen: list[tuple[str, int, int]] = []
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    nodes = [make(f"{prefix}-{at}", slots, seen) for at in range(count)]
    # Some proxies and servers allow a hundred streams on a connection.
    channels = [
        grpc.aio.insecure_channel(addresses[at % len(addresses)], OPTIONS)
        for at in range(max(len(addresses), 1 + count // 100))
    ]
    running = []
    for at, node in enumerate(nodes):
        running.append(asyncio.create_task(node.run(channels[at % len(channels)])))
        if at >= CONNECTING:
            await nodes[at - CONNECTING].connected.wait()
    for node in nodes:
        await node.connected.wait()
    print("READY", flush=True)
    await stop.wait()
    for node, task in zip(nodes, running, strict=True):
        node.stop()
        task.cancel()
    print("\n".join(" ".join(map(str, row)) for row in seen), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", help="dispatchers, separated by commas")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--prefix", default="at-once")
    given = parser.parse_args()
    uvloop.run(main(given.addresses.split(","), given.count, given.slots, given.prefix))
