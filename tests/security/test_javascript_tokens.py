"""The JavaScript SDK renews tokens, and says in words why one is refused."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.support.javascript import JavaScriptTalker, talking

# Languages that no node of other tests has.
NOWHERE = ("qax", "qbx")
# Long enough for a program to start on a busy machine.
TOKEN_S = 10.0


def write(path: Path, issuer: Issuer, role: str = "client", **claims: Any) -> None:
    path.write_text(issuer.token(role, **claims))


@pytest.mark.long
async def test_a_session_goes_on_with_the_next_token(
    services: Services, issuer: Issuer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    write(file, issuer, exp=time.time() + TOKEN_S - LEEWAY_S)
    talker = JavaScriptTalker(
        "js", [services.gateway.web_address], directions=[NOWHERE], token_file=file
    )
    async with talking(talker):
        write(file, issuer)
        await talker.until("resumed", 1)
        await talker.until("said", len(talker.told("said")) + 3)
    (closed,) = talker.told("closed")
    # There is no node, so every utterance is missing, and each is reported once and in order.
    outcomes = talker.history.outcomes()
    assert [each["index"] for each in outcomes] == list(range(closed["counts"]["utterances"]))
    assert "expired" in talker.told("reconnecting")[0]["why"]


async def test_a_token_that_stays_expired_ends_the_session(
    services: Services, issuer: Issuer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    write(file, issuer, exp=time.time() + TOKEN_S - LEEWAY_S)
    talker = JavaScriptTalker(
        "js", [services.gateway.web_address], directions=[NOWHERE], token_file=file
    )
    await asyncio.wait_for(talker.talk(), 60)
    (lost,) = talker.told("lost")
    assert (lost["name"], lost["reason"]) == ("SessionLostError", "UNAUTHENTICATED")
    assert "the same token again" in lost["message"]


async def test_a_refused_token_is_explained(
    services: Services, issuer: Issuer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    refused: dict[str, dict[str, Any]] = {
        "UNAUTHENTICATED": {"exp": 1},
        "PERMISSION_DENIED": {"role": "node"},
    }
    for reason, claims in refused.items():
        write(file, issuer, **claims)
        talker = JavaScriptTalker("js", [services.gateway.web_address], token_file=file)
        await asyncio.wait_for(talker.talk(), 60)
        (lost,) = talker.told("lost")
        assert (lost["name"], lost["reason"]) == ("SessionRefusedError", reason)
