"""The steps of a job in its trace, and the same in the terminal, where no trace is needed."""

import asyncio
import json
import time
import uuid

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent
from tests.e2e.tracing import (
    AUDIO,
    TEXT,
    Traced,
    collected,
    raw_node,
    shown,
    speak,
    steps_in,
)
from tests.support.process import START_S
from tests.support.raw_client import RawClient
from tests.support.raw_node import whoever_gets_it


async def test_a_retry_is_a_sibling_in_the_trace_and_in_the_terminal(
    traced: Traced, traced_client: RawClient, language: str
) -> None:
    home, other = traced.dispatchers
    nodes = [await raw_node(home, language, name) for name in "ab"]
    await speak(traced_client, language)
    first, assign = await whoever_gets_it(nodes)
    await first.reject(assign, detail=TEXT)
    second, again = await whoever_gets_it([node for node in nodes if node is not first])
    await second.ack(again)
    await second.result(again, TEXT)
    job_id = (await traced_client.result(0)).job_id

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
    traced: Traced, traced_client: RawClient, language: str
) -> None:
    home, owner = traced.dispatchers
    node = await raw_node(owner, language)
    await speak(traced_client, language)
    assign = await node.take_job()
    job_id = assign.attempt.job_id
    await traced_client.utterance(0, "accepted")

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
    await traced_client.result(0)

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
    traced: Traced, traced_client: RawClient, language: str
) -> None:
    home, other = traced.dispatchers
    nodes = [await raw_node(home, language, name) for name in "ab"]
    await speak(traced_client, language)
    slow, first = await whoever_gets_it(nodes)
    await slow.ack(first)
    await traced_client.send(AUDIO, final=True)
    (quick,) = [node for node in nodes if node is not slow]
    second = await quick.take_job()
    await quick.result(second, TEXT)
    await asyncio.sleep(0.05)
    await slow.result(first, TEXT)
    job_id = (await traced_client.result(1)).job_id
    await traced_client.say(results_seen=2)

    trace = await collected(traced, job_id, "utterance")
    deliver = trace.one("deliver").told
    assert deliver.end_time_unix_nano - deliver.start_time_unix_nano > 5_000_000
    deadline = time.monotonic() + START_S
    while "deliver" not in dict(steps_in(await asyncio.to_thread(shown, other, job_id))):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    for node in nodes:
        await node.cut()


async def test_a_wait_for_room_is_part_of_the_trace(
    traced: Traced, traced_client: RawClient, language: str
) -> None:
    home, _ = traced.dispatchers
    node = await raw_node(home, language)
    await speak(traced_client, language)
    busy = await node.take_job()
    await traced_client.send(AUDIO, final=True)
    await traced_client.utterance(1, "finalized")
    await home.reaches(1, "lingua_dispatcher_waiting_jobs")
    await node.result(busy, TEXT)
    later = await node.take_job()
    await node.result(later, TEXT)
    job_id = (await traced_client.result(1)).job_id
    trace = await collected(traced, job_id, "utterance", "queue")
    queue = trace.one("queue")
    parent = trace.parent(queue)
    assert parent is not None
    assert parent.name == "dispatch"
    told = steps_in(await asyncio.to_thread(shown, home, job_id))
    labels = [label for label, _ in told]
    assert labels.index("  queue") < labels.index("  send")
    await node.cut()
