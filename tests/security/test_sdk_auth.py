"""Sessions and nodes of the SDK at services that ask who calls."""

import asyncio
import contextlib
import json
import logging
import time
import uuid
import wave
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.sdk import (
    Job,
    Node,
    NodeRefusedError,
    Result,
    Session,
    SessionRefusedError,
    Translated,
)
from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from tests.conftest import Eventually
from tests.security.conftest import Services
from tests.security.issuer import ISSUER, Issuer

# What a stream gets out of each token.
HOLDS_S = 2.5
LANGUAGE = "eo"


class Tokens:
    """A function that gives short tokens, and how often it was asked."""

    def __init__(self, issue: Callable[[float], str]) -> None:
        self.asked = 0
        self._issue = issue

    def __call__(self) -> str:
        self.asked += 1
        # A server lets tokens hold for a while longer, since clocks differ.
        return self._issue(time.time() + HOLDS_S - LEEWAY_S)


def new_node(node_id: str, token: Callable[[], str] | str) -> Node:
    node = Node(
        node_id=node_id, asr=[LANGUAGE], semantic=[LANGUAGE], tts=[LANGUAGE], slots=2, token=token
    )
    node.load = lambda: (0.0, 0.0)

    @node.handler
    async def translate(job: Job) -> Translated:
        heard = f"{len(job.audio)}"
        return Translated(source=heard, translated=heard)

    return node


@contextlib.asynccontextmanager
async def served(node: Node, services: Services, eventually: Eventually) -> AsyncIterator[None]:
    """Within this block the node is connected."""
    serving = asyncio.create_task(node.serve(services.dispatcher.address))
    try:
        await eventually(lambda: node.connected or serving.done())
        assert not serving.done(), serving.exception()
        yield
    finally:
        await node.stop()
        await serving


async def test_a_session_and_a_node_go_on_when_their_tokens_expire_and_nothing_is_lost(
    services: Services, issuer: Issuer, eventually: Eventually
) -> None:
    node_id = f"sdk-{uuid.uuid4().hex[:8]}"
    of_node = Tokens(lambda exp: issuer.token("node", node_id=node_id, exp=exp))
    of_app = Tokens(lambda exp: issuer.token("client", tenant="acme", exp=exp))
    said = 0
    async with served(new_node(node_id, of_node), services, eventually):
        session = Session(
            services.gateway.address, src=LANGUAGE, tgt="en-gb", tenant="acme", token=of_app
        )
        async with asyncio.timeout(30), session:
            # Until each has had a token that expired, and two more to be sure.
            while min(of_node.asked, of_app.asked) < 3:
                await session.send(bytes(3200))
                await session.finish()
                await session.drained()
                said += 1
                await asyncio.sleep(0.1)
            await session.close()
            results = [outcome async for outcome in session.results()]
        assert session.counts.resumes >= 2
    assert [outcome.index for outcome in results] == list(range(said))
    assert all(isinstance(outcome, Result) for outcome in results), results
    assert {outcome.texts.source for outcome in results if isinstance(outcome, Result)} == {"3200"}


async def test_a_node_that_takes_anothers_id_is_told_so_and_ends(
    services: Services, issuer: Issuer
) -> None:
    token = issuer.token("node", node_id="mine")
    for attempt in (token, lambda: token):
        with pytest.raises(NodeRefusedError, match=r"^PERMISSION_DENIED: .*yours") as caught:
            async with asyncio.timeout(10):
                await new_node("yours", attempt).serve(services.dispatcher.address)
        assert token not in str(caught.value)


async def test_whoever_is_no_client_or_nobody_opens_no_session_and_learns_why(
    services: Services, issuer: Issuer
) -> None:
    for token, said in (
        (issuer.token("node"), "PERMISSION_DENIED: a caller of role node may not call"),
        (issuer.token("client", exp=time.time() - 60), "UNAUTHENTICATED: .*expired"),
        (None, "UNAUTHENTICATED: no token"),
    ):
        session = Session(services.gateway.address, src=LANGUAGE, tgt="en-gb", token=token)
        with pytest.raises(SessionRefusedError, match=f"^{said}"):
            await session.__aenter__()


# ---- commands ----


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A command makes the SDK quiet; at the end of a test it is as before."""
    caplog.set_level(logging.WARNING, "lingua_scheduler.sdk")


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch, issuer: Issuer) -> None:
    """Commands find the secret."""
    monkeypatch.setenv("LINGUA_AUTH_SECRET_FILE", str(issuer.secret_file))
    monkeypatch.setenv("LINGUA_AUTH_ISSUER", ISSUER)


def sim_nodes(services: Services, prefix: str) -> list[str]:
    at = ("--dispatcher", services.dispatcher.address)
    return ["sim-nodes", "--count", "2", "--prefix", prefix, "--seconds", "2.5", "--json", *at]


@pytest.mark.usefixtures("signs")
def test_simulated_nodes_sign_a_token_each_where_there_is_a_secret(services: Services) -> None:
    result = CliRunner().invoke(app, sim_nodes(services, f"sim-{uuid.uuid4().hex[:6]}"))
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["most_connected"] == 2


def test_commands_that_are_refused_name_the_variable_to_set(
    services: Services, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wav = tmp_path / "a.wav"
    with wave.open(str(wav), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(3200))
    speak = ["speak", str(wav), "--from", "en", "--to", "es", "--gateway", services.gateway.address]
    token = tmp_path / "token"
    token.write_text(issuer.token("node", node_id="another"))
    for command, role in ((speak, "client"), (sim_nodes(services, "mine"), "node")):
        monkeypatch.delenv("LINGUA_TOKEN_FILE", raising=False)
        nobody = CliRunner().invoke(app, command)
        monkeypatch.setenv("LINGUA_TOKEN_FILE", str(token))
        wrong = CliRunner().invoke(app, command)
        for result, words in ((nobody, "no token"), (wrong, "may not")):
            assert result.exit_code == 2
            assert words in result.stderr
            assert f"It needs a token with role {role}: set LINGUA_TOKEN_FILE" in result.stderr
