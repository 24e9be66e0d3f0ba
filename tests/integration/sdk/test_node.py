"""The SDK's Node with a real dispatcher."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lingua_scheduler.sdk import (
    Held,
    HeldAudio,
    Job,
    JobError,
    Node,
    NodeRefusedError,
    NoSpeech,
    Partial,
    Translated,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from tests.conftest import Eventually
from tests.support.raw_gateway import RawGateway
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

SCRIPT = """
import asyncio, sys
from lingua_scheduler.sdk import Node, Translated

address, node_id, src, tgt = sys.argv[1:]
node = Node(node_id=node_id, asr=[src], semantic=[src], tts=[tgt], slots=2)
node.load = lambda: (0.0, 0.0)

@node.handler
async def translate(job):
    # Waits until the test allows it to continue.
    print("began", job.utterance_index, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    yield Translated(source="done", translated="done")

node.run(address)
print("ended", flush=True)
"""


def node_of(made: Scene, name: str = "a", **options: Any) -> Node:
    """Returns a node for the languages of a scene."""
    node = Node(
        node_id=f"{made.src}-{name}",
        asr=[made.src],
        semantic=[made.src],
        tts=[made.tgt],
        **options,
    )
    node.load = lambda: (0.0, 0.0)
    return node


def runs_one(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.running == 1


def is_draining(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == common_pb2.NODE_HEALTH_DRAINING


@contextlib.asynccontextmanager
async def served(made: Scene, node: Node, eventually: Eventually) -> AsyncIterator[None]:
    """Connects the node for the duration of the block."""
    serving = asyncio.create_task(node.serve(made.dispatcher.address))
    try:
        await eventually(lambda: node.connected or serving.done())
        assert not serving.done(), serving.exception()
        yield
    finally:
        async with asyncio.timeout(20):
            await node.stop()
            await serving


@pytest.fixture
async def restartable(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """Starts a dispatcher for this test only."""
    async with (
        running_dispatcher(pool_process, redis_url) as process,
        scene(process, pool_process) as made,
    ):
        yield made


async def test_a_handler_gives_partials_and_a_result(
    patient: Scene, eventually: Eventually
) -> None:
    node, gateway, seen = node_of(patient), patient.gateway(), []

    @node.handler
    async def translate(job: Job) -> AsyncIterator[Partial | Translated]:
        seen.append(job)
        yield Partial(source="he")
        yield Translated(
            source="hello", translated="hola", speech=job.audio, speech_format=job.audio_format
        )

    async with served(patient, node, eventually):
        spec = patient.spec(3, features={"voice": "low"}, partial_interval_ms=1)
        job = await gateway.submit(spec)
        assert (await gateway.accepted(job)).node_id == node.node_id
        delivered = await gateway.delivered(job)
        await eventually(lambda: node.unconfirmed == 0)

    assert delivered.result.texts.translated == "hola"
    assert delivered.result.speech == spec.audio
    (job_seen,) = seen
    assert (job_seen.job_id, job_seen.attempt, job_seen.utterance_index) == (job, 1, 3)
    assert (job_seen.pair.src, job_seen.audio) == (patient.src, spec.audio)
    assert dict(job_seen.features) == {"voice": "low"}
    assert 0 < job_seen.time_left() <= 20


async def test_a_node_that_stops_says_goodbye(patient: Scene, eventually: Eventually) -> None:
    node, gateway = node_of(patient), patient.gateway()
    node.handler(lambda job: NoSpeech())
    async with served(patient, node, eventually):
        job = await gateway.submit(patient.spec())
        kind = (await gateway.delivered(job)).result.kind
        assert kind == dispatcher_pb2.JobResult.KIND_NO_SPEECH
    await patient.until(patient.hello(), lambda known: known is None)
    job = await gateway.submit(patient.spec(1))
    assert reason(await gateway.failed(job)) == "NO_CAPABLE_NODE"


async def test_blocking_handlers_run_side_by_side_in_threads(
    patient: Scene, eventually: Eventually
) -> None:
    node, gateway, together = node_of(patient, slots=3), patient.gateway(), threading.Barrier(3)

    @node.handler
    def translate(job: Job) -> Iterator[Translated]:
        together.wait(20)
        yield Translated(translated=str(job.utterance_index))

    async with served(patient, node, eventually):
        jobs = [await gateway.submit(patient.spec(index)) for index in range(3)]
        for index, job in enumerate(jobs):
            assert (await gateway.delivered(job)).result.texts.translated == str(index)


async def test_a_cancelled_job_is_a_cancelled_handler(
    patient: Scene, eventually: Eventually
) -> None:
    node, gateway = node_of(patient), patient.gateway()
    began, cancelled = asyncio.Event(), asyncio.Event()

    @node.handler
    async def translate(job: Job) -> Translated:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert job.cancelled
            cancelled.set()
            raise
        return Translated()

    async with served(patient, node, eventually):
        job = await gateway.submit(patient.spec())
        await began.wait()
        await gateway.cancel(job)
        assert reason(await gateway.failed(job)) == "JOB_CANCELLED"
        async with asyncio.timeout(10):
            await cancelled.wait()
        await eventually(lambda: node.running == 0)


async def test_errors_of_a_handler_are_failures_of_the_job(
    patient: Scene, eventually: Eventually
) -> None:
    first, second, gateway = node_of(patient, "a"), node_of(patient, "b"), patient.gateway()

    @first.handler
    async def breaks(job: Job) -> Translated:
        if job.utterance_index == 0:
            raise JobError("MODEL_LOAD_FAILED", "no memory")
        if job.utterance_index == 1:
            raise ValueError("a bug")
        raise JobError("BAD_AUDIO", "no header", worth_retry=False)

    second.handler(lambda job: Translated(translated="second"))
    async with served(patient, first, eventually), served(patient, second, eventually):
        for index, why in enumerate(("MODEL_LOAD_FAILED: no memory", "ValueError: a bug")):
            spec = patient.spec(index, preferred_node_id=first.node_id)
            job = await gateway.submit(spec)
            await gateway.retrying(job)
            assert await _text(gateway, job) == "second"
            assert why in (await patient.ended(job)).attempts[0].detail
        job = await gateway.submit(patient.spec(2, preferred_node_id=first.node_id))
        assert await _text(gateway, job) == "second"
        assert (await patient.ended(job)).attempts[0].detail == "BAD_AUDIO: no header"


async def test_a_node_with_all_slots_taken_rejects(patient: Scene, eventually: Eventually) -> None:
    """A blocking handler that ignores its cancellation keeps its slot; the pool frees it."""
    stubborn, other, gateway = node_of(patient, "a"), node_of(patient, "b"), patient.gateway()
    release, began = threading.Event(), threading.Event()

    @stubborn.handler
    def holds_on(job: Job) -> Translated:
        began.set()
        release.wait(30)
        return Translated(translated="late")

    other.handler(lambda job: Translated(translated="other"))
    try:
        async with served(patient, stubborn, eventually):
            first = await gateway.submit(patient.spec())
            await eventually(began.is_set)
            await gateway.cancel(first)
            await gateway.failed(first)
            async with served(patient, other, eventually):
                spec = patient.spec(1, preferred_node_id=stubborn.node_id)
                second = await gateway.submit(spec)
                retrying = await gateway.retrying(second)
                assert "FULL" in retrying.why.message
                assert (await gateway.delivered(second)).result.texts.translated == "other"
            release.set()
    finally:
        release.set()


async def test_a_node_keeps_its_running_job_and_its_results_over_a_restart_of_the_dispatcher(
    restartable: Scene, eventually: Eventually
) -> None:
    node, gateway = node_of(restartable, slots=2), restartable.gateway()
    may_end, runs = asyncio.Event(), []

    @node.handler
    async def translate(job: Job) -> Translated:
        runs.append(job.utterance_index)
        if job.utterance_index == 1:
            await may_end.wait()
        return Translated(translated=f"result {job.utterance_index}")

    async with served(restartable, node, eventually):
        done = await gateway.submit(restartable.spec(0))
        await gateway.delivered(done, take=False)
        running = await gateway.submit(restartable.spec(1))
        await gateway.accepted(running)
        assert node.unconfirmed == 1
        await restartable.until(restartable.hello(), runs_one)

        restartable.dispatcher.kill()
        await restartable.dispatcher.restart()
        following = restartable.gateway()
        await following.submit(restartable.spec(0), restartable.spec(1))
        assert await _text(following, done) == "result 0"
        may_end.set()
        assert await _text(following, running) == "result 1"
        await eventually(lambda: node.connected and node.unconfirmed == 0)
        events = [kind for _, kind in await following.settled()]

    assert runs == [0, 1]
    assert "delivered" not in events
    assert "failed" not in events


async def _text(gateway: RawGateway, job: str) -> str:
    return (await gateway.delivered(job)).result.texts.translated


async def test_held_audio_is_joined_to_the_next_utterance_on_the_same_node(
    patient: Scene, eventually: Eventually
) -> None:
    gateway, nodes = patient.gateway(), [node_of(patient, name) for name in "abc"]

    for node in nodes:
        held = HeldAudio()

        @node.handler
        async def translate(job: Job, held: HeldAudio = held) -> AsyncIterator[Held | Translated]:
            with held.turn(job) as turn:
                if len(turn.audio) < 600:
                    turn.keep()
                    yield Held()
                else:
                    text = f"{len(turn.audio)} bytes"
                    yield Translated(translated=text, joined=turn.joined)

    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await stack.enter_async_context(served(patient, node, eventually))
        for turn in range(3):
            fields = {
                "session_id": f"{patient.src}-{turn}",
                "reason": common_pb2.FINALIZE_REASON_TIMEOUT,
            }
            first = await gateway.submit(patient.spec(0, **fields))
            held_on = await gateway.delivered(first)
            assert held_on.result.kind == dispatcher_pb2.JobResult.KIND_HELD
            second = await gateway.submit(patient.spec(1, **fields))
            joined = await gateway.delivered(second)
            assert joined.node_id == held_on.node_id
            assert joined.result.texts.translated == "640 bytes"
            assert list(joined.result.joined_utterances) == [0]


async def test_the_trace_of_the_utterance_reaches_the_handler(
    patient: Scene, eventually: Eventually
) -> None:
    node, gateway, seen = node_of(patient), patient.gateway(), []

    @node.handler
    async def translate(job: Job) -> Translated:
        seen.append(job)
        return Translated()

    async with served(patient, node, eventually):
        await gateway.delivered(await gateway.submit(patient.spec(traceparent=TRACE)))
    trace_id = TRACE.split("-")[1]
    assert f"{seen[0].span_context.trace_id:032x}" == trace_id


async def test_a_node_that_no_dispatcher_will_have_is_told_so(patient: Scene) -> None:
    node = node_of(patient)
    node.handler(lambda job: Translated())
    node._hello.max_concurrent_jobs = 100_000
    async with asyncio.timeout(10):
        with pytest.raises(NodeRefusedError, match="max_concurrent_jobs"):
            await node.serve(patient.dispatcher.address)


async def test_sigterm_lets_a_node_finish_what_it_has_and_say_goodbye(
    patient: Scene, tmp_path: Path
) -> None:
    script, gateway, hello = tmp_path / "node.py", patient.gateway(), patient.hello()
    script.write_text(SCRIPT)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        patient.dispatcher.address,
        hello.node_id,
        patient.src,
        patient.tgt,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            await patient.until(hello, lambda known: known is not None)
            job = await gateway.submit(patient.spec())
            assert await process.stdout.readline() == b"began 0\n"

            process.send_signal(signal.SIGTERM)
            await patient.until(hello, is_draining)
            process.stdin.write(b"go\n")
            assert (await gateway.delivered(job)).result.texts.translated == "done"
            assert await process.stdout.readline() == b"ended\n"
            assert await process.wait() == 0
            await patient.until(hello, lambda known: known is None)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
