"""Reports of nodes that nobody waits for, and partial results that nobody asked for."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.pool_client import ref
from tests.support.scene import Scene, scene, together
from tests.support.services import PoolProcess, running_dispatcher

# ---- reports that nobody waits for ----


@pytest.fixture
async def forgetful(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that soon takes an attempt for nobody's."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            node_reconnect_grace_ms=1000,
            limits={"home.orphans._CHECK_EVERY_S": 0.2},
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.mark.parametrize("end", ["result", "failure"])
async def test_what_nobody_knows_is_confirmed_so_that_its_node_may_forget_it(
    forgetful: Scene, end: str
) -> None:
    unknown = ref(f"unknown-{forgetful.src}")
    node = await forgetful.node(unconfirmed=[unknown])
    assign = dispatcher_pb2.JobAssign(attempt=unknown)
    if end == "result":
        await node.result(assign)
    else:
        await node.fail(assign, worth_retry=True)
    await node.expect_received(assign)


async def test_a_result_of_another_node_s_attempt_is_confirmed_and_changes_nothing(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    stranger = await patient.node("stranger")
    await stranger.result(assign, "forged")
    await stranger.expect_received(assign)
    await node.result(assign, "true")
    assert (await gateway.delivered(job)).result.texts.translated == "true"


async def test_a_result_that_is_wanted_stays_with_its_node_until_its_home_has_it(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(
                running_dispatcher(
                    pool_process, redis_url, limits={"home.orphans._CHECK_EVERY_S": 0.1}
                )
            )
            for _ in range(2)
        ]
        home, other = await stack.enter_async_context(together(processes, pool_process))
        node, gateway = await home.node(), home.gateway()
        job = await gateway.submit(home.spec())
        assign = await node.take_job()
        await gateway.accepted(job)
        await node.cut()
        # It comes back elsewhere, with the result; that one cannot know whose it is.
        back = await other.node(unconfirmed=[assign.attempt])
        await back.result(assign, "first")
        again = await back.expect_assign()
        assert again.attempt == assign.attempt
        assert [each for each in await back.settled() if each == "result_received"] == []
        await back.result(again, "again")
        await gateway.delivered(job)
        await back.expect_received(assign)


# ---- partial results ----


async def test_more_partial_results_than_were_asked_for_are_dropped(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec(partial_interval_ms=60_000))
    assign = await node.take_job()
    before = await patient.dispatcher.metric("lingua_dispatcher_partials_dropped_total")
    for seq in range(1, 51):
        await node.partial(assign, f"word {seq}", seq)
    await node.result(assign)
    await gateway.delivered(job)
    partials = [each for each in gateway.inbox.waiting if each.HasField("partial")]
    assert [each.partial.texts.source for each in partials] == ["word 1"]
    dropped = await patient.dispatcher.metric("lingua_dispatcher_partials_dropped_total")
    assert dropped - before == 49


async def test_where_no_partial_results_are_wanted_none_is_passed_on(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.partial(assign, "word")
    await node.result(assign)
    await gateway.delivered(job)
    assert not [each for each in gateway.inbox.waiting if each.HasField("partial")]
