"""Two of each service, as `lingua up --instances 2` runs them, and twenty people who all talk.

In both topologies.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.scheduler import Scheduler
from tests.support.speaker import EN_ES, ES_EN, Speaker, sentences, speaking

INSTANCES = 2
PEOPLE = 20
# At first each node knows one dispatcher only: two are at the one, two at the other.
NODES = 4
# In words: some sentences are longer than the longest utterance, of 15.
LENGTHS = (4, 12, 20, 1, 33, 7)


@pytest.fixture(scope="module", params=[True, False], ids=["split", "all_in_one"])
def scheduler(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    """Two of each service, and nodes at both dispatchers."""
    with Scheduler(redis_url=redis_url, instances=INSTANCES, split=request.param) as made:
        homes = [made.dispatchers[at % INSTANCES].address for at in range(NODES)]
        made.add_nodes(homes, slots=8)
        yield made
        made.check_logs()


async def live_talk(speaker: Speaker, first: int) -> None:
    """As fast as it is spoken."""
    for words in sentences(first, LENGTHS[:3]):
        await speaker.say_sentence(*words, pace=True)


async def recording(speaker: Speaker, first: int) -> None:
    """As fast as it is taken."""
    for words in sentences(first, LENGTHS * 3):
        await speaker.say_sentence(*words)


async def conversation(speaker: Speaker, first: int) -> None:
    """Two people in turns; each other sentence has no end but the other's answer."""
    for at, words in enumerate(sentences(first, LENGTHS * 2)):
        direction = (EN_ES, ES_EN)[at % 2]
        if at % 4 < 2:
            await speaker.say(*words, direction=direction)
        else:
            await speaker.say_sentence(*words, direction=direction)


WAYS = (live_talk, recording, conversation)


@pytest.mark.timeout(180)
async def test_twenty_people_at_two_gateways_are_all_heard_in_order(scheduler: Scheduler) -> None:
    async with contextlib.AsyncExitStack() as stack:
        people = [
            await stack.enter_async_context(
                speaking(
                    scheduler.gateways[at % INSTANCES].address,
                    both=WAYS[at % len(WAYS)] is conversation,
                )
            )
            for at in range(PEOPLE)
        ]
        await asyncio.gather(
            *(WAYS[at % len(WAYS)](each, 2 + 1000 * at) for at, each in enumerate(people))
        )
    for each in people:
        each.check_all_heard()
        assert not each.interruptions
    utterances = sum(len(each.outcomes) for each in people)
    print(f"{utterances} utterances; slowest {max(each.slowest for each in people):.2f} s")
    await check_both_worked(scheduler, utterances)


async def check_both_worked(scheduler: Scheduler, utterances: int) -> None:
    """No instance was idle, and each utterance was one job on one node."""
    for gateway in scheduler.gateways:
        assert await gateway.metric("lingua_gateway_sessions_opened_total") == PEOPLE / INSTANCES
    total = scheduler.total
    assert await total(scheduler.gateways, "lingua_gateway_results_total") == utterances
    finished = "lingua_dispatcher_jobs_finished_total"
    assert await total(scheduler.dispatchers, finished, outcome="done") == utterances
    assert await total(scheduler.dispatchers, "lingua_dispatcher_retries_total") == 0
    # A job whose node is at the other dispatcher is relayed there.
    relayed = await total(scheduler.dispatchers, "lingua_dispatcher_relayed_total")
    assert relayed == await total(
        scheduler.dispatchers, "lingua_dispatcher_placed_total", where="elsewhere"
    )
    assert relayed > 0
    done = Counter(each["node"] for each in scheduler.told("finished"))
    print(f"{relayed:.0f} relayed; by node: {dict(done)}")
    assert done.total() == utterances
    assert set(done) == {node.node_id for node in scheduler.nodes}
