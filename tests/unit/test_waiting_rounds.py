"""Who asks for room, and who is not asked for because an earlier one was refused the same."""

from lingua_scheduler.services.dispatcher.job import Job
from lingua_scheduler.services.dispatcher.job_effects import Problem
from lingua_scheduler.services.dispatcher.job_machine import JobMachine, JobRules
from lingua_scheduler.services.dispatcher.waiting import WaitingRoom
from lingua_scheduler.services.dispatcher.waiting_rounds import WaitingRounds
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

ALL_FULL = Problem(common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED, "full")
QUEUE = "zh:en"
RULES = JobRules(
    ack_timeout_ms=1500,
    job_timeout_ms=60_000,
    queue_wait_ms=2000,
    affinity_wait_ms=1000,
    grace_ms=2000,
    hedge_after_ms=0,
    max_retry=2,
)


class Pool:
    """Jobs of one queue that wait, and what they ask."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.asks: list[str] = []
        self.rounds = WaitingRounds(
            room=WaitingRoom(max_waiting=100), job=self.jobs.get, ask=self._ask
        )

    def waits(self, job_id: str, *, only: str = "") -> Job:
        job = Job(
            job_id=job_id,
            key=job_id,
            spec=dispatcher_pb2.JobSpec(preferred_node_id=only, strict=bool(only)),
            machine=JobMachine(rules=RULES),
            queue=QUEUE,
            ticket=len(self.jobs),
            submitted_ms=0,
            deadline_ms=None,
            gateway=None,
        )
        self.jobs[job_id] = job
        job.is_particular = bool(only)
        job.machine.start(0)
        job.machine.on_refused(0, ALL_FULL)
        self.rounds.wait(job)
        return job

    def refuses(self, job_id: str) -> None:
        job = self.jobs[job_id]
        job.is_asking = False
        self.rounds.wait(job)
        self.rounds.has_answer(job)

    def places(self, job_id: str) -> None:
        job = self.jobs.pop(job_id)
        job.is_asking = False
        self.rounds.leave(job)
        job.machine.on_cancel(0, "it no longer waits")
        self.rounds.has_answer(job)

    def asked(self) -> list[str]:
        asks, self.asks = self.asks, []
        return asks

    def _ask(self, job: Job) -> None:
        job.is_asking = True
        self.asks.append(job.job_id)


def test_who_wants_the_node_that_an_earlier_one_was_refused_does_not_ask_in_that_round() -> None:
    pool = Pool()
    pool.waits("first", only="a")
    pool.waits("second", only="a")
    pool.waits("other", only="b")
    pool.waits("any")
    pool.rounds.room_in([QUEUE])
    assert pool.asked() == ["first"]

    # The slot of "a" may be given back at this very moment: it is not for the second.
    pool.refuses("first")

    assert pool.asked() == ["other"]
    pool.refuses("other")
    assert pool.asked() == ["any"]


def test_those_that_did_not_ask_keep_their_places() -> None:
    pool = Pool()
    for name in ("first", "second", "third"):
        pool.waits(name, only="a")
    pool.rounds.room_in([QUEUE])
    pool.refuses("first")
    assert pool.asked() == ["first"]

    pool.rounds.room_in([QUEUE])
    pool.places("first")
    pool.places("second")

    assert pool.asked() == ["first", "second", "third"]
