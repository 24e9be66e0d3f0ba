"""Small parts of nodes: arguments, formats, backoff, unconfirmed results, addresses, handlers."""

import functools
import pickle
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from lingua_scheduler.sdk import (
    AudioFormat,
    Encoding,
    Health,
    Job,
    JobError,
    Node,
    Pair,
    Partial,
    Reason,
    Stage,
    Timing,
    Translated,
    results,
)
from lingua_scheduler.sdk._transport.backoff import FIRST_S, LONGEST_S, Backoff
from lingua_scheduler.sdk._transport.channels import parse_addresses
from lingua_scheduler.sdk.node.handlers import Kind, check_picklable, checked, kind_of
from lingua_scheduler.sdk.node.job import job_from
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.node.protocol.wire import failed_event
from lingua_scheduler.services.runtime.contract.limits import limit_of
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign, JobSpec, NodeEvent

GOOD: dict[str, Any] = {"node_id": "gpu-1", "asr": ["en"], "semantic": ["en"]}


@pytest.mark.parametrize(
    ("pair", "is_captions"),
    [(("en", "en"), True), (("pt-BR", "pt-br"), True), (("pt", "pt-BR"), False)],
)
def test_a_job_is_captions_if_both_languages_are_the_same(
    pair: tuple[str, str], is_captions: bool
) -> None:
    assert Job(job_id="j", pair=Pair(*pair)).is_captions is is_captions


# ---- arguments ----


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"node_id": ""}, "node_id: '' must be 1 to 128 characters"),
        ({"node_id": "a b"}, "node_id: 'a b' must be"),
        ({"node_id": "x" * 129}, "node_id: "),
        ({"asr": []}, "asr: must name at least one language"),
        ({"asr": "en"}, "asr: 'en' must be a list"),
        ({"semantic": ["english!"]}, r"semantic\[0\]: 'english!' must be a language code"),
        ({"tts": ["en", "e"]}, r"tts\[1\]: 'e' must be a language code"),
        ({"asr": ["en"] * 257}, "asr: has 257 languages; at most 256"),
        ({"nmt": ["en"]}, r"nmt\[0\]: 'en' must be a pair"),
        ({"nmt": [("en", "z")]}, r"nmt\[0\].tgt: 'z' must be"),
        ({"slots": 0}, "slots: 0 must be a whole number from 1 to 1000"),
        ({"slots": 1001}, "slots: 1001 must be"),
        ({"slots": True}, "slots: True must be"),
        ({"workers": "fibers"}, "workers: 'fibers' must be 'threads' or 'processes'"),
        ({"drain_seconds": -1}, "drain_seconds: -1 must be 0 or more"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Node(**{**GOOD, **wrong})


def test_every_node_has_an_incarnation_of_its_own() -> None:
    assert Node(**GOOD)._hello.incarnation != Node(**GOOD)._hello.incarnation


def test_health_is_ready_or_degraded() -> None:
    node = Node(**GOOD)
    node.health = Health.DEGRADED
    assert node.health is Health.DEGRADED
    with pytest.raises(ValueError, match="3 is not a valid Health"):
        node.health = 3  # type: ignore[assignment]


async def test_a_node_without_a_handler_is_not_served() -> None:
    with pytest.raises(TypeError, match=r"^handler: is missing"):
        await Node(**GOOD).serve("127.0.0.1:1")


@pytest.mark.parametrize("addresses", ["a:1,b:2", ["a:1", "b:2"], " a:1 , b:2 ", ["a:1,b:2"]])
def test_addresses_may_be_a_list_or_have_commas(addresses: str | list[str]) -> None:
    assert parse_addresses(addresses) == ["a:1", "b:2"]


@pytest.mark.parametrize("address", ["dns:///d.example:7720", "[::1]:7720", "unix:/tmp/x.sock"])
def test_addresses_may_be_names_ipv6_or_sockets(address: str) -> None:
    assert parse_addresses(address) == [address]


@pytest.mark.parametrize("address", ["", ",", "host", "host:0", "host:70000", "http://host:1"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"^addresses: "):
        parse_addresses(address)


# ---- jobs and results ----


def test_a_job_is_what_its_assignment_says() -> None:
    spec = JobSpec(
        session_id="s",
        utterance_index=3,
        pair=common_pb2.LanguagePair(src="en", tgt="zh"),
        audio=b"\x01\x00",
        audio_format=common_pb2.AudioFormat(encoding=1, sample_rate_hz=8000, channels=2),
        reason=common_pb2.FINALIZE_REASON_TIMEOUT,
        features={"voice": "low"},
        partial_interval_ms=250,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    attempt = common_pb2.AttemptRef(job_id="j", attempt=2)
    job = job_from(JobAssign(attempt=attempt, job=spec, time_left_ms=60_000))
    assert (job.job_id, job.attempt, job.session_id, job.utterance_index) == ("j", 2, "s", 3)
    assert (job.pair, job.reason) == (Pair("en", "zh"), Reason.TIMEOUT)
    assert job.audio_format == AudioFormat(Encoding.PCM_S16LE, 8000, 2)
    assert (job.features, job.partial_interval) == ({"voice": "low"}, 0.25)
    assert 50 < job.time_left() <= 60
    assert job.span_context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C


def test_reasons_and_stages_of_a_newer_dispatcher_do_no_harm() -> None:
    spec = JobSpec(pair=common_pb2.LanguagePair(src="en", tgt="zh"))
    spec.MergeFromString(JobSpec(reason=99, required_stages=[77, 1]).SerializeToString())  # type: ignore[arg-type, list-item]
    job = job_from(JobAssign(attempt=common_pb2.AttemptRef(job_id="j", attempt=1), job=spec))
    assert (job.reason, len(job.required_stages)) == (Reason.UNSPECIFIED, 1)


def test_a_job_without_a_limit_has_all_the_time_and_no_span() -> None:
    job = Job(job_id="j", pair=Pair("en", "zh"))
    assert job.time_left() == float("inf")
    assert not job.span_context.is_valid


def test_the_cancel_flag_of_a_job_is_the_one_it_was_given() -> None:
    job = Job(job_id="j", pair=Pair("en", "zh"))
    again = Job(job_id="j", pair=Pair("en", "zh"), cancelled=job.cancelled)
    assert not again.cancelled
    job.cancelled.set()
    assert again.cancelled
    assert again.cancelled.wait(0)


def test_speech_needs_a_format_and_has_a_limit() -> None:
    with pytest.raises(ValueError, match=r"^speech_format: "):
        Translated(speech=b"12")
    with pytest.raises(ValueError, match=r"^speech: 3145729 bytes; at most 3145728"):
        Translated(speech=bytes(3 * 1024 * 1024 + 1), speech_format=AudioFormat())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": "x" * 65_537}, "source: 65537 bytes in UTF-8; at most 65536"),
        ({"repaired": "字" * 21_846}, "repaired: 65538 bytes in UTF-8; at most 65536"),
        ({"joined": range(1001)}, "joined: 1001 entries; at most 1000"),
        ({"timings": [Timing(stage=Stage.ASR, started_ms=0, took_ms=1)] * 33}, "timings: 33"),
    ],
)
def test_a_result_beyond_the_limits_of_the_contract_is_refused_where_it_is_made(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=f"^{told}"):
        Translated(**fields)
    if "source" in fields:
        with pytest.raises(ValueError, match=f"^{told}"):
            Partial(**fields)
    assert Translated(source="字" * 21_845, joined=range(1000)).joined


def test_the_limits_of_results_are_those_of_the_contract() -> None:
    result = dispatcher_pb2.JobResult.DESCRIPTOR.fields_by_name
    texts = dispatcher_pb2.Texts.DESCRIPTOR.fields_by_name
    assert limit_of(result["speech"]).max_bytes == results.MAX_SPEECH_BYTES
    assert limit_of(result["joined_utterances"]).max_items == results.MAX_JOINED
    assert limit_of(result["timings"]).max_items == results.MAX_TIMINGS
    assert {limit_of(field).max_bytes for field in texts.values()} == {results.MAX_TEXT_BYTES}


def test_only_pcm_has_a_duration_by_its_size() -> None:
    assert AudioFormat().duration_ms(32_000) == 1000
    with pytest.raises(ValueError, match="the size gives the duration of PCM only"):
        AudioFormat(Encoding.OPUS).duration_ms(1)


@pytest.mark.parametrize("cause", ["", "lower", "A B", "X" * 65])
def test_a_cause_is_a_name_for_tools(cause: str) -> None:
    with pytest.raises(ValueError, match=r"^cause: "):
        JobError(cause)


def test_a_job_error_comes_back_whole_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(JobError("BAD_AUDIO", "odd", worth_retry=False)))
    assert (error.cause, error.detail, error.worth_retry) == ("BAD_AUDIO", "odd", False)


# ---- handlers ----


async def generator(job: Job) -> AsyncIterator[Translated]:
    yield Translated()


async def coroutine(job: Job) -> Translated:
    return Translated()


def blocking(job: Job) -> Iterator[Translated]:
    yield Translated()


class Callable:
    async def __call__(self, job: Job) -> Translated:
        return Translated()


def two(job: Job, more: int) -> None:
    pass


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (generator, Kind.ASYNC_GENERATOR),
        (coroutine, Kind.COROUTINE),
        (blocking, Kind.BLOCKING),
        (Callable(), Kind.COROUTINE),
        (functools.partial(generator), Kind.ASYNC_GENERATOR),
        (functools.partial(two, more=1), Kind.BLOCKING),
    ],
)
def test_a_handler_runs_as_what_it_is(handler: Any, kind: Kind) -> None:
    assert kind_of(handler) is kind


@pytest.mark.parametrize("handler", [None, two, lambda: None])
def test_a_handler_takes_one_job(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"^handler: "):
        kind_of(handler)


def test_async_handlers_do_not_run_in_processes() -> None:
    with pytest.raises(TypeError, match="not in processes"):
        Node(**GOOD, workers="processes").handler(generator)


def test_a_handler_that_another_process_could_not_find_is_refused() -> None:
    check_picklable(blocking)
    with pytest.raises(TypeError, match="at the top level of a module"):
        check_picklable(lambda job: None)


def test_a_handler_that_gives_something_else_is_told_what_it_may_give() -> None:
    with pytest.raises(TypeError, match="Partial, Translated, Held or NoSpeech, not str"):
        checked("hello")


# ---- backoff ----


def test_waits_grow_to_their_limit_and_start_small_after_a_reset() -> None:
    class Highest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    backoff = Backoff(Highest())
    waits = [backoff.next() for _ in range(8)]
    assert waits[:3] == pytest.approx([FIRST_S, 2 * FIRST_S, 4 * FIRST_S])
    assert waits[-1] == LONGEST_S
    backoff.reset()
    assert backoff.next() == FIRST_S


def test_waits_are_spread_from_nothing_to_the_limit() -> None:
    waits = []
    for seed in range(500):
        backoff = Backoff(random.Random(seed), first=1.0)
        waits.append(backoff.next())
    assert min(waits) < 0.05
    assert max(waits) > 0.95


# ---- kept results ----


def event(job_id: str, size: int = 10) -> NodeEvent:
    made = failed_event((job_id, 1), "X", "", worth_retry=True)
    made.job_failed.detail = "x" * size
    return made


def test_kept_results_are_bounded_in_number_and_the_oldest_go() -> None:
    kept = UnconfirmedResults(max_results=2)
    assert [kept.add((job, 1), [event(job)]) for job in "abc"] == [[], [], [("a", 1)]]
    assert list(kept) == [("b", 1), ("c", 1)]


def test_kept_results_are_bounded_in_bytes_but_the_newest_stays() -> None:
    kept = UnconfirmedResults(max_bytes=1000)
    kept.add(("a", 1), [event("a", 600)])
    assert kept.add(("b", 1), [event("b", 600)]) == [("a", 1)]
    assert kept.add(("c", 1), [event("c", 2000)]) == [("b", 1)]
    assert len(kept) == 1
    kept.forget(("c", 1))
    assert kept.size == 0


def test_a_sent_result_stays_until_it_is_confirmed_and_a_new_stream_sends_all() -> None:
    kept = UnconfirmedResults()
    kept.add(("a", 1), [event("a")])
    kept.add(("b", 1), [event("b")])
    kept.sent(("a", 1))
    assert list(kept.unsent()) == [("b", 1)]
    kept.send_all_again()
    assert list(kept.unsent()) == [("a", 1), ("b", 1)]
    assert kept.forget(("a", 1))
    assert not kept.forget(("a", 1))
    assert list(kept.unsent()) == [("b", 1)]
