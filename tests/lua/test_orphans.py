"""Reports of nodes that nobody answers for: what the node may forget."""

import pytest

from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import Scripts


def state(scripts: Scripts, job: str, node: str, attempt: int = 1) -> str:
    call = script_calls.orphan_state(job=job, attempt=attempt, node_id=node)
    return str(scripts.call(*call).decode())


@pytest.fixture
def running(scripts: Scripts) -> Scripts:
    """Job j runs on node n."""
    scripts.join("n")
    scripts.place("j")
    scripts.commit("n", "j")
    return scripts


def test_a_report_that_its_home_may_ask_for_is_wanted(running: Scripts) -> None:
    assert state(running, "j", "n") == "wanted"


def test_a_result_of_a_job_that_is_done_is_wanted_until_it_is_kept(running: Scripts) -> None:
    running.complete("n", "j")
    assert state(running, "j", "n") == "wanted"
    running.client.set(running.key("job", "j", "result"), "text")
    assert state(running, "j", "n") == "unwanted"


@pytest.mark.parametrize("final", ["failed", "cancelled"])
def test_a_report_on_a_job_that_is_over_is_not_wanted(running: Scripts, final: str) -> None:
    running.complete("n", "j", outcome="cancelled", final=final)
    assert state(running, "j", "n") == "unwanted"


def test_a_report_on_an_attempt_that_has_ended_is_not_wanted(running: Scripts) -> None:
    running.complete("n", "j", outcome="timed_out")
    assert state(running, "j", "n") == "unwanted"


def test_a_report_on_an_attempt_of_another_node_is_not_wanted(running: Scripts) -> None:
    running.join("m")
    assert state(running, "j", "m") == "unwanted"


def test_of_what_there_is_no_record_nothing_is_known(running: Scripts) -> None:
    assert state(running, "other", "n") == "unknown"
    assert state(running, "j", "n", attempt=2) == "unknown"
