"""What a tenant may use: holds end by themselves, jobs count once, speech is paid for."""

import random
import threading

import pytest
import redis

from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import Placed, Refused, Scripts, clocked_scripts
from .session_scripts import OK, TTL_MS, SessionScripts, Taken

OVER = "QUOTA_EXCEEDED"
HOLD_MS = 25_000
MINUTE_MS = 60_000


@pytest.fixture
def sessions(scripts: Scripts) -> SessionScripts:
    return SessionScripts(scripts.client, scripts.prefix)


@pytest.fixture
def many(scripts: Scripts) -> Scripts:
    """Room for all jobs of a test, at any time."""
    scripts.join("n1", most=1000)
    return scripts.with_limits(stale_ms=10**9, record_ttl_ms=10**9)


def jobs(most: int) -> tuple[int, ...]:
    """A limit of jobs in flight."""
    return most, 0, 0, HOLD_MS


def audio(audio_ms: int, a_minute_ms: int = MINUTE_MS) -> tuple[int, ...]:
    """A limit of speech, and how long the job's is."""
    return 0, a_minute_ms, audio_ms, HOLD_MS


def full(most: int) -> Refused:
    return Refused(OVER, {"jobs": most, "limit": most, "retry_ms": 200})


def held(scripts: Scripts, what: str = "jobs", tenant: str = "t1") -> set[str]:
    """What counts now."""
    return set(scripts.holds(tenant, what))


def quota_keys(scripts: Scripts) -> set[str]:
    found = scripts.client.scan_iter(f"{scripts.prefix}:*", count=10_000)
    return {key.decode().removeprefix(f"{scripts.prefix}:") for key in found if b":tenant:" in key}


# ---- jobs in flight ----


def test_a_tenant_has_no_more_jobs_in_flight_than_it_may(many: Scripts) -> None:
    many.place("j1", quota=jobs(2))
    many.place("j2", quota=jobs(2))

    assert many.allocate("j3", quota=jobs(2)) == full(2)
    assert many.job("j3") == {}
    many.place("other", tenant="t2", quota=jobs(2))
    many.place("nobody", tenant="", quota=jobs(1))
    assert many.allocate("nobody2", tenant="", quota=jobs(1)) == full(1)
    assert quota_keys(many) == {"tenant:t1:jobs", "tenant:t2:jobs", "tenant::jobs"}


@pytest.mark.parametrize("end", ["done", "failed", "cancelled", "released"])
def test_a_job_that_is_over_counts_no_more(many: Scripts, end: str) -> None:
    many.place("j1", quota=jobs(1))
    if end == "released":
        many.release("n1", "j1", final="failed")
    else:
        many.commit("n1", "j1")
        many.complete("n1", "j1", outcome=end, final="" if end == "done" else end)

    assert held(many) == set()
    many.place("j2", quota=jobs(1))


def test_an_attempt_that_another_follows_leaves_its_job_in_flight(many: Scripts) -> None:
    many.join("n2", most=100)
    first = many.place("j1", quota=jobs(1))
    many.release(first.node, "j1")

    assert many.allocate("j2", quota=jobs(1)) == full(1)
    # It counts once, and is not refused for what it counts itself.
    second = many.place("j1", 2, quota=jobs(1))
    third = many.place("j1", 3, quota=jobs(1))
    assert (second.attempt, third.attempt) == (2, 3)
    assert held(many) == {"j1"}
    many.commit(third.node, "j1", 3)
    many.complete(third.node, "j1", 3)
    assert held(many) == set()


def test_a_repeat_of_the_call_counts_nothing(many: Scripts) -> None:
    first = many.place("j1", quota=jobs(1))
    again = many.place("j1", quota=jobs(1))

    assert again.existing
    assert again.node == first.node
    assert held(many) == {"j1"}


def test_a_job_whose_dispatcher_died_counts_no_longer_than_its_hold(many: Scripts) -> None:
    many.place("j1", quota=jobs(1))
    many.advance(HOLD_MS - 1)
    assert many.allocate("j2", quota=jobs(1)) == full(1)

    many.advance(1)

    many.place("j2", quota=jobs(1))
    assert held(many) == {"j2"}


def test_a_job_that_finds_no_room_does_not_count(scripts: Scripts) -> None:
    scripts.join("n1", most=1)
    scripts.place("j1", quota=(9, MINUTE_MS, 1000, HOLD_MS))
    before = scripts.client.get(scripts.key("tenant", "t1", "audio"))

    refused = scripts.allocate("j2", quota=(9, MINUTE_MS, 1000, HOLD_MS))

    assert isinstance(refused, Refused)
    assert refused.reason == "ALL_CANDIDATES_FULL_OR_FAILED"
    assert held(scripts) == {"j1"}
    assert scripts.client.get(scripts.key("tenant", "t1", "audio")) == before


def test_holds_of_a_tenant_that_has_gone_are_forgotten(many: Scripts) -> None:
    many.place("j1", quota=(1, MINUTE_MS, 1000, HOLD_MS))
    assert quota_keys(many) == {"tenant:t1:jobs", "tenant:t1:audio"}

    many.advance(HOLD_MS)

    assert quota_keys(many) == set()


# ---- speech ----


def test_a_minute_of_speech_may_come_at_once_and_then_as_it_is_paid(many: Scripts) -> None:
    for number in range(6):
        many.place(f"j{number}", quota=audio(10_000))
    refused = Refused(OVER, {"audio": 60_000, "limit": 60_000, "retry_ms": 1})
    assert many.allocate("j6", quota=audio(10_000)) == refused

    many.advance(1)

    # Anything that is left lets one through, whose speech is then owed.
    many.place("j6", quota=audio(10_000))
    refused = Refused(OVER, {"audio": 69_999, "limit": 60_000, "retry_ms": 10_000})
    assert many.allocate("j7", quota=audio(1)) == refused
    many.advance(9_999)
    assert isinstance(many.allocate("j7", quota=audio(1)), Refused)
    many.advance(1)
    many.place("j7", quota=audio(1))


def test_a_limit_is_so_much_speech_in_a_minute_of_time(many: Scripts) -> None:
    # 30 s of speech a minute: an utterance of 10 s is paid for in 20 s.
    for number in range(3):
        many.place(f"j{number}", quota=audio(10_000, 30_000))
    assert isinstance(many.allocate("j3", quota=audio(10_000, 30_000)), Refused)
    many.advance(MINUTE_MS)
    for number in range(3, 6):
        many.place(f"j{number}", quota=audio(10_000, 30_000))
    assert isinstance(many.allocate("j6", quota=audio(10_000, 30_000)), Refused)
    many.place("other", tenant="t2", quota=audio(10_000, 30_000))


def test_over_a_long_time_no_more_is_let_through_than_is_paid_for(many: Scripts) -> None:
    chance = random.Random(1)
    let_through, started = 0, many.now
    for number in range(400):
        audio_ms = chance.randrange(1, 5_000)
        reply = many.allocate(f"j{number}", quota=audio(audio_ms, 20_000))
        if isinstance(reply, Placed):
            let_through += audio_ms
            many.complete("n1", f"j{number}")
        many.advance(chance.randrange(2_000))
    minutes = (many.now - started) / MINUTE_MS
    assert 20_000 * minutes * 0.9 < let_through <= 20_000 * (minutes + 1) + 5_000


def test_speech_is_charged_once_a_job(many: Scripts) -> None:
    many.join("n2", most=100)
    key = many.key("tenant", "t1", "audio")
    first = many.place("j1", quota=audio(10_000))
    charged = many.client.get(key)
    assert int(charged or 0) == many.now + 10_000

    many.place("j1", quota=audio(10_000))
    many.release(first.node, "j1")
    second = many.place("j1", 2, quota=audio(10_000))
    many.complete(second.node, "j1", 2)

    assert second.attempt == 2
    assert many.client.get(key) == charged


def test_a_retry_is_let_through_however_much_is_owed(many: Scripts) -> None:
    many.join("n2", most=100)
    first = many.place("j1", quota=audio(90_000))
    many.release(first.node, "j1")

    assert isinstance(many.allocate("j2", quota=audio(1)), Refused)
    assert many.place("j1", 2, quota=audio(90_000)).attempt == 2


# ---- sessions ----


def opens(sessions: SessionScripts, name: str, most: int = 2, **options: object) -> str:
    return sessions.open_session(name, most=most, **options)  # type: ignore[arg-type]


def test_a_tenant_has_no_more_sessions_than_it_may(sessions: SessionScripts) -> None:
    assert [opens(sessions, name) for name in "abc"] == [OK, OK, OVER]

    assert held(sessions, "sessions") == {"a", "b"}
    assert sessions.fields("c") == {}
    again = script_calls.OpenSession(gateway="g", ttl_ms=TTL_MS).call(
        session="c",
        epoch=1,
        token="t",
        tenant="t1",
        opened=b"",
        opened_ms=0,
        next_index=0,
        acked=0,
        max_sessions=2,
        elsewhere=0,
        cuts=(),
    )
    reply = sessions.call(*again)
    assert reply == [OVER.encode(), b"sessions", 2, b"limit", 2, b"retry_ms", 5000]
    assert opens(sessions, "d", tenant="t2") == OK
    assert opens(sessions, "e", tenant="") == OK
    assert sessions.end("a") == OK
    assert opens(sessions, "c") == OK


def test_sessions_in_other_cells_count(sessions: SessionScripts) -> None:
    assert opens(sessions, "a", 3, elsewhere=1) == OK
    assert opens(sessions, "b", 3, elsewhere=2) == OVER
    assert opens(sessions, "b", 3, elsewhere=1) == OK
    assert opens(sessions, "c", 3, elsewhere=3, tenant="t2") == OVER
    # A repeat is not one more.
    assert opens(sessions, "a", 3, elsewhere=3) == OK


def test_what_has_expired_is_not_counted_for_other_cells(sessions: SessionScripts) -> None:
    count = script_calls.count_holds(tenant="t1", what="sessions")
    opens(sessions, "a")
    sessions.advance(TTL_MS - 1)
    opens(sessions, "b")
    assert sessions.call(*count) == 2
    sessions.advance(1)
    assert sessions.call(*count) == 1


def test_a_repeat_and_a_record_written_anew_are_not_refused(sessions: SessionScripts) -> None:
    assert opens(sessions, "a", 1) == OK
    assert opens(sessions, "a", 1) == OK
    sessions.client.delete(sessions.key("session", "a"), sessions.key("tenant", "t1", "sessions"))
    assert opens(sessions, "b", 1) == OK

    # Redis has lost it, but its client is there.
    assert opens(sessions, "a", -1) == OK
    assert held(sessions, "sessions") == {"a", "b"}
    assert opens(sessions, "c", 2) == OVER


def test_a_session_that_is_taken_over_counts_once_and_is_not_refused(
    sessions: SessionScripts,
) -> None:
    opens(sessions, "a", 1)
    assert sessions.leave("a") == OK
    sessions.advance(TTL_MS - 1)

    taken = sessions.take("a")

    assert isinstance(taken, Taken)
    assert held(sessions, "sessions") == {"a"}
    sessions.advance(TTL_MS - 1)
    # The gateway that had it before can neither renew nor end it.
    assert sessions.keep(("a", 1)) == ["SESSION_TAKEN_OVER"]
    sessions.end("a", epoch=1)
    assert opens(sessions, "b", 1) == OVER
    assert sessions.end("a", epoch=taken.epoch) == OK
    assert opens(sessions, "b", 1) == OK


def test_a_session_from_before_there_was_a_limit_counts(sessions: SessionScripts) -> None:
    opens(sessions, "a", 0)

    assert opens(sessions, "b", 1) == OVER
    sessions.end("a")
    assert opens(sessions, "b", 1) == OK


def test_every_session_that_lives_is_in_the_index_of_its_tenant(sessions: SessionScripts) -> None:
    for tenant in ("t1", "t2", ""):
        for name in ("opened", "kept", "resumed", "left", "ended"):
            assert opens(sessions, f"{name}-{tenant}", 0, tenant=tenant) == OK
    sessions.advance(TTL_MS - 1)
    for tenant in ("t1", "t2", ""):
        sessions.keep((f"kept-{tenant}", 1))
        sessions.take(f"resumed-{tenant}")
        sessions.leave(f"left-{tenant}")
        sessions.end(f"ended-{tenant}")
        found = {f"{name}-{tenant}" for name in ("opened", "kept", "resumed", "left")}
        assert held(sessions, "sessions", tenant) == found

    sessions.advance(1)

    for tenant in ("t1", "t2", ""):
        found = {f"{name}-{tenant}" for name in ("kept", "resumed", "left")}
        assert held(sessions, "sessions", tenant) == found
    sessions.advance(TTL_MS)
    assert quota_keys(sessions) == set()


def test_sessions_that_ended_together_are_removed_from_the_index_in_small_steps(
    sessions: SessionScripts,
) -> None:
    index = sessions.key("tenant", "t1", "sessions")
    for number in range(450):
        opens(sessions, f"dead-{number}", 0)
    sessions.advance(TTL_MS // 2)
    opens(sessions, "alive", 0)
    sessions.advance(TTL_MS // 2)
    assert sessions.client.zcard(index) == 451

    # They do not count from the moment they end, whether they are removed or not.
    assert opens(sessions, "new", 2) == OK
    assert opens(sessions, "newer", 2) == OVER
    sizes = [sessions.client.zcard(index)]
    for _ in range(2):
        sessions.keep(("alive", 1))
        sizes.append(sessions.client.zcard(index))

    assert sizes == [152, 52, 2]
    assert held(sessions, "sessions") == {"alive", "new"}


def test_the_last_owner_is_told_that_its_session_was_ended_by_a_former_one(
    sessions: SessionScripts,
) -> None:
    opens(sessions, "a", 0)
    # A failover has lost the take-over that gave epoch 2 away, and the former gateway ends it.
    assert sessions.end("a", epoch=1) == OK

    assert sessions.keep(("a", 2)) == ["SESSION_TAKEN_OVER"]
    assert sessions.record(0, session="a", epoch=2) == "SESSION_TAKEN_OVER"
    assert sessions.leave("a", epoch=2) == "SESSION_TAKEN_OVER"
    assert quota_keys(sessions) == set()


def test_the_sessions_of_a_gateway_that_died_count_no_longer_than_they_can_be_resumed(
    sessions: SessionScripts,
) -> None:
    opens(sessions, "dead")
    opens(sessions, "alive")
    sessions.advance(TTL_MS - 1)
    assert sessions.keep(("alive", 1)) == [OK]
    assert opens(sessions, "new") == OVER

    sessions.advance(1)

    assert opens(sessions, "new") == OK
    assert held(sessions, "sessions") == {"alive", "new"}


def test_many_who_open_at_once_never_have_more_than_they_may(
    sessions: SessionScripts, redis_url: str
) -> None:
    words: list[str] = []

    def open_some(worker: int) -> None:
        with redis.Redis.from_url(redis_url, protocol=2) as connection:
            mine = SessionScripts(connection, sessions.prefix)
            for number in range(50):
                name = f"{worker}-{number}"
                words.append(opens(mine, name, 7))
                seen.append(len(held(mine, "sessions")))
                if words[-1] == OK and number % 2:
                    mine.end(name)

    seen: list[int] = []
    workers = [threading.Thread(target=open_some, args=(worker,)) for worker in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()

    assert max(seen) <= 7
    assert len(words) == 400
    assert set(words) == {OK, OVER}


# ---- no limits, and all at random ----

COUNTING = """
local real = redis
local redis = { sha1hex = real.sha1hex, call = function(...)
  real.call('INCR', KEYS[1] .. ':test:commands')
  return real.call(...)
end }
"""


def test_jobs_without_limits_make_no_key_and_spend_no_command(many: Scripts) -> None:
    client = many.client
    sources = {name: COUNTING + source for name, source in clocked_scripts().items()}
    scripts = Scripts(client, many.prefix, sources=sources)

    def commands(quota: tuple[int, ...]) -> list[int]:
        def spent() -> int:
            return int(client.getdel(scripts.key("test", "commands")) or 0)

        spent()
        name = f"{quota}"
        counts = []
        for step in (
            lambda: scripts.place(name, quota=quota),
            lambda: scripts.complete("n1", name),
        ):
            step()
            counts.append(spent())
        return counts

    without = commands(())
    assert quota_keys(scripts) == set()
    assert without == commands((0, 0, 1000, HOLD_MS))
    assert quota_keys(scripts) == set()
    limited = commands((5, MINUTE_MS, 1000, HOLD_MS))
    assert all(more > less for more, less in zip(limited, without, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_holds_are_those_of_the_jobs_in_flight(
    many: Scripts, seed: int
) -> None:
    chance = random.Random(seed)
    limits = {"a": 2, "b": 5, "": 3}
    ends: dict[str, dict[str, int]] = {tenant: {} for tenant in limits}
    latest: dict[str, tuple[str, int, str]] = {}
    for number in range(600):
        action = chance.choice(("begin", "begin", "retry", "over", "wait", "give up"))
        if action == "wait":
            many.advance(chance.randrange(HOLD_MS // 2))
            for tenant, holds in ends.items():
                ends[tenant] = {job: until for job, until in holds.items() if until > many.now}
        elif action == "begin":
            tenant = chance.choice(list(limits))
            job = f"j{number}"
            reply = many.allocate(job, tenant=tenant, quota=jobs(limits[tenant]))
            if len(ends[tenant]) >= limits[tenant]:
                # One that went on after its hold had ended may be one too many.
                used = {"jobs": len(ends[tenant]), "limit": limits[tenant], "retry_ms": 200}
                assert reply == Refused(OVER, used)
            else:
                assert isinstance(reply, Placed)
                ends[tenant][job] = many.now + HOLD_MS
                latest[job] = (tenant, 1, reply.node)
        elif latest:
            job = chance.choice(list(latest))
            tenant, attempt, node = latest[job]
            if action == "retry":
                many.release(node, job, attempt)
                again = many.place(job, attempt + 1, tenant=tenant, quota=jobs(limits[tenant]))
                latest[job] = (tenant, again.attempt, again.node)
                ends[tenant][job] = many.now + HOLD_MS
            else:
                del latest[job]
                ends[tenant].pop(job, None)
                if action == "over":
                    many.complete(node, job, attempt)
                else:
                    many.release(node, job, attempt, final="cancelled")
        for tenant, holds in ends.items():
            assert many.holds(tenant, "jobs") == holds
