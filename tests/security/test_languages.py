"""Languages that are not allowed are refused wherever they enter, and leave nothing behind."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc, session_pb2
from tests.security.test_tenants import hello
from tests.support.audio import FORMAT, speech
from tests.support.pool_client import connected, registration
from tests.support.raw_client import new_session, raw_client, working
from tests.support.raw_node import RawNode
from tests.support.rpc_errors import failure
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

NodeCapabilities = common_pb2.NodeCapabilities


@dataclass(frozen=True)
class Deployment:
    """All services, with a list of languages.

    Attributes:
        good: a language that is allowed.
        bad: one that is not.
        expected: what errors say of it.
    """

    pool: PoolProcess
    dispatcher: DispatcherProcess
    gateway: GatewayProcess
    good: str
    bad: str
    expected: str


LISTS = {
    "": ("zh-Hant", "xx", "an ISO 639 language code such as 'en', 'pt-br' or 'zh-hant'"),
    "es,en-GB": ("EN-gb", "en", "one of the languages allowed here: en-gb, es"),
}


@pytest.fixture(scope="module", params=LISTS, ids=["default", "restricted"])
def deployed(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Deployment]:
    settings: dict[str, Any] = {"redis_timeout_ms": 4000, "languages": request.param}
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(PoolProcess(redis_url=redis_url, prefix=prefix, **settings))
        dispatcher = stack.enter_context(
            DispatcherProcess(pool=pool, redis_url=redis_url, **settings)
        )
        gateway = stack.enter_context(
            GatewayProcess(
                pool=pool, redis_url=redis_url, dispatchers=dispatcher.address, **settings
            )
        )
        yield Deployment(pool, dispatcher, gateway, *LISTS[request.param])
        for process in (pool, dispatcher, gateway):
            assert not process.faults(), process.log()


def check(deployed: Deployment, error: common_pb2.Error, field: str) -> None:
    """The error names the field, what came, and what is allowed."""
    problem = f"{deployed.bad!r} must be {deployed.expected}"
    assert [(it.field, it.description) for it in error.field_violations] == [(field, problem)]


def capabilities(deployed: Deployment, field: str) -> tuple[str, NodeCapabilities]:
    """The path of a bad language, and capabilities in which only that one is bad."""
    good, bad = deployed.good, deployed.bad
    made = NodeCapabilities(asr_langs=[good], semantic_langs=[good], tts_langs=["es"])
    if field == "nmt_pairs":
        made.nmt_pairs.add(src=good, tgt=bad)
        return "nmt_pairs[0].tgt", made
    getattr(made, field).append(bad)
    return f"{field}[1]", made


FIELDS = ("asr_langs", "semantic_langs", "tts_langs", "nmt_pairs")


@pytest.mark.parametrize("field", FIELDS)
async def test_a_node_that_names_another_is_refused_and_gets_no_pool(
    deployed: Deployment, field: str, redis_url: str
) -> None:
    path, declared = capabilities(deployed, field)
    said = hello("hostile", deployed.good)
    said.capabilities.CopyFrom(declared)
    node = RawNode(deployed.dispatcher.address, said)
    try:
        check(deployed, await node.refused(), f"capabilities.{path}")
    finally:
        await node.cut()
    async with connected(deployed.pool, redis_url) as pool:
        request = registration("hostile")
        request.capabilities.CopyFrom(declared)
        code, _, error = await failure(pool.stub.RegisterNode(request))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        check(deployed, error, f"capabilities.{path}")
        assert not pool.store.exists(f"{pool.prefix}:node:hostile")
        names = map(bytes.decode, pool.store.hkeys(f"{pool.prefix}:pools"))
        assert all(deployed.bad not in name.split(":") for name in names)


async def test_a_client_that_names_another_gets_no_session(deployed: Deployment) -> None:
    sides = session_pb2.LanguageSet(a=deployed.good, b=deployed.bad)
    of_two = new_session(deployed.good)
    of_two.conversation.CopyFrom(sides)
    opened = {
        "direction.src": new_session(deployed.bad),
        "direction.tgt": new_session(deployed.good, deployed.bad),
        "conversation.b": of_two,
    }
    for field, session in opened.items():
        async with raw_client(deployed.gateway.address) as client:
            await client.say(open=session_pb2.Open(new=session))
            check(deployed, await client.refused("INVALID_MESSAGE"), f"open.new.{field}")


async def test_a_job_in_another_is_refused(deployed: Deployment) -> None:
    spec = dispatcher_pb2.JobSpec(
        session_id="s-1",
        pair=common_pb2.LanguagePair(src=deployed.good, tgt=deployed.bad),
        audio=speech(3),
        audio_format=FORMAT,
        reason=common_pb2.FINALIZE_REASON_IS_FINAL,
    )
    async with grpc.aio.insecure_channel(deployed.dispatcher.address) as channel:
        stub: Any = dispatcher_pb2_grpc.DispatcherStub(channel)
        _, reason, error = await failure(stub.Dispatch(dispatcher_pb2.DispatchRequest(job=spec)))
    assert reason == "INVALID_MESSAGE"
    check(deployed, error, "job.pair.tgt")


async def test_a_language_that_is_allowed_works_from_client_to_node(deployed: Deployment) -> None:
    node = RawNode(deployed.dispatcher.address, hello("honest", deployed.good.upper()))
    try:
        await node.open()
        async with working(node), raw_client(deployed.gateway.address) as client:
            await client.open(new_session(deployed.good))
            await client.send(speech(5), final=True)
            await client.result(0)
    finally:
        await node.cut()
