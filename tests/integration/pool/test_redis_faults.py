"""The pool service while Redis is away, slow, empty, or keeps its answers to itself."""

import asyncio
import hashlib
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis
from grpc_health.v1 import health_pb2

from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.runtime.redis.embedded.binary import (
    ServerBinary,
    find_server,
)
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.support.local_codes import local_code
from tests.support.pool_client import Pool, allocation, connected, pair, ref, running_pool
from tests.support.rpc_errors import failure, reason
from tests.support.services import PoolProcess

Eventually = Callable[..., Awaitable[None]]

DOWN = (grpc.StatusCode.UNAVAILABLE, "SCHEDULER_DEPENDENCY_DOWN")
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# A call fails within 400 ms by itself. Machines that run tests are busy: this is still no waiting
# for a reply that never comes.
SOON_S = 1.5
# So rare that no sweep comes into a test.
NO_SWEEP: dict[str, str | int] = {"sweep_interval_ms": 3_600_000}
# So long that no lease ends during a test.
LONG_LEASES: dict[str, str | int] = {"reservation_ttl_ms": 60_000}


async def fails_soon(call: Awaitable[object]) -> common_pb2.Error:
    began = time.monotonic()
    code, why, said = await failure(call)
    assert time.monotonic() - began < SOON_S
    assert (code, why) == DOWN
    assert said.retry_after_ms > 0
    return said


async def stops_serving(pool: Pool) -> None:
    deadline = time.monotonic() + 5
    while await pool.health() != NOT_SERVING:
        assert time.monotonic() < deadline, "the health service still says SERVING"
        await asyncio.sleep(0.01)


async def beat_problems(pool: Pool, node_id: str, epoch: int) -> list[int]:
    beats = [pool_pb2.NodeBeat(node_id=node_id, epoch=epoch)]
    answer = await pool.stub.Heartbeat(pool_pb2.HeartbeatRequest(beats=beats))
    return [problem.kind for problem in answer.problems]


async def test_without_redis_calls_fail_fast_and_an_empty_one_is_served_again(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with running_pool(own_redis.url, prefix) as pool:
        epoch = (await pool.register("n1")).epoch
        own_redis.kill()
        await fails_soon(pool.stub.Allocate(allocation("j1")))
        await stops_serving(pool)
        began = time.monotonic()
        for _ in range(20):
            await fails_soon(pool.stub.Allocate(allocation("j1")))
        assert time.monotonic() - began < SOON_S, "calls wait while it is known that Redis is away"
        operations = [pool_pb2.Operation(id=n, allocate=allocation(f"j{n}")) for n in range(10)]
        stream = pool.stub.Operate()
        await stream.write(pool_pb2.OperateRequest(operations=operations))
        answer = await stream.read()
        assert {reason(result.error) for result in answer.results} == {"SCHEDULER_DEPENDENCY_DOWN"}

        own_redis.restart()
        await pool.serves()
        again = pool_pb2.BeatProblem.KIND_REGISTER_AGAIN
        assert await beat_problems(pool, "n1", epoch) == [again]
        assert (await pool.register("n1")).epoch > epoch
        assert (await pool.stub.Allocate(allocation("j1"))).placement.node_id == "n1"
        # The stream has lived through it.
        await stream.write(pool_pb2.OperateRequest(operations=operations[:1]))
        assert (await stream.read()).results[0].HasField("allocate")
        stream.cancel()


async def test_a_redis_that_kept_its_data_still_has_nodes_and_leases(
    tmp_path: Path, prefix: str
) -> None:
    with EmbeddedRedis(data_dir=tmp_path / "redis") as server:
        async with running_pool(server.url, prefix, **LONG_LEASES) as pool:
            epoch = (await pool.register("n1", slots=3)).epoch
            for job_id in ("j1", "j2", "j3"):
                await pool.stub.Allocate(allocation(job_id))
            await pool.stub.Commit(pool_pb2.CommitRequest(attempt=ref("j1"), node_id="n1"))
            before = (await pool.node("n1")).leases
            server.kill()
            await fails_soon(pool.stub.Allocate(allocation("j4")))
            server.restart()
            await pool.serves()
            assert (await pool.node("n1")).leases == before
            assert await beat_problems(pool, "n1", epoch) == []
            code, why, _ = await failure(pool.stub.Allocate(allocation("j4")))
            assert (code, why) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "ALL_CANDIDATES_FULL_OR_FAILED",
            )
            done = pool_pb2.CompleteRequest(
                attempt=ref("j1"), node_id="n1", outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED
            )
            assert (await pool.stub.Complete(done)).state == common_pb2.JOB_STATE_DONE
            await pool.stub.Allocate(allocation("j4"))


async def test_a_redis_that_hangs_fails_calls_in_time_and_is_used_when_it_goes_on(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with running_pool(own_redis.url, prefix) as pool:
        await pool.register("n1", slots=50)
        own_redis.pause()
        calls = (fails_soon(pool.stub.Allocate(allocation(f"j{n}"))) for n in range(20))
        await asyncio.gather(*calls)
        await stops_serving(pool)
        await fails_soon(pool.node("n1"))
        own_redis.resume()
        await pool.serves()
        # Whatever of the calls went through, a repeat finds the same job and takes no second slot.
        for n in range(20):
            await pool.stub.Allocate(allocation(f"j{n}"))
        assert (await pool.node("n1")).node.reserved == 20


async def test_a_redis_that_was_away_takes_no_node_out_that_could_not_be_heard(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    beats: dict[str, str | int] = {"node_heartbeat_ms": 500, "heartbeat_batch_ms": 100}
    often: dict[str, str | int] = {"heartbeat_stale_ms": 1500, "sweep_interval_ms": 20}
    async with running_pool(own_redis.url, prefix, **beats, **often) as pool:
        epoch = (await pool.register("n1")).epoch
        await pool.register("n2")
        own_redis.pause()
        await asyncio.sleep(2.0)
        own_redis.resume()
        await pool.serves()
        # Many sweeps come before its heartbeat.
        await asyncio.sleep(0.3)
        assert (await pool.node("n1")).node.pools
        assert await beat_problems(pool, "n1", epoch) == []
        # The other one is not heard any more.
        async with asyncio.timeout(20):
            while (await pool.node("n2")).node.pools:
                assert await beat_problems(pool, "n1", epoch) == []
        assert (await pool.node("n1")).node.pools


async def test_a_service_that_starts_while_redis_is_away_takes_no_node_out(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    """It cannot know how long Redis was away; another one has run all the while, or none has."""
    beats: dict[str, str | int] = {"node_heartbeat_ms": 500, "heartbeat_batch_ms": 100}
    often: dict[str, str | int] = {"heartbeat_stale_ms": 1500, "sweep_interval_ms": 20}
    async with running_pool(own_redis.url, prefix, **beats, **often) as pool:
        epochs = {name: (await pool.register(name)).epoch for name in ("n1", "n2")}
        gone = (await pool.register("gone")).epoch
        await pool.stub.SetNodeHealth(
            pool_pb2.SetNodeHealthRequest(
                node_id="n2", epoch=epochs["n2"], health=common_pb2.NODE_HEALTH_OFFLINE
            )
        )
        assert await beat_problems(pool, "gone", gone) == []
        own_redis.pause()
        newcomer = PoolProcess(redis_url=own_redis.url, prefix=prefix, **beats, **often)
        newcomer.start()
        try:
            await asyncio.to_thread(newcomer.wait_listening)
            await asyncio.sleep(2.0)
            own_redis.resume()
            await asyncio.to_thread(newcomer.wait_ready)
            # Many sweeps come before the heartbeats.
            await asyncio.sleep(0.3)
            for name, epoch in epochs.items():
                assert (await pool.node(name)).node.pools
                assert await beat_problems(pool, name, epoch) == []
            async with asyncio.timeout(20):
                while (await pool.node("gone")).node.pools:
                    for name, epoch in epochs.items():
                        assert await beat_problems(pool, name, epoch) == []
        finally:
            await asyncio.to_thread(newcomer.stop)


async def test_flushed_scripts_are_nobodys_trouble(own_redis: EmbeddedRedis, prefix: str) -> None:
    async with running_pool(own_redis.url, prefix) as pool:
        await pool.register("n1", slots=200)
        for n in range(5):
            pool.store.script_flush()
            jobs = [f"j{n}-{i}" for i in range(30)]
            await asyncio.gather(*(pool.stub.Allocate(allocation(job)) for job in jobs))
            pool.store.script_flush()
            await asyncio.gather(
                *(
                    pool.stub.Commit(pool_pb2.CommitRequest(attempt=ref(job), node_id="n1"))
                    for job in jobs
                )
            )
        node = (await pool.node("n1")).node
        assert (node.reserved, node.running) == (0, 150)


async def test_a_service_that_starts_before_redis_waits_for_it(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    own_redis.kill()
    process = PoolProcess(redis_url=own_redis.url, prefix=prefix)
    process.start()
    try:
        await asyncio.to_thread(process.wait_listening)
        async with connected(process, own_redis.url) as pool:
            assert await pool.health() == NOT_SERVING
            await fails_soon(pool.register("n1"))
            own_redis.restart()
            await pool.serves()
            await asyncio.to_thread(process.wait_ready)
            await pool.register("n1")
            await pool.stub.Allocate(allocation("j1"))
    finally:
        await asyncio.to_thread(process.stop)


@contextmanager
def sentinel(folder: Path, primary: EmbeddedRedis, server: ServerBinary) -> Iterator[int]:
    """A sentinel that watches the primary; its port, once it knows a replica to promote."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor mine 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds mine 400\nsentinel failover-timeout mine 3000\n"
    )
    with (
        (folder / "sentinel.log").open("wb") as log,
        subprocess.Popen([server.path, config, "--sentinel"], stdout=log, stderr=log) as process,
        redis.Redis(port=port, protocol=2) as client,
    ):
        try:
            deadline = time.monotonic() + 15
            while not knows_replica(client):
                assert time.monotonic() < deadline, (folder / "sentinel.log").read_text()
                time.sleep(0.02)
            yield port
        finally:
            process.kill()


def knows_replica(client: "redis.Redis[bytes]") -> bool:
    try:
        listed = str(client.execute_command("SENTINEL", "REPLICAS", "mine"))
    except redis.RedisError:
        return False
    return "slave" in listed and "disconnected" not in listed


async def test_the_service_goes_on_with_the_replica_that_sentinel_promotes(
    tmp_path: Path, prefix: str, eventually: Eventually
) -> None:
    server = find_server()
    with ExitStack() as stack:
        quick = ("--repl-diskless-sync-delay", "0")
        primary = stack.enter_context(EmbeddedRedis(args=quick, binary=server))
        follow = ("--replicaof", f"127.0.0.1 {primary.port}")
        replica = stack.enter_context(EmbeddedRedis(args=follow, binary=server))
        port = stack.enter_context(sentinel(tmp_path, primary, server))
        process = PoolProcess(
            redis_url=f"redis+sentinel://127.0.0.1:{port}/mine/0", prefix=prefix, **LONG_LEASES
        )
        process.start()
        stack.callback(process.stop)
        await asyncio.to_thread(process.wait_ready)
        async with connected(process, primary.url) as pool:
            epoch = (await pool.register("n1", slots=3)).epoch
            first = await pool.stub.Allocate(allocation("j1"))
            # What the replica has not heard of when the primary dies is lost, by Redis' design.
            with redis.Redis.from_url(replica.url, protocol=2) as copy:
                await eventually(lambda: bool(copy.exists(f"{prefix}:job:j1")))
            primary.kill()
            await fails_soon(pool.stub.Allocate(allocation("j2")))
            await pool.serves(within=30)
        async with connected(process, replica.url) as pool:
            assert await beat_problems(pool, "n1", epoch) == []
            again = await pool.stub.Allocate(allocation("j1"))
            assert (again.existing, again.lease_ends_ms) == (True, first.lease_ends_ms)
            await pool.stub.Allocate(allocation("j2"))
            assert pool.leases() == {"node:n1:reserved": {b"j1:1", b"j2:1"}}


def refuses_to_start(process: PoolProcess) -> str:
    """What a service says that ends instead of serving."""
    process.start()
    try:
        assert process.wait_end() == 1
        (said,) = (line for line in process.log().splitlines() if line.startswith("refused: "))
        return said
    finally:
        process.stop()


def test_a_redis_that_may_evict_keys_is_refused_with_what_to_set(prefix: str) -> None:
    with EmbeddedRedis(args=("--maxmemory-policy", "allkeys-lru")) as server:
        said = refuses_to_start(PoolProcess(redis_url=server.url, prefix=prefix))
    assert "allkeys-lru" in said
    assert "noeviction" in said


def test_pools_of_another_size_are_refused_with_what_to_set(redis_url: str, prefix: str) -> None:
    with PoolProcess(redis_url=redis_url, prefix=prefix, pool_size=100):
        other = PoolProcess(redis_url=redis_url, prefix=prefix, pool_size=50)
        assert "LINGUA_POOL_SIZE=100" in refuses_to_start(other)


class Proxy:
    """Stands between a service and Redis. It can let a call through and keep the reply.

    Threads of its own, so that it works whatever loop a test runs in.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._word = b""
        self._open: list[socket.socket] = []
        self.swallowed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return f"redis://{host}:{port}/0"

    def swallow(self, word: bytes) -> None:
        """The next connection that sends these bytes hears nothing from then on."""
        self.swallowed.clear()
        self._word = word

    def close(self) -> None:
        for each in (self._listener, *self._open):
            # A thread that waits in accept or recv wakes by this, not by close.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                service, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += [service, server]
                deaf = threading.Event()
                for pump, ends in (
                    (self._requests, (service, server)),
                    (self._replies, (server, service)),
                ):
                    threading.Thread(target=pump, args=(*ends, deaf), daemon=True).start()

    def _requests(self, service: socket.socket, server: socket.socket, deaf: Any) -> None:
        with suppress(OSError):
            while data := service.recv(1 << 20):
                if self._word and self._word in data:
                    self._word = b""
                    deaf.set()
                server.sendall(data)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _replies(self, server: socket.socket, service: socket.socket, deaf: Any) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if deaf.is_set():
                    self.swallowed.set()
                else:
                    service.sendall(data)
        with suppress(OSError):
            service.shutdown(socket.SHUT_RDWR)


@dataclass
class LossyPool(Pool):
    """A pool service whose way to Redis loses replies on demand."""

    proxy: Proxy

    async def lose_reply(self, script: str, call: Awaitable[object]) -> None:
        """The call goes through, its script runs, and the caller is told that Redis is down."""
        sha = hashlib.sha1(load_scripts()[script].encode(), usedforsecurity=False).hexdigest()
        self.proxy.swallow(sha.encode())
        said = await fails_soon(call)
        assert self.proxy.swallowed.is_set(), "Redis did not answer: the call did not go through"
        assert "may have happened" in said.message
        await self.serves()

    def facts(self) -> dict[str, object]:
        """All that is stored, but for the times at which it was touched."""
        found: dict[str, object] = {}
        for key in sorted(self.keys()):
            full = f"{self.prefix}:{key}"
            match self.store.type(full):
                case b"zset":
                    found[key] = self.store.zrange(full, 0, -1, withscores=True)
                case b"stream":
                    found[key] = [entry for _, entry in self.store.xrange(full)]
                case b"set":
                    found[key] = self.store.smembers(full)
                case _ if key.startswith("hearing:"):
                    pass
                case _ if key == "nodes:live":
                    found[key] = {
                        node_id: LiveNode.unpack(packed)._replace(beat_ms=0)
                        for node_id, packed in self.store.hgetall(full).items()
                    }
                case _:
                    found[key] = {
                        field: value
                        for field, value in self.store.hgetall(full).items()
                        if not field.endswith(b"_ms")
                    }
        return found


@pytest.fixture(scope="module")
def lossy_process() -> Iterator[tuple[PoolProcess, Proxy, str]]:
    """A service whose way to a Redis of its own leads through a proxy."""
    with EmbeddedRedis() as server:
        proxy = Proxy(server.port)
        try:
            with PoolProcess(
                redis_url=proxy.url,
                prefix=f"test:{uuid.uuid4().hex[:8]}",
                **LONG_LEASES,
                **NO_SWEEP,
            ) as process:
                yield process, proxy, server.url
        finally:
            proxy.close()


@pytest.fixture
async def lossy(lossy_process: tuple[PoolProcess, Proxy, str]) -> AsyncIterator[LossyPool]:
    """A client of it, with two nodes of three slots and one job in each state."""
    process, proxy, url = lossy_process
    async with connected(process, url) as pool:
        pool.forget_all()
        await pool.serves()
        for node_id in ("n1", "n2"):
            await pool.register(node_id, slots=3)
        for job_id in ("reserved", "running", "failing"):
            await pool.stub.Reserve(pool_pb2.ReserveRequest(node_id="n1", attempt=ref(job_id)))
        for job_id in ("running", "failing"):
            await pool.stub.Commit(pool_pb2.CommitRequest(node_id="n1", attempt=ref(job_id)))
        await pool.stub.BindSession(BIND_OTHER)
        yield LossyPool(pool.process, pool.channel, pool.stub, pool.store, proxy)


def binding(session_id: str) -> pool_pb2.BindSessionRequest:
    return pool_pb2.BindSessionRequest(
        session_id=session_id,
        pair=pair("zh>en"),
        kind=pool_pb2.BINDING_KIND_TIMEOUT,
        node_id="n2",
        utterance_index=3,
    )


BIND_OTHER = binding("bound")
ON_NODE: dict[str, Any] = {"node_id": "n1"}

Check = Callable[[Any], bool]
REPEATS: dict[str, tuple[str, str, Any, Check]] = {
    "an allocation": (
        "allocate",
        "Allocate",
        allocation("new", session_id="s1", reason=common_pb2.FINALIZE_REASON_MAX_DURATION),
        lambda it: it.existing and it.attempt == ref("new") and it.lease_ends_ms > 0,
    ),
    "an allocation by a binding": (
        "allocate",
        "Allocate",
        allocation(
            "new",
            session_id="bound",
            utterance_index=4,
            reason=common_pb2.FINALIZE_REASON_IS_FINAL,
        ),
        lambda it: (
            it.existing
            and it.placement.node_id == "n2"
            and it.placement.path == pool_pb2.PLACEMENT_PATH_TIMEOUT_BINDING
        ),
    ),
    "a reservation": (
        "reserve",
        "Reserve",
        pool_pb2.ReserveRequest(node_id="n2", attempt=ref("new")),
        lambda it: it.existing and it.placement.node_id == "n2",
    ),
    "a commit": (
        "commit",
        "Commit",
        pool_pb2.CommitRequest(attempt=ref("reserved"), **ON_NODE),
        lambda it: it.outcome == pool_pb2.CommitResponse.OUTCOME_ALREADY and it.lease_ends_ms > 0,
    ),
    "a release": (
        "release",
        "Release",
        pool_pb2.ReleaseRequest(
            attempt=ref("reserved"), cause=pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT, **ON_NODE
        ),
        lambda it: it.outcome == pool_pb2.ReleaseResponse.OUTCOME_NOTHING_TO_RELEASE,
    ),
    "a release that ends the job": (
        "release",
        "Release",
        pool_pb2.ReleaseRequest(
            attempt=ref("reserved"),
            cause=pool_pb2.RELEASE_CAUSE_CANCELLED,
            final_state=common_pb2.JOB_STATE_CANCELLED,
            **ON_NODE,
        ),
        lambda it: it.outcome == pool_pb2.ReleaseResponse.OUTCOME_NOTHING_TO_RELEASE,
    ),
    "a completion": (
        "complete",
        "Complete",
        pool_pb2.CompleteRequest(
            attempt=ref("running"), outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED, **ON_NODE
        ),
        lambda it: (
            it.outcome == pool_pb2.CompleteResponse.OUTCOME_ALREADY
            and it.state == common_pb2.JOB_STATE_DONE
        ),
    ),
    "a completion as failed, which counts once": (
        "complete",
        "Complete",
        pool_pb2.CompleteRequest(
            attempt=ref("failing"), outcome=pool_pb2.ATTEMPT_OUTCOME_FAILED, **ON_NODE
        ),
        lambda it: (
            it.outcome == pool_pb2.CompleteResponse.OUTCOME_ALREADY
            and it.state == common_pb2.JOB_STATE_RETRYING
        ),
    ),
    "a binding": ("bind_session", "BindSession", binding("s1"), lambda it: it.bound),
    "a clearing of bindings": (
        "clear_session",
        "ClearSession",
        pool_pb2.ClearSessionRequest(session_id="bound", pairs=[pair("zh>en")]),
        lambda it: it.cleared == 0,
    ),
    "a change of health": (
        "set_node_health",
        "SetNodeHealth",
        pool_pb2.SetNodeHealthRequest(node_id="n1", health=common_pb2.NODE_HEALTH_DRAINING),
        lambda it: it.node.health == common_pb2.NODE_HEALTH_DRAINING,
    ),
    "a removal": (
        "remove_node",
        "RemoveNode",
        pool_pb2.RemoveNodeRequest(node_id="n1"),
        lambda it: not it.removed,
    ),
}


@pytest.mark.parametrize("what", REPEATS)
async def test_a_call_whose_answer_was_lost_is_repeated_without_harm(
    lossy: LossyPool, what: str
) -> None:
    script, rpc, request, is_right = REPEATS[what]
    before = lossy.facts()
    await lossy.lose_reply(script, getattr(lossy.stub, rpc)(request))
    once = lossy.facts()
    assert once != before, "the lost call did nothing"
    for _ in range(3):
        answer = await getattr(lossy.stub, rpc)(request)
        assert is_right(answer), answer
        if rpc == "Allocate":
            held = f"node:{answer.placement.node_id}:reserved"
            assert b"new:1" in {member for member, _ in lossy.facts()[held]}  # type: ignore[attr-defined]
        assert lossy.facts() == once


async def test_a_heartbeat_whose_answer_was_lost_is_repeated_without_harm(
    lossy: LossyPool,
) -> None:
    epoch = (await lossy.node("n2")).node.epoch
    beats = [
        pool_pb2.NodeBeat(
            node_id="n2", epoch=epoch, running=map(ref, "abcd"), load=common_pb2.NodeLoad(cpu=0.5)
        )
    ]
    request = pool_pb2.HeartbeatRequest(beats=beats)
    await lossy.lose_reply("heartbeat", lossy.stub.Heartbeat(request))
    once = lossy.facts()
    # Three of the four had room, and the fourth is named again and again.
    for _ in range(3):
        (problem,) = (await lossy.stub.Heartbeat(request)).problems
        assert [attempt.job_id for attempt in problem.attempts] == ["d"]
        assert lossy.facts() == once


WIDE: dict[str, Any] = {
    "asr": tuple(map(local_code, range(20))),
    "tts": tuple(map(local_code, range(20, 45))),
}


@pytest.mark.parametrize("script", ["register_node", "move_pools"])
async def test_a_registration_that_was_cut_is_finished_by_its_repeat(
    lossy: LossyPool, script: str
) -> None:
    await lossy.lose_reply(script, lossy.register("n3", **WIDE))
    (epoch,) = (
        live.epoch for node_id, live in lossy.facts()["nodes:live"].items() if node_id == b"n3"
    )  # type: ignore[attr-defined]
    again = await lossy.register("n3", **WIDE)
    # 20 x 25 with speech, 20 into any language as text; a step joins 200 of them.
    assert (again.epoch, again.pools) == (epoch, 520)
    assert again.pools_joined == (520 if script == "register_node" else 320)
    assert (await lossy.node("n3")).node.pools == 520
    once = lossy.facts()
    third = await lossy.register("n3", **WIDE)
    assert (third.epoch, third.pools_joined, third.pools_left) == (epoch, 0, 0)
    assert lossy.facts() == once


async def test_a_removal_that_was_cut_is_finished_by_its_repeat(lossy: LossyPool) -> None:
    before = lossy.facts()
    await lossy.register("n3", **WIDE)
    remove = pool_pb2.RemoveNodeRequest(node_id="n3")
    await lossy.lose_reply("remove_node", lossy.stub.RemoveNode(remove))
    node = (await lossy.node("n3")).node
    assert (node.pools, node.health) == (320, common_pb2.NODE_HEALTH_OFFLINE)
    gone = await lossy.stub.RemoveNode(remove)
    assert (gone.removed, gone.pools_left) == (True, 320)
    assert lossy.facts() == before


async def test_operations_of_one_message_whose_answers_were_lost_can_all_be_repeated(
    lossy: LossyPool,
) -> None:
    operations = [
        pool_pb2.Operation(
            id=n, reserve=pool_pb2.ReserveRequest(node_id="n2", attempt=ref(f"j{n}"))
        )
        for n in range(3)
    ]
    sha = hashlib.sha1(load_scripts()["reserve"].encode(), usedforsecurity=False).hexdigest()
    lossy.proxy.swallow(sha.encode())
    stream = lossy.stub.Operate()
    await stream.write(pool_pb2.OperateRequest(operations=operations))
    answer = await stream.read()
    assert {reason(result.error) for result in answer.results} == {"SCHEDULER_DEPENDENCY_DOWN"}
    assert lossy.proxy.swallowed.is_set()
    await lossy.serves()
    once = lossy.facts()
    await stream.write(pool_pb2.OperateRequest(operations=operations))
    answer = await stream.read()
    assert [result.reserve.existing for result in answer.results] == [True] * 3
    assert lossy.facts() == once
    stream.cancel()


def test_a_service_whose_first_command_gets_no_answer_still_starts(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    proxy = Proxy(own_redis.port)
    proxy.swallow(b"HSETNX")
    try:
        with PoolProcess(redis_url=proxy.url, prefix=prefix):
            assert proxy.swallowed.is_set()
    finally:
        proxy.close()
