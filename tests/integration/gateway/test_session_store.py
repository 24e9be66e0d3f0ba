"""Records of sessions in a real Redis: written, taken over, and shown to operators."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    SessionNotFoundError,
    SessionTakenOverError,
)
from lingua_scheduler.services.runtime.instances import Instances
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.store.session_store import (
    Renewal,
    SessionStore,
    TakenOverSession,
)
from lingua_scheduler.services.session_gateway.views import SessionViews
from lingua_scheduler.v1 import common_pb2, pool_pb2, session_pb2, session_record_pb2
from tests.support.cells import cell_settings, open_cells
from tests.support.pool_client import Pool, allocation
from tests.support.rpc_errors import failure

Eventually = Callable[..., Awaitable[None]]

TOKEN = "a token that nobody guesses"
OPENED = session_pb2.NewSession(
    direction=common_pb2.LanguagePair(src="zh", tgt="en"),
    audio_format=common_pb2.AudioFormat(sample_rate_hz=16000, channels=1),
    options=session_pb2.SessionOptions(features={"tone": "ÿ"}),
    tenant="acme",
)


class Gateway:
    """The store, the views and the instance of one gateway."""

    def __init__(self, cells: Cells, settings: Settings) -> None:
        self.cell = cells.first
        self.store = SessionStore(cells=cells, settings=settings)
        self.views = SessionViews(cells=cells)
        self.instances = Instances(cells=cells, settings=settings, service="gateway")

    async def open(self, session_id: str = "s", **fields: Any) -> None:
        """Opens a session of tenant acme."""
        values: dict[str, Any] = {"token": TOKEN, "opened": OPENED, **fields}
        await self.store.open(session_id=session_id, **values)

    async def record(
        self, *indexes: int, session_id: str = "s", epoch: int = 1, **counts: int
    ) -> None:
        """Records the cuts of these indexes; those that were seen are deleted by default."""
        values = {"seen": 0, "results": 0, "missing": 0, "last_chunk_ms": 0, "acked_seq": 0}
        values |= {"first_index": counts.get("seen", 0), **counts}
        cuts = [cut(index) for index in indexes]
        reply = await self.store.record(session_id=session_id, epoch=epoch, cuts=cuts, **values)
        self.store.check(session_id, reply[0])


@asynccontextmanager
async def gateway(
    url: str, prefix: str, name: str = "g1", **options: Any
) -> AsyncIterator[Gateway]:
    settings = cell_settings(url, prefix, instance_id=name, **options)
    async with open_cells(settings) as cells:
        yield Gateway(cells, settings)


@pytest.fixture
async def g1(redis_url: str, prefix: str) -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway(redis_url, prefix) as made:
        yield made


@pytest.fixture
async def g2(redis_url: str, prefix: str) -> AsyncIterator[Gateway]:
    """Another gateway on the same Redis."""
    async with gateway(redis_url, prefix, "g2") as made:
        yield made


def cut(index: int) -> session_record_pb2.Cut:
    """An utterance of 200 chunks."""
    chunks = session_record_pb2.ChunkRange(first=200 * index, end=200 * index + 200)
    return session_record_pb2.Cut(
        utterance_index=index,
        direction=OPENED.direction,
        reason=common_pb2.FINALIZE_REASON_TIMEOUT,
        chunks=[chunks],
        job_id=f"job-{index}",
        audio_ms=4000,
    )


async def now_ms(link: RedisLink) -> int:
    seconds, micros = await link.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


# The store.


async def test_a_session_goes_to_another_gateway_as_it_was_left(g1: Gateway, g2: Gateway) -> None:
    before = await now_ms(g1.cell.link)
    await g1.open()
    await g1.record(0, 1)
    await g1.record(2, seen=1, results=1, missing=0, acked_seq=200)
    await g1.store.leave(session_id="s", epoch=1, seen=2, results=1, missing=1)
    taken = await g2.store.take_over(session_id="s", token=TOKEN)
    assert taken == TakenOverSession(
        epoch=2,
        opened=OPENED,
        opened_ms=taken.opened_ms,
        next_index=3,
        seen=2,
        results=1,
        missing=1,
        acked_seq=200,
        cuts=(cut(1), cut(2)),
    )
    assert before <= taken.opened_ms <= await now_ms(g1.cell.link)


async def test_a_gateway_that_lost_the_session_is_told_so_by_every_call(
    g1: Gateway, g2: Gateway
) -> None:
    await g1.open()
    await g2.store.take_over(session_id="s", token=TOKEN)
    counts = {"seen": 0, "results": 0, "missing": 0}
    for call in (
        g1.open(),
        g1.record(0),
        g1.store.leave(session_id="s", epoch=1, **counts),
        g1.store.end(session_id="s", epoch=1),
    ):
        with pytest.raises(SessionTakenOverError, match="another gateway has taken session 's'"):
            await call
    assert (await g2.views.get("s")).next_utterance_index == 0


async def test_a_wrong_token_and_an_unknown_session_are_told_in_the_same_words(
    g1: Gateway,
) -> None:
    await g1.open()
    said = []
    for session_id, token in (("s", "wrong"), ("none", TOKEN)):
        with pytest.raises(SessionNotFoundError) as caught:
            await g1.store.take_over(session_id=session_id, token=token)
        said.append(caught.value.message.replace(repr(session_id), "ID"))
    assert said == [
        "no session ID for this token; it may have ended, or was not resumed within 300 s"
    ] * len(said)


async def test_the_token_itself_is_never_in_redis(g1: Gateway, redis_url: str, prefix: str) -> None:
    await g1.open()
    await g1.store.take_over(session_id="s", token=TOKEN)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        record = client.hgetall(f"{prefix}:session:s")
    assert record[b"token"] == hashlib.sha256(TOKEN.encode()).hexdigest().encode()
    assert not any(TOKEN.encode() in value for value in record.values())


async def test_a_session_that_redis_lost_is_written_again_and_goes_on(
    g1: Gateway, g2: Gateway, redis_url: str, prefix: str
) -> None:
    await g1.open()
    opened_ms = (await g2.store.take_over(session_id="s", token=TOKEN)).opened_ms
    await g2.record(*range(5), epoch=2, seen=3, results=3)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.delete(f"{prefix}:session:s")
    with pytest.raises(SessionNotFoundError):
        await g2.record(5, epoch=2, seen=3, results=3)
    lost: dict[str, Any] = {"epoch": 2, "opened_ms": opened_ms, "next_index": 6}
    await g2.open(**lost, acked_seq=800, cuts=map(cut, (3, 4, 5)))
    await g2.record(epoch=2, seen=4, results=4)
    with pytest.raises(SessionTakenOverError):
        await g1.record(0)
    taken = await g1.store.take_over(session_id="s", token=TOKEN)
    assert (taken.epoch, taken.opened_ms, taken.next_index) == (3, opened_ms, 6)
    assert (taken.seen, taken.acked_seq, taken.cuts) == (4, 800, (cut(4), cut(5)))


@pytest.mark.parametrize("old_writes_first", [True, False])
async def test_a_take_over_that_a_failover_has_lost_is_written_again_by_who_has_the_session(
    g1: Gateway, g2: Gateway, redis_url: str, prefix: str, *, old_writes_first: bool
) -> None:
    await g1.open()
    await g1.record(0)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        key = f"{prefix}:session:s"
        before = client.dump(key)
        await g2.store.take_over(session_id="s", token=TOKEN)
        client.restore(key, 300_000, before, replace=True)
    if old_writes_first:
        await g1.record(1)
    assert [type(each) for each in await g2.store.renew(g2.cell, [Renewal("s", 2)])] == [
        SessionNotFoundError
    ]
    with pytest.raises(SessionNotFoundError):
        await g2.store.leave(session_id="s", epoch=2, seen=0, results=0, missing=0)
    with pytest.raises(SessionNotFoundError):
        await g2.record(5, epoch=2)
    await g2.open(epoch=2, next_index=5, acked_seq=800, cuts=[cut(4)])
    await g2.record(5, epoch=2)
    with pytest.raises(SessionTakenOverError):
        await g1.record(1)
    with pytest.raises(SessionTakenOverError):
        await g1.open()
    taken = await g1.store.take_over(session_id="s", token=TOKEN)
    assert (taken.epoch, taken.next_index, taken.acked_seq) == (3, 6, 800)
    assert taken.cuts == (cut(4), cut(5))


async def test_a_cut_is_kept_until_its_gateway_says_that_nobody_needs_it(g1: Gateway) -> None:
    await g1.open()
    await g1.record(0, 1, 2, seen=3, first_index=0)
    await g1.record(3, seen=3, first_index=1, acked_seq=200)
    await g1.store.leave(session_id="s", epoch=1, seen=4, results=4, missing=0)
    taken = await g1.store.take_over(session_id="s", token=TOKEN)
    assert (taken.seen, taken.acked_seq) == (4, 200)
    assert taken.cuts == (cut(1), cut(2), cut(3))


async def test_no_more_cuts_are_kept_than_results_may_wait(redis_url: str, prefix: str) -> None:
    limits: dict[str, Any] = {"result_queue_max": 4, "session_utterances_max": 4}
    async with gateway(redis_url, prefix, **limits) as few:
        await few.open()
        for index in range(10):
            await few.record(index)
        taken = await few.store.take_over(session_id="s", token=TOKEN)
        assert [each.utterance_index for each in taken.cuts] == [6, 7, 8, 9]


async def test_a_session_can_be_resumed_for_as_long_as_the_setting_says(
    redis_url: str, prefix: str, eventually: Eventually
) -> None:
    async with gateway(redis_url, prefix, resume_within_ms=1000) as hasty:
        began = time.monotonic()
        await hasty.open()
        with redis.Redis.from_url(redis_url, protocol=2) as client:
            await eventually(lambda: not client.exists(f"{prefix}:session:s"))
        assert time.monotonic() - began > 0.9
        with pytest.raises(SessionNotFoundError, match="not resumed within 1 s"):
            await hasty.store.take_over(session_id="s", token=TOKEN)


async def test_many_sessions_are_kept_and_each_is_answered_in_its_place(
    g1: Gateway, g2: Gateway, redis_url: str, prefix: str
) -> None:
    named = [f"s{number}" for number in range(1200)]
    await asyncio.gather(*(g1.open(session_id) for session_id in named))
    await g2.store.take_over(session_id="s700", token=TOKEN)
    await g1.store.end(session_id="s1100", epoch=1)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.pexpire(f"{prefix}:session:s1199", 60_000)
        answers = await g1.store.renew(g1.cell, [Renewal(session_id, 1) for session_id in named])
        assert client.pttl(f"{prefix}:session:s1199") > 60_000
    wrong = {at: type(answer) for at, answer in enumerate(answers) if answer is not None}
    assert (len(answers), wrong) == (
        1200,
        {700: SessionTakenOverError, 1100: SessionTakenOverError},
    )
    assert await g1.store.renew(g1.cell, []) == []


async def test_an_ended_session_is_gone_and_ending_it_again_is_no_error(g1: Gateway) -> None:
    await g1.open()
    for _ in range(2):
        await g1.store.end(session_id="s", epoch=1)
    with pytest.raises(SessionNotFoundError):
        await g1.store.take_over(session_id="s", token=TOKEN)


async def test_without_redis_every_call_says_that_redis_is_down(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with gateway(own_redis.url, prefix) as lone:
        await lone.open()
        own_redis.kill()
        counts = {"seen": 0, "results": 0, "missing": 0}
        for call in (
            lone.open("other"),
            lone.record(0),
            lone.store.take_over(session_id="s", token=TOKEN),
            lone.store.renew(lone.cell, [Renewal("s", 1)]),
            lone.store.leave(session_id="s", epoch=1, **counts),
            lone.store.end(session_id="s", epoch=1),
            lone.views.get("s"),
            lone.views.list("", 0, ""),
        ):
            with pytest.raises(DependencyDownError):
                await call


async def test_after_a_take_over_the_old_gateway_gets_no_node_for_a_job(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1", slots=4)

    def job(job_id: str, epoch: int) -> pool_pb2.AllocateRequest:
        return allocation(job_id, session_id="s", session_epoch=epoch)

    async with gateway(redis_url, pool.prefix) as old, gateway(redis_url, pool.prefix) as new:
        await old.open()
        await pool.stub.Allocate(job("j1", 1))
        epoch = (await new.store.take_over(session_id="s", token=TOKEN)).epoch
        refused = pool.stub.Allocate(job("j2", 1))
        assert (await failure(refused))[1] == "SESSION_TAKEN_OVER"
        answer = await pool.stub.Allocate(job("j2", epoch))
        assert answer.placement.node_id == "n1"


# What operators see.


async def test_a_session_is_shown_with_its_gateway_and_what_it_waits_for(g1: Gateway) -> None:
    await g1.instances.announce("127.0.0.1:1")
    await g1.open(opened_ms=5)
    await g1.record(*range(12), seen=9, results=8, missing=1, last_chunk_ms=77)
    assert await g1.views.get("s") == session_pb2.Session(
        session_id="s",
        tenant="acme",
        gateway_instance="g1",
        epoch=1,
        opened_ms=5,
        last_chunk_ms=77,
        next_utterance_index=12,
        waiting=[9, 10, 11],
        results=8,
        missing=1,
        connected=True,
    )


async def test_a_session_is_connected_only_while_its_gateway_runs_and_has_it(
    g1: Gateway, g2: Gateway
) -> None:
    async def seen() -> tuple[str, bool]:
        session = await g2.views.get("s")
        return session.gateway_instance, session.connected

    await g1.open()
    assert await seen() == ("", False)
    await g1.instances.announce("127.0.0.1:1")
    assert await seen() == ("g1", True)
    await g1.instances.leave()
    assert await seen() == ("", False)
    await g2.instances.announce("127.0.0.1:2")
    await g2.store.take_over(session_id="s", token=TOKEN)
    assert await seen() == ("g2", True)
    await g2.store.leave(session_id="s", epoch=2, seen=0, results=0, missing=0)
    assert await seen() == ("", False)


async def test_a_session_does_not_wait_for_what_was_seen_even_where_its_cut_is_kept(
    g1: Gateway,
) -> None:
    await g1.open()
    await g1.record(*range(4), seen=2, first_index=0)
    assert (await g1.views.get("s")).waiting == [2, 3]
    await g1.store.leave(session_id="s", epoch=1, seen=4, results=4, missing=0)
    assert (await g1.views.get("s")).waiting == []


@pytest.mark.parametrize("session_id", ["none", "", "s:zh:en"])
async def test_what_is_no_session_is_not_found(g1: Gateway, prefix: str, session_id: str) -> None:
    await g1.cell.link.command("HSET", f"{prefix}:session:s:zh:en", "turn", 1)
    with pytest.raises(SessionNotFoundError, match="there is no session"):
        await g1.views.get(session_id)


async def test_sessions_are_listed_by_tenant_the_last_opened_first(
    g1: Gateway, prefix: str
) -> None:
    await g1.instances.announce("127.0.0.1:1")
    other = session_pb2.NewSession(tenant="other")
    for at, (session_id, opened) in enumerate([("a", OPENED), ("b", other), ("c", OPENED)]):
        await g1.open(session_id, opened=opened, opened_ms=at + 1)
        await g1.cell.link.command("HSET", f"{prefix}:session:{session_id}:zh:en", "turn", 1)

    async def listed(tenant: str) -> list[tuple[str, bool]]:
        sessions, following = await g1.views.list(tenant, 0, "")
        assert following == ""
        return [(session.session_id, session.connected) for session in sessions]

    assert await listed("acme") == [("c", True), ("a", True)]
    assert await listed("other") == [("b", True)]
    assert await listed("") == [("c", True), ("b", True), ("a", True)]
    assert await listed("nobody") == []


@pytest.mark.parametrize("tenant", ["", "acme"])
async def test_all_pages_together_have_every_session_that_was_there_all_the_time(
    g1: Gateway, tenant: str
) -> None:
    named = {f"s{number}" for number in range(6000)}
    await asyncio.gather(*(g1.open(session_id) for session_id in named))
    found, pages, token = set(), 0, ""
    while True:
        sessions, token = await g1.views.list(tenant, 100, token)
        assert len(sessions) < 400
        found |= {session.session_id for session in sessions}
        pages += 1
        # Meanwhile other sessions open and end, and renewals change the order.
        await g1.open(f"new-{pages}")
        await g1.store.end(session_id=f"new-{pages - 5}", epoch=1)
        await g1.store.renew(
            g1.cell, [Renewal(f"s{number}", 1) for number in range(pages, 6000, 50)]
        )
        if not token:
            break
    assert named <= found
    assert found - named <= {f"new-{number}" for number in range(pages)}
    assert pages > 1


async def test_a_session_whose_record_is_gone_is_not_listed(g1: Gateway, prefix: str) -> None:
    for session_id in ("lost", "there"):
        await g1.open(session_id)
    await g1.cell.link.command("DEL", f"{prefix}:session:lost")
    sessions, _ = await g1.views.list("acme", 0, "")
    assert [session.session_id for session in sessions] == ["there"]


async def test_a_session_that_redis_lost_is_listed_again_when_it_is_renewed(
    g1: Gateway, prefix: str
) -> None:
    await g1.open()
    await g1.cell.link.command("DEL", f"{prefix}:tenant:acme:sessions", f"{prefix}:sessions")
    for tenant in ("acme", ""):
        assert await g1.views.list(tenant, 0, "") == ([], "")
    assert await g1.store.renew(g1.cell, [Renewal("s", 1)]) == [None]
    for tenant in ("acme", ""):
        sessions, _ = await g1.views.list(tenant, 0, "")
        assert [session.session_id for session in sessions] == ["s"]


async def test_listing_all_sessions_does_not_scan_the_keys_of_redis(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with gateway(own_redis.url, prefix) as lone:
        await lone.open("s")
        sessions, _ = await lone.views.list("", 0, "")
        assert [session.session_id for session in sessions] == ["s"]
        facts = await lone.cell.link.command("INFO", "commandstats")
        commands = {line.split(":")[0] for line in facts.decode().splitlines()}
        assert "cmdstat_zscan" in commands
        assert "cmdstat_scan" not in commands
