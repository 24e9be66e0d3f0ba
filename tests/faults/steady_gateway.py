"""A gateway that loses no job: if a dispatcher is gone, it submits the job to another one."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import grpc

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from tests.faults.cluster import Cluster
from tests.faults.fleet import text_of
from tests.support.raw_gateway import id_of

DEPENDENCY_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
# Before a dispatcher that could not be reached is tried again.
PAUSE_S = 0.02


class SteadyGateway:
    """Submits jobs to the first dispatcher that answers, and to the next if that one is gone.

    Attributes:
        texts: what was delivered for each job, each time.
        failures: of each job, each time.
        delivered_at: when each job's first result came.
        takes: whether to say of a job that its result is taken.
        resubmitted: how many times a job was submitted again.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.texts: dict[str, list[str]] = defaultdict(list)
        self.failures: dict[str, list[common_pb2.Error]] = defaultdict(list)
        self.delivered_at: dict[str, float] = {}
        self.takes: Callable[[str], bool] = lambda _: True
        self.resubmitted = 0
        self._addresses = list(addresses)
        self._at = 0
        self._specs: dict[str, dispatcher_pb2.JobSpec] = {}
        # In the order in which they came.
        self._open: dict[str, None] = {}
        self._where: dict[str, _Stream] = {}
        self._streams: dict[str, _Stream] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def submit(self, *specs: dispatcher_pb2.JobSpec) -> list[str]:
        """Submits jobs; returns their ids."""
        jobs = [id_of(spec) for spec in specs]
        self._specs.update(zip(jobs, specs, strict=True))
        self._open.update(dict.fromkeys(jobs))
        self._send(jobs)
        return jobs

    @property
    def under_way(self) -> list[str]:
        """Jobs that have neither a result nor failed."""
        return list(self._open)

    async def until(self, condition: Callable[[], bool], within: float) -> None:
        """Waits until a condition holds."""
        deadline = time.monotonic() + within
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"not within {within} s; without an end: {self._describe()}"
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(left, 0.2))

    async def all_over(self, within: float) -> None:
        """Waits until every job has an end."""
        await self.until(lambda: not self.under_way, within)

    def stop_reading(self) -> None:
        """Reads nothing more from the streams that are open."""
        for stream in self._streams.values():
            stream.may_read.clear()

    def read_on(self) -> None:
        """Starts to read again."""
        for stream in self._streams.values():
            stream.may_read.set()

    def drop(self, address: str) -> None:
        """Loses the stream to a dispatcher, with everything that was not read."""
        if address in self._streams:
            self._streams[address].call.cancel()
            self._streams[address].may_read.set()

    def duplicates(self) -> int:
        """Results that came after a job's first."""
        return sum(len(texts) - 1 for texts in self.texts.values())

    def check_delivered(self, jobs: Iterable[str]) -> None:
        """Fails unless every job has a result, always the same, and has not failed."""
        for job in jobs:
            assert not self.failures.get(job), f"{job} failed: {self.failures[job]}"
            assert set(self.texts[job]) == {text_of(self._specs[job].audio)}, self.texts[job]

    def check_each_ended_once(self) -> None:
        """Fails unless every job has one result or one failure, and not both."""
        ends = {job: len(self.texts[job]) + len(self.failures[job]) for job in self._specs}
        assert {job: count for job, count in ends.items() if count != 1} == {}

    async def close(self) -> None:
        """Ends all streams."""
        self._closed = True
        for stream in list(self._streams.values()):
            await stream.close()

    # ---- streams ----

    def _send(self, jobs: Sequence[str]) -> None:
        address = self._addresses[self._at % len(self._addresses)]
        stream = self._streams.get(address)
        if stream is None:
            stream = self._streams[address] = _Stream(address, self._take, self._ended)
        for job in jobs:
            self._where[job] = stream
        stream.say(*(dispatcher_pb2.Submission(job=self._specs[job]) for job in jobs))

    def _take(self, stream: "_Stream", event: dispatcher_pb2.JobEvent) -> None:
        job, kind = event.job_id, event.WhichOneof("event")
        if kind == "delivered":
            self._open.pop(job, None)
            self.delivered_at.setdefault(job, time.monotonic())
            self.texts[job].append(event.delivered.result.texts.translated)
            if self.takes(job):
                taken = dispatcher_pb2.ResultTaken(job_id=job)
                stream.say(dispatcher_pb2.Submission(taken=taken))
        elif kind == "failed" and event.failed.reason == common_pb2.ERROR_REASON_DRAINING:
            if self._addresses[self._at % len(self._addresses)] == stream.address:
                self._at += 1
            self.resubmitted += 1
            self._send([job])
        elif kind == "failed" and event.failed.reason == DEPENDENCY_DOWN:
            # No job was made, and a later try may make one: a gateway asks until its deadline.
            self.resubmitted += 1
            wait = event.failed.retry_after_ms / 1000
            asyncio.get_running_loop().call_later(wait, self._send_again, job)
        elif kind == "failed":
            self._open.pop(job, None)
            self.failures[job].append(event.failed)
        self._changed.set()

    def _send_again(self, job: str) -> None:
        if not self._closed:
            self._send([job])

    async def _ended(self, stream: "_Stream") -> None:
        """Submits every unfinished job of a lost stream to another dispatcher."""
        del self._streams[stream.address]
        if self._closed:
            return
        if self._addresses[self._at % len(self._addresses)] == stream.address:
            self._at += 1
        lost = [job for job in self.under_way if self._where[job] is stream]
        if not stream.heard:
            await asyncio.sleep(PAUSE_S)
        if lost and not self._closed:
            self.resubmitted += len(lost)
            self._send(lost)
        self._changed.set()

    def _describe(self) -> str:
        jobs = self.under_way
        return ", ".join(self._specs[job].session_id for job in jobs[:20]) + f" ({len(jobs)})"


class _Stream:
    def __init__(
        self,
        address: str,
        take: Callable[["_Stream", dispatcher_pb2.JobEvent], None],
        ended: Callable[["_Stream"], Any],
    ) -> None:
        self.address = address
        self.heard = False
        self.may_read = asyncio.Event()
        self.may_read.set()
        options = (("grpc.use_local_subchannel_pool", 1),)
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self.call: Any = dispatcher_pb2_grpc.DispatcherStub(self._channel).Submit()
        self._take = take
        self._ended = ended
        self._unsent: asyncio.Queue[dispatcher_pb2.Submission] = asyncio.Queue()
        self._writer = asyncio.create_task(self._write())
        self._reader = asyncio.create_task(self._read())

    def say(self, *submissions: dispatcher_pb2.Submission) -> None:
        for submission in submissions:
            self._unsent.put_nowait(submission)

    async def close(self) -> None:
        self._writer.cancel()
        self._reader.cancel()
        self.call.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)
        await self._channel.close()

    async def _write(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                said = [await self._unsent.get()]
                while not self._unsent.empty() and len(said) < 100:
                    said.append(self._unsent.get_nowait())
                await self.call.write(dispatcher_pb2.SubmitRequest(submissions=said))

    async def _read(self) -> None:
        try:
            while True:
                message = await self.call.read()
                await self.may_read.wait()
                if not isinstance(message, dispatcher_pb2.SubmitResponse) or self.call.cancelled():
                    break
                self.heard = True
                for event in message.events:
                    self._take(self, event)
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            # Also raised where it is the call that was cancelled.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        self._writer.cancel()
        self.call.cancel()
        await self._channel.close()
        await self._ended(self)


@contextlib.asynccontextmanager
async def steady_gateway(cluster: Cluster, *order: int) -> AsyncIterator[SteadyGateway]:
    """A gateway that tries the dispatchers in this order."""
    gateway = SteadyGateway(cluster.addresses(*order))
    try:
        yield gateway
    finally:
        await gateway.close()
