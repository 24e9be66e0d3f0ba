"""The console reads as a viewer, and acts with the rights of the person who asks."""

from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from tests.security.conftest import Services
from tests.security.issuer import ISSUER, Issuer
from tests.support.console_backend import Console, following


@pytest.fixture
async def console(services: Services, issuer: Issuer) -> AsyncIterator[Console]:
    """A console that signs its own tokens."""
    async with following(
        auth="on",
        auth_secret_file=issuer.secret_file,
        auth_issuer=ISSUER,
        pool_address=services.pool.address,
        dispatcher_address=services.dispatcher.address,
        gateway_address=services.gateway.address,
    ) as made:
        yield made


async def test_a_viewers_token_is_enough_for_all_documents(console: Console) -> None:
    await console.until("overview", lambda each: each["instances"]["serving"] >= 3)
    sources = console.backend.sources
    await console.until("jobs", lambda _: sources.fleet.is_known and sources.job_poll.is_known)
    for path in ("overview", "nodes", "jobs", "sessions", "instances"):
        assert (await console.get(path))["problems"] == {}, path


async def test_the_consoles_own_token_is_never_lent_for_an_action(
    console: Console, issuer: Issuer
) -> None:
    actions = console.actions
    for token, refusal in (
        (None, UnauthenticatedError),
        ("", UnauthenticatedError),
        ("not a token", UnauthenticatedError),
        (issuer.token("viewer"), PermissionDeniedError),
        (issuer.token("client"), PermissionDeniedError),
    ):
        with pytest.raises(refusal):
            await actions.drain("n1", token)
        with pytest.raises(refusal):
            await actions.ready("n1", token)
        with pytest.raises(refusal):
            await actions.remove("n1", token)
        with pytest.raises(refusal):
            await actions.cancel("j1", "why", token)
        with pytest.raises(refusal):
            await actions.close_room("r1", token)


async def test_a_refused_console_says_so(services: Services, issuer: Issuer) -> None:
    async with following(
        auth="on",
        auth_secret_file=issuer.secret_file,
        auth_issuer="https://elsewhere.example.com/",
        pool_address=services.pool.address,
        dispatcher_address=services.dispatcher.address,
        gateway_address=services.gateway.address,
    ) as console:
        document = await console.until(
            "sessions", lambda each: len(each["problems"]) == 4, search="x"
        )
        for problem in document["problems"].values():
            assert "token" in problem["message"], problem
        # It is not the viewer who has to sign in.
        with pytest.raises(DependencyDownError, match="refuses the console"):
            await console.get("jobs/0123456789abcdef")
