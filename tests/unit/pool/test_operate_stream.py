"""The two halves of an Operate stream, with a Redis that answers when the test says so."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from lingua_scheduler.services.pool_service.stream import OperateStream
from lingua_scheduler.v1 import common_pb2, pool_pb2

CRITERIA = pool_pb2.NodeCriteria(pair=common_pb2.LanguagePair(src="zh", tgt="en"))


class Work:
    """Stands for the operations: every commit waits for its future, heartbeats for a task."""

    def __init__(self) -> None:
        self.replies: list[asyncio.Future[Any]] = []
        self.attempts = SimpleNamespace(
            send=self._send,
            fill={"commit": self._fill, "allocate": self._fill},
            goes_on=lambda request, sent: self.goes_on.get(sent),
            selected=lambda seconds: None,
        )
        # What an allocation waits for after its own cell has answered.
        self.goes_on: dict[asyncio.Future[Any], asyncio.Future[Any]] = {}
        self.by_name = {"heartbeat": self._heartbeat}
        self.beating: set[str] = set()

    def _send(self, name: str, request: Any) -> asyncio.Future[Any]:
        self.replies.append(asyncio.get_running_loop().create_future())
        return self.replies[-1]

    def _fill(self, request: Any, reply: int, response: Any) -> None:
        response.lease_ends_ms = reply

    async def _heartbeat(self, request: Any) -> pool_pb2.HeartbeatResponse:
        self.beating.add("begun")
        try:
            await asyncio.Event().wait()
        finally:
            self.beating.add("ended")
        return pool_pb2.HeartbeatResponse()


class Context:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.messages = 0
        self.wrote = asyncio.Event()
        self.results: list[pool_pb2.OperationResult] = []

    def done(self) -> bool:
        return False

    async def write(self, data: bytes) -> None:
        self.messages += 1
        self.results += pool_pb2.OperateResponse.FromString(data).results
        self.wrote.set()

    async def has(self, results: int) -> None:
        """Returns when there are as many results."""
        while len(self.results) < results:
            self.wrote.clear()
            await asyncio.wait_for(self.wrote.wait(), 5)


async def reach_store() -> None:
    """Redis answers."""


def new_stream(work: Any, *, in_order: bool = True) -> OperateStream:
    return OperateStream(
        operations=work,
        reach_store=reach_store,
        in_order=in_order,
        spans=None,
        instance_id="p1",
        max_message_bytes=10_000,
    )


def commit(number: int, node_id: str = "n1") -> pool_pb2.OperateRequest:
    attempt = common_pb2.AttemptRef(job_id="j1", attempt=1)
    request = pool_pb2.CommitRequest(node_id=node_id, attempt=attempt)
    return pool_pb2.OperateRequest(operations=[pool_pb2.Operation(id=number, commit=request)])


def several(*numbers: int) -> pool_pb2.OperateRequest:
    return pool_pb2.OperateRequest(operations=[commit(each).operations[0] for each in numbers])


async def said(*requests: pool_pb2.OperateRequest) -> AsyncIterator[pool_pb2.OperateRequest]:
    for request in requests:
        yield request


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_message_waits_for_those_before_it_and_all_are_answered_after_the_close() -> None:
    work, context = Work(), Context()
    stream = new_stream(work)
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    await turns()
    await stream.read(said(commit(1), commit(2), commit(3, node_id="")))
    work.replies[1].set_result(22)
    await turns()
    assert context.results == []
    stream.close()
    work.replies[0].set_exception(RuntimeError("no"))
    await writing
    assert [result.id for result in context.results] == [1, 2, 3]
    assert [result.WhichOneof("result") for result in context.results] == [
        "error",
        "commit",
        "error",
    ]


async def test_out_of_order_the_operations_of_a_message_are_answered_together() -> None:
    work, context = Work(), Context()
    stream = new_stream(work, in_order=False)
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    await stream.read(said(several(1, 2, 3), commit(4, node_id="")))
    for number in (1, 0, 2):
        await turns()
        work.replies[number].set_result(number)
    stream.close()
    await writing
    assert [result.id for result in context.results] == [1, 2, 3, 4]
    assert context.messages == 2


async def test_out_of_order_a_slow_operation_delays_others_for_a_moment_only() -> None:
    work, context = Work(), Context()
    stream = new_stream(work, in_order=False)
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    await stream.read(said(several(1, 2, 3), commit(4), commit(5)))
    for number in (2, 4):
        work.replies[number].set_result(number)
    work.replies[1].set_exception(RuntimeError("no"))
    await context.has(3)
    assert [result.id for result in context.results] == [2, 3, 5]
    # Nothing of the fourth message was done: that is no answer to a greeting.
    assert context.messages == 2
    stream.close()
    await turns()
    assert not writing.done()
    for number in (3, 0):
        work.replies[number].set_result(number)
    await writing
    assert [result.id for result in context.results] == [2, 3, 5, 4, 1]
    # Those that are done at the same time share an answer.
    assert context.messages == 3


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_allocation_that_goes_on_in_other_cells_is_answered_at_its_end(
    is_late: bool,
) -> None:
    work, context = Work(), Context()
    stream = new_stream(work, in_order=False)
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    allocate = pool_pb2.AllocateRequest(job_id="j1", attempt=1, criteria=CRITERIA)
    operation = pool_pb2.Operation(id=1, allocate=allocate)
    await stream.read(said(pool_pb2.OperateRequest(operations=[operation]), commit(2)))
    (first, other), further = work.replies, asyncio.get_running_loop().create_future()
    work.goes_on[first] = further
    other.set_result(0)
    if is_late:
        await context.has(1)
    first.set_result(1)
    await turns()
    assert [result.id for result in context.results] == ([2] if is_late else [])
    stream.close()
    further.set_result(7)
    await writing
    ends = {result.id: result.allocate.lease_ends_ms for result in context.results}
    assert ends[1] == 7


async def test_out_of_order_a_greeting_waits_for_an_operation_for_a_moment_only() -> None:
    work, context = Work(), Context()
    stream = new_stream(work, in_order=False)
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    await stream.read(said(commit(1), pool_pb2.OperateRequest()))
    await asyncio.wait_for(context.wrote.wait(), 5)
    assert (context.messages, context.results) == (1, [])
    work.replies[0].set_result(1)
    stream.close()
    await writing
    assert [result.id for result in context.results] == [1]


async def test_out_of_order_a_bounded_number_of_operations_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lingua_scheduler.services.pool_service.stream._OPERATIONS_AT_ONCE", 10)
    work, context = Work(), Context()
    stream = new_stream(work, in_order=False)
    reading = asyncio.create_task(stream.read(said(*(commit(n) for n in range(200)))))
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    # Longer than all that was read waits for each other: nothing more is read from then on.
    await asyncio.wait((reading,), timeout=0.1)
    assert 64 <= len(work.replies) <= 64 + 10
    # One that is never done uses up only its own place.
    for done in range(1, 200):
        while len(work.replies) <= done:
            await context.has(done - 64)
            await turns()
        work.replies[done].set_result(done)
    await reading
    await context.has(199)
    work.replies[0].set_result(0)
    stream.close()
    await writing
    ends = [result.commit.lease_ends_ms for result in context.results]
    assert (sorted(ends), ends[-1]) == ([*range(200)], 0)


async def test_no_more_than_64_messages_are_under_way() -> None:
    work, context = Work(), Context()
    stream = new_stream(work)
    reading = asyncio.create_task(stream.read(said(*(commit(n) for n in range(100)))))
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    await turns(200)
    assert len(work.replies) == 64
    for done in range(100):
        work.replies[done].set_result(done)
        await turns()
    await reading
    stream.close()
    await writing
    assert [result.commit.lease_ends_ms for result in context.results] == list(range(100))


@pytest.mark.parametrize("in_order", [True, False])
async def test_what_is_given_up_is_cancelled_and_nobody_complains(
    caplog: pytest.LogCaptureFixture, in_order: bool
) -> None:
    work, context = Work(), Context()
    stream = new_stream(work, in_order=in_order)
    writing = asyncio.create_task(stream.write(context))  # type: ignore[arg-type]
    beat = pool_pb2.Operation(id=9, heartbeat=pool_pb2.HeartbeatRequest())
    rest = commit(2), commit(3), commit(4, node_id=""), pool_pb2.OperateRequest(operations=[beat])
    await stream.read(said(commit(1), *rest))
    await turns()
    work.replies[1].set_exception(RuntimeError("no"))
    writing.cancel()
    stream.give_up()
    await turns()
    assert [reply.cancelled() for reply in work.replies] == [True, False, True]
    assert work.beating == {"begun", "ended"}
    work.replies.clear()
    del stream, writing
    await turns()
    assert caplog.records == []
