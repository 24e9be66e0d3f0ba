"""The node's protocol under events in any order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.sdk.node.protocol.effects import NodeEffect, Start
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.results import Held, Partial, Translated
from lingua_scheduler.v1.dispatcher_pb2 import (
    NodeEvent,
)
from tests.unit.sdk.node_driver import Driver, assign, cancel, received


class Interleaving:
    """One node, and two invariants that hold in any order of events."""

    def __init__(self) -> None:
        self.driver = Driver(slots=2, unconfirmed=UnconfirmedResults(max_results=3))
        self.driver.connect()
        self.connected = True
        self.live: set[int] = set()
        self.silent: set[str] = set()

    def dispatcher(self, action: str, job: str) -> None:
        if not self.connected:
            self.driver.connect()
            self.connected = True
        event = {"assign": assign(job, partial=10, left=5000), "received": received(job)}
        self.note(self.driver.say(event.get(action, cancel(job))))
        if action == "cancel":
            self.silent.add(job)

    def handler(self, action: str, job: str) -> None:
        protocol, run = self.driver.protocol, self.driver.runs.get(job, 0)
        match action:
            case "result":
                protocol.on_result(run, Translated(source=job))
            case "held":
                protocol.on_result(run, Held())
            case "hold":
                protocol.on_hold(run)
            case "partial":
                protocol.on_partial(run, Partial(source=job))
            case "end":
                protocol.on_ended(run)
                self.live.discard(run)

    def world(self, action: str) -> None:
        if action == "time":
            self.note(self.driver.tick(0.5))
        elif action == "break":
            self.driver.protocol.on_disconnected()
            self.connected = False
        else:
            self.hear(self.driver.drain())

    def note(self, effects: list[NodeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                self.live.add(effect.run)
                self.silent.discard(effect.assign.attempt.job_id)

    def hear(self, events: list[NodeEvent]) -> None:
        for event in events:
            kind = event.WhichOneof("event") or ""
            if kind in ("job_ack", "job_partial", "job_result", "job_failed", "audio_held"):
                assert getattr(event, kind).attempt.job_id not in self.silent

    def check(self) -> None:
        protocol = self.driver.protocol
        assert protocol.executing == len(self.live) <= 2
        assert protocol.running <= 2
        assert protocol.unconfirmed <= 3
        # A deadline that stays in the past would make the timer spin.
        protocol.on_timer(self.driver.now)
        deadline = protocol.next_deadline(self.driver.now)
        assert deadline is None or deadline > self.driver.now


STEPS = st.one_of(
    st.tuples(
        st.just("dispatcher"),
        st.sampled_from(["assign", "assign", "cancel", "received"]),
        st.sampled_from("abcd"),
    ),
    st.tuples(
        st.just("handler"),
        st.sampled_from(["result", "held", "hold", "partial", "end"]),
        st.sampled_from("abcd"),
    ),
    st.tuples(st.just("world"), st.sampled_from(["time", "break", "read"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_in_any_order_of_events_slots_hold_and_cancelled_attempts_stay_silent(
    steps: list[tuple[str, ...]],
) -> None:
    world = Interleaving()
    for who, *what in steps:
        getattr(world, who)(*what)
        world.check()
