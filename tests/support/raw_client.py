"""A client that speaks Converse by hand: it does only what a test has it do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2, session_pb2_grpc
from lingua_scheduler.v1.session_pb2 import ServerEvent
from tests.support.audio import CHUNK_BYTES, FORMAT, speech
from tests.support.process import SOON_S
from tests.support.raw_node import RawNode
from tests.support.rpc_errors import reason


def new_session(src: str, tgt: str = "es", **fields: Any) -> session_pb2.NewSession:
    """A session of a fixed direction."""
    values: dict[str, Any] = {
        "direction": common_pb2.LanguagePair(src=src, tgt=tgt),
        "audio_format": FORMAT,
        "options": session_pb2.SessionOptions(require_tts=True),
        "tenant": "t",
        **fields,
    }
    return session_pb2.NewSession(**values)


class RawClient:
    """One Converse stream; `metadata` authenticates the client if the gateway requires it."""

    def __init__(self, address: str, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._channel = grpc.aio.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self.call: Any = session_pb2_grpc.SessionGatewayStub(self._channel).Converse(
            metadata=metadata
        )
        self.events: list[ServerEvent] = []
        self.messages = 0
        self.seq = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._failed: grpc.aio.AioRpcError | None = None
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self.ended = False

    async def open(self, new: session_pb2.NewSession) -> session_pb2.Opened:
        """Opens a session."""
        await self.say(open=session_pb2.Open(new=new))
        return (await self.event("opened")).opened

    async def resume(
        self, opened: session_pb2.Opened, *, results_seen: int = 0, next_seq: int = 0
    ) -> session_pb2.Opened:
        """Resumes a session."""
        resume = session_pb2.ResumeSession(
            session_id=opened.session_id,
            resume_token=opened.resume_token,
            results_seen=results_seen,
            next_seq=next_seq,
        )
        await self.say(open=session_pb2.Open(resume=resume))
        again = (await self.event("opened")).opened
        self.seq = again.next_seq
        return again

    async def say(self, **fields: Any) -> None:
        """Sends one message."""
        await self.call.write(session_pb2.ClientMessage(**fields))

    async def send(self, data: bytes = bytes(CHUNK_BYTES), *, final: bool = False, **f: Any) -> int:
        """Sends the next chunk; returns its seq."""
        chunk = session_pb2.AudioChunk(**{"seq": self.seq, "data": data, "is_final": final, **f})
        self.seq += 1
        await self.say(audio=chunk)
        return chunk.seq

    async def event(
        self,
        kind: str,
        holds: Callable[[ServerEvent], bool] = lambda _: True,
        *,
        within: float = SOON_S,
    ) -> ServerEvent:
        """Waits for the first event of this kind that meets a condition."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    for event in self.events:
                        if event.WhichOneof("event") == kind and holds(event):
                            return event
                    assert not self.ended, f"the stream ended without {kind}: {self.told()}"
                    self._changed.clear()
                    await self._changed.wait()
        raise AssertionError(f"no such {kind} within {within} s: {self.told()}")

    async def result(self, index: int, *, within: float = SOON_S) -> session_pb2.Result:
        """Waits for the result of an utterance."""
        found = await self.event(
            "result", lambda e: e.result.utterance_index == index, within=within
        )
        return found.result

    async def error(self, reason: str, *, within: float = SOON_S) -> common_pb2.Error:
        """Waits for an error with this reason."""
        wanted = common_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")
        return (await self.event("error", lambda e: e.error.reason == wanted, within=within)).error

    async def missing(self, index: int, *, within: float = SOON_S) -> common_pb2.Error:
        """Waits until an utterance is missing; returns the reason."""
        found = await self.event(
            "missing", lambda e: e.missing.utterance_index == index, within=within
        )
        return found.missing.why

    async def utterance(
        self, index: int, kind: str, *, within: float = SOON_S
    ) -> session_pb2.UtteranceEvent:
        """Waits for an event of an utterance: finalized, accepted or retrying."""

        def is_it(event: ServerEvent) -> bool:
            told = event.utterance
            return told.utterance_index == index and told.HasField(kind)  # type: ignore[arg-type]

        return (await self.event("utterance", is_it, within=within)).utterance

    async def acked(self, next_seq: int) -> None:
        """Returns when all chunks below `next_seq` are acknowledged."""
        await self.event("audio_ack", lambda event: event.audio_ack.next_seq >= next_seq)

    async def status(self, within: float = SOON_S) -> grpc.StatusCode:
        """Waits for the end of the stream; returns its status code."""
        async with asyncio.timeout(within):
            await asyncio.gather(self._reader, return_exceptions=True)
            return await self.call.code()

    async def failure(self, within: float = SOON_S) -> common_pb2.Error:
        """Waits for the end of the stream; returns the error in its status."""
        await self.status(within)
        assert self._failed is not None, f"the stream ended well: {self.told()}"
        said = from_rpc_error(self._failed)
        assert said is not None, f"not an error of the scheduler: {self._failed!r}"
        return said

    async def refused(self, why: str, within: float = SOON_S) -> common_pb2.Error:
        """Waits for an error that ends the stream: its last event and its status have it."""
        said = await self.failure(within)
        assert (reason(said), self.told()[-1:]) == (why, ["error"]), (said, self.told())
        assert self.events[-1].error == said
        return said

    def outcomes(self) -> list[tuple[int, str]]:
        """Index and text of every result, in the order in which they came; "" for a missing one."""
        return [
            (each.result.utterance_index, each.result.texts.translated)
            if each.HasField("result")
            else (each.missing.utterance_index, "")
            for each in self.events
            if each.WhichOneof("event") in ("result", "missing")
        ]

    async def half_close(self) -> None:
        """Closes its side of the stream, and still reads."""
        await self.call.done_writing()

    def stop_reading(self) -> None:
        """Reads one more message, and then none until `read_on`."""
        self._may_read.clear()

    def read_on(self) -> None:
        """Starts to read again."""
        self._may_read.set()

    def told(self) -> list[str]:
        """The kinds of all events, in order."""
        return [event.WhichOneof("event") or "" for event in self.events]

    def of(self, kind: str) -> list[Any]:
        """All events of a kind."""
        return [getattr(each, kind) for each in self.events if each.WhichOneof("event") == kind]

    async def close(self) -> None:
        """Cancels the stream."""
        self.call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _read(self) -> None:
        try:
            while isinstance(message := await self.call.read(), session_pb2.ServerMessage):
                self.events.extend(message.events)
                self.messages += 1
                self._changed.set()
                await self._may_read.wait()
        except grpc.aio.AioRpcError as error:
            self._failed = error
        finally:
            self.ended = True
            self._changed.set()


@contextlib.asynccontextmanager
async def raw_client(
    address: str, metadata: tuple[tuple[str, str], ...] = ()
) -> AsyncIterator[RawClient]:
    """A client whose stream is cancelled at the end of the block."""
    client = RawClient(address, metadata)
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def working(
    node: RawNode, spoken: bytes = b""
) -> AsyncIterator[dict[str, dispatcher_pb2.JobSpec]]:
    """A node that does every job at once; its result says which audio it heard.

    Gives what it was given, by job. A job that comes again has to be the same.
    """
    jobs: dict[str, dispatcher_pb2.JobSpec] = {}

    async def work() -> None:
        while True:
            assign = await node.expect_assign(within=3600)
            known = jobs.setdefault(assign.attempt.job_id, assign.job)
            assert known.audio == assign.job.audio
            await node.ack(assign)
            await node.result(assign, heard(assign.job), speech=spoken)

    task = asyncio.create_task(work())
    try:
        yield jobs
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        # Its dispatcher may have been killed.
        assert isinstance(ended, asyncio.CancelledError | grpc.aio.AioRpcError), repr(ended)


def heard(job: dispatcher_pb2.JobSpec) -> str:
    """The text of a working node for a job: the marks of its chunks of 100 ms."""
    chunks = [job.audio[at : at + CHUNK_BYTES] for at in range(0, len(job.audio), CHUNK_BYTES)]
    marks = [int.from_bytes(chunk[:2], "little") for chunk in chunks]
    assert all(chunk == speech(mark) for chunk, mark in zip(chunks, marks, strict=True))
    return " ".join(map(str, marks))
