"""People talk with the JavaScript SDK while gateways die, freeze and leave: no word is lost."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.robustness.history import History
from tests.robustness.validate.order import indexes_in_order, sessions_reach_their_end
from tests.robustness.validate.words import missing_only_where_allowed, no_word_is_lost
from tests.support.javascript import JavaScriptTalker, node_program, talking
from tests.support.scheduler import Scheduler
from tests.support.services import addresses

PEOPLE = 3
EN_ES, ES_EN = ("en", "es"), ("es", "en")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    """Two of each service, and two nodes that know both dispatchers."""
    node_program()
    with (
        tempfile.TemporaryDirectory(prefix="lingua-redis-") as folder,
        EmbeddedRedis(data_dir=Path(folder)) as redis,
        Scheduler(redis_url=redis.url, instances=2) as made,
    ):
        made.add_nodes([addresses(made.dispatchers)] * 2, slots=2 * PEOPLE, work_ms=200)
        yield made
        made.check_logs()


@pytest.fixture
async def gateways(scheduler: Scheduler) -> list[str]:
    """The web addresses of the gateways, all alive."""
    for each in scheduler.gateways:
        if each.process.poll() is not None:
            await each.restart()
    return [each.web_address for each in scheduler.gateways]


def people(gateways: list[str], count: int = PEOPLE) -> list[JavaScriptTalker]:
    return [JavaScriptTalker(f"js{at}", gateways, start=at) for at in range(count)]


def check(*talkers: JavaScriptTalker) -> None:
    """Each index has come once and in order, and every word has come back."""
    history = History("javascript", 0, clients=[talker.history for talker in talkers])
    checks = (
        indexes_in_order,
        sessions_reach_their_end,
        missing_only_where_allowed,
        no_word_is_lost,
    )
    assert [violation for each in checks for violation in each(history)] == []
    for talker in talkers:
        (closed,) = talker.told("closed")
        assert closed["counts"]["results"] == len(talker.history.outcomes())
        assert talker.history.outcomes()


@pytest.mark.long
async def test_a_conversation_in_both_directions(gateways: list[str]) -> None:
    talker = JavaScriptTalker("both", gateways, directions=[EN_ES, ES_EN], partial_interval_ms=100)
    async with talking(talker):
        await talker.until("result", 4)
    # Directions are translated apart, so each has an order of its own.
    for src, _ in (EN_ES, ES_EN):
        said = [each["word"] for each in talker.told("said") if each["src"] == src]
        heard = [each["words"] for each in talker.told("result") if each["src"] == src]
        assert [int(word) for words in heard for word in words] == said
    assert [each["index"] for each in talker.told("result")] == list(
        range(len(talker.told("result")))
    )
    assert not talker.told("missing", "reconnecting", "lost")


async def test_kill_9_of_a_gateway_in_the_middle_of_speech_loses_no_word(
    scheduler: Scheduler, gateways: list[str]
) -> None:
    talkers = people(gateways)
    async with talking(*talkers):
        for gateway in scheduler.gateways:
            for talker in talkers:
                await talker.until("said", len(talker.told("said")) + 7)
            gateway.kill()
            for talker in talkers:
                await talker.until("result", len(talker.told("result")) + 1)
            await gateway.restart()
    check(*talkers)
    # Each gateway was killed once, so whoever talked was cut off, and went to the other one.
    assert all(talker.told("resumed") for talker in talkers)
    assert not any(talker.told("problem") for talker in talkers)


@pytest.mark.long
async def test_a_frozen_gateway_is_left(scheduler: Scheduler, gateways: list[str]) -> None:
    talkers = people(gateways)
    async with talking(*talkers):
        for gateway in scheduler.gateways:
            for talker in talkers:
                await talker.until("said", len(talker.told("said")) + 5)
            with gateway.frozen():
                for talker in talkers:
                    await talker.until("result", len(talker.told("result")) + 2)
    check(*talkers)
    why = [each["why"] for talker in talkers for each in talker.told("reconnecting")]
    assert any("sent nothing for" in each for each in why), why


@pytest.mark.long
async def test_a_draining_gateway_is_left_in_time(
    scheduler: Scheduler, gateways: list[str]
) -> None:
    talkers = people(gateways)
    async with talking(*talkers):
        for gateway in scheduler.gateways:
            for talker in talkers:
                await talker.until("said", len(talker.told("said")) + 5)
            gateway.terminate()
            assert await gateway.exit_code() == 0
            for talker in talkers:
                await talker.until("result", len(talker.told("result")) + 1)
            await gateway.restart()
    check(*talkers)
    assert all(talker.told("resumed") for talker in talkers)
    slowest = max(each["away"] for talker in talkers for each in talker.told("resumed"))
    # Another gateway is there at once; most of this is what a busy machine adds.
    assert slowest < 10.0


@pytest.mark.long
async def test_nobody_answers_and_the_app_is_told(gateways: list[str]) -> None:
    talker = JavaScriptTalker("nobody", ["127.0.0.1:1"])
    began = time.monotonic()
    await asyncio.wait_for(talker.talk(), 60)
    (lost,) = talker.told("lost")
    assert (lost["name"], lost["reason"]) == ("SessionUnavailableError", "UNREACHABLE")
    # It tries for 10 s.
    assert time.monotonic() - began > 8.0
