"""One trace an utterance, over real processes; and the same steps in the terminal, without one."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import pytest
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent
from tests.e2e.span_collector import SpanCollector, Trace
from tests.support.local_codes import local_code
from tests.support.process import START_S
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_node import RawNode, whoever_gets_it
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    start_all,
)

# Nothing that is said may be in a span: neither the audio, nor a text, nor a token.
AUDIO = b"AudioMark" * 400
TEXT = "TextMark"

# A node whose owner traces too, as an app does it.
NODE = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from lingua_scheduler.sdk import Job, Node, Stage, Timing, Translated

provider = TracerProvider(resource=Resource.create({"service.name": "my-node"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
node = Node(node_id="traced", asr=["en"], semantic=["en"], tts=["es"], slots=4)
node.load = lambda: (0.0, 0.0)

@node.handler
async def translate(job: Job) -> Translated:
    with trace.get_tracer("mine").start_as_current_span("my model"):
        await asyncio.sleep(0.03)
    asr = Timing(stage=Stage.ASR, started_ms=0, took_ms=10)
    timings = [asr, Timing(stage=Stage.NMT, started_ms=10, took_ms=15)]
    return Translated(source="TextMark", translated="TextMark", timings=timings)

node.run(sys.argv[1])
"""

_codes = count()


@dataclass
class Traced:
    """Every service as a process, with a collector; and a gateway that samples nothing."""

    collector: SpanCollector
    pool: PoolProcess
    dispatchers: list[DispatcherProcess]
    gateway: GatewayProcess
    silent_gateway: GatewayProcess


@pytest.fixture(scope="module")
def traced(redis_url: str) -> Iterator[Traced]:
    """Shared by all tests here; each has a language of its own."""
    with SpanCollector() as collector:
        ground: dict[str, Any] = {
            "redis_url": redis_url,
            "environ": collector.environ,
            "redis_timeout_ms": 4000,
            "ack_timeout_ms": 8000,
            "reservation_ttl_ms": 9000,
            "hangover_manual_ms": 20,
        }
        pool = PoolProcess(prefix=f"test:{uuid.uuid4().hex[:8]}", **ground)
        all_of_them: list[ServiceProcess] = [pool]
        try:
            start_all([pool])
            dispatchers = [DispatcherProcess(pool=pool, **ground) for _ in range(2)]
            all_of_them += dispatchers
            start_all(dispatchers)
            # To the first, so that nodes of the second are reached by relay.
            to = {"pool": pool, "dispatchers": dispatchers[0].address}
            never = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
            never["OTEL_TRACES_SAMPLER_ARG"] = "0"
            silent = ground | {"environ": collector.environ | never}
            gateways = [GatewayProcess(**to, **ground), GatewayProcess(**to, **silent)]
            all_of_them += gateways
            start_all(gateways)
            yield Traced(collector, pool, dispatchers, gateways[0], gateways[1])
            for each in all_of_them:
                assert not each.faults(), each.log()
        finally:
            for each in all_of_them:
                each.stop()


@pytest.fixture
def language() -> str:
    """One that no other test here uses."""
    return local_code(next(_codes))


@contextlib.contextmanager
def traced_node(traced: Traced) -> Iterator[None]:
    """A node in a process that traces."""
    command = [sys.executable, "-c", NODE, traced.dispatchers[0].address]
    node = subprocess.Popen(command, env={**os.environ, **traced.collector.environ})
    try:
        yield
    finally:
        node.kill()
        node.wait()


async def raw_node(at: ServiceProcess, language: str, name: str = "a") -> RawNode:
    hello = dispatcher_pb2.Hello(
        node_id=f"{language}-{name}",
        incarnation=name,
        max_concurrent_jobs=1,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=[language], semantic_langs=[language], tts_langs=["es"]
        ),
    )
    node = RawNode(at.address, hello)
    await node.open()
    return node


@pytest.fixture
async def client(traced: Traced) -> AsyncIterator[RawClient]:
    async with raw_client(traced.gateway.address) as client:
        yield client


async def speak(client: RawClient, language: str) -> str:
    """Opens a session and says a sentence; returns its resume token."""
    opened = await client.open(new_session(language))
    await client.send(AUDIO)
    await client.send(AUDIO, final=True)
    return opened.resume_token


async def collected(traced: Traced, job_id: str, *names: str) -> Trace:
    """The trace of a job, when it has these spans."""
    wanted = set(names)
    return await asyncio.to_thread(
        traced.collector.until,
        job_id,
        lambda trace: wanted <= {span.name for span in trace.spans},
    )


def shown(dispatcher: ServiceProcess, job_id: str, *options: str, traceparent: str = "") -> str:
    """What `lingua jobs show` prints."""
    args = ["--dispatcher", dispatcher.address, "jobs", "show", job_id, *options]
    env = {"COLUMNS": "120", "TRACEPARENT": traceparent}
    result = CliRunner(env=env).invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.stdout


def steps_in(shown: str) -> list[tuple[str, str]]:
    """The steps of a waterfall with their words on how they went."""
    lines = shown.split("STEP", 1)[1].split("\n\n")[0].splitlines()[1:]
    cells = [line.split("|") for line in lines]
    return [(label.rstrip(), " ".join(rest.split()[2:])) for label, _, rest in cells]


async def test_an_utterance_is_one_trace_from_its_first_chunk_to_its_delivery(
    traced: Traced, client: RawClient
) -> None:
    home = traced.dispatchers[0]
    with traced_node(traced):
        opened = await client.open(new_session("en"))
        deadline = time.monotonic() + START_S
        while not await home.metric("lingua_dispatcher_nodes"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await client.send(AUDIO)
        await client.send(AUDIO, final=True)
        result = await client.result(0)
        await client.say(results_seen=1)
        job_id = result.job_id
        await collected(traced, job_id, "EVALSHA complete", "my model", "utterance", "dispatch")
        await client.say(close={})
        await client.status()
    session_trace = opened.traceparent.split("-")[1]
    session = (await collected(traced, session_trace, "session")).one("session")
    trace = traced.collector.trace(job_id)

    assert sorted(trace.tree()) == sorted(
        [
            ("", "utterance"),
            ("utterance", "gather"),
            ("utterance", "hangover"),
            ("utterance", "submit"),
            ("utterance", "dispatch"),
            ("dispatch", "allocate"),
            ("allocate", "pool allocate"),
            ("pool allocate", "EVALSHA allocate"),
            ("dispatch", "attempt 1"),
            ("attempt 1", "send"),
            ("attempt 1", "ack"),
            ("attempt 1", "node translate"),
            ("node translate", "my model"),
            ("attempt 1", "pool commit"),
            ("pool commit", "EVALSHA commit"),
            ("attempt 1", "node"),
            ("node", "asr"),
            ("node", "nmt"),
            ("attempt 1", "pool complete"),
            ("pool complete", "EVALSHA complete"),
            ("utterance", "deliver"),
        ]
    )
    # What the pool does of an attempt that is over ends after it; a node ends as it likes.
    trace.check_nested("pool complete", "pool commit", "node translate")
    for names in (
        ("gather", "hangover", "submit", "dispatch", "deliver"),
        ("allocate", "send", "ack", "node"),
    ):
        each = [trace.one(name).told for name in names]
        for before, after in pairwise(each):
            assert before.end_time_unix_nano <= after.start_time_unix_nano + 5_000_000, names
            assert before.start_time_unix_nano <= after.start_time_unix_nano, names
    utterance = trace.one("utterance")
    assert {span.service for span in trace.spans} == {
        "lingua-gateway",
        "lingua-dispatcher",
        "lingua-pool",
        "my-node",
    }
    assert session.links == {utterance.told.span_id}
    assert utterance.links == {session.told.span_id}
    assert session.told.span_id.hex() == opened.traceparent.split("-")[2]
    assert utterance.attributes["lingua.reason"] == "IS_FINAL"
    assert utterance.attributes["lingua.outcome"] == "TRANSLATED"
    assert trace.one("attempt 1").attributes["lingua.node_id"] == "traced"
    pool, script = trace.one("pool allocate"), trace.one("EVALSHA allocate")
    assert pool.attributes["rpc.method"] == "lingua_scheduler.v1.PoolService/Allocate"
    assert script.attributes["db.system.name"] == "redis"
    assert script.attributes["db.stored_procedure.name"] == "allocate"
    assert script.attributes["server.port"] > 0


async def test_a_retry_is_a_sibling_in_the_trace_and_in_the_terminal(
    traced: Traced, client: RawClient, language: str
) -> None:
    home, other = traced.dispatchers
    nodes = [await raw_node(home, language, name) for name in "ab"]
    await speak(client, language)
    first, assign = await whoever_gets_it(nodes)
    await first.reject(assign, detail=TEXT)
    second, again = await whoever_gets_it([node for node in nodes if node is not first])
    await second.ack(again)
    await second.result(again, TEXT)
    job_id = (await client.result(0)).job_id

    trace = await collected(traced, job_id, "utterance", "attempt 2", "EVALSHA complete")
    attempts = [trace.one("attempt 1"), trace.one("attempt 2")]
    parents = [trace.parent(attempt) for attempt in attempts]
    assert [parent.name for parent in parents if parent] == ["dispatch", "dispatch"]
    assert [attempt.failed for attempt in attempts] == [True, False]
    assert attempts[0].attributes["error.type"] == "REJECTED"
    assert ("attempt 1", "pool release") in trace.tree()
    assert len(trace.named("allocate")) == 2
    assert again.job.traceparent.split("-")[1:3] == [job_id, attempts[1].told.span_id.hex()]
    assert not again.job.steps

    # Not the home: from the record.
    told = steps_in(await asyncio.to_thread(shown, other, job_id))
    assert [label for label, _ in told] == [
        "gather",
        "hangover",
        "submit",
        "attempt 1",
        "  allocate",
        "  send",
        "  ack",
        "attempt 2",
        "  allocate",
        "  send",
        "  ack",
        "  node",
    ]
    assert dict(told)["attempt 1"].startswith(f"{first.node_id} released: rejected")
    assert ("  ack", "REJECTED") in told
    for node in nodes:
        await node.cut()


async def test_a_job_goes_by_relay_and_is_shown_while_it_is_under_way(
    traced: Traced, client: RawClient, language: str
) -> None:
    home, owner = traced.dispatchers
    node = await raw_node(owner, language)
    await speak(client, language)
    assign = await node.take_job()
    job_id = assign.attempt.job_id
    await client.utterance(0, "accepted")

    script = uuid.uuid4().hex
    for dispatcher in (home, owner):
        traceparent = f"00-{script}-b7ad6b7169203331-01" if dispatcher is owner else ""
        told = await asyncio.to_thread(shown, dispatcher, job_id, traceparent=traceparent)
        under_way = steps_in(told)
        assert under_way[-1] == ("  node", "under way")
        assert ("  send", "by relay") in under_way
    # The owner has asked the home, and all that is part of the trace of whoever ran the command.
    method = "lingua_scheduler.v1.Dispatcher/GetJob"
    asked = await asyncio.to_thread(
        traced.collector.until, script, lambda trace: len(trace.named(method)) == 2
    )
    assert asked.tree("EVALSHA fetch_result") == [("", method), (method, method)]
    result = dispatcher_pb2.JobResult(
        attempt=assign.attempt,
        kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
        texts=dispatcher_pb2.Texts(translated=TEXT),
        timings=[dispatcher_pb2.StageTiming(stage=common_pb2.STAGE_KIND_TTS, took_ms=1)],
    )
    await node.say(NodeEvent(job_result=result))
    await client.result(0)

    trace = await collected(traced, job_id, "utterance", "tts")
    assert trace.one("send").attributes["lingua.detail"] == "by relay"
    trace.check_nested("pool commit", "pool complete", "EVALSHA commit", "EVALSHA complete")
    document = json.loads(await asyncio.to_thread(shown, owner, job_id, "--json"))
    kinds = [step["kind"] for step in document["job"]["steps"]]
    assert kinds == [
        "GATHER",
        "HANGOVER",
        "SUBMIT",
        "ALLOCATE",
        "SEND",
        "ACK",
        "NODE",
        "STAGE",
    ]
    await node.cut()


async def test_a_result_that_waited_for_an_earlier_one_has_that_on_record(
    traced: Traced, client: RawClient, language: str
) -> None:
    home, other = traced.dispatchers
    nodes = [await raw_node(home, language, name) for name in "ab"]
    await speak(client, language)
    slow, first = await whoever_gets_it(nodes)
    await slow.ack(first)
    await client.send(AUDIO, final=True)
    (quick,) = [node for node in nodes if node is not slow]
    second = await quick.take_job()
    await quick.result(second, TEXT)
    await asyncio.sleep(0.05)
    await slow.result(first, TEXT)
    job_id = (await client.result(1)).job_id
    await client.say(results_seen=2)

    trace = await collected(traced, job_id, "utterance")
    deliver = trace.one("deliver").told
    assert deliver.end_time_unix_nano - deliver.start_time_unix_nano > 5_000_000
    deadline = time.monotonic() + START_S
    while "deliver" not in dict(steps_in(await asyncio.to_thread(shown, other, job_id))):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    for node in nodes:
        await node.cut()


async def test_a_resumed_session_goes_on_in_the_same_trace(
    traced: Traced, client: RawClient, language: str
) -> None:
    node = await raw_node(traced.dispatchers[0], language)
    opened = await client.open(new_session(language))
    await client.send(AUDIO, final=True)
    assign = await node.take_job()
    await client.utterance(0, "accepted")
    await client.close()
    async with raw_client(traced.gateway.address) as again:
        await again.resume(opened, next_seq=1)
        await node.result(assign, TEXT)
        job_id = (await again.result(0)).job_id

    trace = await asyncio.to_thread(
        traced.collector.until,
        job_id,
        lambda trace: len(trace.named("utterance")) == 2 and trace.named("dispatch"),
    )
    left, taken_up = trace.named("utterance")
    assert left.attributes["lingua.outcome"] == "LEFT"
    assert taken_up.attributes["lingua.outcome"] == "TRANSLATED"
    assert taken_up.attributes["lingua.taken_up"]
    assert trace.parent(trace.one("dispatch")) == left
    await node.cut()


async def test_a_wait_for_room_is_part_of_the_trace(
    traced: Traced, client: RawClient, language: str
) -> None:
    home, _ = traced.dispatchers
    node = await raw_node(home, language)
    await speak(client, language)
    busy = await node.take_job()
    await client.send(AUDIO, final=True)
    await client.utterance(1, "finalized")
    await home.reaches(1, "lingua_dispatcher_waiting_jobs")
    await node.result(busy, TEXT)
    later = await node.take_job()
    await node.result(later, TEXT)
    job_id = (await client.result(1)).job_id
    trace = await collected(traced, job_id, "utterance", "queue")
    queue = trace.one("queue")
    parent = trace.parent(queue)
    assert parent is not None
    assert parent.name == "dispatch"
    told = steps_in(await asyncio.to_thread(shown, home, job_id))
    labels = [label for label, _ in told]
    assert labels.index("  queue") < labels.index("  send")
    await node.cut()


async def test_what_its_gateway_does_not_sample_is_sampled_nowhere(
    traced: Traced, language: str
) -> None:
    node = await raw_node(traced.dispatchers[0], language)
    async with raw_client(traced.silent_gateway.address) as client:
        await speak(client, language)
        assign = await node.take_job()
        assert int(assign.job.traceparent[-2:], 16) & 1 == 0
        await node.result(assign, TEXT)
        unseen = (await client.result(0)).job_id
    async with raw_client(traced.gateway.address) as client:
        await speak(client, language)
        assign = await node.take_job()
        await node.result(assign, TEXT)
        seen = (await client.result(0)).job_id
    # Whatever comes of the first would have come before this.
    await collected(traced, seen, "utterance", "dispatch", "EVALSHA complete")
    assert not traced.collector.trace(unseen).spans
    await node.cut()


async def test_no_span_has_audio_a_text_or_a_token_in_it(
    traced: Traced, client: RawClient, language: str
) -> None:
    node = await raw_node(traced.dispatchers[0], language)
    token = await speak(client, language)
    assign = await node.take_job()
    await node.fail(assign, detail=TEXT, worth_retry=False)
    assert (await client.missing(0)).message
    trace = await collected(traced, assign.attempt.job_id, "utterance", "dispatch")
    assert trace.one("utterance").failed
    sent = b"".join(traced.collector.raw)
    assert len(sent) > 1000
    for mark in (b"AudioMark", TEXT.encode(), token.encode()):
        assert mark not in sent
    await node.cut()
