"""Scenarios of speech over the whole path, in both topologies; every node is a process of its own.

Speech that was cut comes out whole because its parts go to the same node; utterances end as they
should; and a lost result blocks nothing.

Words are numbers (see listening_node); a pause after an odd word is no end for a node.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from lingua_scheduler.sdk import Finalized, Missing, Reason, Result, ResultKind
from tests.support.listening_node import ENDLESS, IMPOSSIBLE
from tests.support.scheduler import SETTINGS, Scheduler
from tests.support.services import ServiceProcess, addresses
from tests.support.speaker import EN_ES, ES_EN, Speaker, speaking, words_of

NODES = 4
# As many as would all have to be lucky: 4**-12 is less than one in ten million.
SESSIONS = 12
PAUSE_S = int(SETTINGS["pause_ms"]) / 1000
# Words in the longest utterance.
LONGEST = int(SETTINGS["max_duration_ms"]) // 100


@pytest.fixture(scope="module", params=[True, False], ids=["split", "all_in_one"])
def scheduler(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    """One service of each kind and four nodes, for all tests of this file."""
    with Scheduler(redis_url=redis_url, split=request.param) as made:
        # With room for all sessions on any of them: nobody has to go elsewhere.
        made.add_nodes([addresses(made.dispatchers)] * NODES, slots=SESSIONS)
        yield made
        made.check_logs()


@pytest.fixture
def gateway(scheduler: Scheduler) -> ServiceProcess:
    """The gateway of the tests that need no other."""
    return scheduler.gateways[0]


@pytest.fixture
async def speaker(gateway: ServiceProcess) -> AsyncIterator[Speaker]:
    """One who speaks English; at the end all that was said has been heard."""
    async with speaking(gateway.address) as made:
        yield made
    made.check_all_heard()


@contextlib.asynccontextmanager
async def crowd(gateway: ServiceProcess, **options: bool) -> AsyncIterator[list[Speaker]]:
    """Many who speak at once; at the end all that was said has been heard."""
    async with contextlib.AsyncExitStack() as stack:
        people = [
            await stack.enter_async_context(speaking(gateway.address, **options))
            for _ in range(SESSIONS)
        ]
        yield people
    for each in people:
        each.check_all_heard()


def numbered(people: list[Speaker]) -> list[tuple[Speaker, int]]:
    """Each with the number before its first word: no two have a word in common."""
    return [(each, 1000 * at) for at, each in enumerate(people)]


def check_assigned_once(scheduler: Scheduler, speaker: Speaker) -> None:
    """Without a fault every utterance is one job, and one node has it."""
    jobs = {each.job_id for each in speaker.outcomes if isinstance(each, Result)}
    assigned = [each for each in scheduler.told("assigned") if each["job"] in jobs]
    assert sorted(each["index"] for each in assigned) == list(range(len(speaker.outcomes)))


# ---- speech that was cut ----


async def test_what_follows_a_max_duration_cut_is_joined_on_the_same_node(
    scheduler: Scheduler, gateway: ServiceProcess
) -> None:
    """Twelve people talk for five seconds without a pause, and there are four nodes."""
    words = 50
    async with crowd(gateway) as people:
        await asyncio.gather(
            *(
                each.say_sentence(*range(first + 1, first + words + 1))
                for each, first in numbered(people)
            )
        )
    for each, first in numbered(people):
        (turn,) = each.turns()
        assert turn.words == list(range(first + 1, first + words + 1))
        assert len(turn.nodes) == 1
        assert each.reasons() == [Reason.MAX_DURATION] * 3 + [Reason.IS_FINAL]
        assert turn.parts[-1].joined == (0, 1, 2)
        check_assigned_once(scheduler, each)
    assert len({node for each in people for node in each.turns()[0].nodes}) > 1


async def test_what_follows_a_pause_is_joined_where_the_node_holds_the_audio(
    scheduler: Scheduler, gateway: ServiceProcess
) -> None:
    """The node reports that it holds the audio (AudioHeld, HELD)."""

    async def talk(speaker: Speaker, first: int) -> None:
        # Two pauses within one sentence.
        await speaker.say(first + 2, first + 3)
        assert (await speaker.cut(0)).reason is Reason.TIMEOUT
        await speaker.say(first + 4, first + 5)
        assert (await speaker.cut(1)).reason is Reason.TIMEOUT
        await speaker.say_sentence(first + 6)

    async with crowd(gateway) as people:
        await asyncio.gather(*(talk(each, first) for each, first in numbered(people)))
    for each, first in numbered(people):
        (turn,) = each.turns()
        assert [part.kind for part in turn.parts[:-1]] == [ResultKind.HELD] * 2
        assert turn.words == [first + word for word in (2, 3, 4, 5, 6)]
        assert len(turn.nodes) == 1
        check_assigned_once(scheduler, each)
    assert len({node for each in people for node in each.turns()[0].nodes}) > 1


async def test_after_a_pause_that_no_node_holds_the_next_job_is_free(
    gateway: ServiceProcess,
) -> None:
    """Twelve people pause after a whole sentence: not all come to the same node again."""

    async def talk(speaker: Speaker, first: int) -> None:
        await speaker.say(first + 1, first + 2)
        assert (await speaker.cut(0)).reason is Reason.TIMEOUT
        await speaker.say_sentence(first + 3)

    async with crowd(gateway) as people:
        await asyncio.gather(*(talk(each, first) for each, first in numbered(people)))
    for each in people:
        assert [turn.parts[0].joined for turn in each.turns()] == [(), ()]
    assert any(len({result.node_id for result in each.results}) > 1 for each in people)


# ---- ends of utterances ----


async def test_a_manual_end_goes_to_the_bound_node_and_all_later_ones_are_free(
    scheduler: Scheduler, speaker: Speaker
) -> None:
    """Sixty sentences, one after the other.

    That chance leaves one of four nodes out of them happens once in seven million times.
    """
    await speaker.say_sentence(*range(1, LONGEST + 6))
    await speaker.outcome(1)
    (turn,) = speaker.turns()
    assert speaker.reasons() == [Reason.MAX_DURATION, Reason.IS_FINAL]
    assert len(turn.nodes) == 1

    for at in range(60):
        await speaker.say_sentence(100 + at)
        await speaker.outcome(2 + at)
    assert {result.node_id for result in speaker.results[2:]} == {
        node.node_id for node in scheduler.nodes
    }


async def test_an_end_that_is_said_twice_makes_one_utterance_and_is_counted(
    scheduler: Scheduler,
) -> None:
    """The second end comes within the hangover, which is long at this gateway."""
    gateway = scheduler.add_gateway(hangover_manual_ms=2000)
    async with speaking(gateway.address) as speaker:
        await speaker.say_sentence(1, 2, 3)
        await speaker.session.finish()
        await gateway.reaches(1, "lingua_gateway_duplicate_finalizes_total")
        await speaker.outcome(0)
        await speaker.say_sentence(4)
    speaker.check_all_heard()
    assert [turn.words for turn in speaker.turns()] == [[1, 2, 3], [4]]
    assert await gateway.metric("lingua_gateway_duplicate_finalizes_total") == 1
    assert await gateway.metric("lingua_gateway_finalized_total") == 2


async def test_an_end_with_no_audio_uses_no_index_and_is_counted(
    gateway: ServiceProcess, speaker: Speaker
) -> None:
    before = await gateway.metric("lingua_gateway_empty_finalizes_total")
    await speaker.session.finish()
    await speaker.say_sentence(1, 2)
    assert words_of(result(await speaker.outcome(0))) == [1, 2]
    await speaker.session.finish()
    await speaker.session.finish()
    await speaker.say_sentence(3)
    assert words_of(result(await speaker.outcome(1))) == [3]
    assert await gateway.metric("lingua_gateway_empty_finalizes_total") == before + 3


def result(outcome: Result | Missing) -> Result:
    assert isinstance(outcome, Result), outcome
    return outcome


# ---- lost results ----


@pytest.mark.parametrize(
    ("word", "why"),
    [(ENDLESS, "DEADLINE_EXCEEDED"), (IMPOSSIBLE, "JOB_FAILED")],
    ids=["no node has done with it in time", "no node can do it"],
)
async def test_an_index_without_a_result_is_named_and_those_after_it_come(
    scheduler: Scheduler, word: int, why: str
) -> None:
    deadline_ms = 3000
    gateway = scheduler.add_gateway(result_deadline_ms=deadline_ms, job_timeout_ms=deadline_ms)
    async with speaking(gateway.address) as speaker:
        for words in ([1, 2], [3, word, 4], [5, 6], [7]):
            await speaker.say_sentence(*words)
    speaker.check_indexes()
    missing = speaker.outcomes[1]
    assert isinstance(missing, Missing), missing
    assert missing.reason == why
    assert [words_of(each) for each in speaker.results] == [[1, 2], [5, 6], [7]]
    assert await gateway.metric("lingua_gateway_missing_total") == 1


# ---- interruptions and playback ----


async def test_b_interrupts_a_and_is_free_and_a_goes_on_at_the_node_that_has_the_beginning(
    scheduler: Scheduler, gateway: ServiceProcess
) -> None:
    """A has been cut once for length, and once by b; b's answer has nothing to do on that node."""
    before, after = LONGEST + 2, LONGEST + 5

    async def talk(speaker: Speaker, first: int) -> None:
        await speaker.say(*range(first + 1, first + before + 1), direction=EN_ES)
        await speaker.say_sentence(first + 500, first + 501, direction=ES_EN)
        await speaker.say_sentence(*range(first + before + 1, first + after + 1), direction=EN_ES)

    async with crowd(gateway, both=True) as people:
        await asyncio.gather(*(talk(each, first) for each, first in numbered(people)))
    for each, first in numbered(people):
        (a,) = each.turns(EN_ES)
        (b,) = each.turns(ES_EN)
        assert a.words == list(range(first + 1, first + after + 1))
        assert len(a.nodes) == 1
        assert [part.index for part in a.parts] == [0, 1, 3]
        assert each.reasons() == [
            Reason.MAX_DURATION,
            Reason.INTERRUPTED,
            Reason.IS_FINAL,
            Reason.IS_FINAL,
        ]
        assert (b.words, b.parts[0].joined) == ([first + 500, first + 501], ())
        check_assigned_once(scheduler, each)
    assert any(each.turns(EN_ES)[0].nodes != each.turns(ES_EN)[0].nodes for each in people)


async def test_while_the_app_plays_speech_silence_ends_no_utterance(speaker: Speaker) -> None:
    await speaker.session.playback_started()
    await speaker.say(1, 2)
    # Nothing is to happen in this time.
    await asyncio.sleep(2.5 * PAUSE_S)
    assert not [each for each in speaker.events if isinstance(each, Finalized)]
    await speaker.say(3, 4)
    await speaker.session.playback_ended()
    assert (await speaker.cut(0)).reason is Reason.TIMEOUT
    assert words_of(result(await speaker.outcome(0))) == [1, 2, 3, 4]
