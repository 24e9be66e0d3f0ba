"""The log of job changes: what is in it, that repeats add nothing, its bound and its cost."""

from collections.abc import Callable

from .scripts import IS_FINAL, Refused, Scripts


def changes(scripts: Scripts) -> list[list[str]]:
    """The parts of all entries, the oldest first."""
    found = scripts.client.xrange(scripts.key("jobs", "log"))
    return [fields[b"c"].decode().split("|") for _, fields in found]


def states(scripts: Scripts) -> list[tuple[str, str, str]]:
    """State, attempt and outcome of all entries."""
    return [(state, number, outcome) for _, state, _, number, _, outcome, *_ in changes(scripts)]


def commands(scripts: Scripts, act: Callable[[], object]) -> dict[str, int]:
    """The commands that the scripts run by `act` have called, with their number."""
    before = _counts(scripts)
    act()
    after = _counts(scripts)
    return {name: n - before.get(name, 0) for name, n in after.items() if n != before.get(name, 0)}


def _counts(scripts: Scripts) -> dict[str, int]:
    stats = scripts.client.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}
    return {name: calls for name, calls in counts.items() if name not in ("info", "evalsha")}


def test_a_job_from_its_placement_to_its_result_is_two_changes(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.place("j1", utterance=4, reason=IS_FINAL, session="s1")
    scripts.advance(500)
    scripts.commit("n1", "j1")
    scripts.complete("n1", "j1", kind=2)
    of = ["t1", "s1", "4", "zh", "en", str(IS_FINAL), str(scripts.now - 500)]
    placed = ["j1", "reserved", str(scripts.now - 500), "1", "n1", "", "1", *of, "", ""]
    assert changes(scripts) == [
        placed,
        ["j1", "done", str(scripts.now), "1", "n1", "done", "1", *of, "", "2"],
    ]


def test_a_job_that_fails_at_its_last_attempt_says_why_in_a_second_change(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.place("j1")
    scripts.release("n1", "j1", final="failed")
    scripts.end_job("j1", reason=9)
    placed, released, ended = changes(scripts)
    assert placed[1:6] == ["reserved", str(scripts.now), "1", "n1", ""]
    assert released[1:6] == ["failed", str(scripts.now), "1", "n1", "released"]
    assert ended[1:6] == ["failed", str(scripts.now), "1", "n1", ""]
    assert [released[14], ended[14]] == ["", "9"]


def test_a_job_that_no_node_has_had_is_one_change_however_often_it_ends_so(
    scripts: Scripts,
) -> None:
    for _ in range(3):
        scripts.end_job("j1", "unplaced", reason=3)
    ((job, state, _, *attempt, error, _kind),) = changes(scripts)
    assert (job, state, attempt[:4], error) == ("j1", "unplaced", ["0", "", "", "0"], "3")
    scripts.end_job("j1", "unplaced", error="another", reason=4)
    assert len(changes(scripts)) == 2


def test_repeated_calls_add_nothing(scripts: Scripts) -> None:
    scripts.join("n1", most=5)
    for _ in range(2):
        scripts.place("done")
        scripts.commit("n1", "done")
    for _ in range(2):
        scripts.complete("n1", "done")
        scripts.place("done")
        scripts.end_job("done")
        scripts.release("n1", "done")
    assert states(scripts) == [("reserved", "1", ""), ("done", "1", "done")]
    scripts.place("given-up")
    for _ in range(2):
        scripts.release("n1", "given-up")
    assert states(scripts)[2:] == [("reserved", "1", ""), ("retrying", "1", "released")]
    for _ in range(2):
        scripts.release("n1", "given-up", final="cancelled")
        scripts.end_job("given-up", "cancelled")
    assert states(scripts)[4:] == [("cancelled", "1", ""), ("cancelled", "1", "")]


def test_calls_that_change_nothing_add_nothing(scripts: Scripts) -> None:
    assert isinstance(scripts.allocate("j1"), Refused)
    scripts.join("n1")
    scripts.place("j1")
    scripts.complete("n2", "j1")
    scripts.release("n2", "j1")
    scripts.end_job("j1", home="another")
    assert states(scripts) == [("reserved", "1", "")]


def test_a_change_costs_one_command_and_nothing_if_there_is_no_log(scripts: Scripts) -> None:
    scripts.join("n1", most=5)

    def run() -> None:
        scripts.place("j1", session="s1")
        scripts.commit("n1", "j1")
        scripts.complete("n1", "j1")
        scripts.place("j2")
        scripts.release("n1", "j2")
        scripts.end_job("j2")
        scripts.client.delete(scripts.key("job", "j1"), scripts.key("job", "j2"))

    run()  # so that all scripts are loaded
    logged = commands(scripts, run)
    scripts.with_limits(log_max=0)
    silent = commands(scripts, run)
    assert logged.pop("xadd") == 5
    assert logged == silent


def test_the_log_stays_near_its_bound(scripts: Scripts) -> None:
    scripts.with_limits(log_max=500)
    for at in range(2000):
        scripts.end_job(f"job-{at}")
    # Redis removes whole blocks of up to 100 entries.
    assert 500 <= scripts.client.xlen(scripts.key("jobs", "log")) <= 600
    assert changes(scripts)[-1][0] == "job-1999"
