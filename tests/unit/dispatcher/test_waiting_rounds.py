"""Which waiting job asks for room, and which is passed over because of an earlier refusal."""

from lingua_scheduler.services.dispatcher.home.job import Job
from lingua_scheduler.services.dispatcher.home.waiting import WaitingBytes, WaitingRoom
from lingua_scheduler.services.dispatcher.home.waiting_rounds import WaitingRounds
from lingua_scheduler.services.dispatcher.job.effects import FailureCause
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import JobRules
from lingua_scheduler.services.dispatcher.job.timeline import Timeline
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

ALL_FULL = FailureCause(common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED, "full")
QUEUE = "zh:en"
RULES = JobRules(
    ack_timeout_ms=1500,
    job_timeout_ms=60_000,
    queue_wait_ms=2000,
    other_nodes_wait_ms=3000,
    affinity_wait_ms=1000,
    affinity_away_ms=1000,
    grace_ms=2000,
    hedge_after_ms=0,
    max_retry=2,
)


class Pool:
    """The waiting jobs of one queue, and which of them asked."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.asks: list[str] = []
        self.rounds = WaitingRounds(
            room=WaitingRoom(max_waiting=100),
            job=self.jobs.get,
            ask=self._ask,
            audio=WaitingBytes(10**9),
        )

    def waits(self, job_id: str, *, only: str = "", tenant: str = "") -> Job:
        job = Job(
            job_id=job_id,
            key=job_id,
            spec=dispatcher_pb2.JobSpec(preferred_node_id=only, strict=bool(only), tenant=tenant),
            machine=JobMachine(rules=RULES),
            queue=QUEUE,
            ticket=len(self.jobs),
            submitted_ms=0,
            deadline_ms=None,
            gateway=None,
            timeline=Timeline((), now=0, wall_us=0),
        )
        self.jobs[job_id] = job
        job.is_particular = bool(only)
        job.machine.start(0)
        job.machine.on_refused(0, ALL_FULL)
        self.rounds.wait(job)
        return job

    def refuses(self, job_id: str, *, for_quota: bool = False, besides: str = "") -> None:
        """besides: the nodes that have tried the job; there are no others."""
        job = self.jobs[job_id]
        job.is_asking = False
        job.is_over_quota = for_quota
        job.others_line = job.line_besides(tuple(besides))
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

    # The slot of "a" may be given back at this moment: the second job must not get it.
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


def test_a_tenant_over_its_quota_does_not_hold_up_others() -> None:
    pool = Pool()
    for name in range(20):
        pool.waits(f"greedy-{name}", tenant="greedy")
    pool.waits("other", tenant="other")
    pool.rounds.room_in([QUEUE])
    for name in range(20):
        assert pool.asked() == [f"greedy-{name}"]
        pool.refuses(f"greedy-{name}", for_quota=True)

    assert pool.asked() == ["other"]
    pool.places("other")
    # None of them waits for room any longer.
    pool.rounds.room_in([QUEUE])
    assert pool.asked() == []


def test_those_over_their_quota_are_let_through_in_the_order_in_which_they_came() -> None:
    pool = Pool()
    line = pool.waits("first", tenant="t").tenant_line
    for name in ("second", "third"):
        pool.waits(name, tenant="t")
    for _ in range(3):
        # The order in the tenant's queue is that of the tickets, not of the questions.
        pool.rounds.room_in([QUEUE])
    for name in ("first", "second", "third"):
        pool.refuses(name, for_quota=True)
    assert pool.asked() == ["first", "second", "third"]

    pool.rounds.room_in([line])
    assert pool.asked() == ["first"]
    # One refusal applies to all: no other job of the tenant asks.
    pool.refuses("first", for_quota=True)
    assert pool.asked() == []
    pool.rounds.room_in([line])
    pool.places("first")
    assert pool.asked() == ["first", "second"]


def test_who_is_let_through_and_finds_no_room_waits_for_room_where_its_ticket_puts_it() -> None:
    pool = Pool()
    line = pool.waits("early", tenant="t").tenant_line
    pool.rounds.room_in([QUEUE])
    pool.refuses("early", for_quota=True)
    pool.waits("late")
    assert pool.asked() == ["early"]

    pool.rounds.room_in([line])
    pool.refuses("early")
    pool.rounds.room_in([QUEUE])

    assert pool.asked() == ["early", "early"]
    pool.places("early")
    assert pool.asked() == ["late"]


def tried(pool: Pool, *names: str, by: str) -> None:
    """Adds jobs that wait for a node besides those that have tried them."""
    for name in names:
        pool.waits(name)
    pool.rounds.room_in([QUEUE])
    for name in names:
        assert pool.asked() == [name]
        pool.refuses(name, besides=by)


def test_jobs_that_wait_for_other_nodes_do_not_hold_up_those_that_wait_for_room() -> None:
    pool = Pool()
    tried(pool, *(f"tried-{name}" for name in range(20)), by="a")
    pool.waits("other")

    pool.rounds.room_for(frozenset([QUEUE]))
    assert pool.asked() == ["other"]
    pool.refuses("other")
    pool.rounds.room_for(frozenset([QUEUE]))
    assert pool.asked() == ["other"]


def test_a_new_node_is_asked_for_by_all_that_wait_for_other_nodes() -> None:
    pool = Pool()
    tried(pool, "first", "second", by="a")
    tried(pool, "third", by="ba")
    tried(pool, "fourth", by="ab")

    pool.rounds.node_for(frozenset(["zh:fr"]))
    assert pool.asked() == []
    pool.rounds.node_for(frozenset(["zh:*"]))
    assert pool.asked() == ["first", "third"]

    # It is "b". A refusal applies to all that the same nodes have tried.
    pool.refuses("third", besides="ab")
    assert pool.asked() == []
    pool.places("first")
    assert pool.asked() == ["second"]
    pool.places("second")
    # Those that it cannot help ask again later, once for all of them.
    pool.rounds.poll()
    assert pool.asked() == ["third"]


def test_a_job_that_need_not_wait_for_other_nodes_any_more_waits_where_its_ticket_puts_it() -> None:
    pool = Pool()
    tried(pool, "early", by="a")
    pool.waits("late")
    pool.rounds.node_for(frozenset([QUEUE]))
    assert pool.asked() == ["early"]
    pool.refuses("early")

    pool.rounds.room_for(frozenset([QUEUE]))
    assert pool.asked() == ["early"]
    pool.places("early")
    assert pool.asked() == ["late"]
