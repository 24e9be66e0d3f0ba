"""Limits of a connection to the web entry: sizes, rates, times, numbers, and slow readers."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator

import aiohttp
import pytest

from tests.support.audio import speech
from tests.support.raw_client import new_session, working
from tests.support.raw_http import (
    BINARY,
    PING,
    PONG,
    TEXT,
    frame,
    raw_connection,
    raw_socket,
    request,
)
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.web_attacks import large_frames
from tests.support.web_client import WebClient, all_left, audio_frame, web_client

OUTBOX_BYTES = 300_000
CONNECTIONS = 12
OF_ADDRESS = 8


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway with limits that a test can reach."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        limits={
            "live.sessions._OPEN_WITHIN_S": 1.0,
            "live.converse_stream._MAX_BYTES": OUTBOX_BYTES,
            "runtime.web.connections._REQUEST_WITHIN_S": 1.0,
            "runtime.web.connections._READ_WITHIN_S": 1.0,
            "web.peer._CLOSE_WITHIN_S": 1.0,
        },
        keepalive_time_ms=1000,
        keepalive_timeout_ms=500,
        web_frames_per_s=50,
        web_frames_burst=20,
        web_connections_max=CONNECTIONS,
        web_connections_per_address=OF_ADDRESS,
        hangover_manual_ms=50,
        session_utterances_max=100,
    ) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture(autouse=True)
async def nobody_is_left(gateway: GatewayProcess) -> None:
    """Each test begins without connections of the one before."""
    await all_left(gateway)


# ---- sizes ----


async def test_the_largest_chunk_of_the_contract_fits_and_a_larger_one_is_refused(
    web: WebClient, patient: Scene
) -> None:
    await web.open(new_session(patient.src, patient.tgt))
    await web.chunk(0, bytes(65536))
    await web.chunk(1, bytes(65538))
    refused = await web.event("error")
    assert refused["reason"] == "ERROR_REASON_INVALID_MESSAGE"
    assert "data: has 65538 bytes" in refused["message"]
    assert refused["metadata"] == {"seq": "1", "expected_seq": "1"}


async def test_a_frame_over_the_limit_ends_the_connection_with_its_own_code(
    web: WebClient, gateway: GatewayProcess, patient: Scene
) -> None:
    await web.open(new_session(patient.src, patient.tgt))
    await web.chunk(0, bytes(128 * 1024))
    assert await web.closed() == 4413
    assert web.events[-1]["error"]["reason"] == "ERROR_REASON_INVALID_MESSAGE"
    await gateway.reaches(1, "lingua_gateway_web_closed_total", code="4413")


@pytest.mark.parametrize("name", list(large_frames()))
async def test_a_large_frame_is_refused_before_it_is_complete(
    gateway: GatewayProcess, name: str
) -> None:
    async with raw_socket(gateway.web_address) as peer:
        for data in large_frames()[name]:
            await peer.send(data)
        assert await peer.close_code() == 4413


# ---- rates ----


async def test_a_client_that_sends_too_fast_is_read_slowly_and_loses_nothing(
    web: WebClient, gateway: GatewayProcess, patient: Scene
) -> None:
    count = 120
    async with working(await patient.node(slots=8)), web_client(gateway.web_address) as other:
        await other.open(new_session(patient.src, patient.tgt))
        await web.open(new_session(patient.src, patient.tgt))
        began = time.monotonic()
        for seq in range(count):
            await web.chunk(seq, speech(seq), final=seq == count - 1)
        # Another client is served meanwhile.
        await other.chunk(0, speech(3), final=True)
        assert (await other.result(0))["texts"]["translated"] == "3"
        await web.event("audioAck", lambda ack: ack["nextSeq"] == str(count))
    assert time.monotonic() - began >= (count - 20) / 50


# ---- times ----


async def test_a_client_that_does_not_open_in_time_is_disconnected(gateway: GatewayProcess) -> None:
    async with web_client(gateway.web_address) as client:
        assert await client.closed() == 4408
    await gateway.reaches(1, "lingua_gateway_web_closed_total", code="4408")


async def test_a_peer_that_does_not_send_its_request_is_disconnected(
    gateway: GatewayProcess,
) -> None:
    address = gateway.web_address
    async with raw_connection(address) as silent, raw_connection(address) as slow:

        async def drip() -> None:
            for at in range(1000):
                await slow.send(request(address, "/healthz")[at : at + 1] or b"x")
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        await silent.ended(within=5)
        await slow.ended(within=5)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_a_half_open_peer_is_found_by_pings_and_a_live_one_is_kept(
    gateway: GatewayProcess, patient: Scene
) -> None:
    silent = await gateway.metric("lingua_gateway_web_closed_total", code="4408")
    ended = "lingua_gateway_sessions_ended_total"
    left = await gateway.metric(ended, how="left", transport="web")
    address, opening = (
        gateway.web_address,
        json.dumps(
            {
                "open": {
                    "new": {
                        "direction": {"src": patient.src, "tgt": patient.tgt},
                        "audioFormat": {"encoding": 1, "sampleRateHz": 16000, "channels": 1},
                    }
                }
            }
        ).encode(),
    )
    async with raw_socket(address) as dead, raw_socket(address) as alive:
        for peer in (dead, alive):
            await peer.send(frame(TEXT, opening))
            assert b"opened" in (await peer.next_frame())[1]

        async def answer() -> None:
            while (found := await alive.next_frame(within=60))[0] != -1:
                if found[0] == PING:
                    await alive.send(frame(PONG, found[1]))

        answering = asyncio.create_task(answer())
        assert await dead.close_code() == 4408
        # It has outlived the other by more than the time after which that one was given up.
        await asyncio.sleep(2)
        assert not answering.done()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    await gateway.reaches(silent + 1, "lingua_gateway_web_closed_total", code="4408")
    await gateway.reaches(left + 2, ended, how="left", transport="web")


async def test_a_peer_that_does_not_read_its_responses_is_disconnected(
    gateway: GatewayProcess,
) -> None:
    address = gateway.web_address
    async with raw_connection(address) as peer:
        peer.stop_reading()
        asking = request(address, "/healthz") * 100
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(60):
                # Until it is cut off, which an attempt to send finds out.
                while not peer.writer.transport.is_closing():
                    peer.writer.write(asking)
                    await asyncio.wait({asyncio.ensure_future(peer.writer.drain())}, timeout=0.2)
    await all_left(gateway)


# ---- numbers ----


async def test_connections_are_limited_by_address_and_in_all(gateway: GatewayProcess) -> None:
    url = f"http://{gateway.web_address}/v1/languages"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(OF_ADDRESS):
            await stack.enter_async_context(raw_socket(gateway.web_address))
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == 429
            assert (await response.json())["reason"] == "BACKPRESSURE"
            assert response.headers["Retry-After"] == "1"
        # All of 127.0.0.0/8 is this machine: others are not affected, until all are too many.
        others = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=others) as http, http.get(url) as response:
            assert response.status == 200
    await all_left(gateway)
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        assert response.status == 200


# ---- slow readers ----


async def test_a_client_that_does_not_read_is_cut_off_and_others_are_served(
    gateway: GatewayProcess, patient: Scene
) -> None:
    name, how = "lingua_gateway_sessions_ended_total", "backpressure"
    node = await patient.node(slots=2)
    address = gateway.web_address
    async with raw_socket(address) as slow, web_client(address) as other:
        opening = {
            "open": {
                "new": {
                    "direction": {"src": patient.src, "tgt": patient.tgt},
                    "audioFormat": {"encoding": 1, "sampleRateHz": 16000, "channels": 1},
                    "options": {"requireTts": True},
                }
            }
        }
        await slow.send(frame(TEXT, json.dumps(opening).encode()))
        await other.open(new_session(patient.src, patient.tgt))
        async with working(node, bytes(OUTBOX_BYTES // 2)):
            for seq in range(60):
                await slow.send(frame(BINARY, audio_frame(seq, speech(seq), final=True)))
            # It reads nothing, and the pings find that out if the outbox does not.
            await gateway.reaches(1, name, how=how)
            await other.chunk(0, speech(500), final=True)
            assert (await other.result(0))["texts"]["translated"] == "500"
