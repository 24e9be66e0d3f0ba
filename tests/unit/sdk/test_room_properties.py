"""The listener's protocol against a model of a room, over streams that break anywhere."""

import itertools
import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.sdk import Listening, NotSaid, Said
from lingua_scheduler.sdk._transport.endings import Close, Ending, Lost
from lingua_scheduler.sdk.room.protocol.effects import Fail, Give, ListenerEffect
from lingua_scheduler.sdk.room.protocol.machine import ListenerProtocol
from lingua_scheduler.v1 import rooms_pb2
from lingua_scheduler.v1.rooms_pb2 import ListenerMessage, RoomEvent, RoomMessage
from tests.unit.sdk.room_driver import changed, go_away, joined, missing, said

LANGUAGES = ("es", "fr", "de")
REPLAY = 2


class Gateways:
    """Models all gateways of a room, with one member that is never forgotten.

    An utterance goes into the lane of every language that is wanted when it is cut. Lanes are kept
    from `kept_from` on.

    Attributes:
        due: the indexes that the member must be given, in whatever language.
        events: on their way to the client.
        skips: how many events the server is going to skip, against the contract. What it skips last
            in a language before a change, or before a gap, cannot be noticed: nothing refers to it.
    """

    def __init__(self) -> None:
        self.next_index = 0
        self.due: set[int] = set()
        self.events: deque[RoomEvent] = deque()
        self.skips = 0
        self.joined = False
        self._lanes: dict[str, list[int]] = {language: [] for language in LANGUAGES}
        self._kept_from = 0
        self._language = ""
        # What the stream is yet to be given: from which index on, in which language.
        self._parts: list[tuple[int, str]] = []
        self._position = 0
        self._skipped_last: set[int] = set()

    def disconnect(self) -> None:
        self.events.clear()
        self._skipped_last.clear()
        self.joined = False

    def cut(self, others: set[str]) -> None:
        index, self.next_index = self.next_index, self.next_index + 1
        if self._language:
            self.due.add(index)
        for language in {*others, *([self._language] if self._language else [])}:
            self._lanes[language].append(index)

    def forget(self, count: int) -> None:
        self._kept_from = max(self._kept_from, self.next_index - count)

    def hear(self, message: ListenerMessage) -> None:
        match message.WhichOneof("message"):
            case "join":
                self._join(message.join)
            case "change":
                assert self.joined, "a change came before Joined"
                self._language = message.change.listening.language
                self.deliver()
                self._parts.append((self.next_index, self._language))
                self.events.append(changed(self.next_index, self._language))

    def _join(self, join: rooms_pb2.JoinRoom) -> None:
        assert not self.joined, "JoinRoom comes first and once"
        self.joined = True
        self._language = join.listening.language
        self.events.append(joined(self.next_index))
        if join.member_id:
            assert join.position <= self.next_index, "it claims to have seen the future"
            self._position = join.position
        else:
            self._position = self.next_index
            kept = [i for i in self._lanes[self._language] if i >= self._kept_from]
            for index in kept[-REPLAY:]:
                self.events.append(self._event(self._language, index))
        self._parts = [(self._position, self._language)]

    def deliver(self) -> None:
        """Sends everything that is there, in order."""
        while self.joined and self._parts:
            begin, language = self._parts[0]
            end = self._parts[1][0] if len(self._parts) > 1 else self.next_index
            if self._position < self._kept_from and any(
                self._position <= each < self._kept_from for each in self._lanes[language]
            ):
                self.due -= self._skipped_last
                self.events.append(missing(self._position, until=self._kept_from))
                self._position = self._kept_from
            for index in self._lanes[language]:
                if max(begin, self._position) <= index < end and index >= self._kept_from:
                    self._position = index + 1
                    if self.skips:
                        self.skips -= 1
                        self._skipped_last.add(index)
                    else:
                        self._skipped_last.clear()
                        self.events.append(self._event(language, index))
            if len(self._parts) == 1:
                return
            self._parts.pop(0)
            self.due -= self._skipped_last

    def repeat(self, count: int) -> None:
        """Sends some events again, as a resume does that knows less than the listener."""
        if self.joined and self._parts:
            language = self._parts[0][1]
            old = [i for i in self._lanes[language] if i < self._position and i >= self._kept_from]
            for index in old[-count:]:
                self.events.append(self._event(language, index))

    def _event(self, language: str, index: int) -> RoomEvent:
        lane = self._lanes[language]
        at = lane.index(index)
        previous = lane[at - 1] if at else None
        if index % 4 == 3:
            return missing(index, previous)
        return said(index, previous, language=language)


class World:
    """A listener and its gateways, with everything in flight between them."""

    def __init__(self) -> None:
        self.now = 50.0
        # It never gives up here; other tests check when it does.
        self.client = ListenerProtocol(
            join=rooms_pb2.JoinRoom(room_id="r"),
            listening=Listening(language="es"),
            rng=random.Random(1),
            reconnect_seconds=1e9,
        )
        self.server = Gateways()
        self.written: deque[ListenerMessage] = deque()
        self.connected = False
        self.heard: list[Said | NotSaid] = []

    def connect(self, _: int = 0) -> None:
        if not self.connected:
            self.connected = True
            self.client.on_connected(self.now)

    def lose(self, _: int = 0, ending: Ending | None = None) -> None:
        if self.connected:
            self.connected = False
            self.written.clear()
            self.server.disconnect()
            self.do(self.client.on_disconnected(self.now, ending or Lost("broken")))

    def change(self, number: int) -> None:
        if self.client.state.chain.started:
            self.client.change(Listening(language=LANGUAGES[number % len(LANGUAGES)]))

    def write(self, count: int) -> None:
        for _ in range(count):
            message = self.client.take()
            if message is None:
                return
            self.written.append(message)

    def server_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.written))):
            self.server.hear(self.written.popleft())

    def client_reads(self, count: int) -> None:
        for _ in range(count):
            if not self.connected or not self.server.events:
                return
            event = self.server.events.popleft()
            self.do(self.client.on_message(self.now, RoomMessage(events=[event])))

    def cut(self, number: int) -> None:
        self.server.cut({LANGUAGES[at] for at in range(len(LANGUAGES)) if number >> at & 1})

    def deliver(self, _: int = 0) -> None:
        self.server.deliver()

    def repeat(self, count: int) -> None:
        self.server.repeat(count)

    def forget(self, count: int) -> None:
        self.server.forget(count)

    def move(self, count: int) -> None:
        if self.server.joined:
            self.server.events.append(go_away(count * 100))

    def skip(self, _: int) -> None:
        self.server.skips += 1

    def pass_time(self, count: int) -> None:
        self.now += count / 10
        due = self.client.next_deadline()
        if due is not None and due <= self.now:
            self.do(self.client.on_timer(self.now))

    def do(self, effects: list[ListenerEffect]) -> None:
        for effect in effects:
            match effect:
                case Give():
                    if isinstance(effect.event, Said | NotSaid):
                        self.heard.append(effect.event)
                case Close():
                    self.lose(ending=effect.ending)
                case Fail():
                    raise AssertionError(effect.error)

    def sync(self, _: int = 0) -> None:
        """Everything that is on its way arrives."""
        self.connect()
        for _ in range(3):
            self.write(10)
            self.server_reads(10)
            self.server.deliver()
            self.client_reads(10_000)

    def settle(self) -> None:
        """Nothing breaks any more, and one more utterance is said."""
        self.server.skips = 0
        for _ in range(4):
            self.sync()
        self.server.cut(set())
        for _ in range(4):
            self.sync()


def covered(heard: list[Said | NotSaid]) -> list[range]:
    return [
        range(
            each.room_index, each.until_index if isinstance(each, NotSaid) else each.room_index + 1
        )
        for each in heard
    ]


# Rare ones among those that bring the listener on.
STEPS = [
    *("sync", "sync", "cut", "cut", "cut", "change", "write", "server_reads", "deliver"),
    *("client_reads", "client_reads", "lose", "connect", "repeat", "forget", "move", "pass_time"),
]


def steps_of(names: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 7)), min_size=5, max_size=60)


def run(steps: list[tuple[str, int]]) -> World:
    world = World()
    world.sync()
    for name, number in steps:
        getattr(world, name)(number)
    world.settle()
    return world


def check_order_and_completeness(world: World) -> None:
    ranges = covered(world.heard)
    assert all(one.stop <= other.start for one, other in itertools.pairwise(ranges))
    told = {index for each in ranges for index in each}
    unsaid = world.server.due - told
    assert not unsaid, f"the listener was not told of {sorted(unsaid)}"


@settings(max_examples=200)
@given(steps_of(STEPS))
def test_a_listener_is_given_each_utterance_once_and_in_order(
    steps: list[tuple[str, int]],
) -> None:
    check_order_and_completeness(run(steps))


@settings(max_examples=200)
@given(steps_of([*STEPS, "skip"]))
def test_a_listener_names_what_a_faulty_server_skips(steps: list[tuple[str, int]]) -> None:
    check_order_and_completeness(run(steps))


@settings(max_examples=100)
@given(steps_of([each for each in STEPS if each not in ("change", "forget")]))
def test_without_changes_nothing_is_reported_as_lost(steps: list[tuple[str, int]]) -> None:
    world = run(steps)
    reasons = {each.reason for each in world.heard if isinstance(each, NotSaid)}
    assert reasons <= {"JOB_TIMEOUT"}
    assert world.server.due <= {each.room_index for each in world.heard}
