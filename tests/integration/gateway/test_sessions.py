"""Sessions on a real gateway, dispatcher, pool service and Redis; the tests play the nodes."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign, JobResult, NodeEvent
from tests.support.audio import speech
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_node import RawNode, whoever_gets_it
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

IS_FINAL = common_pb2.FINALIZE_REASON_IS_FINAL
TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
INTERRUPTED = common_pb2.FINALIZE_REASON_INTERRUPTED
MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION
MAX_LENGTH = common_pb2.FINALIZE_REASON_MAX_LENGTH
SESSION_CLOSE = common_pb2.FINALIZE_REASON_SESSION_CLOSE

# Long enough that a busy machine does not cause a pause between two chunks.
PAUSE_MS = 1500
MANUAL_MS = 300
AUTO_MS = 100
SHORT_MS = 100


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway with short durations that the tests of this file share."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        pause_ms=PAUSE_MS,
        max_duration_ms=1000,
        max_length_bytes=40_000,
        hangover_manual_ms=MANUAL_MS,
        hangover_auto_ms=AUTO_MS,
        padding_manual_ms=210,
        padding_auto_ms=160,
        short_merge_ms=SHORT_MS,
        short_wait_ms=2000,
    ) as process:
        yield process
        assert not process.faults(), process.log()


async def talker(scene: Scene, **fields: object) -> RawNode:
    """A node for both directions of a scene's conversation."""
    both = [scene.src, scene.tgt]
    capabilities = common_pb2.NodeCapabilities(asr_langs=both, semantic_langs=both, tts_langs=both)
    return await scene.node(capabilities=capabilities, **fields)  # type: ignore[arg-type]


def conversation(scene: Scene) -> session_pb2.NewSession:
    """A session in which every chunk names its direction."""
    languages = session_pb2.LanguageSet(a=scene.src, b=scene.tgt)
    new = new_session(scene.src, scene.tgt)
    new.conversation.CopyFrom(languages)
    return new


def there(scene: Scene) -> common_pb2.LanguagePair:
    return common_pb2.LanguagePair(src=scene.src, tgt=scene.tgt)


def back(scene: Scene) -> common_pb2.LanguagePair:
    return common_pb2.LanguagePair(src=scene.tgt, tgt=scene.src)


async def test_what_is_said_comes_back_translated(client: RawClient, patient: Scene) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    assert (opened.next_seq, opened.limits.max_duration_ms) == (0, 1000)
    assert opened.session_id
    assert len(opened.resume_token) >= 24
    assert opened.limits == session_pb2.SessionLimits(
        max_chunk_bytes=65536,
        pause_ms=PAUSE_MS,
        max_duration_ms=1000,
        max_length_bytes=40_000,
        result_deadline_ms=30_000,
        resume_within_ms=300_000,
        silence_ms=3000,
        max_chunks=32,
    )
    await client.send(speech(1), client_ms=123)
    await client.send(speech(2), final=True)
    assign = await node.expect_assign()
    job = assign.job
    assert job.audio == speech(1) + speech(2)
    assert (job.reason, job.padding_ms, job.utterance_index) == (IS_FINAL, 210, 0)
    # The node must not know whose job it is.
    assert (job.session_id, job.tenant) == (assign.attempt.job_id, "")
    assert (job.require_tts, job.audio_format.sample_rate_hz) == (True, 16000)
    await node.ack(assign)
    await client.acked(2)
    await node.result(assign, "hola", speech=b"\1\2")
    result = await client.result(0)
    assert (result.texts.translated, result.speech, result.node_id, result.attempts) == (
        *("hola", b"\1\2", node.node_id),
        1,
    )
    assert result.direction == there(patient)
    await client.say(results_seen=1, close=session_pb2.Close())
    closed = (await client.event("closed")).closed
    assert (closed.results, closed.missing) == (1, 0)
    assert (await client.status()).name == "OK"
    assert client.told() == [
        *("opened", "utterance", "utterance", "audio_ack", "result", "closed"),
    ]
    finalized, accepted = client.of("utterance")
    assert (finalized.finalized.reason, finalized.finalized.audio_ms) == (IS_FINAL, 200)
    assert (accepted.accepted.node_id, accepted.accepted.attempt) == (node.node_id, 1)
    # The node can drop a result that the client has seen.
    await node.expect_received(assign)


async def test_what_a_session_asks_for_is_in_its_jobs(client: RawClient, patient: Scene) -> None:
    nodes = [await patient.node("a"), await patient.node("b")]
    options = session_pb2.SessionOptions(
        preferred_node_id=nodes[1].node_id, strict=True, features={"voice": "low"}
    )
    await client.open(new_session(patient.src.upper(), patient.tgt, options=options))
    await client.send(final=True)
    job = (await nodes[1].take_job()).job
    assert (job.preferred_node_id, job.strict) == (nodes[1].node_id, True)
    assert (dict(job.features), job.require_tts) == ({"voice": "low"}, False)
    assert job.pair == there(patient)


async def test_partial_results_are_passed_on_if_they_were_asked_for(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    options = session_pb2.SessionOptions(require_tts=True, partial_interval_ms=20)
    await client.open(new_session(patient.src, patient.tgt, options=options))
    await client.send(final=True)
    assign = await node.take_job()
    assert assign.job.partial_interval_ms == 20
    await node.partial(assign, "ho")
    partial = (await client.event("partial")).partial
    assert (partial.utterance_index, partial.texts.source) == (0, "ho")
    assert partial.direction == there(patient)
    await node.result(assign, "hola")
    await client.result(0)
    assert client.told()[-1] == "result"


async def test_audio_that_a_node_holds_is_joined_to_what_comes_next(
    client: RawClient, patient: Scene
) -> None:
    nodes = [await patient.node("a"), await patient.node("b")]
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1), client_ms=1000)
    # Spoken after a pause, by the client's own clock.
    await client.send(speech(2), client_ms=1000 + 2 * PAUSE_MS, final=True)
    node, assign = await whoever_gets_it(nodes)
    assert (assign.job.audio, assign.job.reason) == (speech(1), TIMEOUT)
    assert assign.job.padding_ms == 160
    await node.ack(assign)
    await node.held(assign)
    held = await client.result(0)
    assert held.kind == JobResult.KIND_HELD
    rest = await node.take_job()
    assert (rest.job.audio, rest.job.reason) == (speech(2), IS_FINAL)
    told = JobResult(
        attempt=rest.attempt,
        kind=JobResult.KIND_TRANSLATED,
        texts=dispatcher_pb2.Texts(translated="all of it"),
        joined_utterances=[0],
    )
    await node.say(NodeEvent(job_result=told))
    result = await client.result(1)
    assert (result.texts.translated, list(result.joined_utterances)) == ("all of it", [0])


async def test_what_a_node_holds_at_the_end_of_a_session_is_asked_for(
    client: RawClient, patient: Scene
) -> None:
    nodes = [await patient.node("a"), await patient.node("b")]
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1))
    node, assign = await whoever_gets_it(nodes)
    assert assign.job.reason == TIMEOUT
    await node.ack(assign)
    await node.held(assign)
    assert (await client.result(0)).kind == JobResult.KIND_HELD

    await client.say(close=session_pb2.Close())
    # A flush without speech, on the node that holds the sentence.
    rest = await node.take_job()

    assert rest.job.reason == SESSION_CLOSE
    assert (rest.job.is_flush, rest.job.audio, rest.job.audio_ms) == (True, b"", 0)
    await node.result(rest, "all of it")
    assert (await client.result(1)).texts.translated == "all of it"
    closed = (await client.event("closed")).closed
    assert (closed.results, closed.missing) == (2, 0)


async def test_a_node_that_has_forgotten_what_it_held_is_asked_again_with_all_of_the_audio(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1))
    first = await node.take_job()
    await node.ack(first)
    await node.held(first)
    await client.result(0)

    await client.send(speech(2), final=True)
    second = await node.take_job()
    assert (list(second.job.held_utterances), second.job.audio) == ([0], speech(2))
    assert not second.begins_turn
    # It does not know held_utterances, and was restarted meanwhile.
    await node.result(second, "half of it", joins=False)
    whole = await node.take_job()

    assert list(whole.job.included_utterances) == [0]
    assert whole.job.audio == speech(1) + speech(2)
    assert whole.begins_turn
    assert not whole.job.held_utterances
    assert whole.attempt.attempt == 2
    await node.result(whole, "all of it")
    result = await client.result(1)
    assert result.texts.translated == "all of it"
    assert list(result.joined_utterances) == [0]
    assert not result.lost_utterances


async def test_that_nothing_was_said_is_a_result(client: RawClient, patient: Scene) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(final=True)
    assign = await node.take_job()
    await node.result(assign, "", kind=JobResult.KIND_NO_SPEECH)
    assert (await client.result(0)).kind == JobResult.KIND_NO_SPEECH


async def test_results_that_come_in_reverse_order_are_delivered_in_order(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node(slots=3)
    options = session_pb2.SessionOptions(require_tts=True, partial_interval_ms=100)
    await client.open(new_session(patient.src, patient.tgt, options=options))
    for mark in range(3):
        await client.send(speech(mark), final=True)
        await client.utterance(mark, "finalized")
    assigns: dict[int, JobAssign] = {}
    for _ in range(3):
        assign = await node.take_job()
        assigns[assign.job.utterance_index] = assign
    for mark in (2, 1):
        assert assigns[mark].job.audio == speech(mark)
        await node.result(assigns[mark], f"r{mark}")
    # The gateway has both when it has this one: they came earlier on the same streams.
    await node.partial(assigns[0], "so far")
    await client.event("partial")
    assert client.outcomes() == []
    await node.result(assigns[0], "r0")
    await client.result(2)
    assert client.outcomes() == [(0, "r0"), (1, "r1"), (2, "r2")]


async def test_a_result_tells_where_the_time_went(client: RawClient, patient: Scene) -> None:
    node = await patient.node()
    began = time.monotonic()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1, 400), final=True)
    assign = await node.expect_assign()
    await asyncio.sleep(0.2)  # the time that the node takes
    await node.ack(assign)
    await client.utterance(0, "accepted")
    await asyncio.sleep(0.3)
    stage = dispatcher_pb2.StageTiming(stage=common_pb2.STAGE_KIND_ASR, took_ms=5)
    told = JobResult(attempt=assign.attempt, kind=JobResult.KIND_TRANSLATED, timings=[stage])
    await node.say(NodeEvent(job_result=told))
    timings = (await client.result(0)).timings
    took = (time.monotonic() - began) * 1000
    assert timings.audio_ms == 400
    assert timings.hangover_ms >= MANUAL_MS
    assert timings.dispatch_ms >= 200
    assert timings.node_ms >= 300
    parts = timings.hangover_ms + timings.dispatch_ms + timings.node_ms + timings.deliver_ms
    assert parts <= took + 4  # each is rounded
    assert list(timings.stages) == [stage]


# ---- cuts ----


async def test_long_speech_is_cut_and_its_rest_goes_to_the_node_that_has_the_beginning(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    nodes = [await patient.node("a"), await patient.node("b")]
    cut_before = await gateway.metric("lingua_gateway_finalized_total", reason="max_duration")
    await client.open(new_session(patient.src, patient.tgt))
    marks = [speech(mark) for mark in range(15)]
    for mark in marks[:-1]:
        await client.send(mark)
    await client.send(marks[-1], final=True)
    node, first = await whoever_gets_it(nodes)
    # A chunk that is as long as the hangover still joins.
    assert (first.job.audio, first.job.reason) == (b"".join(marks[:11]), MAX_DURATION)
    await client.utterance(1, "finalized")
    await node.ack(first)
    await client.acked(11)
    assert await node.settled() == []  # the rest waits: the node may not have its beginning yet
    await node.held(first)
    rest = await node.take_job()
    assert (rest.job.audio, rest.job.reason) == (b"".join(marks[11:]), IS_FINAL)
    await client.acked(15)
    assert (
        await gateway.metric("lingua_gateway_finalized_total", reason="max_duration")
        == cut_before + 1
    )


async def test_speech_of_too_many_bytes_is_cut(client: RawClient, patient: Scene) -> None:
    node = await patient.node()
    audio_format = common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=48000, channels=2
    )
    await client.open(new_session(patient.src, patient.tgt, audio_format=audio_format))
    chunk = 30_000
    await client.send(b"\1" * chunk)
    await client.send(b"\2" * chunk, final=True)
    first = await node.take_job()
    assert (first.job.audio, first.job.reason) == (b"\1" * chunk, MAX_LENGTH)
    assert first.job.audio_format == audio_format
    await node.result(first)
    rest = await node.take_job()
    assert (rest.job.audio, rest.job.reason) == (b"\2" * chunk, IS_FINAL)


async def test_a_pause_ends_an_utterance(client: RawClient, patient: Scene) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1))
    await client.send(speech(2))
    assign = await node.take_job()
    assert (assign.job.audio, assign.job.reason) == (speech(1) + speech(2), TIMEOUT)
    finalized = (await client.utterance(0, "finalized")).finalized
    assert (finalized.reason, finalized.audio_ms) == (TIMEOUT, 200)


async def test_who_answers_ends_what_the_other_said(client: RawClient, patient: Scene) -> None:
    node = await talker(patient, slots=2)
    await client.open(conversation(patient))
    await client.send(speech(1), direction=there(patient))
    await client.send(speech(2), direction=there(patient))
    await client.send(speech(3), direction=back(patient), final=True)
    jobs = {each.job.utterance_index: each for each in [await node.take_job() for _ in range(2)]}
    assert [(jobs[at].job.audio, jobs[at].job.reason) for at in (0, 1)] == [
        (speech(1) + speech(2), INTERRUPTED),
        (speech(3), IS_FINAL),
    ]
    assert [jobs[at].job.pair for at in (0, 1)] == [there(patient), back(patient)]
    await node.result(jobs[1], "dos")
    await node.result(jobs[0], "uno")
    assert (await client.result(1)).direction == back(patient)
    assert (await client.result(0)).direction == there(patient)
    assert client.outcomes() == [(0, "uno"), (1, "dos")]


async def test_a_late_chunk_joins_the_utterance_that_has_just_ended(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1), final=True)
    await client.send(speech(2))
    assign = await node.take_job()
    assert (assign.job.audio, assign.job.reason) == (speech(1) + speech(2), IS_FINAL)
    await client.acked(2)


async def test_more_than_the_hangover_begins_the_next_utterance(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node(slots=2)
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1), final=True)
    for mark in (2, 3, 4, 5):
        await client.send(speech(mark))
    await client.send(b"", final=True)
    jobs = [(await node.take_job()).job for _ in range(2)]
    assert {each.utterance_index: each.audio for each in jobs} == {
        0: b"".join(map(speech, (1, 2, 3, 4))),
        1: speech(5),
    }


async def test_an_end_that_is_said_twice_makes_one_utterance(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    node = await patient.node()
    before = await gateway.metric("lingua_gateway_duplicate_finalizes_total")
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1), final=True)
    await client.send(b"", final=True)
    assign = await node.take_job()
    assert assign.job.audio == speech(1)
    await client.say(close=session_pb2.Close())
    await node.result(assign)
    assert (await client.event("closed")).closed.results == 1
    assert await gateway.metric("lingua_gateway_duplicate_finalizes_total") == before + 1


async def test_an_end_without_speech_uses_no_index(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    node = await patient.node()
    before = await gateway.metric("lingua_gateway_empty_finalizes_total")
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(b"", final=True)
    await client.acked(1)  # there was nothing to translate
    await client.send(speech(1), final=True)
    assign = await node.take_job()
    assert (assign.job.utterance_index, assign.job.audio) == (0, speech(1))
    assert await gateway.metric("lingua_gateway_empty_finalizes_total") == before + 1


async def test_a_short_fragment_waits_for_what_follows(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    node = await patient.node()
    before = await gateway.metric("lingua_gateway_fragments_total")
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1, SHORT_MS // 2))
    await gateway.reaches(before + 1, "lingua_gateway_fragments_total")
    await client.send(speech(2), final=True)
    assign = await node.take_job()
    assert assign.job.audio == speech(1, SHORT_MS // 2) + speech(2)
    assert (assign.job.utterance_index, assign.job.reason) == (0, IS_FINAL)


async def test_a_short_fragment_that_nothing_follows_is_sent_alone(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1, SHORT_MS // 2))
    assign = await node.take_job()
    assert (assign.job.audio, assign.job.reason) == (speech(1, SHORT_MS // 2), TIMEOUT)
    await client.acked(1)


async def test_while_the_app_plays_speech_no_pause_ends_an_utterance(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    node = await patient.node(slots=2)
    await client.open(new_session(patient.src, patient.tgt))
    await client.say(playback_started=session_pb2.PlaybackStarted())
    await client.send(speech(1))
    async with raw_client(gateway.address) as other:
        await other.open(new_session(patient.src, patient.tgt))
        await other.send(speech(2))
        assert (await node.take_job()).job.audio == speech(2)
    # A session that started later has had its pause by now, and this one continues.
    await client.send(speech(3))
    await client.say(playback_ended=session_pb2.PlaybackEnded())
    assign = await node.take_job()
    assert (assign.job.audio, assign.job.reason) == (speech(1) + speech(3), TIMEOUT)


# ---- the end ----


async def test_close_sends_what_is_there_and_delivers_everything_first(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node(slots=2)
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1), final=True)
    first = await node.take_job()
    await client.send(speech(2))
    await client.say(close=session_pb2.Close())
    second = await node.take_job()
    assert (second.job.audio, second.job.reason) == (speech(2), SESSION_CLOSE)
    await node.result(second, "dos")
    assert await node.settled() == []
    assert "closed" not in client.told()
    await node.result(first, "uno")
    closed = (await client.event("closed")).closed
    assert (closed.results, closed.missing) == (2, 0)
    assert client.outcomes() == [(0, "uno"), (1, "dos")]
    assert client.told()[-1] == "closed"
    await client.say(results_seen=2)
    assert (await client.status()).name == "OK"


async def test_who_says_nothing_more_but_listens_gets_everything(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1))
    await client.half_close()
    assign = await node.take_job()
    assert (assign.job.audio, assign.job.reason) == (speech(1), SESSION_CLOSE)
    await node.result(assign, "uno")
    assert (await client.event("closed")).closed.results == 1
    assert (await client.status()).name == "OK"
    assert client.outcomes() == [(0, "uno")]


async def test_a_session_without_a_word_is_closed_at_once(client: RawClient) -> None:
    await client.open(new_session("en", "es"))
    await client.say(close=session_pb2.Close())
    assert (await client.event("closed")).closed == session_pb2.Closed()
    assert (await client.status()).name == "OK"


async def test_results_of_a_client_that_never_says_what_it_saw_are_kept_for_it(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    for mark in range(3):
        await client.send(speech(mark), final=True)
        assign = await node.take_job()
        await node.result(assign, f"r{mark}")
        await client.result(mark)
    await client.say(close=session_pb2.Close())
    assert (await client.event("closed")).closed.results == 3
    assert (await client.status()).name == "OK"
    async with raw_client(gateway.address) as again:
        await again.resume(opened, next_seq=3)
        await again.result(2)
        assert again.outcomes() == [(0, "r0"), (1, "r1"), (2, "r2")]
        await again.say(results_seen=3, close=session_pb2.Close())
        assert (await again.event("closed")).closed.results == 3
        assert (await again.status()).name == "OK"
