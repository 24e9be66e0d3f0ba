"""Results that nodes send for jobs that are over do not pile up in Redis."""

import redis

from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

JOBS = 20
SPEECH = bytes(3_000_000)
ROOM = 32 * 2**20
# A tenant's part of the room, and what results without a home may take of it.
MAY_TAKE = ROOM // 4 // 2


async def test_late_results_take_little_room_and_those_of_failed_attempts_none(
    redis_url: str,
) -> None:
    with PoolProcess(redis_url=redis_url, prefix="test:late", redis_timeout_ms=4000) as pool:
        async with (
            running_dispatcher(
                pool,
                redis_url,
                limits={"home.delivery._REMEMBER_MS": 100},
                kept_results_bytes=ROOM,
                max_retry=0,
            ) as process,
            scene(process, pool) as made,
        ):
            await _attack(made, pool.prefix, redis_url)


async def _attack(made: Scene, prefix: str, redis_url: str) -> None:
    node, gateway = await made.node(), made.gateway()
    done, failed = [], []
    for index in range(JOBS):
        job = await gateway.submit(made.spec(index, session_id=f"s{index}"))
        assign = await node.take_job()
        if index % 2:
            await node.result(assign)
            await gateway.delivered(job)
            done.append(assign)
        else:
            await node.fail(assign, worth_retry=False)
            await gateway.failed(job)
            failed.append(assign)
    while await made.dispatcher.metric("lingua_dispatcher_jobs"):
        await node.settled()
    for assign in (*failed, *done):
        await node.result(assign, speech=SPEECH)
    refused = JOBS - MAY_TAKE // len(SPEECH)
    await made.dispatcher.reaches(refused, "lingua_dispatcher_late_results_total")

    with redis.Redis.from_url(redis_url) as client:
        kept = {key: client.strlen(key) for key in client.scan_iter(f"{prefix}:job:*:result")}
    of_failed = {f"{prefix}:job:{each.attempt.job_id}:result".encode() for each in failed}
    assert not of_failed & kept.keys()
    assert 0 < sum(kept.values()) <= MAY_TAKE
    assert await made.dispatcher.metric("lingua_dispatcher_late_results_total") == refused
