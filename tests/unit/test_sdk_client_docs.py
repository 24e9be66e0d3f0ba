"""The code of docs/clients.md works as it stands."""

import asyncio
import re
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from .test_sdk_session_peer import Peer, ack, closed, missing, partial, peers, result

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def examples(address: str) -> list[str]:
    """The page's blocks of Python, with an address that answers."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    return [re.sub(r'"[^"]+:7730"', repr(address), block) for block in blocks]


async def serve(peer: Peer) -> None:
    """Takes a session to its end."""
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
