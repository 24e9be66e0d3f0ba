"""The examples of docs/clients.md work as printed, and so do those of docs/nodes.md on tokens."""

import asyncio
import re
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Eventually
from tests.documents.blocks import blocks_of
from tests.unit.sdk.node_peer import running_dispatcher
from tests.unit.sdk.session_peer import (
    Peer,
    ack,
    closed,
    entered,
    leave,
    missing,
    partial,
    peers,
    result,
)
from tests.unit.sdk.test_tls import OURS, plain_tls

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
NODES_PAGE = PAGE.with_name("nodes.md")


def blocks(page: Path) -> list[str]:
    """Returns the Python blocks of a page. tests/documents checks that all of them run."""
    return [block.code for block in blocks_of(page) if block.language == "python"]


def examples(address: str) -> list[str]:
    """Returns the blocks of docs/clients.md on sessions, with an address that answers."""
    found = [block for block in blocks(PAGE) if "Room" not in block]
    assert len(found) == 3
    return [re.sub(r'"[^"]+:7730"', repr(address), block) for block in found]


async def serve(peer: Peer) -> None:
    """Serves a session to its end."""
    stream = await peer.stream()
    await stream.opens()
    chunks = 0
    while (message := await stream.hear()) is not None:
        if message.HasField("audio"):
            chunks += 1
        if message.HasField("close"):
            stream.say(partial(0, "hel"), result(0, "hola"), missing(1), ack(chunks), closed(1, 1))
    stream.end()


async def test_the_first_example_translates_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with wave.open("hello.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(1600))
    async with peers("a") as (peer,):
        code = examples(peer.address)[0].replace("asyncio.run(main())", "")
        scope: dict[str, Any] = {}
        exec(compile(code, str(PAGE), "exec"), scope)
        await asyncio.gather(scope["main"](), serve(peer))
    assert capsys.readouterr().out == "0  -> hola\n1 is missing: JOB_TIMEOUT\n"


async def test_the_second_example_holds_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    async def microphone() -> AsyncIterator[tuple[str, bytes]]:
        yield "ana", bytes(3200)
        yield "ben", bytes(3200)

    async with peers("a") as (peer,):
        scope: dict[str, Any] = {}
        exec(compile(examples(peer.address)[1], str(PAGE), "exec"), scope)
        await asyncio.gather(scope["talk"](microphone()), serve(peer))
    assert capsys.readouterr().out == "0: hel ...\n0: hola\n"


async def test_the_third_example_shows_tokens_and_speaks_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> str:
        return "from-the-login"

    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_bytes(OURS.pem)
    (tmp_path / "client.token").write_text("from-a-file\n")
    async with peers("a", credentials=plain_tls(OURS.issue())) as (peer,):
        scope: dict[str, Any] = {"ask_your_login_server": ask}
        exec(compile(examples(peer.address)[2], str(PAGE), "exec"), scope)
        for session, token in (
            (scope["session_of_a_user"]("of-a-user"), "of-a-user"),
            (scope["session_of_this_service"](), "from-a-file"),
            (scope["long_session"](), "from-the-login"),
        ):
            await entered(session, peer)
            assert peer.metadata["authorization"] == f"Bearer {token}"
            await leave(session)


async def test_the_node_with_a_token_and_tls_connects(
    tmp_path: Path, eventually: Eventually
) -> None:
    (tmp_path / "ca.pem").write_bytes(OURS.pem)
    (tmp_path / "token").write_text("of-acme")
    (code,) = [each for each in blocks(NODES_PAGE) if "Tls(" in each]
    code = code.replace("/etc/lingua", str(tmp_path))
    async with running_dispatcher(plain_tls(OURS.issue())) as dispatcher:
        scope: dict[str, Any] = {}
        exec(compile(code, str(NODES_PAGE), "exec"), scope)
        node = scope["node"]
        node.handler(lambda job: None)
        dispatcher.next(welcome=True, end=None)
        serving = asyncio.create_task(node.serve(dispatcher.address))
        await eventually(lambda: node.connected or serving.done())
        await node.stop()
        await serving
    assert dispatcher.tokens == ["Bearer of-acme"]
