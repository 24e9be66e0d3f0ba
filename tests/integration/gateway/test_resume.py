"""Resumed sessions: nothing is lost or repeated, and only the last gateway serves them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import grpc
import pytest

from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc
from tests.support.audio import speech
from tests.support.raw_client import RawClient, heard, new_session, raw_client, working
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, all_running

Eventually = Callable[..., Awaitable[None]]

IS_FINAL = common_pb2.FINALIZE_REASON_IS_FINAL
TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
GRACE_MS = 3000


@pytest.fixture(scope="module")
def gateways(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[tuple[GatewayProcess, GatewayProcess, GatewayProcess]]:
    """Two gateways that keep sessions for long, and one that soon deletes them."""

    def made(**settings: int) -> GatewayProcess:
        return GatewayProcess(
            pool=pool_process,
            redis_url=redis_url,
            dispatchers=patient_process.address,
            pause_ms=1500,
            short_merge_ms=100,
            hangover_manual_ms=0,
            hangover_auto_ms=0,
            drain_grace_ms=GRACE_MS,
            **settings,
        )

    processes = made(), made(), made(resume_within_ms=1000)
    with all_running(processes):
        yield processes
        for process in processes:
            assert not process.faults(), process.log()


@pytest.fixture
async def first(gateways: tuple[GatewayProcess, ...]) -> GatewayProcess:
    """The gateway that a test may kill."""
    if gateways[0].process.poll() is not None:
        await gateways[0].restart()
    return gateways[0]


@pytest.fixture
def second(gateways: tuple[GatewayProcess, ...]) -> GatewayProcess:
    """A gateway that keeps running."""
    return gateways[1]


@pytest.fixture
def forgetful(gateways: tuple[GatewayProcess, ...]) -> GatewayProcess:
    """A gateway that keeps the session of a client that left for one second."""
    return gateways[2]


@pytest.fixture
async def client(first: GatewayProcess) -> AsyncIterator[RawClient]:
    """A client of the first gateway."""
    async with raw_client(first.address) as made:
        yield made


@pytest.fixture
async def again(second: GatewayProcess) -> AsyncIterator[RawClient]:
    """The same client after it has connected to the second gateway."""
    async with raw_client(second.address) as made:
        yield made


async def known_session(gateway: GatewayProcess, session_id: str) -> session_pb2.Session | None:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = session_pb2_grpc.SessionGatewayStub(channel)
        try:
            answer = await stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return None
        assert isinstance(answer, session_pb2.GetSessionResponse)
        return answer.session


async def closes(client: RawClient, results: int, missing: int = 0) -> None:
    """Closes the session, which must have had this many results."""
    await client.say(results_seen=results + missing, close=session_pb2.Close())
    closed = (await client.event("closed")).closed
    assert (closed.results, closed.missing) == (results, missing)
    assert (await client.status()) is grpc.StatusCode.OK


# ---- after kill -9 ----


async def test_audio_that_was_only_gathered_comes_again_and_makes_one_job(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    node = await patient.node()
    chunks = await first.metric("lingua_gateway_chunks_total")
    opened = await client.open(new_session(patient.src, patient.tgt))
    for mark in range(3):
        await client.send(speech(mark))
    await first.reaches(chunks + 3, "lingua_gateway_chunks_total")
    first.kill()
    assert (await client.status()) is grpc.StatusCode.UNAVAILABLE
    assert (await again.resume(opened)).next_seq == 0
    async with working(node) as jobs:
        for mark in range(3):
            await again.send(speech(mark))
        await again.send(speech(3), final=True)
        assert (await again.result(0)).texts.translated == "0 1 2 3"
        await closes(again, 1)
    assert len(jobs) == 1


async def test_what_was_cut_is_cut_again_in_the_same_way(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(0))
    await client.send(speech(1))
    # A pause, although there is no node for the job.
    assert (await client.utterance(0, "finalized")).finalized.reason == TIMEOUT
    await client.send(speech(2))
    first.kill()
    assert (await again.resume(opened)).next_seq == 0
    async with working(await patient.node()) as jobs:
        # There is no pause between them now.
        for mark in range(3):
            await again.send(speech(mark))
        await again.send(speech(3), final=True)
        await again.result(1)
        assert again.outcomes() == [(0, "0 1"), (1, "2 3")]
        await again.acked(4)
        await closes(again, 2)
    assert [each.reason for each in jobs.values()] == [TIMEOUT, IS_FINAL]


@pytest.mark.parametrize("forgotten", [True, False])
async def test_a_job_that_runs_goes_on_for_the_next_gateway(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess, forgotten: bool
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(0))
    await client.send(speech(1), final=True)
    assign = await node.take_job()
    await client.acked(2)
    first.kill()
    # The client may have dropped its chunks, or may not know yet that it can.
    await again.resume(opened, next_seq=2 if forgotten else 0)
    if not forgotten:
        await again.send(speech(0), seq=0)
        await again.send(speech(1), seq=1, final=True)
    again.seq = 2
    await again.send(speech(2))
    # All chunks before it have been accepted.
    await again.acked(2) if not forgotten else None
    await node.result(assign, "0 1")
    assert (await again.result(0)).texts.translated == "0 1"
    await again.send(b"", final=True)
    rest = await node.take_job()
    assert (heard(rest.job), rest.job.utterance_index) == ("2", 1)
    await node.result(rest, "2")
    await again.result(1)
    assert again.outcomes() == [(0, "0 1"), (1, "2")]
    await closes(again, 2)


async def test_a_result_that_comes_while_nobody_is_there_is_kept(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(0), final=True)
    assign = await node.take_job()
    await client.acked(1)
    first.kill()
    await node.result(assign, "0")
    await node.expect_received(assign)  # it is kept in Redis, and the node may drop it
    await again.resume(opened, next_seq=1)
    assert (await again.result(0)).texts.translated == "0"
    await closes(again, 1)


@pytest.mark.parametrize("seen", [0, 1, 2])
async def test_results_that_the_client_has_not_seen_come_again_and_no_others(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess, seen: int
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    async with working(node) as jobs:
        for mark in range(2):
            await client.send(speech(mark), final=True)
            await client.result(mark)
        first.kill()
        await again.resume(opened, results_seen=seen, next_seq=2)
        await again.send(speech(2), final=True)
        await again.result(2)
        assert again.outcomes() == [(index, str(index)) for index in range(seen, 3)]
        await closes(again, 3)
    assert len(jobs) == 3


async def test_a_session_with_utterances_in_every_state_loses_none_and_repeats_none(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    node = await patient.node(slots=3)
    opened = await client.open(new_session(patient.src, patient.tgt))
    assigns = []
    for mark in range(4):  # the last one finds no slot
        await client.send(speech(mark), final=True)
        await client.utterance(mark, "finalized")
        if mark < 3:
            assigns.append(await node.take_job())
    await node.result(assigns[0], "0")
    await client.result(0)
    await client.say(results_seen=1)
    fourth = await node.take_job()
    await node.result(assigns[1], "1")
    await client.result(1)
    await node.result(fourth, "3")  # waits for the third
    await client.send(speech(4))
    await client.acked(4)
    first.kill()

    await again.resume(opened, results_seen=1, next_seq=4)
    await again.send(speech(4))
    await again.send(speech(5), final=True)
    last = await node.take_job()
    assert (heard(last.job), last.job.utterance_index) == ("4 5", 4)
    await node.result(last, "4 5")
    await node.result(assigns[2], "2")
    await again.result(4)
    assert again.outcomes() == [(1, "1"), (2, "2"), (3, "3"), (4, "4 5")]
    await closes(again, 5)
    assert "job_assign" not in await node.settled()


# ---- while the old stream lives ----


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_resumes_has_the_session_and_the_stream_before_is_told(
    first: GatewayProcess, second: GatewayProcess, patient: Scene, elsewhere: bool
) -> None:
    node = await patient.node(slots=2)
    target = second if elsewhere else first
    async with raw_client(first.address) as old, raw_client(target.address) as new:
        opened = await old.open(new_session(patient.src, patient.tgt))
        await old.send(speech(0), final=True)
        running = await node.take_job()
        await old.acked(1)
        await old.send(speech(1))
        await new.resume(opened, next_seq=1)
        if elsewhere:
            # It notices when it tries to create a job, and creates none.
            await old.send(speech(9), final=True)
        await old.refused("SESSION_TAKEN_OVER")
        assert (await old.status()) is grpc.StatusCode.ABORTED
        await node.result(running, "0")
        await new.send(speech(1), final=True)
        job = await node.take_job()
        assert (heard(job.job), job.job.utterance_index) == ("1", 1)
        await node.result(job, "1")
        await new.result(1)
        assert new.outcomes() == [(0, "0"), (1, "1")]
        assert old.outcomes() == []
        await closes(new, 2)
        assert "job_assign" not in await node.settled()


async def test_a_job_that_both_gateways_want_to_make_is_made_once_and_for_the_later_one(
    first: GatewayProcess, second: GatewayProcess, patient: Scene
) -> None:
    async with raw_client(first.address) as old, raw_client(second.address) as new:
        opened = await old.open(new_session(patient.src, patient.tgt))
        await old.send(speech(0), final=True)
        # The job is retried until there is a node.
        await old.utterance(0, "retrying")
        await new.resume(opened)
        await new.send(speech(0), final=True)
        await new.utterance(0, "retrying")
        async with working(await patient.node()) as jobs:
            await new.result(0)
            await old.refused("SESSION_TAKEN_OVER")
            await new.send(speech(1), final=True)
            await new.result(1)
        assert new.outcomes() == [(0, "0"), (1, "1")]
        assert old.outcomes() == []
        assert len(jobs) == 2
        await closes(new, 2)


async def test_of_many_resumes_at_once_one_has_the_session(
    first: GatewayProcess, second: GatewayProcess, patient: Scene, eventually: Eventually
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(raw_client(gateway.address))
            for gateway in (first, second) * 4
        ]
        opened = await clients[0].open(new_session(patient.src, patient.tgt))
        resume = session_pb2.ResumeSession(
            session_id=opened.session_id, resume_token=opened.resume_token
        )
        await asyncio.gather(
            *(each.say(open=session_pb2.Open(resume=resume)) for each in clients[1:])
        )
        for each in clients[1:]:
            # Of two resumes at the same gateway the later may be faster; the other is refused.
            await eventually(each.told)
        # Each stream that lost the session is told so, when its gateway renews it at the latest.
        await eventually(lambda: sum(not each.ended for each in clients) == 1)
        (winner,) = [each for each in clients if not each.ended]
        async with working(await patient.node()) as jobs:
            await winner.send(speech(3), final=True)
            assert (await winner.result(0)).texts.translated == "3"
            await closes(winner, 1)
        assert len(jobs) == 1
        for each in clients:
            if each is not winner:
                await each.refused("SESSION_TAKEN_OVER")


async def test_a_gateway_that_does_nothing_for_a_session_learns_that_it_lost_it(
    forgetful: GatewayProcess, second: GatewayProcess, patient: Scene
) -> None:
    async with raw_client(forgetful.address) as old, raw_client(second.address) as new:
        opened = await old.open(new_session(patient.src, patient.tgt))
        await new.resume(opened)
        await old.refused("SESSION_TAKEN_OVER")


async def test_a_client_that_dropped_its_stream_resumes_where_it_was(
    first: GatewayProcess, patient: Scene
) -> None:
    node = await patient.node(slots=2)
    async with raw_client(first.address) as client:
        opened = await client.open(new_session(patient.src, patient.tgt))
        await client.send(speech(0), final=True)
        assign = await node.take_job()
        await client.acked(1)
        await client.send(speech(1))
    async with raw_client(first.address) as client:
        await client.resume(opened, next_seq=1)
        await client.send(speech(1))
        await client.send(speech(2), final=True)
        rest = await node.take_job()
        await node.result(rest, heard(rest.job))
        await node.result(assign, "0")
        await client.result(1)
        assert client.outcomes() == [(0, "0"), (1, "1 2")]
        await closes(client, 2)


# ---- who may resume ----


async def test_only_the_token_of_a_session_resumes_it_and_nobody_learns_what_exists(
    first: GatewayProcess, second: GatewayProcess, patient: Scene
) -> None:
    async with raw_client(first.address) as owner, raw_client(first.address) as other:
        opened = await owner.open(new_session(patient.src, patient.tgt))
        foreign = await other.open(new_session(patient.src, patient.tgt))
        answers = set()
        for session_id, token in (
            (opened.session_id, "wrong"),
            (opened.session_id, foreign.resume_token),
            (foreign.session_id, opened.resume_token),
            ("nobody", opened.resume_token),
        ):
            async with raw_client(second.address) as thief:
                resume = session_pb2.ResumeSession(session_id=session_id, resume_token=token)
                await thief.say(open=session_pb2.Open(resume=resume))
                error = await thief.refused("SESSION_NOT_FOUND")
                assert (await thief.status()) is grpc.StatusCode.NOT_FOUND
                answers.add(error.message.replace(session_id, "<id>"))
                assert dict(error.metadata) == {"session_id": session_id}
        assert len(answers) == 1
        async with working(await patient.node()):
            await owner.send(speech(1), final=True)
            assert (await owner.result(0)).texts.translated == "1"


async def test_a_session_that_is_closed_and_seen_is_gone(
    client: RawClient, again: RawClient
) -> None:
    opened = await client.open(new_session("en", "es"))
    await closes(client, 0)
    resume = session_pb2.ResumeSession(
        session_id=opened.session_id, resume_token=opened.resume_token
    )
    await again.say(open=session_pb2.Open(resume=resume))
    await again.refused("SESSION_NOT_FOUND")


async def test_a_session_is_forgotten_in_its_time_and_not_while_its_client_is_there(
    forgetful: GatewayProcess, patient: Scene
) -> None:
    async with raw_client(forgetful.address) as stays:
        kept = await stays.open(new_session(patient.src, patient.tgt))
        for _ in range(2):
            async with raw_client(forgetful.address) as leaves:
                opened = await leaves.open(new_session(patient.src, patient.tgt))
            deadline = time.monotonic() + 10
            while await known_session(forgetful, opened.session_id) is not None:
                assert time.monotonic() < deadline, "it is still known"
                await asyncio.sleep(0.02)
        async with raw_client(forgetful.address) as late:
            resume = session_pb2.ResumeSession(
                session_id=opened.session_id, resume_token=opened.resume_token
            )
            await late.say(open=session_pb2.Open(resume=resume))
            await late.refused("SESSION_NOT_FOUND")
        found = await known_session(forgetful, kept.session_id)
        assert found is not None
        assert found.connected
        async with working(await patient.node()):
            await stays.send(speech(1), final=True)
            assert (await stays.result(0)).texts.translated == "1"


# ---- SIGTERM ----


async def test_a_gateway_that_ends_sends_its_clients_elsewhere_and_is_not_missed(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    node = await patient.node(slots=2)
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(0), final=True)
    assign = await node.take_job()
    await client.acked(1)
    await client.send(speech(1))
    first.terminate()
    go_away = (await client.event("go_away")).go_away
    assert go_away.after_ms <= 1000
    assert go_away.why
    async with raw_client(first.address) as new:
        await new.say(open=session_pb2.Open(new=new_session(patient.src, patient.tgt)))
        await new.refused("DRAINING")
        assert (await new.status()) is grpc.StatusCode.UNAVAILABLE
    # Clients that have not left yet are still served.
    await node.result(assign, "0")
    await client.result(0)
    await again.resume(opened, next_seq=1)
    await client.close()
    assert await first.exit_code() == 0
    async with working(node):
        await again.send(speech(1), final=True)
        await again.result(1)
        assert again.outcomes() == [(0, "0"), (1, "1")]
        await closes(again, 2)


async def test_a_half_close_after_go_away_ends_the_stream_and_not_the_session(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(0))
    first.terminate()
    await client.event("go_away")
    await client.half_close()
    assert (await client.status()) is grpc.StatusCode.OK
    assert "closed" not in client.told()
    assert await first.exit_code() == 0
    # Nothing was finalized: the next audio is part of the same utterance.
    await again.resume(opened)
    async with working(node):
        await again.send(speech(0))
        await again.send(speech(0), final=True)
        assert (await again.result(0)).timings.audio_ms == 200
        await closes(again, 1)


async def test_a_close_after_go_away_still_closes(
    client: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    async with working(await patient.node()):
        await client.open(new_session(patient.src, patient.tgt))
        await client.send(speech(0))
        first.terminate()
        await client.event("go_away")
        await client.say(close=session_pb2.Close())
        await client.half_close()
        assert (await client.event("closed")).closed.results == 1
    assert await first.exit_code() == 0


async def test_a_gateway_ends_in_time_although_a_client_stays(
    client: RawClient, again: RawClient, patient: Scene, first: GatewayProcess
) -> None:
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(0))
    began = time.monotonic()
    first.terminate()
    await client.event("go_away")
    assert await first.exit_code() == 0
    assert time.monotonic() - began < GRACE_MS / 1000 + 5
    await client.status()
    await again.resume(opened)
    async with working(await patient.node()):
        await again.send(speech(0), final=True)
        assert (await again.result(0)).texts.translated == "0"
        await closes(again, 1)


async def test_a_gateway_without_clients_ends_at_once(first: GatewayProcess) -> None:
    began = time.monotonic()
    first.terminate()
    assert await first.exit_code() == 0
    assert time.monotonic() - began < GRACE_MS / 1000
