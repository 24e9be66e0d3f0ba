"""A job that needs audio that a node holds: that node does it, or the audio is asked for."""

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import JobRules, Phase
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

NEEDED = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
BY_POOL = pool_pb2.PLACEMENT_PATH_POOL
BY_TIMEOUT = pool_pb2.PLACEMENT_PATH_TIMEOUT_BINDING
BY_DURATION = pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING
RESULT = dispatcher_pb2.JobResult


def machine(
    held: tuple[int, ...] = (3, 4), hedge_after_ms: float = 0.0, max_retry: int = 2
) -> JobMachine:
    rules = JobRules(
        ack_timeout_ms=100,
        job_timeout_ms=1000,
        queue_wait_ms=200,
        other_nodes_wait_ms=300,
        affinity_wait_ms=0,
        affinity_away_ms=0,
        grace_ms=300,
        hedge_after_ms=hedge_after_ms,
        max_retry=max_retry,
    )
    made = JobMachine(rules=rules, held=held)
    made.start(0)
    return made


def ref(number: int = 1) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id="job", attempt=number)


def given(
    made: JobMachine,
    path: pool_pb2.PlacementPath.ValueType,
    number: int = 1,
    *,
    existing: bool = False,
) -> list[fx.Effect]:
    answer = pool_pb2.AllocateResponse(
        attempt=ref(number),
        placement=pool_pb2.Placement(node_id="n", node_epoch=1, path=path),
        state=common_pb2.JOB_STATE_RESERVED,
        existing=existing,
        lease_ends_ms=5000,
    )
    return made.on_allocated(0, answer)


def failure(effects: list[fx.Effect]) -> int:
    [failed] = [each for each in effects if isinstance(each, fx.Fail)]
    return failed.why.reason


def kinds(effects: list[fx.Effect]) -> list[type]:
    return [type(each) for each in effects if not isinstance(each, fx.Wake)]


@pytest.mark.parametrize("path", [BY_TIMEOUT, BY_DURATION])
def test_the_node_that_holds_the_audio_gets_the_job(
    path: pool_pb2.PlacementPath.ValueType,
) -> None:
    made = machine()
    assert fx.Send in kinds(given(made, path))
    made.on_acked(0, 1)
    done = made.on_result(
        0, RESULT(attempt=ref(), kind=RESULT.KIND_TRANSLATED, joined_utterances=[3, 4]), "n"
    )
    assert fx.Deliver in kinds(done)


def test_another_node_is_given_back_and_the_audio_is_asked_for() -> None:
    made = machine()
    effects = given(made, BY_POOL)

    assert kinds(effects) == [fx.Release, fx.Fail]
    assert failure(effects) == NEEDED
    assert ["3, 4" in each.why.message for each in effects if isinstance(each, fx.Fail)] == [True]


def test_what_an_earlier_home_placed_is_left_alone_until_the_audio_is_there() -> None:
    # Its node may run it with all of the audio.
    assert kinds(given(machine(), BY_POOL, existing=True)) == [fx.Fail]


@pytest.mark.parametrize("max_retry", [0, 2])
def test_when_the_node_is_lost_the_audio_is_asked_for_at_once(max_retry: int) -> None:
    made = machine(max_retry=max_retry)
    given(made, BY_TIMEOUT)
    made.on_acked(0, 1)
    made.on_node_lost(10, 1)
    effects = made.on_timer(310, ("grace", 1))

    assert fx.Allocate not in kinds(effects)
    assert failure(effects) == NEEDED
    [completed] = [each for each in effects if isinstance(each, fx.Complete)]
    assert completed.final == common_pb2.JOB_STATE_UNSPECIFIED


@pytest.mark.parametrize("kind", [RESULT.KIND_TRANSLATED, RESULT.KIND_NO_SPEECH])
def test_a_result_without_what_was_held_is_not_taken(kind: RESULT.Kind.ValueType) -> None:
    made = machine()
    given(made, BY_TIMEOUT)
    effects = made.on_result(0, RESULT(attempt=ref(), kind=kind, joined_utterances=[4]), "n")

    assert fx.Deliver not in kinds(effects)
    assert failure(effects) == NEEDED
    # The node may forget it, and the failure does not count against it.
    assert fx.Confirm in kinds(effects)
    [completed] = [each for each in effects if isinstance(each, fx.Complete)]
    assert completed.outcome == pool_pb2.ATTEMPT_OUTCOME_CANCELLED


def test_a_node_that_says_that_it_has_forgotten_is_not_blamed() -> None:
    made = machine()
    given(made, BY_TIMEOUT)
    failed = dispatcher_pb2.JobFailed(attempt=ref(), cause="HELD_AUDIO_MISSING", worth_retry=True)
    effects = made.on_failed(0, failed, "n")

    assert failure(effects) == NEEDED
    [completed] = [each for each in effects if isinstance(each, fx.Complete)]
    assert completed.outcome == pool_pb2.ATTEMPT_OUTCOME_CANCELLED


def test_a_node_may_go_on_holding_it() -> None:
    made = machine()
    given(made, BY_TIMEOUT)
    effects = made.on_result(0, RESULT(attempt=ref(), kind=RESULT.KIND_HELD), "n")
    assert fx.Deliver in kinds(effects)


def test_a_job_that_another_home_has_gone_on_with_is_looked_for_not_given_back() -> None:
    made = machine()
    given(made, BY_TIMEOUT)
    made.on_acked(0, 1)
    effects = made.on_committed(0, 1, pool_pb2.CommitResponse.OUTCOME_SUPERSEDED)
    assert fx.Allocate in kinds(effects)


def test_a_node_that_calls_the_job_hopeless_does_not_end_it_alone() -> None:
    """Another node has to agree, and needs the audio for that."""
    made = machine()
    given(made, BY_TIMEOUT)
    failed = dispatcher_pb2.JobFailed(attempt=ref(), cause="BROKEN_AUDIO", worth_retry=False)
    assert failure(made.on_failed(0, failed, "n")) == common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED


def test_no_other_node_is_tried_beside_the_one_that_holds_it() -> None:
    made = machine(hedge_after_ms=50)
    given(made, BY_TIMEOUT)
    assert ("hedge", 0) not in made.timers


def test_a_job_whose_gateway_has_no_audio_goes_elsewhere_without_it() -> None:
    made = machine()
    made.drop_held_audio()
    given(made, BY_POOL)
    assert made.phase is Phase.PLACED
