"""The session's protocol against a model of the server, over streams that break anywhere."""

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.sdk._transport.endings import Close, Ending
from lingua_scheduler.sdk.session.events import Missing, Result
from lingua_scheduler.sdk.session.protocol.effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.protocol.machine import SessionProtocol
from lingua_scheduler.v1 import common_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import ClientMessage, ServerEvent, ServerMessage
from tests.unit.sdk.session_peer import (
    ack,
    closed,
    failed,
    finalized,
    go_away,
    missing,
    opened,
    result,
)

NOT_FOUND = common_pb2.ERROR_REASON_SESSION_NOT_FOUND


class Server:
    """Models all gateways and what they share. Forgets nothing that it has acknowledged.

    Attributes:
        chunks: that have come, each once, in order.
        acked: the highest ack that was ever said.
        said: events on their way to the client.
    """

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.acked = 0
        self.said: deque[ServerEvent] = deque()
        self.utterances = 0
        self.outcomes = 0
        self.confirmed = 0
        self.gone = False
        self.was_closed = False
        self._cut_at = 0
        self._connect()

    def _connect(self) -> None:
        self.said.clear()
        self.expected = 0
        self.is_open = False
        self._closing = self._closed_said = False
        self._delivered = self._told = 0

    def disconnect(self) -> None:
        self._connect()

    def hear(self, message: ClientMessage) -> None:
        self._confirm(message.results_seen)
        match message.WhichOneof("message"):
            case "open":
                assert not self.is_open, "Open comes first and once"
                self._open(message.open)
            case "audio":
                self._take(message.audio)
            case "close":
                assert self.is_open
                assert self.expected == len(self.chunks), "Close comes after the last chunk"
                self._closing = self.was_closed = True
                self._cut()
        self._check_done()

    def _open(self, asked: session_pb2.Open) -> None:
        if self.gone:
            self.said.append(failed(NOT_FOUND))
            return
        if asked.HasField("resume"):
            resume = asked.resume
            assert (resume.session_id, resume.resume_token) == ("s-1", "secret")
            assert resume.next_seq <= self.acked, "it forgot what was not acknowledged"
            assert resume.results_seen <= self.outcomes
            self._confirm(resume.results_seen)
            # The server may or may not remember acks that the client never received.
            known = self.acked if self.acked % 2 else 0
            self.expected = max(resume.next_seq, known)
            self._delivered = resume.results_seen
            self._told = resume.results_seen
        else:
            # A new session, whatever an earlier stream asked for.
            assert not self.chunks
        self.is_open = True
        self.said.append(opened(next_seq=self.expected))

    def _take(self, chunk: session_pb2.AudioChunk) -> None:
        assert self.is_open, "audio came before Opened"
        assert chunk.seq <= self.expected, "a gap"
        if chunk.seq < self.expected:
            return
        self.expected += 1
        if chunk.seq == len(self.chunks):
            self.chunks.append(chunk.data)
            if chunk.is_final:
                self._cut()
        else:
            assert self.chunks[chunk.seq] == chunk.data, "a chunk changed"

    def _confirm(self, seen: int) -> None:
        assert seen <= self.outcomes, "it confirmed what it cannot have seen"
        self.confirmed = max(self.confirmed, seen)

    def _cut(self) -> None:
        if self._cut_at < len(self.chunks):
            self._cut_at = len(self.chunks)
            self.utterances += 1

    def acknowledge(self, more: int) -> None:
        if self.is_open:
            self._tell()
            safe = min(self.expected, self._cut_at, self.acked + more)
            if safe > self.acked:
                self.acked = safe
            self.said.append(ack(self.acked))

    def _tell(self) -> None:
        while self._told < self.utterances:
            self.said.append(finalized(self._told))
            self._told += 1

    def finish_jobs(self, more: int) -> None:
        self.outcomes = min(self.utterances, self.outcomes + more)
        self.deliver()

    def deliver(self) -> None:
        while self.is_open and self._delivered < self.outcomes:
            self.said.append(self._outcome(self._delivered))
            self._delivered += 1
        self._check_done()

    def repeat(self, count: int) -> None:
        """Sends some results again, as a resume does that knows less than the client."""
        if self.is_open:
            for index in range(max(0, self._delivered - count), self._delivered):
                self.said.append(self._outcome(index))

    def _outcome(self, index: int) -> ServerEvent:
        return missing(index) if index % 3 == 2 else result(index)

    def _check_done(self) -> None:
        everything = self.outcomes == self.utterances == self._delivered
        if self._closing and everything and not self._closed_said:
            self._closed_said = True
            self.said.append(closed(self.outcomes))
        if self._closed_said and self.confirmed == self.outcomes:
            self.gone = True


class World:
    """A client and its servers, with everything in flight between them."""

    def __init__(self) -> None:
        self.now = 50.0
        # It never gives up here; other tests check when it does.
        self.client = SessionProtocol(
            new=session_pb2.NewSession(), rng=random.Random(1), reconnect_seconds=1e9
        )
        self.server = Server()
        self.written: deque[ClientMessage] = deque()
        self.connected = False
        self.sent: list[bytes] = []
        self.given: list[int] = []
        self.is_over = False
        self.closed = False

    # ---- what may happen ----

    def send(self, count: int) -> None:
        # As in the shell, nothing is sent before the session is open or after it was closed.
        if self.client.state.session_id and not self.closed and not self.client.state.over:
            for _ in range(count):
                self.sent.append(str(len(self.sent)).encode())
                self.client.state.kept.add(self.sent[-1], is_final=len(self.sent) % 3 == 0)

    def close(self, _: int) -> None:
        if self.client.state.session_id:
            self.closed = True
            self.client.close()

    def write(self, count: int) -> None:
        for _ in range(count):
            message = self.client.take()
            if message is None:
                return
            self.written.append(message)

    def server_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.written))):
            self.server.hear(self.written.popleft())

    def server_acks(self, count: int) -> None:
        self.server.acknowledge(count)

    def server_has_results(self, count: int) -> None:
        self.server.finish_jobs(count)

    def server_repeats(self, count: int) -> None:
        self.server.repeat(count)

    def client_reads(self, count: int) -> None:
        events = [self.server.said.popleft() for _ in range(min(count, len(self.server.said)))]
        if self.connected:
            self._do(self.client.on_message(self.now, ServerMessage(events=events)))

    def gateway_leaves(self, count: int) -> None:
        if self.server.is_open:
            self.server.said.append(go_away(after_ms=100 * count))

    def stream_breaks(self, _: int) -> None:
        if self.connected:
            self._drop(self.client.ending(self.now))

    def connect(self, _: int) -> None:
        if not self.connected and not self.client.state.over:
            self.connected = True
            self.client.on_connected(self.now)

    def time_passes(self, count: int) -> None:
        end = self.now + count / 20
        while (due := self.client.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self._do(self.client.on_timer(self.now))
        self.now = end

    # ---- how it ends ----

    def settle(self) -> None:
        """Makes everything work from now on, and closes the session."""
        for _ in range(200):
            if self.is_over:
                return
            self.connect(1)
            self.close(1)
            for step in (
                self.write,
                self.server_reads,
                self.server_acks,
                self.server_has_results,
                self.client_reads,
                self.write,
                self.server_reads,
            ):
                step(1000)
            self.server.deliver()
            self.client_reads(1000)
            self.time_passes(10)
        raise AssertionError("the session never ended")

    def finish(self) -> None:
        """Settles, and checks that everything has ended."""
        self.settle()
        self.check()
        assert self.server.was_closed, "Close was forgotten"
        assert self.server.chunks == self.sent
        assert self.given == list(range(self.server.utterances))

    def check(self) -> None:
        kept = self.client.state.kept
        assert kept.end == len(self.sent)
        if not self.client.state.over:
            assert kept.first <= self.server.acked, "it forgot what was not acknowledged"
        assert self.server.chunks == self.sent[: len(self.server.chunks)]
        assert self.given == list(range(len(self.given)))
        assert self.client.state.seen == len(self.given)

    def _drop(self, ending: Ending) -> None:
        self.connected = False
        self.written.clear()
        self.server.disconnect()
        self._do(self.client.on_disconnected(self.now, ending))

    def _do(self, effects: list[SessionEffect]) -> None:
        for effect in effects:
            match effect:
                case Give(event=Result() | Missing() as outcome):
                    self.given.append(outcome.index)
                case Close():
                    if effect.graceful:
                        self.write(10)
                        self.server_reads(10)
                    self._drop(effect.ending)
                case Over():
                    self.is_over = True
                case Fail():
                    raise effect.error
                case Retry():
                    assert 0 <= effect.after <= 30


STEPS = {
    "send": World.send,
    "write": World.write,
    "server_reads": World.server_reads,
    "server_acks": World.server_acks,
    "server_has_results": World.server_has_results,
    "server_repeats": World.server_repeats,
    "client_reads": World.client_reads,
    "gateway_leaves": World.gateway_leaves,
    "stream_breaks": World.stream_breaks,
    "connect": World.connect,
    "time_passes": World.time_passes,
    "close": World.close,
}
NAMES = list(STEPS)
WITHOUT_CLOSE = [name for name in NAMES if name != "close"]


def steps(names: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Generates any number of these events, each with an amount."""
    return st.lists(st.tuples(st.sampled_from(names), st.integers(1, 8)), max_size=60)


@settings(max_examples=250, deadline=None)
@given(talk=steps(WITHOUT_CLOSE), end=steps(NAMES))
def test_nothing_is_lost_or_given_twice_wherever_streams_break(
    talk: list[tuple[str, int]], end: list[tuple[str, int]]
) -> None:
    world = World()
    for name, count in [("connect", 1), *talk, *end]:
        STEPS[name](world, count)
        world.check()
    world.finish()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), breaks=st.floats(0.0, 0.1))
def test_a_long_session_survives_any_number_of_breaks(seed: int, breaks: float) -> None:
    rng = random.Random(seed)
    world = World()
    ends = ("close", "stream_breaks", "gateway_leaves")
    smooth = [name for name in NAMES if name not in ends]
    for at in range(400):
        # The app closes some time before the end, and streams break before and after that.
        rough = ends if at > 300 else ends[1:]
        name = rng.choice(rough) if rng.random() < breaks else rng.choice(smooth)
        STEPS[name](world, rng.randint(1, 8))
        world.check()
    world.finish()
