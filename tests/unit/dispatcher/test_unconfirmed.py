"""Reports that a home was sent and has not confirmed: who hears of them instead, and when."""

from lingua_scheduler.services.dispatcher.nodes.unconfirmed import Report, UnconfirmedReports
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2


def result(job: str, attempt: int = 1) -> dispatcher_pb2.JobResult:
    return dispatcher_pb2.JobResult(attempt=common_pb2.AttemptRef(job_id=job, attempt=attempt))


class Given:
    """What was given up, in order."""

    def __init__(self, max_bytes: int = 1000) -> None:
        self.up: list[tuple[str, str]] = []
        self.reports = UnconfirmedReports(max_bytes=max_bytes, give_up=self._give_up)

    def _give_up(self, node_id: str, report: Report) -> None:
        self.up.append((node_id, report.attempt.job_id))


def test_what_is_confirmed_in_time_is_forgotten() -> None:
    given = Given()
    given.reports.add(1.0, "n", result("a"), 10)
    given.reports.confirm("n", result("a").attempt)

    given.reports.give_up_all()

    assert given.up == []


def test_a_home_that_is_gone_has_confirmed_nothing_more() -> None:
    given = Given()
    given.reports.add(1.0, "n", result("a"), 10)
    given.reports.add(1.0, "m", result("b"), 10)
    given.reports.confirm("m", result("a").attempt)
    given.reports.confirm("n", result("a", attempt=2).attempt)

    given.reports.give_up_all()

    assert given.up == [("n", "a"), ("m", "b")]
    assert len(given.reports) == 0


def test_only_what_is_old_is_given_up_and_only_once() -> None:
    given = Given()
    given.reports.add(1.0, "n", result("a"), 10)
    given.reports.add(2.0, "n", result("b"), 10)

    given.reports.give_up_older(1.0)
    assert given.up == []
    given.reports.give_up_older(1.5)
    given.reports.give_up_older(1.9)

    assert given.up == [("n", "a")]


def test_a_report_that_is_said_again_counts_once_and_from_then() -> None:
    given = Given(max_bytes=20)
    given.reports.add(1.0, "n", result("a"), 10)
    given.reports.add(2.0, "n", result("b"), 10)
    given.reports.add(3.0, "n", result("a"), 10)
    given.reports.give_up_older(2.5)

    assert given.up == [("n", "b")]


def test_beyond_the_limit_the_oldest_are_given_up() -> None:
    given = Given(max_bytes=20)
    for job in "abc":
        given.reports.add(1.0, "n", result(job), 10)

    assert given.up == [("n", "a")]
    given.reports.add(2.0, "n", result("large"), 50)
    assert [job for _, job in given.up] == ["a", "b", "c", "large"]
