"""Sessions with voice detection, tried with a synthetic voice."""

from collections.abc import Iterator

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2
from tests.support.audio import CHUNK_BYTES
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_node import RawNode
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.spoken import spoken

TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
CLOSE = common_pb2.FINALIZE_REASON_SESSION_CLOSE
BY_VOICE = session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY
SECOND = bytes(10 * CHUNK_BYTES)
TALK = spoken() + SECOND + spoken("Thank you very much") + SECOND


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway that never finds pauses by gaps between chunks."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        pause_ms=600_000,
        voice_pause_ms=700,
    ) as process:
        yield process
        assert not process.faults(), process.log()


def asking(scene: Scene, detection: session_pb2.PauseDetection.ValueType) -> session_pb2.NewSession:
    options = session_pb2.SessionOptions(pause_detection=detection)
    return new_session(scene.src, scene.tgt, options=options)


async def say(client: RawClient, audio: bytes) -> None:
    """Sends audio like a microphone that never stops."""
    for at in range(0, len(audio), CHUNK_BYTES):
        await client.send(audio[at : at + CHUNK_BYTES])


async def worked(node: RawNode) -> dispatcher_pb2.JobSpec:
    assign = await node.take_job()
    await node.result(assign, "done")
    return assign.job


async def test_pauses_are_cut_and_no_byte_of_silence_is_dropped(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    opened = await client.open(asking(patient, BY_VOICE))
    assert opened.limits.pause_ms == 700
    await say(client, TALK)
    first, second = await worked(node), await worked(node)
    await client.say(close=session_pb2.Close())
    rest = await worked(node)
    assert [job.reason for job in (first, second, rest)] == [TIMEOUT, TIMEOUT, CLOSE]
    assert first.audio + second.audio + rest.audio == TALK
    # The cut is within the silence.
    assert len(spoken()) < len(first.audio) < len(spoken()) + len(SECOND)


async def test_a_session_that_does_not_ask_is_cut_by_gaps_alone(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    opened = await client.open(asking(patient, session_pb2.PAUSE_DETECTION_UNSPECIFIED))
    assert opened.limits.pause_ms == 600_000
    await say(client, TALK)
    await client.say(close=session_pb2.Close())
    whole = await worked(node)
    assert (whole.reason, whole.audio) == (CLOSE, TALK)


async def test_the_option_outlives_the_connection(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    node = await patient.node()
    opened = await client.open(asking(patient, BY_VOICE))
    await client.close()
    async with raw_client(gateway.address) as again:
        assert (await again.resume(opened)).limits.pause_ms == 700
        await say(again, spoken() + SECOND)
        job = await worked(node)
        assert job.reason == TIMEOUT
        await again.result(0)
