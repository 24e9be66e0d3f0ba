"""Malformed and senseless messages to every method: a clear status, no crash, and nobody is harmed.

In CI a few hundred calls, always the same. `make fuzz EXAMPLES=5000` makes more, at random.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lingua_scheduler.sdk import Result, Room, Said, Session
from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2
from tests.robustness.fuzz import rooms, web
from tests.robustness.fuzz.limits import beyond, beyond_on_stream
from tests.robustness.fuzz.messages import broken, random_message
from tests.robustness.fuzz.peers import METHODS, Method, call
from tests.robustness.fuzz.sequences import SEQUENCES
from tests.robustness.store import EMPTY
from tests.robustness.world import World
from tests.support.listening_node import audio_of

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
# Of one example: calls side by side.
AT_ONCE = 8
# What a service may say; UNKNOWN and INTERNAL are for bugs.
BUGS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
STREAMS = [method for method in METHODS if method.is_stream]
UNARY = [method for method in METHODS if not method.is_stream]
# Streams with a message that comes first, and only first.
BEGINS = ("Converse", "Connect", "Listen")
# Longer than memberships last without a connection.
LEFT_S = 30.0
# More tasks than before, after everything has ended.
TASKS_MORE = 5

if EXAMPLES:
    # As long as it takes.
    pytestmark = pytest.mark.timeout(0)

fuzzed = settings(
    max_examples=EXAMPLES or 25,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Target:
    """The services under attack, and a good client beside it."""

    def __init__(self, world: World, runner: asyncio.Runner) -> None:
        self.world = world
        self.runner = runner
        self.channels: dict[str, grpc.aio.Channel] = {}
        self.tasks = {name: world.tasks(name) for name in world.services}
        self.room = runner.run(Room.create(world.gateways))
        self.token = runner.run(self.room.join_token("listener"))

    def attack(self, calls: list[tuple[Method, list[bytes]]]) -> None:
        """All of it at once; none may end like a bug."""
        self.runner.run(self._attack(calls))

    async def _attack(self, calls: list[tuple[Method, list[bytes]]]) -> None:
        for method, _ in calls:
            if method.service not in self.channels:
                address = self.world.services[f"{method.service}-0"].address
                self.channels[method.service] = grpc.aio.insecure_channel(address)
        made = [call(self.channels[method.service], method, said) for method, said in calls]
        codes = await asyncio.gather(*made)
        for (method, said), code in zip(calls, codes, strict=True):
            assert code not in BUGS, f"{method}: {code} to {said!r:.500}"

    def refusals(
        self, method: Method, requests: list[Message]
    ) -> list[tuple[grpc.StatusCode, list[str]]]:
        """How each of these unary calls is refused: the status, and the fields that it names."""
        return self.runner.run(self._refusals(method, requests))

    async def _refusals(
        self, method: Method, requests: list[Message]
    ) -> list[tuple[grpc.StatusCode, list[str]]]:
        answers = []
        async with grpc.aio.insecure_channel(
            self.world.services[f"{method.service}-0"].address
        ) as channel:
            for request in requests:
                try:
                    await channel.unary_unary(method.path)(request.SerializeToString())
                    answers.append((grpc.StatusCode.OK, []))
                except grpc.aio.AioRpcError as error:
                    said = from_rpc_error(error) or common_pb2.Error()
                    fields = [each.field for each in said.field_violations]
                    answers.append((error.code(), fields))
        return answers

    def attack_web(self, requests: list[tuple[str, int]]) -> None:
        """Sessions and requests of these kinds and seeds, all at once; none ends like a bug."""
        answers = self.runner.run(self._attack_web(requests))
        for made, answer in zip(requests, answers, strict=True):
            assert answer.status in web.STATUSES, f"{made}: status {answer.status}"
            assert answer.code in web.CODES, f"{made}: closed with {answer.code}"

    async def _attack_web(self, requests: list[tuple[str, int]]) -> list[web.Answer]:
        address = self.world.web_addresses["gateway-0"]
        made = []
        for kind, seed in requests:
            rng = random.Random(seed)
            if kind == "session":
                frames = web.mutated(web.whole_session(rng), rng)
                made.append(web.talk(address, frames, rng))
            elif kind == "listener":
                frames = rooms.listening(self.room.room_id, self.token, rng)
                frames = rooms.mutated_listening(web.mutated(frames, rng), rng)
                told = rooms_pb2.RoomMessage
                made.append(web.talk(address, frames, rng, path=rooms.LISTEN, answers=told))
            elif kind == "room":
                data = rooms.room_request(address, self.room.room_id, self.token, rng)
                made.append(web.ask(address, data))
            else:
                made.append(web.ask(address, web.mutated_request(address, rng)))
        return await asyncio.gather(*made)

    def hear(self) -> None:
        """All listeners leave the room; who listens to it then hears what somebody says in it."""
        self.runner.run(self._hear())

    async def _hear(self) -> None:
        async with asyncio.timeout(LEFT_S):
            # Those who did not say that they leave are still translated for, for a while.
            while (await self.room.get()).listeners:  # noqa: ASYNC110, another process
                await asyncio.sleep(0.2)
        guest = Room(self.world.gateways, room_id=self.room.room_id, token=self.token)
        async with (
            guest.listen(language="es") as listener,
            self.room.speak(language="en") as speaker,
        ):
            await speaker.send(audio_of(2, 4, 6))
            await speaker.finish()
            async for heard in listener:
                assert isinstance(heard, Said), heard
                if not heard.replayed:
                    assert heard.texts.source == "2 4 6"
                    break

    def translations(self, seeds: list[int]) -> list[web.Answer]:
        """What comes back from sessions that are written in unusual ways."""
        return self.runner.run(self._translations(seeds))

    async def _translations(self, seeds: list[int]) -> list[web.Answer]:
        address = self.world.web_addresses["gateway-0"]
        said = [web.session("en", "es", 2, 4, 6) for _ in seeds]
        made = [web.respelled(each, random.Random(s)) for each, s in zip(said, seeds, strict=True)]
        return await asyncio.gather(*(web.translate(address, each) for each in made))

    async def close(self) -> None:
        """Leaves."""
        for channel in self.channels.values():
            await channel.close()

    def check(self) -> None:
        """Everybody lives, no bug is logged, a good client is served, and no task is left."""
        self.runner.run(self._is_served())
        logged = self.world.new_faults()
        assert not logged, "\n".join(logged)
        for process in self.world.processes.values():
            assert process.process.poll() is None
        deadline = time.monotonic() + 15
        while over := {name: n for name, n in self._tasks().items() if n > 0}:
            assert time.monotonic() < deadline, f"tasks left: {over}"
            time.sleep(0.2)

    async def _is_served(self) -> None:
        async with Session(self.world.gateways, src="en", tgt="es") as session:
            await session.send(audio_of(2, 4, 6))
            await session.finish()
            async for outcome in session.results():
                assert isinstance(outcome, Result), outcome
                assert outcome.texts.source == "2 4 6"
                break

    def _tasks(self) -> dict[str, int]:
        return {
            name: self.world.tasks(name) - before - TASKS_MORE
            for name, before in self.tasks.items()
        }


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """One of each service, and two nodes."""
    short = {"queue_wait_ms": 200, "job_timeout_ms": 2000, "max_retry": 1}
    with World(EMPTY, instances=1, nodes=(2, 2), **short) as world, asyncio.Runner() as runner:
        made = Target(world, runner)
        made.check()
        made.tasks = {name: world.tasks(name) for name in world.services}
        yield made
        runner.run(made.close())


calls_of_anything = st.lists(
    st.tuples(st.sampled_from(METHODS), st.integers(0, 2**32), st.booleans()),
    min_size=AT_ONCE,
    max_size=AT_ONCE,
)


def test_a_malformed_message_to_any_method_gets_a_clear_status(target: Target) -> None:
    @fuzzed
    @given(calls_of_anything)
    def run(drawn: list[tuple[Method, int, bool]]) -> None:
        calls = []
        for method, seed, breaks in drawn:
            rng = random.Random(seed)
            count = rng.randrange(1, 5) if method.is_stream else 1
            said = [random_message(method.takes, rng).SerializeToString() for _ in range(count)]
            calls.append((method, [broken(each, rng) if breaks else each for each in said]))
        target.attack(calls)

    run()
    target.check()


@pytest.mark.parametrize("method", UNARY, ids=str)
def test_a_request_beyond_any_limit_is_refused_by_the_name_of_its_field(
    target: Target, method: Method
) -> None:
    """Every limit that the contract declares, one at a time."""
    wrong = list(beyond(method.takes))
    answers = target.refusals(method, [message for _, message in wrong])
    for (path, _), (code, named) in zip(wrong, answers, strict=True):
        assert code is grpc.StatusCode.INVALID_ARGUMENT, path
        assert named
        assert all(field.startswith(path) for field in named), (path, named)


@pytest.mark.parametrize("method", STREAMS, ids=str)
def test_messages_beyond_any_limit_on_a_stream_harm_nobody(target: Target, method: Method) -> None:
    """On a stream the entry fails, or the stream; see the tests of each for which."""
    begins = SEQUENCES[str(method)][:1] if str(method) in BEGINS else []
    wrong = [message.SerializeToString() for _, message in beyond_on_stream(method.takes)]
    for start in range(0, len(wrong), 4 * AT_ONCE):
        target.attack([(method, [*begins, each]) for each in wrong[start : start + 4 * AT_ONCE]])
    target.check()


sequences = st.sampled_from(STREAMS).flatmap(
    lambda method: st.tuples(
        st.just(method),
        st.lists(st.sampled_from(SEQUENCES[str(method)]), min_size=1, max_size=8),
    )
)


def test_messages_in_a_senseless_order_end_a_stream_clearly_or_not_at_all(target: Target) -> None:
    @fuzzed
    @given(st.lists(sequences, min_size=AT_ONCE, max_size=AT_ONCE))
    def run(calls: list[tuple[Method, list[bytes]]]) -> None:
        target.attack(calls)

    run()
    target.check()


def test_a_web_session_with_something_wrong_in_it_ends_clearly_or_not_at_all(
    target: Target,
) -> None:
    kinds = st.sampled_from(["session", "session", "session", "request"])
    requests = st.lists(
        st.tuples(kinds, st.integers(0, 2**32)), min_size=2 * AT_ONCE, max_size=2 * AT_ONCE
    )

    @fuzzed
    @given(requests)
    def run(made: list[tuple[str, int]]) -> None:
        target.attack_web(made)

    run()
    target.check()


# Listeners that vanish are members for a while.
@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_a_web_listener_with_something_wrong_in_it_ends_clearly_or_not_at_all(
    target: Target,
) -> None:
    kinds = st.sampled_from(["listener", "listener", "room"])
    requests = st.lists(
        st.tuples(kinds, st.integers(0, 2**32)), min_size=2 * AT_ONCE, max_size=2 * AT_ONCE
    )

    @fuzzed
    @given(requests)
    def run(made: list[tuple[str, int]]) -> None:
        target.attack_web(made)

    run()
    target.hear()
    target.check()


@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_what_a_member_of_a_room_says_in_a_senseless_order_harms_nobody(target: Target) -> None:
    listen = next(method for method in STREAMS if str(method) == "Listen")
    said = rooms.listener_messages(target.room.room_id, target.token)
    orders = st.lists(st.sampled_from(said), max_size=8)

    @fuzzed
    @given(st.lists(st.tuples(st.booleans(), orders), min_size=AT_ONCE, max_size=AT_ONCE))
    def run(made: list[tuple[bool, list[bytes]]]) -> None:
        # Most begin well.
        target.attack([(listen, [said[0]] * begins + order) for begins, order in made])

    run()
    # Each as often as a listener can send it.
    target.attack([(listen, [said[0], *[each] * 300]) for each in said[1:]])
    target.hear()
    target.check()


def test_a_web_session_may_be_written_in_any_way_that_the_protocol_allows(target: Target) -> None:
    first = random.randrange(2**32) if EXAMPLES else 0
    for seed in range(first, first + (EXAMPLES or 24), 4):
        for answer in target.translations([*range(seed, seed + 4)]):
            assert (answer.status, answer.code) == (101, 0), (seed, answer)
            assert answer.events[-1]["result"]["texts"]["source"] == "2 4 6", (seed, answer)
    target.check()


def test_a_peer_that_has_said_all_gets_a_status_though_its_first_answer_is_on_the_way(
    target: Target,
) -> None:
    submit = next(method for method in STREAMS if str(method) == "Submit")
    # Refused as soon as it is read, so that the answer and the end of the stream meet.
    refused = dispatcher_pb2.Submission(job=dispatcher_pb2.JobSpec())
    said = dispatcher_pb2.SubmitRequest(submissions=[refused]).SerializeToString()
    for count in (1, 2, 3) * 10:
        target.attack([(submit, [said] * count)] * AT_ONCE)
    target.check()


@pytest.mark.parametrize("method", STREAMS, ids=str)
def test_a_flood_on_a_stream_harms_nobody(target: Target, method: Method) -> None:
    said = SEQUENCES[str(method)]
    first = said[:1] if str(method) in BEGINS else []
    target.attack([(method, first + [each] * 300) for each in said[-6:]])
    target.check()
