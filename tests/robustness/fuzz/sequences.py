"""Messages that are each well made, and make no sense in the order in which they come."""

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, session_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent, Submission
from tests.robustness.fuzz.rooms import listener_messages
from tests.support.audio import FORMAT

HUGE = 2**63
REF = common_pb2.AttemptRef(job_id="no-such-job", attempt=3)
PAIR = common_pb2.LanguagePair(src="qfx", tgt="qfy")
RESULT = dispatcher_pb2.JobResult(attempt=REF, kind=dispatcher_pb2.JobResult.KIND_TRANSLATED)
SPEC = dispatcher_pb2.JobSpec(
    tenant="t",
    session_id="s",
    utterance_index=1,
    pair=PAIR,
    audio=b"\1\0" * 1600,
    audio_format=FORMAT,
    reason=common_pb2.FINALIZE_REASON_IS_FINAL,
    deadline_ms=300,
)
NEW = session_pb2.NewSession(direction=PAIR, audio_format=FORMAT, tenant="t")


def _client(**fields: object) -> bytes:
    return session_pb2.ClientMessage(**fields).SerializeToString()  # type: ignore[arg-type]


def _chunk(seq: int, data: bytes = b"\1\0" * 800, **more: object) -> bytes:
    made = session_pb2.AudioChunk(seq=seq, data=data, **more)  # type: ignore[arg-type]
    return _client(audio=made)


def _node(**event: object) -> bytes:
    made = NodeEvent(**event)  # type: ignore[arg-type]
    return dispatcher_pb2.NodeMessage(events=[made]).SerializeToString()


def _submit(**one: object) -> bytes:
    made = Submission(**one)  # type: ignore[arg-type]
    return dispatcher_pb2.SubmitRequest(submissions=[made]).SerializeToString()


def _order(**order: object) -> bytes:
    made = dispatcher_pb2.RelayOrder(
        home_instance="nobody",
        node_id="no-such-node",
        node_epoch=HUGE,
        **order,  # type: ignore[arg-type]
    )
    return dispatcher_pb2.RelayRequest(orders=[made]).SerializeToString()


def _operate(number: int, **operation: object) -> bytes:
    made = pool_pb2.Operation(id=number, **operation)  # type: ignore[arg-type]
    return pool_pb2.OperateRequest(operations=[made]).SerializeToString()


def _hello(slots: int, running: int = 0) -> bytes:
    langs = ["qfx", "qfy"]
    hello = dispatcher_pb2.Hello(
        node_id="fuzzed-node",
        incarnation="i",
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=langs, semantic_langs=langs, tts_langs=langs
        ),
        max_concurrent_jobs=slots,
        running=[REF] * running,
    )
    return _node(hello=hello)


_RESUME = session_pb2.ResumeSession(session_id="no-such-session", resume_token="x", next_seq=HUGE)
_BEAT = dispatcher_pb2.Heartbeat(seq=HUGE, running=[REF] * 50)
_COMMIT = pool_pb2.CommitRequest(attempt=REF, node_id="no-such-node")

# By the method's name.
SEQUENCES: dict[str, list[bytes]] = {
    "Converse": [
        _client(open=session_pb2.Open(new=NEW)),
        _client(open=session_pb2.Open(resume=_RESUME)),
        _client(open=session_pb2.Open()),
        _client(results_seen=2**32 - 1),
        _client(playback_started=session_pb2.PlaybackStarted()),
        _client(playback_ended=session_pb2.PlaybackEnded()),
        _client(close=session_pb2.Close()),
        _chunk(0),
        _chunk(1, is_final=True),
        _chunk(1),
        _chunk(HUGE),
        _chunk(2, b""),
        _chunk(2, b"\1"),
        _chunk(2, bytes(100_000)),
        _chunk(0, direction=common_pb2.LanguagePair(src="q", tgt="q")),
        b"",
    ],
    "Listen": [*listener_messages(), b""],
    "Connect": [
        _hello(2),
        _hello(1, running=30),
        _hello(2**32 - 1),
        _node(heartbeat=_BEAT),
        _node(job_ack=dispatcher_pb2.JobAck(attempt=REF)),
        _node(job_reject=dispatcher_pb2.JobReject(attempt=REF)),
        _node(job_partial=dispatcher_pb2.JobPartial(attempt=REF, seq=2**32 - 1)),
        _node(job_result=RESULT),
        _node(job_result=dispatcher_pb2.JobResult()),
        _node(job_failed=dispatcher_pb2.JobFailed(attempt=REF, cause="x" * 1000)),
        _node(audio_held=dispatcher_pb2.AudioHeld(attempt=REF, session_id="s", pair=PAIR)),
        _node(bye=dispatcher_pb2.Bye(detail="x" * 5000)),
        b"",
    ],
    "Submit": [
        _submit(job=SPEC),
        _submit(job=dispatcher_pb2.JobSpec()),
        _submit(job=dispatcher_pb2.JobSpec(session_id="s", pair=PAIR, deadline_ms=2**32 - 1)),
        _submit(attach=dispatcher_pb2.AttachJob(job_id="no-such-job", session_epoch=HUGE)),
        _submit(attach=dispatcher_pb2.AttachJob()),
        _submit(cancel=dispatcher_pb2.CancelJobRequest(job_id="no-such-job")),
        _submit(taken=dispatcher_pb2.ResultTaken(job_id="no-such-job", delivered_after_us=HUGE)),
        _submit(leave=dispatcher_pb2.LeaveJob(job_id="no-such-job")),
        _submit(),
        b"",
    ],
    "Relay": [
        _order(assign=dispatcher_pb2.JobAssign(attempt=REF, job=SPEC)),
        _order(assign=dispatcher_pb2.JobAssign()),
        _order(cancel=dispatcher_pb2.JobCancel(attempt=REF)),
        _order(result_received=dispatcher_pb2.ResultReceived(attempt=REF)),
        _order(),
        b"",
    ],
    "WatchFleet": [
        pool_pb2.WatchFleetRequest().SerializeToString(),
        # A field of a newer version, and no message at all.
        b"\x08\x01",
        b"\xff" * 100,
    ],
    "Operate": [
        _operate(1, allocate=pool_pb2.AllocateRequest(job_id="fuzzed-job", attempt=1)),
        _operate(1, commit=_COMMIT),
        _operate(2**64 - 1, commit=_COMMIT),
        _operate(2, release=pool_pb2.ReleaseRequest(attempt=REF, node_id="no-such-node")),
        _operate(3, complete=pool_pb2.CompleteRequest(attempt=REF, steps=b"\xff" * 100)),
        _operate(4, heartbeat=pool_pb2.HeartbeatRequest(beats=[pool_pb2.NodeBeat()] * 100)),
        _operate(5, bind_session=pool_pb2.BindSessionRequest(session_id="s", pair=PAIR)),
        _operate(6),
        b"",
    ],
}
