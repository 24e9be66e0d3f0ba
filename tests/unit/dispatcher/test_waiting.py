"""Waiting jobs are called in order, checked against a sorted list; their audio is bounded."""

import random

import pytest

from lingua_scheduler.services.dispatcher.home.waiting import WaitingBytes, WaitingRoom


def room_with(*joins: tuple[str, str], max_waiting: int = 100) -> WaitingRoom:
    room = WaitingRoom(max_waiting=max_waiting)
    for queue, job_id in joins:
        assert room.join(queue, job_id)
    return room


def anyone(room: WaitingRoom) -> str | None:
    """Calls the first of all waiting jobs."""
    return room.room_for(list(room.queues()))


def test_the_first_of_all_queues_that_a_node_serves_is_called() -> None:
    room = room_with(("zh:en", "j1"), ("de:en", "j2"), ("fr:en", "j3"), ("de:en", "j4"))
    assert room.room_for(["fr:en", "de:en", "xx:yy"]) == "j2"
    assert room.room_for({"fr:en", "de:en"}) == "j3"
    assert room.room_for(frozenset(f"q{n}" for n in range(100)) | {"de:en"}) == "j4"
    assert room.room_for(["fr:en", "de:en"]) is None
    assert anyone(room) == "j1"
    assert anyone(room) is None


def test_a_new_job_goes_behind_those_that_wait_or_were_just_called() -> None:
    room = room_with(("zh:en", "j1"))
    assert room.must_wait("zh:en")
    assert not room.must_wait("en:zh")
    assert anyone(room) == "j1"
    assert room.must_wait("zh:en")
    room.leave("j1")
    assert not room.must_wait("zh:en")
    assert list(room.queues()) == []


def test_those_that_are_refused_again_keep_their_order_whoever_comes_back_first() -> None:
    room = room_with(*(("zh:en", f"j{n}") for n in range(1, 5)))
    assert [anyone(room), anyone(room)] == ["j1", "j2"]
    room.rejoin_front("zh:en", "j1")
    room.rejoin_front("zh:en", "j2")
    assert [anyone(room) for _ in range(4)] == ["j1", "j2", "j3", "j4"]


def test_one_that_had_left_rejoins_before_everyone() -> None:
    room = room_with(("zh:en", "j1"), ("zh:en", "j2"))
    assert anyone(room) == "j1"
    room.leave("j1")
    room.rejoin_front("zh:en", "j1")
    assert [anyone(room), anyone(room)] == ["j1", "j2"]


def test_to_rejoin_changes_nothing_for_one_that_waits() -> None:
    room = room_with(("zh:en", "j1"), ("zh:en", "j2"))
    room.rejoin_front("zh:en", "j2")
    assert [anyone(room), anyone(room), anyone(room)] == ["j1", "j2", None]


def test_a_ticket_says_who_came_first_whenever_it_joins() -> None:
    room = WaitingRoom(max_waiting=10)
    for ticket, job_id in ((3, "j3"), (1, "j1"), (2, "j2")):
        assert room.join("zh:en", job_id, ticket)
    assert [anyone(room), anyone(room), anyone(room)] == ["j1", "j2", "j3"]


def test_one_that_left_is_not_called() -> None:
    room = room_with(("zh:en", "j1"), ("zh:en", "j2"), ("zh:en", "j3"))
    room.leave("j1")
    room.leave("j1")
    room.leave("unknown")
    assert anyone(room) == "j2"
    room.leave("j2")
    assert anyone(room) == "j3"
    assert len(room) == 1


def test_a_full_queue_refuses_a_join_but_never_one_that_comes_back() -> None:
    room = room_with(("zh:en", "j1"), ("zh:en", "j2"), max_waiting=2)
    assert not room.join("zh:en", "j3")
    assert room.join("zh:en", "j2"), "it is in already"
    assert room.join("en:zh", "j4")
    assert room.room_for(["zh:en"]) == "j1"
    assert not room.join("zh:en", "j3")
    room.rejoin_front("zh:en", "j1")
    room.leave("j2")
    assert room.join("zh:en", "j3")
    assert not WaitingRoom(max_waiting=0).join("zh:en", "j1")


def test_memory_is_bounded_by_those_that_wait() -> None:
    room = room_with(("zh:en", "first"))
    for number in range(10_000):
        room.join("zh:en", f"j{number}")
        room.leave(f"j{number}")
    assert len(room._queues["zh:en"].heap) <= 20
    room.leave("first")
    assert not room._queues
    assert not room._waiters


NAMES = ("a", "b", "c", "d")
MAX_WAITING = 12


class Model:
    """The same rules in a naive way: job -> (number, queue, waits)."""

    def __init__(self) -> None:
        self.jobs: dict[str, tuple[int, str, bool]] = {}

    def join(self, number: int, queue: str, job: str) -> bool:
        inside = sum(entry[1] == queue for entry in self.jobs.values())
        if job not in self.jobs and inside >= MAX_WAITING:
            return False
        self.jobs.setdefault(job, (number, queue, True))
        return True

    def call(self, queues: list[str]) -> str | None:
        heads = [
            (number, job)
            for job, (number, queue, waits) in self.jobs.items()
            if waits and queue in queues
        ]
        if not heads:
            return None
        number, job = min(heads)
        self.jobs[job] = (number, self.jobs[job][1], False)
        return job


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_call_whom_a_look_at_all_jobs_would(seed: int) -> None:
    rng = random.Random(seed)
    room, model = WaitingRoom(max_waiting=MAX_WAITING), Model()
    for step in range(3000):
        queue, job = rng.choice(NAMES), f"j{rng.randrange(40)}"
        match rng.randrange(7):
            case 0 | 1 | 2:
                assert room.join(queue, job) == model.join(step, queue, job)
            case 3:
                room.leave(job)
                model.jobs.pop(job, None)
            case 4:
                queues = rng.sample(NAMES, rng.randrange(1, 5))
                assert room.room_for(rng.choice((list, set))(queues)) == model.call(queues)
            case 5:
                assert anyone(room) == model.call(list(NAMES))
            case _ if job in model.jobs:
                number, queue, _ = model.jobs[job]
                room.rejoin_front(queue, job)
                model.jobs[job] = (number, queue, True)
        assert len(room) == len(model.jobs)
        assert set(room.queues()) == {entry[1] for entry in model.jobs.values()}


# ---- audio ----


def test_all_that_waits_is_bounded() -> None:
    audio = WaitingBytes(100)
    assert [audio.take(f"{tenant}-1", tenant, 40) for tenant in "abc"] == [True, True, False]
    audio.give_back("a-1")
    assert audio.take("c-1", "c", 40)
    assert audio.total == 80


def test_one_tenant_has_half_of_it() -> None:
    audio = WaitingBytes(100)
    assert audio.take("a-1", "a", 30)
    assert not audio.take("a-2", "a", 30)
    assert audio.take("b-1", "b", 30)


def test_a_job_is_counted_once_and_given_back_once() -> None:
    audio = WaitingBytes(100)
    assert audio.take("a-1", "a", 30)
    assert audio.take("a-1", "a", 30)
    assert audio.total == 30
    audio.give_back("a-1")
    audio.give_back("a-1")
    audio.give_back("never")
    assert audio.total == 0
    assert audio.take("a-2", "a", 50)
