"""NATS JetStream: jobs in a work-queue stream, replies to the submitter's inbox.

A worker acknowledges a job after it has replied, which removes the job from the stream. The stream
is in memory, like the Redis of the others: jobs survive their worker, not the server.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from peers_of import CORES

WORKERS = [(sys.executable, "-m", "peers_of.nats_jetstream")] * CORES
URL = os.environ.get("PEERS_NATS_URL", "nats://127.0.0.1:4222")
STREAM = StreamConfig(
    name="jobs",
    subjects=["jobs.nothing"],
    retention=RetentionPolicy.WORK_QUEUE,
    storage=StorageType.MEMORY,
)
# JetStream uses a message's own reply subject for the acknowledgement of the publisher.
REPLY_TO = "Reply-To"


async def connect() -> tuple[nats.NATS, JetStreamContext]:
    """A connection, and the stream; creating it again changes nothing."""
    connection = await nats.connect(URL)
    context = connection.jetstream()
    await context.add_stream(STREAM)
    return connection, context


class Client:
    """Runs jobs."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._replies: dict[str, asyncio.Future[int]] = {}
        self._inbox = ""

    async def start(self) -> None:
        """Connect and listen to one inbox for all replies."""
        self._connection, self._context = await connect()
        self._inbox = self._connection.new_inbox()
        await self._connection.subscribe(f"{self._inbox}.*", cb=self._replied)

    async def _replied(self, message: Msg) -> None:
        self._replies.pop(message.subject).set_result(int(message.data))

    async def job(self, audio: bytes) -> int:
        """Run one job: the server has it in its stream, and then the worker replies."""
        if not self._inbox:
            await self.start()
        inbox = f"{self._inbox}.{next(self._numbers)}"
        reply = self._replies[inbox] = asyncio.get_running_loop().create_future()
        await self._context.publish("jobs.nothing", audio, headers={REPLY_TO: inbox})
        async with asyncio.timeout(60):
            return await reply


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""
    return Client().job


async def main() -> None:
    """Run a worker until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connection, context = await connect()

    async def work(message: Msg) -> None:
        await connection.publish(message.headers[REPLY_TO], str(len(message.data)).encode())
        await message.ack()

    # A push consumer: `fetch` of the Python client sends a request for each batch and waits.
    await context.subscribe(
        "jobs.nothing", queue="workers", cb=work, manual_ack=True, config=ConsumerConfig()
    )
    await stop.wait()
    await connection.close()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
