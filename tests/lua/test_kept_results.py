"""Which results are kept, and how much room they take."""

import pytest

from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import Scripts

TTL_MS = 300_000
MOST = 80_000


@pytest.fixture
def kept(scripts: Scripts) -> "Kept":
    scripts.join("n1", most=100)
    scripts.join("n2", most=100)
    return Kept(scripts.with_limits(stale_ms=10**9))


class Kept:
    """The results of the scripts' jobs."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def place(self, job: str, attempt: int = 1, *, node: str = "n1", tenant: str = "t1") -> None:
        """An attempt on a node."""
        self.scripts.place(job, attempt, preferred=node, strict=True, tenant=tenant)

    def running(self, job: str, attempt: int = 1, *, node: str = "n1", tenant: str = "t1") -> None:
        """An attempt that its node has acknowledged."""
        self.place(job, attempt, node=node, tenant=tenant)
        assert self.scripts.commit(node, job, attempt)[0] == "committed"

    def done(self, job: str, attempt: int = 1, *, node: str = "n1", tenant: str = "t1") -> None:
        """A job that this attempt has finished."""
        self.running(job, attempt, node=node, tenant=tenant)
        assert self.scripts.complete(node, job, attempt)[0] == "completed"

    def keep(
        self,
        job: str,
        attempt: int = 1,
        *,
        node: str = "",
        result: bytes = b"r",
        asks: bool = False,
    ) -> str:
        """A result; without a node, of the home."""
        call = script_calls.KeepResult(ttl_ms=TTL_MS, max_bytes=MOST).call(
            job=job,
            result=b"" if asks else result,
            size=len(result),
            node_id=node,
            attempt=attempt,
        )
        reply = self.scripts.call(*call)
        return str(reply.decode())

    def of(self, job: str) -> bytes | None:
        """What is kept."""
        kept: bytes | None = self.scripts.call(*script_calls.fetch_result(job=job))
        return kept

    def bytes(self) -> dict[str, int]:
        """What is counted, of all and by tenant."""
        found = self.scripts.client.hgetall(self.scripts.key("kept", "bytes"))
        return {key.decode(): int(value) for key, value in found.items()}


def test_a_node_has_the_result_of_a_live_attempt_kept(kept: Kept) -> None:
    kept.place("reserved")
    kept.running("running")
    for job in ("reserved", "running"):
        assert kept.keep(job, node="n1") == "kept"
        assert kept.of(job) == b"r"


def test_a_node_has_the_winners_result_kept(kept: Kept) -> None:
    kept.done("j")
    assert kept.keep("j", node="n1") == "kept"
    assert kept.keep("j", node="n1", result=b"another") == "kept"
    assert kept.of("j") == b"r"


def test_of_an_attempt_that_its_lease_has_outlived_the_result_still_counts(kept: Kept) -> None:
    kept.running("j")
    kept.scripts.advance(kept.scripts.limits.running_lease_ms + 1)
    assert kept.keep("j", node="n1") == "kept"


def test_an_attempt_that_was_given_up_may_win_until_another_takes_its_place(kept: Kept) -> None:
    kept.place("j")
    kept.scripts.release("n1", "j")
    assert kept.keep("j", node="n1", asks=True) == "kept"
    kept.place("j", 2, node="n2")
    assert kept.keep("j", node="n1") == "refused"


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "cancelled"])
def test_a_failed_attempt_has_nothing_kept(kept: Kept, outcome: str) -> None:
    kept.running("j")
    kept.scripts.complete("n1", "j", outcome=outcome)
    assert kept.keep("j", node="n1") == "refused"
    kept.running("j", 2, node="n2")
    assert kept.keep("j", node="n1") == "refused"
    assert kept.keep("j", 2, node="n2") == "kept"


def test_a_job_that_failed_has_nothing_kept(kept: Kept) -> None:
    kept.running("j")
    kept.scripts.end_job("j")
    assert kept.keep("j", node="n1") == "refused"


def test_a_node_speaks_of_its_own_attempts_only(kept: Kept) -> None:
    kept.running("j")
    assert kept.keep("j", node="n2") == "refused"
    assert kept.keep("j", 2, node="n1") == "refused"
    assert kept.keep("unknown", node="n1") == "refused"


def test_nothing_replaces_the_winners_result_and_it_replaces_all_others(kept: Kept) -> None:
    kept.place("j")
    assert kept.keep("j", node="n1", result=b"of the first") == "kept"
    kept.running("j", 2, node="n2")
    assert kept.keep("j", node="n1", result=b"again") == "refused"
    kept.scripts.complete("n2", "j", 2)
    assert kept.keep("j", 2, node="n2", result=b"of the winner") == "kept"
    assert kept.keep("j", 1, node="n1", result=b"late") == "refused"
    # Nor a former home that knows only of the first.
    assert kept.keep("j", 1, result=b"late") == "refused"
    assert kept.of("j") == b"of the winner"
    assert kept.keep("j", 2, result=b"of the home") == "kept"
    assert kept.of("j") == b"of the home"
    assert kept.bytes() == {"": 11, "t:t1": 11}


def test_a_question_keeps_nothing(kept: Kept) -> None:
    kept.done("j")
    assert kept.keep("j", node="n1", asks=True) == "kept"
    assert kept.of("j") is None
    assert kept.bytes() == {}


def test_a_tenant_has_a_quarter_of_the_room_and_nodes_half_of_that(kept: Kept) -> None:
    for number in range(6):
        kept.done(f"j{number}")
    five = bytes(5_000)
    answers = [kept.keep(f"j{number}", node="n1", result=five) for number in range(3)]
    assert answers == ["kept", "kept", "full"]
    answers = [kept.keep(f"j{number}", result=five) for number in range(2, 6)]
    assert answers == ["kept", "kept", "full", "full"]
    assert kept.bytes() == {"": 20_000, "t:t1": 20_000}
    kept.done("other", tenant="t2")
    assert kept.keep("other", result=five) == "kept"


def test_all_tenants_together_have_no_more_than_all_the_room(kept: Kept) -> None:
    answers = []
    for number in range(10):
        kept.done(f"j{number}", tenant=f"t{number}")
        answers.append(kept.keep(f"j{number}", result=bytes(10_000)))
    assert answers == ["kept"] * 8 + ["full"] * 2
    assert kept.bytes()[""] == 80_000


def test_room_is_free_again_when_results_have_ended(kept: Kept) -> None:
    kept.scripts.with_limits(record_ttl_ms=10**9)
    for number in range(3):
        kept.done(f"j{number}")
        kept.scripts.advance(1_000)
    assert kept.keep("j0", result=bytes(15_000)) == "kept"
    kept.scripts.advance(TTL_MS // 2)
    assert kept.keep("j1", result=bytes(5_000)) == "kept"
    assert kept.keep("j2", result=bytes(5_000)) == "full"
    kept.scripts.advance(TTL_MS // 2)
    assert kept.keep("j2", result=bytes(5_000)) == "kept"
    assert kept.bytes() == {"": 10_000, "t:t1": 10_000}
    kept.scripts.advance(TTL_MS)
    assert kept.bytes() == {}
