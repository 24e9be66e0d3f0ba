"""One trace for each utterance, over real processes."""

import asyncio
import time
from itertools import pairwise

from tests.e2e.tracing import (
    AUDIO,
    TEXT,
    Traced,
    collected,
    raw_node,
    speak,
    traced_node,
)
from tests.support.process import START_S
from tests.support.raw_client import RawClient, new_session, raw_client


async def test_an_utterance_is_one_trace_from_its_first_chunk_to_its_delivery(
    traced: Traced, traced_client: RawClient
) -> None:
    home = traced.dispatchers[0]
    with traced_node(traced):
        opened = await traced_client.open(new_session("en"))
        deadline = time.monotonic() + START_S
        while not await home.metric("lingua_dispatcher_nodes"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await traced_client.send(AUDIO)
        await traced_client.send(AUDIO, final=True)
        result = await traced_client.result(0)
        await traced_client.say(results_seen=1)
        job_id = result.job_id
        await collected(traced, job_id, "EVALSHA complete", "my model", "utterance", "dispatch")
        await traced_client.say(close={})
        await traced_client.status()
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


async def test_a_resumed_session_goes_on_in_the_same_trace(
    traced: Traced, traced_client: RawClient, language: str
) -> None:
    node = await raw_node(traced.dispatchers[0], language)
    opened = await traced_client.open(new_session(language))
    await traced_client.send(AUDIO, final=True)
    assign = await node.take_job()
    await traced_client.utterance(0, "accepted")
    await traced_client.close()
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
    traced: Traced, traced_client: RawClient, language: str
) -> None:
    node = await raw_node(traced.dispatchers[0], language)
    token = await speak(traced_client, language)
    assign = await node.take_job()
    await node.fail(assign, detail=TEXT, worth_retry=False)
    assert (await traced_client.missing(0)).message
    trace = await collected(traced, assign.attempt.job_id, "utterance", "dispatch")
    assert trace.one("utterance").failed
    sent = b"".join(traced.collector.raw)
    assert len(sent) > 1000
    for mark in (b"AudioMark", TEXT.encode(), token.encode()):
        assert mark not in sent
    await node.cut()
