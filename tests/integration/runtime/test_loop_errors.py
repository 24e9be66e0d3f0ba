"""Connections to a Redis with TLS that are abandoned during the handshake, as at a failover."""

import asyncio
import contextlib
import logging
import multiprocessing
import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lingua_scheduler.services.runtime.loop_errors import report_loop_errors
from tests.security.certificates import Certificates

# A race: uvloop's error comes in one of five to forty tries, if there is about as much time as a
# handshake takes.
TRIES = 400
LEAST_S, MOST_S = 0.0005, 0.004


def serve(listening: socket.socket, cert: str, key: str) -> None:
    """Shakes hands, and says nothing."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    open_ones: list[Any] = []
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError):
            open_ones.append(context.wrap_socket(connection, server_side=True))
        del open_ones[:-10]


@pytest.fixture
def tls_port(tmp_path: Path) -> Iterator[int]:
    """Of a TLS server in a process of its own."""
    pair = Certificates(tmp_path).issue("server")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = multiprocessing.get_context("fork").Process(
            target=serve, args=(listening, str(pair.cert), str(pair.key)), daemon=True
        )
        process.start()
        try:
            yield listening.getsockname()[1]
        finally:
            process.kill()
            process.join()


async def connect_and_give_up(port: int) -> int:
    """Connects as redis-py does; returns how often it was in time."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    chance, connected = random.Random(1), 0
    for _ in range(TRIES):
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(chance.uniform(LEAST_S, MOST_S)):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                connected += 1
                writer.close()
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.1)
    return connected


# uvloop leaves some of their sockets to the garbage collector, which closes them.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_connection_abandoned_in_its_tls_handshake_leaves_no_traceback(
    tls_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report_loop_errors(runner.get_loop())
        connected = runner.run(connect_and_give_up(tls_port))
    given_up = sum("abandoned during tls" in each.message for each in caplog.records)
    print(f"{connected} of {TRIES} connected, {given_up} false alarms of uvloop")
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, errors


@pytest.mark.parametrize(
    "context",
    [
        {"message": "Fatal error on SSL protocol", "exception": ValueError("ours")},
        {"message": "Task exception was never retrieved", "exception": RuntimeError("ours")},
        {"message": "Fatal error on SSL protocol", "exception": RuntimeError("another")},
        {"message": "no exception at all"},
    ],
)
async def test_every_other_error_of_the_loop_is_logged(
    context: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    report_loop_errors(loop)
    try:
        loop.call_exception_handler(context)
    finally:
        loop.set_exception_handler(None)
    assert context["message"] in caplog.text


async def test_the_false_alarm_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    report_loop_errors(loop)
    error = RuntimeError(
        "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; "
        "the handler is closed"
    )
    try:
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error})
    finally:
        loop.set_exception_handler(None)
    assert not [each for each in caplog.records if each.levelno > logging.DEBUG]
