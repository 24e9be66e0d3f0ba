"""A hostile node as a process of its own; it has jobs of honest people, and answers with garbage.

Whatever it answers can be told from a good answer: a result beyond the contract's limits, of an
attempt that is not its own, or too late. It does not answer with a plausible wrong text, which no
scheduler can tell from a bad model, and does not keep silent, which faults/nodes.py has.

Its id is `hostile-0`. For what ends a stream it has others, which serve a language of their own.
"""

import asyncio
import contextlib
import itertools
import os
import random
from collections import deque
from functools import partial
from typing import Any

import grpc

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign, JobResult, NodeEvent, NodeMessage, Texts
from tests.robustness.fuzz.limits import beyond, beyond_on_stream
from tests.robustness.traffic.hostile_acts import (
    ACT_S,
    REFUSED,
    Act,
    Records,
    attempt,
    run_acts,
    run_program,
)
from tests.security.test_limits_of_nodes import REPORTS
from tests.support.audio import FORMAT
from tests.support.listening_node import audio_of
from tests.support.raw_node import RawNode

NODE_ID = "hostile-0"
TENANT = "hostile"
MINE, OTHERS = ("en", "es"), ("fr", "de")
"""Languages: those of honest people; and some that only hostile peers use."""
SLOTS = 2
# As many attempts in a list, or events in a message, as made a dispatcher stand still for seconds.
ATTEMPTS = 400_000
BEATS = 500_000
# Of one act.
IDS = 20
SLOTS_CLAIMED = 1000
LATE = 6
BEYOND = 6
SPEECH = bytes(3 * 1024 * 1024)
# Jobs whose attempts it remembers, to speak of them when they are over.
REMEMBERED = 50
ANSWER_S = 3.0


def hello(node_id: str, langs: tuple[str, ...], slots: int, **more: Any) -> dispatcher_pb2.Hello:
    """What a node says first."""
    able = common_pb2.NodeCapabilities(asr_langs=langs, semantic_langs=langs, tts_langs=langs)
    return dispatcher_pb2.Hello(
        node_id=node_id,
        incarnation="1",
        capabilities=able,
        max_concurrent_jobs=slots,
        **more,
    )


class HostileNode:
    """Serves honest jobs with garbage, and has acts beside that."""

    def __init__(self, dispatchers: list[str], rng: random.Random, records: Records) -> None:
        self._dispatchers = dispatchers
        self._rng = rng
        self._records = records
        self._had: deque[common_pb2.AttemptRef] = deque(maxlen=REMEMBERED)
        self._ids = itertools.count()
        self._reports = {name: make for name, (_, make) in REPORTS.items()}
        self._beyond = [message for _, message in beyond_on_stream(NodeMessage.DESCRIPTOR)]
        self._results = [message for _, message in beyond(JobResult.DESCRIPTOR)]

    def acts(self) -> dict[str, Act]:
        """What it does on connections of their own, by name."""
        return {
            "Hello with very many running": partial(self.long_hello, "running"),
            "Hello with very many unconfirmed": partial(self.long_hello, "unconfirmed"),
            "very many heartbeats in a message": self.many_beats,
            "as many heartbeats as allowed": self.full_beats,
            "many ids that claim many slots": self.many_ids,
            "messages beyond limits": self.go_beyond,
            "late results of finished jobs": self.late_results,
            "reports of attempts of others": self.forge,
            "large results that nobody fetches": self.hoard,
        }

    # ---- jobs of honest people ----

    async def serve(self) -> None:
        """Connects again and again, and answers all jobs."""
        while True:
            async with self._node(NODE_ID, MINE, SLOTS) as node:
                with contextlib.suppress(*REFUSED):
                    await node.open()
                    while not node.inbox.ended.is_set():
                        assign = await node.expect_assign(within=1.0)
                        self._had.append(assign.attempt)
                        name, answer = self._rng.choice(self._answers())
                        act = partial(answer, node, assign)
                        await attempt(f"job: {name}", act, self._records)
            await asyncio.sleep(self._rng.uniform(0.05, 0.3))

    def _answers(self) -> list[tuple[str, Any]]:
        reports = [(name, partial(self._report, name)) for name in self._reports]
        return [
            *reports,
            ("result beyond a limit", self._result_beyond),
            ("rejected as bad", self._reject),
            ("called hopeless", self._call_hopeless),
            ("fails", self._fail),
            ("says that it holds, and fails", self._hold_and_fail),
            ("holds whatever it hears", self._hold),
        ]

    async def _report(self, name: str, node: RawNode, assign: JobAssign) -> None:
        await node.ack(assign)
        await node.say(self._reports[name](assign.attempt))

    async def _result_beyond(self, node: RawNode, assign: JobAssign) -> None:
        result = JobResult()
        result.CopyFrom(self._rng.choice(self._results))
        result.attempt.CopyFrom(assign.attempt)
        # Beyond a limit of the attempt itself there is none to fail; so it is this instead.
        result.texts.source = "x" * 65_537
        await node.ack(assign)
        await node.say(NodeEvent(job_result=result))

    async def _reject(self, node: RawNode, assign: JobAssign) -> None:
        await node.reject(assign, dispatcher_pb2.JobReject.CAUSE_BAD_JOB, "x" * 60_000)

    async def _call_hopeless(self, node: RawNode, assign: JobAssign) -> None:
        """Says that no other node would do better."""
        await node.ack(assign)
        await node.fail(assign, "BROKEN_AUDIO", worth_retry=False)

    async def _fail(self, node: RawNode, assign: JobAssign) -> None:
        await node.ack(assign)
        await node.fail(assign, "SIMULATED", "x" * 60_000, worth_retry=True)

    async def _hold_and_fail(self, node: RawNode, assign: JobAssign) -> None:
        """Says many times that it keeps the audio, whatever ended the speech."""
        await node.ack(assign)
        await node.say(*[_held(assign)] * 20)
        await node.fail(assign, "SIMULATED", worth_retry=True)

    async def _hold(self, node: RawNode, assign: JobAssign) -> None:
        """Keeps the audio for a sentence that it will never finish."""
        await node.ack(assign)
        await node.held(assign)

    # ---- acts ----

    async def long_hello(self, field: str) -> None:
        """A first message with more attempts than a node can have."""
        many = [common_pb2.AttemptRef(job_id="j", attempt=1)] * ATTEMPTS
        said = hello(self._id(), OTHERS, SLOTS, **{field: many})
        async with self._peer(said) as node:
            await node.refused()

    async def many_beats(self) -> None:
        """More events in a message than are allowed."""
        async with self._node(self._id(), OTHERS, SLOTS) as node:
            await node.open()
            await node.refused(*[NodeEvent(heartbeat=dispatcher_pb2.Heartbeat())] * BEATS)

    async def full_beats(self) -> None:
        """As much work as a message of the allowed size can make, several times."""
        running = [common_pb2.AttemptRef(job_id=f"j{n}", attempt=1) for n in range(1000)]
        lots = [NodeEvent(heartbeat=dispatcher_pb2.Heartbeat(running=running))] * 300
        async with self._node(self._id(), OTHERS, SLOTS_CLAIMED) as node:
            await node.open()
            for _ in range(2):
                await node.say(*lots)
            await node.settled()

    async def many_ids(self) -> None:
        """Many nodes of one owner, each of which claims more slots than anybody has."""
        async with contextlib.AsyncExitStack() as stack:
            for number in range(IDS):
                name = f"hostile-many-{number}"
                said = hello(name, OTHERS, SLOTS_CLAIMED)
                await (await stack.enter_async_context(self._peer(said))).open()
            await asyncio.sleep(0.5)

    async def go_beyond(self) -> str:
        """Messages of which one field is just beyond its limit, as the fuzzer makes them."""
        ended = 0
        for message in self._rng.sample(self._beyond, BEYOND):
            async with self._node(self._id(), OTHERS, SLOTS) as node:
                await node.open()
                await node.say(*message.events)  # type: ignore[attr-defined]
                with contextlib.suppress(TimeoutError):
                    await node.ended(0.3)
                    ended += 1
        return f"{ended} of {BEYOND} ended the stream"

    async def late_results(self) -> None:
        """Large results of jobs that are over, first as unconfirmed ones."""
        had = list(self._had)[-LATE:] or [common_pb2.AttemptRef(job_id="none", attempt=1)]
        said = hello(self._id(), OTHERS, SLOTS, unconfirmed=had)
        async with self._peer(said) as node:
            await node.open()
            for ref in had * 2:
                await node.say(_large(ref))
            await node.settled()

    async def forge(self) -> None:
        """Speaks of attempts that honest nodes have by now."""
        async with self._node(self._id(), OTHERS, SLOTS_CLAIMED) as node:
            await node.open()
            later = [
                common_pb2.AttemptRef(job_id=ref.job_id, attempt=ref.attempt + more)
                for ref in list(self._had)[-10:]
                for more in (1, 2)
            ]
            await node.heartbeat(running=later)
            for ref in later:
                texts = Texts(source="forged", translated="forged")
                result = JobResult(attempt=ref, kind=JobResult.KIND_TRANSLATED, texts=texts)
                failed = dispatcher_pb2.JobFailed(attempt=ref, cause="FORGED")
                ends = NodeEvent(job_result=result), NodeEvent(job_failed=failed)
                ack = NodeEvent(job_ack=dispatcher_pb2.JobAck(attempt=ref))
                await node.say(ack, self._rng.choice(ends))
            await node.settled()

    async def hoard(self) -> str:
        """Jobs of its own, whose large results nobody fetches, each said several times."""
        name = "hostile-hoard"
        async with (
            self._node(name, OTHERS, LATE) as node,
            grpc.aio.insecure_channel(self._dispatcher()) as channel,
        ):
            await node.open()
            node.answers_jobs()
            stub: Any = dispatcher_pb2_grpc.DispatcherStub(channel)
            done = 0
            for _ in range(LATE):
                job = dispatcher_pb2.JobSpec(
                    tenant=TENANT,
                    session_id=self._id(),
                    pair=common_pb2.LanguagePair(src=OTHERS[0], tgt=OTHERS[1]),
                    audio=audio_of(2),
                    audio_format=FORMAT,
                    reason=common_pb2.FINALIZE_REASON_IS_FINAL,
                    preferred_node_id=name,
                    deadline_ms=2000,
                )
                request = dispatcher_pb2.DispatchRequest(job=job)
                answer = await stub.Dispatch(request, timeout=ANSWER_S)
                ref = common_pb2.AttemptRef(job_id=answer.job_id, attempt=answer.attempt_id)
                for _ in range(3):
                    await node.say(_large(ref))
                done += 1
            await node.settled()
        return f"{done} jobs"

    # ---- small things ----

    def _id(self) -> str:
        """One of a few: the scheduler remembers nodes for a while."""
        return f"hostile-{1 + next(self._ids) % 8}"

    def _dispatcher(self) -> str:
        return self._rng.choice(self._dispatchers)

    def _node(self, node_id: str, langs: tuple[str, ...], slots: int) -> Any:
        return self._peer(hello(node_id, langs, slots))

    @contextlib.asynccontextmanager
    async def _peer(self, said: dispatcher_pb2.Hello) -> Any:
        node = RawNode(self._dispatcher(), said)
        try:
            yield node
        finally:
            async with asyncio.timeout(ACT_S):
                await node.cut()


def _held(assign: JobAssign) -> NodeEvent:
    job = assign.job
    told = dispatcher_pb2.AudioHeld(
        attempt=assign.attempt,
        session_id=job.session_id,
        pair=job.pair,
        utterance_index=job.utterance_index,
    )
    return NodeEvent(audio_held=told)


def _large(ref: common_pb2.AttemptRef) -> NodeEvent:
    """A result of the largest size that is allowed."""
    result = JobResult(attempt=ref, kind=JobResult.KIND_TRANSLATED, speech=SPEECH)
    return NodeEvent(job_result=result)


async def _run(rng: random.Random, records: Records) -> None:
    node = HostileNode(os.environ["HOSTILE_DISPATCHERS"].split(","), rng, records)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.serve())
        tasks.create_task(run_acts(node.acts(), rng, records))


def main() -> None:
    """Runs until it is told to end."""
    run_program(_run)
