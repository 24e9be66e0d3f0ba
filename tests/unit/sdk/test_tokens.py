"""Tokens: when they are asked for, what a refusal means, and that they stay secret."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from lingua_scheduler.sdk import (
    Channels,
    Node,
    NodeRefusedError,
    Reconnecting,
    Resumed,
    Session,
    SessionLostError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk._transport import tokens
from lingua_scheduler.sdk._transport.channels import is_loopback
from tests.unit.sdk.node_peer import Dispatcher, counting, node_with, serve
from tests.unit.sdk.session_peer import (
    Peer,
    PeerStream,
    closed,
    english,
    entered,
    leave,
    opened,
    peers,
)

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
LOGGER = "lingua_scheduler.sdk"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peers("a") as (made,):
        yield made


async def entering(session: Session, peer: Peer) -> tuple[asyncio.Task[Session], PeerStream]:
    """Returns a task that opens the session, and its first stream, which has received Open."""
    task = asyncio.create_task(session.__aenter__())
    return task, await asking(peer)


async def asking(peer: Peer) -> PeerStream:
    """Returns the next stream, which has received Open, so that nothing more is in flight.

    gRPC hides the status of a stream that ends while something is written to it.
    """
    stream = await peer.stream()
    await stream.hear_kind("open")
    return stream


async def speaks(session: Session, stream: PeerStream) -> None:
    """Sends audio, which stays unacknowledged, and waits until nothing more is in flight."""
    await session.send(bytes(3200))
    await stream.hear_kind("audio")


# ---- where it comes from ----


async def test_a_function_is_asked_at_every_connection_async_or_in_a_thread(peer: Peer) -> None:
    asked_in: list[threading.Thread] = []
    give = counting()

    def blocking() -> str:
        asked_in.append(threading.current_thread())
        return give()

    async def asynchronous() -> str:
        return blocking()

    for function, first in ((blocking, 1), (asynchronous, 3)):
        session = english(peer, token=function)
        stream = await entered(session, peer)
        assert peer.metadata["authorization"] == f"Bearer token-{first}"
        stream.end(grpc.StatusCode.UNAVAILABLE)
        await (await peer.stream()).opens()
        assert peer.metadata["authorization"] == f"Bearer token-{first + 1}"
        await leave(session)
    main = threading.main_thread()
    assert [thread is main for thread in asked_in] == [False, False, True, True]


async def test_a_file_is_read_at_every_connection(peer: Peer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    session = english(peer, token=file)
    stream = await entered(session, peer)
    assert peer.metadata["authorization"] == "Bearer one"
    file.write_text("two\n")
    stream.end(grpc.StatusCode.UNAVAILABLE)
    await (await peer.stream()).opens()
    assert peer.metadata["authorization"] == "Bearer two"
    await leave(session)


@pytest.mark.parametrize("wrong", ["", "Bearer abc", "a\nb", "sécret"])
def test_a_text_that_is_no_token_is_refused_and_not_repeated(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^token: must be letters") as caught:
        Session("127.0.0.1:1", src="en", tgt="es", token=wrong)
    assert not wrong or wrong not in str(caught.value)
    with pytest.raises(TypeError, match=r"^token: must be a string, a pathlib\.Path"):
        Node(node_id="n", asr=["en"], semantic=["en"], token=b"abc")  # type: ignore[arg-type]


async def test_a_function_that_fails_is_asked_again_and_its_error_is_the_cause(
    peer: Peer,
) -> None:
    failures = iter([KeyError("secret-word"), ValueError("secret-word")])

    async def token() -> str:
        for error in failures:
            raise error
        return "good"

    session = english(peer, token=token)
    await entered(session, peer)
    assert peer.metadata["authorization"] == "Bearer good"
    await leave(session)

    def broken() -> str:
        raise LookupError("secret-word")

    session = english(peer, token=broken, reconnect_seconds=0.3)
    with pytest.raises(SessionUnavailableError, match=r"no token: LookupError in broken") as caught:
        await session.__aenter__()
    assert isinstance(caught.value.__cause__, LookupError)
    assert "secret-word" not in str(caught.value)


async def test_a_function_that_hangs_is_given_no_more_time_than_the_session_has(
    peer: Peer,
) -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    session = english(peer, token=never, reconnect_seconds=0.2)
    with pytest.raises(SessionUnavailableError, match=r"no token: none within 1\.0 s"):
        await session.__aenter__()


async def test_a_file_that_is_not_there_is_named(peer: Peer, tmp_path: Path) -> None:
    session = english(peer, token=tmp_path / "nowhere", reconnect_seconds=0.2)
    with pytest.raises(SessionUnavailableError, match=r"cannot read '.*nowhere': No such file"):
        await session.__aenter__()


# ---- what a refusal means ----


async def test_a_session_whose_token_expires_goes_on_with_the_next(peer: Peer) -> None:
    session = english(peer, token=counting())
    first = await entered(session, peer)
    await speaks(session, first)
    first.end(UNAUTHENTICATED, "the token has expired")
    second = await peer.stream()
    assert peer.metadata["authorization"] == "Bearer token-2"
    await second.opens()
    await second.hear_kind("audio")
    closing = asyncio.create_task(session.close())
    await second.hear_kind("close")
    second.say(closed())
    await closing
    heard = [event async for event in session.events()]
    assert [type(event) for event in heard] == [Reconnecting, Resumed]
    await leave(session)


async def test_a_new_token_that_is_refused_too_is_the_end(peer: Peer) -> None:
    session = english(peer, token=counting())
    opening, stream = await entering(session, peer)
    stream.end(UNAUTHENTICATED, "not by us")
    (await asking(peer)).end(UNAUTHENTICATED, "nor this one")
    with pytest.raises(
        SessionRefusedError, match="UNAUTHENTICATED: nor this one; the previous token"
    ):
        await opening
    assert peer.waiting() == 0


async def test_a_good_connection_between_two_refusals_makes_both_the_first(peer: Peer) -> None:
    session = english(peer, token=counting())
    stream = await entered(session, peer)
    for _ in range(3):
        stream.end(UNAUTHENTICATED, "expired")
        stream = await peer.stream()
        await stream.opens()
    assert peer.metadata["authorization"] == "Bearer token-4"
    await leave(session)


@pytest.mark.parametrize("is_open", [False, True])
async def test_the_same_token_again_after_a_refusal_is_the_end(peer: Peer, is_open: bool) -> None:
    session = english(peer, token=lambda: "always-this")
    opening, stream = await entering(session, peer)
    if is_open:
        stream.say(opened())
        await opening
        await speaks(session, stream)
    stream.end(UNAUTHENTICATED, "not now")
    error = SessionLostError if is_open else SessionRefusedError
    with pytest.raises(error, match=r"not now; the token source returned the same token again"):
        await (session.drained() if is_open else opening)
    assert peer.waiting() == 0
    await leave(session)


@pytest.mark.parametrize(("token", "hint"), [("fixed", "; pass a function or a file"), (None, "")])
async def test_with_a_fixed_token_or_none_a_refusal_is_final_at_once(
    peer: Peer, token: str | None, hint: str
) -> None:
    session = english(peer, token=token)
    opening, stream = await entering(session, peer)
    stream.end(UNAUTHENTICATED, "who?")
    with pytest.raises(SessionRefusedError, match=r"^UNAUTHENTICATED: who\?$"):
        await opening
    session = english(peer, token=token)
    stream = await entered(session, peer)
    await speaks(session, stream)
    stream.end(UNAUTHENTICATED, "expired")
    with pytest.raises(SessionLostError, match=f"^UNAUTHENTICATED: expired{hint}"):
        await session.drained()
    await leave(session)
    assert peer.waiting() == 0


@pytest.mark.parametrize("is_open", [False, True])
async def test_what_is_not_permitted_is_final_with_any_token(peer: Peer, is_open: bool) -> None:
    session = english(peer, token=counting())
    opening, stream = await entering(session, peer)
    if is_open:
        stream.say(opened())
        await opening
        await speaks(session, stream)
    stream.end(DENIED, "nodes may not speak")
    error = SessionLostError if is_open else SessionRefusedError
    with pytest.raises(error, match="PERMISSION_DENIED: nodes may not speak"):
        await (session.drained() if is_open else opening)
    assert peer.waiting() == 0
    await leave(session)


# ---- nobody else reads it ----


async def test_no_token_is_in_logs_errors_or_what_objects_say_of_themselves(
    peer: Peer, dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "very-secret-token"
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, LOGGER):
        for token in (secret, lambda: secret):
            session = english(peer, token=token)
            opening, stream = await entering(session, peer)
            stream.end(UNAUTHENTICATED, "no")
            with pytest.raises(SessionRefusedError) as refused:
                await opening
            node = node_with(token)
            dispatcher.next(welcome=True, end=grpc.StatusCode.UNAVAILABLE)
            dispatcher.next(welcome=False, end=DENIED)
            with pytest.raises(NodeRefusedError) as denied:
                await serve(node, dispatcher)
            source = tokens.TokenSource(token)
            await source.ask(1.0)
            for said in (refused.value, denied.value, session, node, source):
                assert secret not in f"{said!r} {said}"
    assert caplog.records
    assert secret not in caplog.text


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("ipv4:127.0.0.1:1", True),
        ("dns:///LocalHost:1", True),
        ("unix:/run/lingua.sock", True),
        ("10.0.0.1:1", False),
        ("[::]:1", False),
        ("localhost.example.com:1", False),
        ("gateway:7730", False),
    ],
)
def test_what_stays_on_this_machine_is_known_by_its_address(address: str, local: bool) -> None:
    assert is_loopback(address) is local


async def test_a_token_that_leaves_the_machine_in_plain_text_is_warned_of_once(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    # An address that looks like another machine's, and reaches this one.
    address = peer.address.replace("127.0.0.1", "0.0.0.0")
    channels = Channels()
    for token in (None, "t", "t"):
        session = Session(address, src="en", tgt="es", token=token, channels=channels)
        stream = await entered(session, peer)
        assert ("in plain text" in caplog.text) is (token is not None)
        stream.end()
        await leave(session)
    assert caplog.text.count("in plain text") == 1
    session = english(peer, token="t")
    await entered(session, peer)
    await leave(session)
    assert caplog.text.count("in plain text") == 1
    await channels.close()
