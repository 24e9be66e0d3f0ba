"""The audio of jobs that wait: bounded in all and by tenant."""

from lingua_scheduler.services.dispatcher.home.waiting import WaitingBytes


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
