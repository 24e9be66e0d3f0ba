"""The table of the job machine: every event in every phase does what it says, and no more."""

from collections.abc import Callable

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job import model
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.v1 import common_pb2
from tests.unit.dispatcher.job_driver import (
    ALL_FULL,
    ALL_TRIED,
    BOUND_FULL,
    CANCELLED,
    COMMIT,
    FAILED,
    NO_NODE,
    OVER_QUOTA,
    Job,
)

PHASES = tuple(Phase)


def table() -> dict[tuple[str, Phase], str]:
    """The cells of the table in job.model."""
    lines = (model.__doc__ or "").splitlines()
    heads = [at for at, line in enumerate(lines) if line.split() == [p.name for p in PHASES]]
    cells = {}
    for line in lines[heads[0] + 1 :]:
        if not line.strip():
            break
        words = line.split()
        event = " ".join(words[: -len(PHASES)])
        cells.update({(event, p): word for p, word in zip(PHASES, words[-8:], strict=True)})
    return cells


def reached(phase: Phase) -> tuple[Job, int]:
    """A job in this phase, if possible after a failed attempt; and the attempt to test."""
    job = Job(deadline_ms=900, hedge_after_ms=50, affinity_wait_ms=60)
    if phase is Phase.NEW:
        return job, 1
    job.start()
    if phase is Phase.FETCHING:
        return job.told(1, common_pb2.JOB_STATE_DONE, lease=0), 1
    job.given(1).failed(1, worth_retry=phase is not Phase.OVER)
    if phase is Phase.WAITING:
        job.refused(ALL_FULL)
    if phase in (Phase.SELECTING, Phase.WAITING):
        return job, 1
    job.given(2)
    if phase in (Phase.RUNNING, Phase.LOST):
        job.acked(2)
    if phase is Phase.LOST:
        job.node_lost(2)
    if phase is Phase.OVER:
        job.failed(2, worth_retry=False)
    return job, 2


def prepared(event: str, phase: Phase) -> tuple[Job, int]:
    """A job for which the event has a meaning."""
    job, number = reached(phase)
    cell = table()[event, phase]
    if event == "given" and phase is Phase.PLACED:
        job.timer("hedge")
    if event == "timer ack" and phase is Phase.FETCHING:
        job.kept(None)
    if event == "timer job" and phase is Phase.FETCHING:
        job.acked(number)
    if event == "timer bound" and cell == "select":
        job = Job(affinity_wait_ms=60).start().refused(BOUND_FULL)
    if event == "timer others" and cell == "select":
        job = Job(max_retry=1).start().given(1).rejected(1).refused(ALL_FULL, facts=ALL_TRIED)
    if event == "timer ask" and cell == "ask":
        job.told(1, common_pb2.JOB_STATE_ACKED, lease=5000)
    return job, number


NEW_NUMBER = 9
EVENTS: dict[str, Callable[[Job, int], Job]] = {
    "start": lambda job, _: job.start(),
    "given": lambda job, _: job.given(NEW_NUMBER),
    "had reserved": lambda job, _: job.told(NEW_NUMBER, common_pb2.JOB_STATE_RESERVED, lease=50),
    "had running": lambda job, _: job.told(NEW_NUMBER, common_pb2.JOB_STATE_ACKED, lease=50),
    "had done": lambda job, _: job.told(NEW_NUMBER, common_pb2.JOB_STATE_DONE, lease=0),
    "had failed": lambda job, _: job.told(NEW_NUMBER, FAILED, lease=0),
    "all full": lambda job, _: job.refused(ALL_FULL),
    "bound full": lambda job, _: job.refused(BOUND_FULL),
    "over quota": lambda job, _: job.refused(OVER_QUOTA),
    "refused": lambda job, _: job.refused(NO_NODE),
    "room": lambda job, _: job.room(),
    "no place": lambda job, _: job.no_place(),
    "send failed": Job.send_failed,
    "node lost": Job.node_lost,
    "node back": Job.node_back,
    "acked": Job.acked,
    "committed": lambda job, number: job.committed(number, COMMIT.OUTCOME_COMMITTED),
    "no room": lambda job, number: job.committed(number, COMMIT.OUTCOME_NO_ROOM),
    "superseded": lambda job, number: job.committed(number, COMMIT.OUTCOME_SUPERSEDED),
    "rejected": Job.rejected,
    "partial": Job.partial,
    "result": Job.result,
    "failed": Job.failed,
    "hopeless": lambda job, number: job.failed(number, worth_retry=False),
    "kept": lambda job, number: job.kept(number),
    "not kept": lambda job, _: job.kept(None),
    "timer ack": lambda job, number: job.timer("ack", number),
    "timer hedge": lambda job, _: job.timer("hedge"),
    "timer job": lambda job, number: job.timer("job", number),
    "timer grace": lambda job, number: job.timer("grace", number),
    "timer wait": lambda job, _: job.timer("wait"),
    "timer bound": lambda job, _: job.timer("bound"),
    "timer others": lambda job, _: job.timer("others"),
    "timer ask": lambda job, _: job.timer("ask"),
    "deadline": lambda job, _: job.timer("deadline"),
    "cancel": lambda job, _: job.cancel(),
}

# What a word of the table means: the phase after it (None: the same), the required effects, and
# those allowed besides. Timers are not checked here.
Meaning = tuple[Phase | None, set[type[fx.Effect]], set[type[fx.Effect]]]
_FREES: set[type[fx.Effect]] = {fx.Release, fx.Complete, fx.CancelOnNode, fx.Confirm}
WORDS: dict[str, Meaning] = {
    "-": (None, set(), set()),
    "select": (Phase.SELECTING, {fx.Allocate}, set()),
    "ask": (None, {fx.Allocate}, set()),
    "hedge": (None, {fx.Allocate}, set()),
    "place": (Phase.PLACED, {fx.Send}, set()),
    "adopt": (Phase.RUNNING, {fx.Send, fx.Accepted}, set()),
    "fetch": (Phase.FETCHING, {fx.FetchKept}, set()),
    "wait": (Phase.WAITING, {fx.Wait}, set()),
    "next": (Phase.SELECTING, {fx.Retrying, fx.Allocate}, _FREES),
    "lost": (Phase.LOST, {fx.Locate}, set()),
    "send": (None, {fx.Send}, set()),
    "commit": (None, {fx.Commit}, set()),
    "run": (Phase.RUNNING, {fx.Commit, fx.Accepted}, set()),
    "back": (Phase.RUNNING, set(), set()),
    "hold": (Phase.FETCHING, set(), set()),
    "pass": (None, {fx.PassPartial}, set()),
    "done": (Phase.OVER, {fx.Deliver}, {fx.Complete}),
    "fail": (Phase.OVER, {fx.Fail}, _FREES),
    "cancel": (Phase.OVER, {fx.Fail}, {fx.Release, fx.Complete, fx.CancelOnNode}),
}


def check(job: Job, was: Phase, word: str) -> None:
    done = job.kinds()
    if word in ("late", "stop"):
        assert job.phase is was
        wanted = {fx.Release, fx.Confirm, fx.CancelOnNode, fx.Complete}
        assert len(done) == (2 if word == "stop" else 1)
        assert wanted.issuperset(done)
        return
    after: Phase | None = None
    must: set[type[fx.Effect]] = set()
    may: set[type[fx.Effect]] = set()
    for part in word.split("+"):
        phase, part_must, part_may = WORDS[part]
        after, must, may = phase or after, must | part_must, may | part_may
    assert job.phase is (after or was)
    assert must <= set(done) <= must | may
    if word == "-":
        assert job.effects == []
    if word == "next":
        assert {fx.Release, fx.Complete}.intersection(done)
    if word == "cancel":
        assert job.machine.state == CANCELLED


def test_the_table_names_every_event_of_the_machine_and_every_event_is_tried() -> None:
    assert {event for event, _ in table()} == set(EVENTS)
    events = {name for name in vars(JobMachine) if name.startswith("on_")}
    assert events == {
        "on_acked", "on_allocated", "on_cancel", "on_committed", "on_failed", "on_kept",
        "on_no_place", "on_node_back", "on_node_lost", "on_partial", "on_refused", "on_rejected",
        "on_result", "on_room", "on_send_failed", "on_timer", "on_wake",
    }  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_phase_does_what_the_table_says(event: str, phase: Phase) -> None:
    job, number = prepared(event, phase)
    was = job.phase

    EVENTS[event](job, number)

    check(job, was, table()[event, phase])


@pytest.mark.parametrize("phase", [p for p in PHASES if p not in (Phase.NEW, Phase.FETCHING)])
@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ("acked", [fx.CancelOnNode]),
        ("result", [fx.Confirm]),
        ("failed", [fx.Confirm]),
        ("hopeless", [fx.Confirm]),
        *((event, []) for event in ("send failed", "node lost", "node back", "rejected")),
        *((event, []) for event in ("partial", "committed", "no room", "superseded")),
        *((f"timer {kind}", []) for kind in ("ack", "job", "grace")),
    ],
)
def test_what_comes_from_an_attempt_that_is_over_is_late_in_every_phase(
    event: str, answer: list[type[fx.Effect]], phase: Phase
) -> None:
    job, _ = reached(phase)

    EVENTS[event](job, 1)

    assert [type(effect) for effect in job.effects] == answer
    assert job.phase is phase


@pytest.mark.parametrize("phase", [p for p in PHASES if p is not Phase.OVER])
@pytest.mark.parametrize(("event", "state"), [("cancel", CANCELLED), ("deadline", FAILED)])
def test_a_cancel_and_the_deadline_leave_nothing_behind_in_any_phase(
    phase: Phase, event: str, state: common_pb2.JobState.ValueType
) -> None:
    if (phase, event) == (Phase.NEW, "deadline"):
        return
    job, _ = reached(phase)
    alive = [each.number for each in job.machine.attempts.values() if each.is_alive]

    EVENTS[event](job, 0)

    assert job.machine.state == state
    told = [each.attempt.number for each in job.effects if isinstance(each, fx.CancelOnNode)]
    assert told == alive
    for effect in job.effects:
        if isinstance(effect, fx.Release | fx.Complete):
            assert effect.final == state
    assert not [event for event in EVENTS if EVENTS[event](job, 2).machine.timers]
