"""A listener of a room that speaks Listen by hand: it does only what a test has it do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2_grpc
from lingua_scheduler.v1.rooms_pb2 import RoomEvent
from tests.support.process import SOON_S
from tests.support.rpc_errors import reason

Metadata = tuple[tuple[str, str], ...]


def listening(language: str, **wants: bool) -> rooms_pb2.Listening:
    """What somebody listens to; captions, unless it says otherwise."""
    return rooms_pb2.Listening(language=language, **{"captions": True, **wants})


class RawListener:
    """One Listen stream."""

    def __init__(self, address: str, metadata: Metadata = ()) -> None:
        self._channel = grpc.aio.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self.call: Any = session_pb2_grpc.SessionGatewayStub(self._channel).Listen(
            metadata=metadata
        )
        self.events: list[RoomEvent] = []
        self.messages = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._failed: grpc.aio.AioRpcError | None = None
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def say(self, **fields: Any) -> None:
        """Sends one message."""
        await self.call.write(rooms_pb2.ListenerMessage(**fields))

    async def join(
        self, room_id: str, token: str, wanted: rooms_pb2.Listening, **fields: Any
    ) -> rooms_pb2.Joined:
        """Joins a room."""
        join = rooms_pb2.JoinRoom(room_id=room_id, join_token=token, listening=wanted, **fields)
        await self.say(join=join)
        return (await self.event("joined")).joined

    async def change(self, wanted: rooms_pb2.Listening) -> rooms_pb2.ListeningChanged:
        """Listens to something else."""
        before = len(self.of("changed"))
        await self.say(change=rooms_pb2.ChangeListening(listening=wanted))
        await self.until(lambda: len(self.of("changed")) > before)
        changed: rooms_pb2.ListeningChanged = self.of("changed")[-1]
        return changed

    async def event(
        self, kind: str, holds: Callable[[RoomEvent], bool] = lambda _: True
    ) -> RoomEvent:
        """Waits for the first event of this kind that meets a condition."""

        def found() -> list[RoomEvent]:
            return [e for e in self.events if e.WhichOneof("event") == kind and holds(e)]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def until(self, condition: Callable[[], bool], within: float = SOON_S) -> None:
        """Waits until a condition holds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not condition():
                    assert not self._reader.done(), f"the stream has ended: {self.told()}"
                    self._changed.clear()
                    await self._changed.wait()
                return
        raise AssertionError(f"not within {within} s: {self.told()}")

    async def result(self, index: int) -> rooms_pb2.RoomResult:
        """Waits for the result of an utterance."""
        found = await self.event("result", lambda event: event.result.room_index == index)
        return found.result

    def texts(self) -> list[str]:
        """The texts of all results, in the order in which they came."""
        return [each.texts.translated for each in self.of("result")]

    def of(self, kind: str) -> list[Any]:
        """All events of a kind."""
        return [getattr(each, kind) for each in self.events if each.WhichOneof("event") == kind]

    def told(self) -> list[str]:
        """The kinds of all events, in order."""
        return [event.WhichOneof("event") or "" for event in self.events]

    async def status(self, within: float = SOON_S) -> grpc.StatusCode:
        """Waits for the end of the stream; returns its status code."""
        async with asyncio.timeout(within):
            await asyncio.wait({self._reader})
            return await self.call.code()

    async def refused(self, why: str, within: float = SOON_S) -> common_pb2.Error:
        """Waits for an error that ends the stream: its last event and its status have it."""
        await self.status(within)
        assert self._failed is not None, f"the stream ended well: {self.told()}"
        said = from_rpc_error(self._failed)
        assert said is not None, f"not an error of the scheduler: {self._failed!r}"
        assert (reason(said), self.told()[-1:]) == (why, ["error"]), (said, self.told())
        assert self.events[-1].error == said
        return said

    def stop_reading(self) -> None:
        """Reads one more message, and then none until `read_on`."""
        self._may_read.clear()

    def read_on(self) -> None:
        """Starts to read again."""
        self._may_read.set()

    async def close(self) -> None:
        """Cancels the stream."""
        self.call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _read(self) -> None:
        try:
            while isinstance(message := await self.call.read(), rooms_pb2.RoomMessage):
                self.events.extend(message.events)
                self.messages += 1
                self._changed.set()
                await self._may_read.wait()
        except grpc.aio.AioRpcError as error:
            self._failed = error
        finally:
            self._changed.set()


@contextlib.asynccontextmanager
async def raw_listener(address: str, metadata: Metadata = ()) -> AsyncIterator[RawListener]:
    """A listener whose stream is cancelled at the end of the block."""
    listener = RawListener(address, metadata)
    try:
        yield listener
    finally:
        await listener.close()
