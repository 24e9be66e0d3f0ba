"""A gateway that speaks Submit by hand: it does only what a test has it do."""

import asyncio
import contextlib
import itertools
from typing import Any

import grpc

from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from lingua_scheduler.v1.dispatcher_pb2 import JobEvent
from tests.support.inbox import Inbox
from tests.support.process import SOON_S


class RawGateway:
    """One Submit stream.

    Args:
        address: of the dispatcher.
        channel: to it, if not by gRPC.
    """

    def __init__(self, address: str, channel: grpc.aio.Channel | None = None) -> None:
        self.inbox: Inbox[JobEvent] = Inbox("gateway")
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._asked = itertools.count(1)
        self.answers = 0
        self.gateways = 0
        """Of the dispatcher, as it said last."""
        self._answered = asyncio.Event()
        self._channel = channel or grpc.aio.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self._call: Any = dispatcher_pb2_grpc.DispatcherStub(self._channel).Submit()
        self._reader = asyncio.create_task(self._read())

    async def submit(self, *specs: dispatcher_pb2.JobSpec) -> str:
        """Submits jobs in one message; returns the id of the last."""
        await self._say(*(dispatcher_pb2.Submission(job=spec) for spec in specs))
        return id_of(specs[-1])

    async def attach(self, job: str, epoch: int = 0) -> None:
        """Attaches to a job that another gateway submitted."""
        attach = dispatcher_pb2.AttachJob(job_id=job, session_epoch=epoch)
        await self._say(dispatcher_pb2.Submission(attach=attach))

    async def leave(self, job: str) -> None:
        """Reports that the job's session has left."""
        leave = dispatcher_pb2.LeaveJob(job_id=job)
        await self._say(dispatcher_pb2.Submission(leave=leave))

    async def say_nothing(self) -> None:
        """Sends an empty request."""
        await self._say()

    async def is_answered(self, within: float = SOON_S) -> None:
        """Sends an empty request, and waits for one more empty response."""
        self._answered.clear()
        await self.say_nothing()
        async with asyncio.timeout(within):
            await self._answered.wait()

    async def cancel(self, job: str, why: str = "") -> None:
        """Cancels a job."""
        cancel = dispatcher_pb2.CancelJobRequest(job_id=job, why=why)
        await self._say(dispatcher_pb2.Submission(cancel=cancel))

    async def taken(self, job: str) -> None:
        """Confirms a result."""
        taken = dispatcher_pb2.ResultTaken(job_id=job)
        await self._say(dispatcher_pb2.Submission(taken=taken))

    async def expect(self, job: str, kind: str, within: float = SOON_S) -> JobEvent:
        """Waits for an event of a job."""
        return await self.inbox.take(
            lambda each: each.job_id == job and each.WhichOneof("event") == kind, within
        )

    async def accepted(self, job: str) -> dispatcher_pb2.JobAccepted:
        """Waits until a node has acknowledged the job."""
        return (await self.expect(job, "accepted")).accepted

    async def retrying(self, job: str) -> dispatcher_pb2.JobRetrying:
        """Waits until an attempt has failed and another follows."""
        return (await self.expect(job, "retrying")).retrying

    async def delivered(self, job: str, *, take: bool = True) -> dispatcher_pb2.JobDelivered:
        """Waits for the result; with `take`, confirms it."""
        delivered = (await self.expect(job, "delivered")).delivered
        if take:
            await self.taken(job)
        return delivered

    async def failed(self, job: str) -> common_pb2.Error:
        """Waits until the job has failed; returns the error."""
        return (await self.expect(job, "failed")).failed

    async def settled(self) -> list[tuple[str, str]]:
        """Waits until the dispatcher has read everything; returns job and kind of other events."""
        nobody = f"nobody-{next(self._asked)}"
        await self.attach(nobody)
        await self.failed(nobody)
        return [(each.job_id, str(each.WhichOneof("event"))) for each in self.inbox.waiting]

    def stop_reading(self) -> None:
        """Reads one more message, and then none until `read_on`."""
        self._may_read.clear()

    def read_on(self) -> None:
        """Starts to read again."""
        self._may_read.set()

    async def ended(self, within: float = SOON_S) -> None:
        """Returns when the dispatcher has ended the stream."""
        async with asyncio.timeout(within):
            await self.inbox.ended.wait()

    async def cut(self) -> None:
        """Breaks the stream."""
        self._reader.cancel()
        self._call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _say(self, *submissions: dispatcher_pb2.Submission) -> None:
        await self._call.write(dispatcher_pb2.SubmitRequest(submissions=submissions))

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                await self._may_read.wait()
                message = await self._call.read()
                if not isinstance(message, dispatcher_pb2.SubmitResponse):
                    break
                if not message.events:
                    self.answers += 1
                    self.gateways = message.gateways
                    self._answered.set()
                self.inbox.put(message.events)
        self.inbox.ended.set()


def id_of(spec: dispatcher_pb2.JobSpec) -> str:
    """The id of the job with this spec."""
    return job_id(job_key(spec), spec.session_id)


def as_told(spec: dispatcher_pb2.JobSpec) -> dispatcher_pb2.JobSpec:
    """The job as a node sees it if it begins a turn: without its session."""
    told = dispatcher_pb2.JobSpec()
    told.CopyFrom(spec)
    told.session_id = id_of(spec)
    told.ClearField("tenant")
    return told
