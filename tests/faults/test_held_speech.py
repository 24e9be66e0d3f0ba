"""Nodes that hold the beginning of a sentence are lost: the sentence comes out whole all the same.

Real processes: two of each service and three nodes. A word is a tenth of a second; an odd one at
the end of a pause makes the node hold what it has heard.
"""

import asyncio
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lingua_scheduler.sdk import Missing, Result, ResultKind
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.node_process import NodeProcess
from tests.support.scheduler import Scheduler
from tests.support.services import ServiceProcess, addresses
from tests.support.speaker import EN_ES, ES_EN, Speaker, speaking, words_of

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    """Two of each service, and three nodes that know both dispatchers."""
    with (
        tempfile.TemporaryDirectory(prefix="lingua-redis-") as folder,
        EmbeddedRedis(data_dir=Path(folder)) as server,
        Scheduler(redis_url=server.url, instances=2, result_deadline_ms=60_000) as made,
    ):
        made.add_nodes([addresses(made.dispatchers)] * 3)
        yield made
        made.check_logs()


@pytest.fixture(autouse=True)
async def everyone_is_there(scheduler: Scheduler) -> None:
    """What an earlier test has killed is back."""
    dead: list[ServiceProcess | NodeProcess] = [*scheduler.services, *scheduler.nodes]
    for each in dead:
        if each.process.poll() is not None:
            await each.restart()


async def held(speaker: Speaker, index: int) -> str:
    """Waits until an utterance is held; returns its node."""
    outcome = await speaker.outcome(index, WITHIN_S)
    assert isinstance(outcome, Result), outcome
    assert outcome.kind is ResultKind.HELD
    return outcome.node_id


def node_of(scheduler: Scheduler, node_id: str) -> NodeProcess:
    return next(each for each in scheduler.nodes if each.node_id == node_id)


async def busy_gateway(scheduler: Scheduler) -> ServiceProcess:
    """The one that has the test's session."""
    alive = [each for each in scheduler.gateways if each.process.poll() is None]
    [one] = [each for each in alive if await each.metric("lingua_gateway_sessions") > 0]
    return one


def lost(speaker: Speaker) -> list[int]:
    return [index for each in speaker.outcomes for index in each.lost]


async def moved(scheduler: Scheduler) -> float:
    return await scheduler.total(scheduler.gateways, "lingua_gateway_turns_moved_total")


async def test_a_sentence_whose_node_is_killed_between_two_parts_comes_out_whole(
    scheduler: Scheduler,
) -> None:
    before = await moved(scheduler)
    async with speaking(addresses(scheduler.gateways)) as speaker:
        await speaker.say(2, 3)
        holder = await held(speaker, 0)
        node_of(scheduler, holder).kill()
        await speaker.say_sentence(4, 6)
        result = await speaker.outcome(1, WITHIN_S)
    assert isinstance(result, Result)
    assert (words_of(result), result.joined) == ([2, 3, 4, 6], (0,))
    assert result.node_id != holder
    assert not result.turn_broken
    assert lost(speaker) == []
    assert await moved(scheduler) == before + 1


async def test_the_next_node_may_hold_the_sentence_and_be_killed_as_well(
    scheduler: Scheduler,
) -> None:
    async with speaking(addresses(scheduler.gateways)) as speaker:
        await speaker.say(2, 3)
        first = await held(speaker, 0)
        node_of(scheduler, first).kill()
        await speaker.say(4, 5)
        second = await held(speaker, 1)
        assert second != first
        node_of(scheduler, second).kill()
        await speaker.say_sentence(6, 8)
        result = await speaker.outcome(2, WITHIN_S)
    assert isinstance(result, Result)
    assert (words_of(result), result.joined) == ([2, 3, 4, 5, 6, 8], (0, 1))
    assert lost(speaker) == []


async def test_a_node_that_is_started_again_at_once_has_forgotten_and_gets_the_sentence_again(
    scheduler: Scheduler,
) -> None:
    async with speaking(addresses(scheduler.gateways)) as speaker:
        await speaker.say(2, 3)
        node = node_of(scheduler, await held(speaker, 0))
        node.kill()
        # The binding leads to it, though its process is another one.
        await node.restart()
        await speaker.say_sentence(4, 6)
        result = await speaker.outcome(1, WITHIN_S)
    assert isinstance(result, Result)
    assert (words_of(result), result.joined) == ([2, 3, 4, 6], (0,))
    assert lost(speaker) == []


async def test_a_node_that_is_killed_with_the_end_of_the_sentence_under_way(
    scheduler: Scheduler,
) -> None:
    async with speaking(addresses(scheduler.gateways)) as speaker:
        await speaker.say(2, 3)
        node = node_of(scheduler, await held(speaker, 0))
        node.process.send_signal(19)  # SIGSTOP: it is assigned the job, and does nothing
        await speaker.say_sentence(4, 6)
        await speaker.cut(1, WITHIN_S)
        await asyncio.sleep(0.2)
        node.kill()
        result = await speaker.outcome(1, WITHIN_S)
    assert isinstance(result, Result)
    assert (words_of(result), result.joined) == ([2, 3, 4, 6], (0,))


async def test_what_is_held_when_the_session_closes_comes_though_its_node_is_killed(
    scheduler: Scheduler,
) -> None:
    async with speaking(addresses(scheduler.gateways)) as speaker:
        await speaker.say(2, 3)
        node_of(scheduler, await held(speaker, 0)).kill()
    result = speaker.outcomes[-1]
    assert isinstance(result, Result)
    assert (words_of(result), result.joined) == ([2, 3], (0,))


@pytest.mark.parametrize("gateway_first", [True, False])
async def test_a_sentence_whose_gateway_and_node_are_both_killed_comes_out_whole(
    scheduler: Scheduler, gateway_first: bool
) -> None:
    """The client still has what the node held, and gives it to the next gateway."""
    async with speaking(addresses(scheduler.gateways), both=True) as speaker:
        await speaker.say(2, 3, direction=EN_ES)
        # The other side speaks meanwhile, and that is acknowledged and over.
        await speaker.say_sentence(10, 12, direction=ES_EN)
        holder = node_of(scheduler, await held(speaker, 0))
        answer = await speaker.outcome(1, WITHIN_S)
        assert isinstance(answer, Result)
        struck: list[ServiceProcess | NodeProcess] = [await busy_gateway(scheduler), holder]
        for each in struck if gateway_first else reversed(struck):
            each.kill()
        await speaker.say_sentence(4, 6, direction=EN_ES)
        result = await speaker.outcome(2, WITHIN_S)
        await speaker.say_sentence(14, 16, direction=ES_EN)
    assert isinstance(result, Result)
    assert (words_of(result), result.joined) == ([2, 3, 4, 6], (0,))
    assert speaker.session.counts.resumes >= 1
    assert lost(speaker) == []
    speaker.check_all_heard()


async def test_long_speech_is_whole_though_its_node_and_its_gateway_are_killed_in_turn(
    scheduler: Scheduler,
) -> None:
    words = list(range(2, 2 + 2 * 60, 2))
    async with speaking(addresses(scheduler.gateways)) as speaker:
        await speaker.say(*words[:20], pace=True)
        holder = await held(speaker, 0)
        await speaker.say(*words[20:30], pace=True)
        node_of(scheduler, holder).kill()
        await speaker.say(*words[30:40], pace=True)
        (await busy_gateway(scheduler)).kill()
        await speaker.say_sentence(*words[40:], pace=True)
    speaker.check_all_heard()
    assert lost(speaker) == []


async def test_beyond_the_bound_what_is_lost_is_named(
    scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    """A gateway that keeps nothing says so of what its node took along."""
    gateway = scheduler.add_gateway(held_audio_max_bytes=0, instance_id=uuid.uuid4().hex)
    try:
        async with speaking(gateway.address) as speaker:
            await speaker.say(2, 3)
            node_of(scheduler, await held(speaker, 0)).kill()
            await speaker.say_sentence(4, 6)
            result = await speaker.outcome(1, WITHIN_S)
        assert isinstance(result, Result)
        assert not isinstance(result, Missing)
        assert (words_of(result), result.joined, result.lost) == ([4, 6], (), (0,))
        assert await gateway.metric("lingua_gateway_held_lost_total") == 1
    finally:
        scheduler.gateways.remove(gateway)
        gateway.stop()
