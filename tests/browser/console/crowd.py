"""2,000 nodes and 10,000 jobs, made cheaply: through the pool service, without node processes."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, pool_pb2_grpc
from tests.support.pool_client import registration

NODES = 2000
JOBS = 10_000
LANGUAGES = ("de", "fr", "it", "nl", "pl")
"""Nodes hear one of them, and each writes all languages."""
ODD = 20
"""Of so many jobs one fails, one is cancelled and one needs another attempt."""
# Registrations that are under way at once, and jobs.
AT_ONCE = 100
JOBS_AT_ONCE = 1000


def node_id(number: int) -> str:
    """The id of a node."""
    return f"crowd-{number:04}"


def job_id(number: int) -> str:
    """The id of a job."""
    return f"{number:032x}"


def session_id(number: int) -> str:
    """The session of a job; ten jobs have one."""
    return f"talk-{number // 10:05}"


class Crowd:
    """Registers nodes, and takes jobs from placement to end.

    Args:
        address: of the pool service.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._stub: Any = None
        self._ids = itertools.count(1)
        self._asked: asyncio.Queue[list[pool_pb2.Operation]] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[pool_pb2.OperationResult]] = {}

    async def fill(self) -> None:
        """Makes everything."""
        async with grpc.aio.insecure_channel(self._address) as channel:
            self._stub = pool_pb2_grpc.PoolServiceStub(channel)
            for first in range(0, NODES, AT_ONCE):
                await asyncio.gather(*map(self._register, range(first, first + AT_ONCE)))
            reading = asyncio.create_task(self._read())
            for first in range(0, JOBS, JOBS_AT_ONCE):
                await self._make(range(first, first + JOBS_AT_ONCE))
            reading.cancel()

    async def _register(self, number: int) -> None:
        language = LANGUAGES[number % len(LANGUAGES)]
        request = registration(
            node_id(number),
            slots=1 + number % 8,
            asr=(language,),
            tts=(),
            owner_instance="dispatcher-9",
        )
        await self._stub.RegisterNode(request)

    async def _make(self, jobs: range) -> None:
        """Takes some jobs through their lives, all of them one step at a time."""
        placed = await self._all([_allocate(number, 1) for number in jobs])
        at = {number: result.allocate for number, result in zip(jobs, placed, strict=True)}
        assert all(each.placement.node_id for each in at.values()), placed
        await self._all([_commit(each) for each in at.values()])
        await self._all([_complete(each, number) for number, each in at.items()])
        again = [number for number in jobs if number % ODD == 2]
        placed = await self._all([_allocate(number, 2) for number in again])
        await self._all([_commit(each.allocate) for each in placed])
        await self._all([_complete(each.allocate, 0) for each in placed])

    async def _all(self, operations: list[pool_pb2.Operation]) -> list[pool_pb2.OperationResult]:
        loop = asyncio.get_running_loop()
        for each in operations:
            each.id = next(self._ids)
            self._waiting[each.id] = loop.create_future()
        results = [self._waiting[each.id] for each in operations]
        self._asked.put_nowait(operations)
        found = await asyncio.gather(*results)
        errors = [each.error for each in found if each.HasField("error")]
        assert not errors, errors[0]
        return found

    async def _read(self) -> None:
        async def asked() -> AsyncIterator[pool_pb2.OperateRequest]:
            while True:
                yield pool_pb2.OperateRequest(operations=await self._asked.get())

        async for answer in self._stub.Operate(asked()):
            for result in answer.results:
                self._waiting.pop(result.id).set_result(result)


def _allocate(number: int, attempt: int) -> pool_pb2.Operation:
    language = LANGUAGES[number % len(LANGUAGES)]
    return pool_pb2.Operation(
        allocate=pool_pb2.AllocateRequest(
            job_id=job_id(number),
            attempt=attempt,
            criteria=pool_pb2.NodeCriteria(
                pair=common_pb2.LanguagePair(src=language, tgt="en"), require_tts=False
            ),
            tenant=f"tenant-{number % 3}",
            session_id=session_id(number),
            utterance_index=number % 10,
            reason=common_pb2.FINALIZE_REASON_IS_FINAL,
            home_instance="dispatcher-9",
        )
    )


def _commit(placed: pool_pb2.AllocateResponse) -> pool_pb2.Operation:
    return pool_pb2.Operation(
        commit=pool_pb2.CommitRequest(attempt=placed.attempt, node_id=placed.placement.node_id)
    )


def _complete(placed: pool_pb2.AllocateResponse, number: int) -> pool_pb2.Operation:
    """Most jobs succeed; of ODD, one fails, one is cancelled and one is tried again."""
    end: dict[str, Any] = {
        1: {
            "outcome": pool_pb2.ATTEMPT_OUTCOME_FAILED,
            "final_state": common_pb2.JOB_STATE_FAILED,
            "job_at_fault": True,
        },
        2: {"outcome": pool_pb2.ATTEMPT_OUTCOME_TIMED_OUT, "job_at_fault": True},
        3: {
            "outcome": pool_pb2.ATTEMPT_OUTCOME_CANCELLED,
            "final_state": common_pb2.JOB_STATE_CANCELLED,
        },
    }.get(
        number % ODD,
        {
            "outcome": pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
            "result_kind": dispatcher_pb2.JobResult.KIND_TRANSLATED,
        },
    )
    return pool_pb2.Operation(
        complete=pool_pb2.CompleteRequest(
            attempt=placed.attempt, node_id=placed.placement.node_id, **end
        )
    )
