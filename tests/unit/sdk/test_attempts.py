"""The deadlines of a node's attempts."""

from lingua_scheduler.sdk.node.protocol.attempts import Attempts
from lingua_scheduler.v1 import dispatcher_pb2


def _start(attempts: Attempts, now: float, job: str, time_left_ms: int) -> None:
    assign = dispatcher_pb2.JobAssign(time_left_ms=time_left_ms)
    attempts.start(now, (job, 1), assign)


def test_the_next_deadline_is_never_too_late_and_exact_after_overdue_attempts_were_taken() -> None:
    attempts = Attempts(slots=4)
    _start(attempts, 0.0, "a", 10_000)
    _start(attempts, 0.0, "b", 5_000)
    _start(attempts, 0.0, "c", 0)

    assert attempts.next_deadline() == 5.0

    attempts.detach(("b", 1))

    assert (attempts.next_deadline() or 0.0) <= 10.0
    assert attempts.pop_overdue(5.0) == []
    assert attempts.next_deadline() == 10.0
    assert [attempt.ref for attempt in attempts.pop_overdue(10.0)] == [("a", 1)]
    assert attempts.next_deadline() is None


def test_an_attempt_without_a_limit_has_no_deadline() -> None:
    attempts = Attempts(slots=1)
    _start(attempts, 0.0, "a", 0)

    assert attempts.next_deadline() is None


def test_the_deadline_of_an_ended_attempt_does_not_delay_that_of_a_new_one() -> None:
    attempts = Attempts(slots=1)
    _start(attempts, 0.0, "a", 60_000)
    attempts.detach(("a", 1))

    assert attempts.next_deadline() is None

    _start(attempts, 1.0, "b", 2_000)

    assert attempts.next_deadline() == 3.0
