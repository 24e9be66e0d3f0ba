"""The network between a client and its gateway breaks in the middle of speech; nothing is lost.

A Proxy is the network: connections through it can be dropped, refused, silenced and delayed.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from lingua_scheduler.sdk import Resumed, Session, SessionLostError
from lingua_scheduler.sdk._transport import channels as sdk_channels
from tests.support.scheduler import Scheduler
from tests.support.services import addresses
from tests.support.speaker import Speaker, sentences, speaking

# In words of a tenth of a second; what is longer than 15 is cut.
LENGTHS = (6, 18, 9, 12, 20)
# The pings of client and gateway, so that silence is noticed within a test.
PING_MS = 1000


@pytest.fixture(scope="module")
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    """Two gateways that ping often; the rest once, and two nodes."""
    with Scheduler(
        redis_url=redis_url, keepalive_time_ms=PING_MS, keepalive_timeout_ms=PING_MS
    ) as made:
        made.add_gateway()
        made.add_nodes([addresses(made.dispatchers)] * 2, slots=16, work_ms=100)
        yield made
        made.check_logs()


class Proxy:
    """A network path to a server; what it does to connections can be changed at any time."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self.address = ""
        self.delay_s = 0.0

    @property
    def is_used(self) -> bool:
        """Whether there is a connection now."""
        return bool(self._writers)

    async def open(self) -> None:
        """Takes connections, at the same address as before."""
        at = int(self.address.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", at)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}"

    async def refuse(self) -> None:
        """Drops all connections, and takes none until `open`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()

    def drop(self) -> None:
        """Resets all connections; new ones may be made."""
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Lets nothing pass, in neither direction, and closes nothing: both ends look alive."""
        self._may_pass.clear()

    def speak_again(self) -> None:
        """Lets pass what was held up, and all that comes."""
        self._may_pass.set()

    async def close(self) -> None:
        """Ends it all."""
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            out_reader, out_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, out_writer), (out_reader, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await asyncio.sleep(self.delay_s)
                await self._may_pass.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.transport.abort()


@contextlib.asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    made = Proxy(target)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def first(scheduler: Scheduler) -> AsyncIterator[Proxy]:
    """The way to one gateway."""
    async with proxy(scheduler.gateways[0].address) as made:
        yield made


@pytest.fixture
async def second(scheduler: Scheduler) -> AsyncIterator[Proxy]:
    """The way to the other."""
    async with proxy(scheduler.gateways[1].address) as made:
        yield made


async def talk(speaker: Speaker, start: int = 2) -> None:
    """Some sentences, as fast as they are spoken."""
    for words in sentences(start, LENGTHS):
        await speaker.say_sentence(*words, pace=True)


def resumes(speaker: Speaker) -> list[Resumed]:
    """Each time that the session went on."""
    return [each for each in speaker.events if isinstance(each, Resumed)]


async def away_and_back(speaker: Speaker, times: int) -> None:
    """Returns when the connection has been lost and found again so many times."""
    await speaker.until(lambda: len(resumes(speaker)) >= times)
    assert len(speaker.interruptions) >= times


async def test_a_connection_that_is_reset_again_and_again_is_resumed_and_loses_no_word(
    first: Proxy,
) -> None:
    """At the same gateway. It is reset after whatever came last, so at all stages of speech."""
    async with speaking(first.address) as speaker:
        talking = asyncio.create_task(talk(speaker))
        while not talking.done():
            times, heard = len(resumes(speaker)), len(speaker.events)
            first.drop()
            await away_and_back(speaker, times + 1)
            await speaker.until(lambda most=heard: len(speaker.events) > most + 2)
        await talking
    speaker.check_all_heard()
    report(speaker, "resets")
    assert speaker.session.counts.resumes >= 5


async def test_a_session_goes_on_at_another_gateway_when_its_own_cannot_be_reached(
    first: Proxy, second: Proxy
) -> None:
    """There and back again: each time the one that has the session is cut off."""
    async with speaking(f"{first.address},{second.address}") as speaker:
        talking = asyncio.create_task(talk(speaker))
        for time in range(3):
            await speaker.outcome(time)
            gone, other = (first, second) if first.is_used else (second, first)
            await gone.refuse()
            await away_and_back(speaker, time + 1)
            assert other.is_used
            assert not gone.is_used
            await gone.open()
        await talking
    speaker.check_all_heard()
    report(speaker, "another gateway")


async def test_a_connection_that_falls_silent_is_left_and_its_gateway_is_fenced_off(
    first: Proxy, second: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half open: the gateway still has the session, and the client speaks to the other one."""
    ping_soon(monkeypatch)
    async with speaking(f"{first.address},{second.address}") as speaker:
        talking = asyncio.create_task(talk(speaker))
        await speaker.outcome(0)
        silent, other = (first, second) if first.is_used else (second, first)
        silent.silence()
        await away_and_back(speaker, 1)
        assert other.is_used
        # Late, what was under way reaches a gateway that has lost the session.
        silent.speak_again()
        await talking
    speaker.check_all_heard()
    report(speaker, "silence")


def ping_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client looks as often as the gateway whether the connection lives: 30 s would be long."""
    names = {"grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"}
    options = tuple(
        (name, PING_MS if name in names else value) for name, value in sdk_channels._OPTIONS
    )
    monkeypatch.setattr(sdk_channels, "_OPTIONS", options)


async def test_a_slow_network_delays_results_and_loses_nothing(first: Proxy) -> None:
    first.delay_s = 0.15
    async with contextlib.AsyncExitStack() as stack:
        people = [await stack.enter_async_context(speaking(first.address)) for _ in range(2)]
        await asyncio.gather(*(talk(each, 2 + 1000 * at) for at, each in enumerate(people)))
    for each in people:
        each.check_all_heard()
        assert not each.interruptions
    report(people[0], "slow network")


def report(speaker: Speaker, title: str) -> None:
    """How long it took to be heard."""
    away = max((each.away for each in resumes(speaker)), default=0.0)
    print(
        f"{title}: {len(speaker.interruptions)} interruptions, longest {away:.2f} s;"
        f" longest stall {speaker.slowest:.2f} s"
    )


# ---- take-over ----


def twin(speaker: Speaker, to: str) -> Session:
    """Another client with the same session: what an app that was copied would come back with."""
    made: Any = Session(to, src="en", tgt="es")
    of: Any = speaker.session
    for fact in ("session_id", "token", "limits", "results", "missing", "awaited"):
        setattr(made._state, fact, getattr(of._state, fact))
    made._state.kept = copy.deepcopy(of._state.kept)
    session: Session = made
    return session


async def why_lost(speaker: Speaker) -> str:
    """Speaks on until it is told that the session is lost."""
    while True:
        try:
            await speaker.say(6, pace=True)
        except SessionLostError as error:
            return error.reason


@pytest.mark.parametrize("at", [0, 1], ids=["at the same gateway", "at another gateway"])
async def test_of_two_clients_with_one_session_the_first_is_told_that_it_was_taken_over(
    scheduler: Scheduler, at: int
) -> None:
    reason = ""
    # It cannot close what it has not any more.
    with contextlib.suppress(SessionLostError):
        async with speaking(scheduler.gateways[0].address) as speaker:
            await speaker.say_sentence(2, 4)
            await speaker.outcome(0)
            await speaker.session.drained()
            async with twin(speaker, scheduler.gateways[at].address) as session:
                heir = Speaker(session)
                hearing = asyncio.create_task(heir.hear())
                reason = await why_lost(speaker)
                await heir.say_sentence(8, 10)
            await hearing
    assert reason == "SESSION_TAKEN_OVER"
    assert not resumes(speaker)
    # What the first one said in vain is nowhere.
    assert [result.texts.source for result in heir.results] == ["8 10"]
    assert [result.index for result in heir.results] == [1]
