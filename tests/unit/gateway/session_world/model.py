"""What the world of a session consists of: the client, gateways and jobs, as plain state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionCore
from lingua_scheduler.services.session_gateway.session.effects import TimerKey
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2

AB, BA = ("en", "zh"), ("zh", "en")
# Timers come at most this much late, and an index is never open for longer after its deadline.
LATE_MS = 60.0
# One byte a ms: audio is as long as it has bytes.
OPENED = session_pb2.NewSession(
    conversation=session_pb2.LanguageSet(a="en", b="zh"),
    audio_format=common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=500, channels=1
    ),
    tenant="t",
)
Message = Callable[["Life"], list[fx.Effect]]


@dataclass
class Life:
    """A session at one gateway, from its start to its end, and beyond."""

    core: SessionCore
    specs: JobSpecs
    epoch: int
    first: int
    # What the client has written and the gateway not read, and the other way round.
    wire: list[Message] = field(default_factory=list)
    down: list[session_pb2.ServerEvent] = field(default_factory=list)
    timers: dict[TimerKey, float] = field(default_factory=dict)
    gate_open: bool = True
    is_dead: bool = False
    is_over: bool = False
    # How each index was cut, since when it is known to be, and those that need no more.
    cuts: dict[int, session_record_pb2.Cut] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    # Those that an earlier gateway has given up.
    given_up: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)


@dataclass
class Job:
    """A job as the dispatcher knows it."""

    index: int
    job_id: str
    subscriber: Life | None
    # Its node keeps the audio for what comes next: drawn by its id, so that it is the same again.
    is_held: bool = False
    pair: tuple[str, str] = AB
    # Earlier utterances that its node has to hold, and those that came with it.
    needs: tuple[int, ...] = ()
    brings: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    # Whether it went to the node that holds what was said before.
    is_bound: bool = False
    # running, done, failed, cancelled, or given back for want of held audio.
    state: str = "running"
    accepted: bool = False
    forgotten: bool = False


def plain(cut: session_record_pb2.Cut) -> session_record_pb2.Cut:
    """A cut as it was written first."""
    first = session_record_pb2.Cut()
    first.CopyFrom(cut)
    for field_name in ("is_held", "held_audio_bytes", "is_missing", "kept_seq"):
        first.ClearField(field_name)
    return first


def seqs_of(cut: session_record_pb2.Cut | None) -> list[int]:
    """The chunks of a cut."""
    return (
        [] if cut is None else [seq for span in cut.chunks for seq in range(span.first, span.end)]
    )


def short(effect: fx.Effect | str) -> str:
    match effect:
        case fx.Send():
            return "send " + str(effect.message).replace("\n", " ")
        case fx.Record():
            cuts = [
                f"{cut.utterance_index}: {cut.direction.src} {cut.reason} {seqs_of(cut)}"
                for cut in effect.cuts
            ]
            return f"record {cuts} first {effect.first_index} acked {effect.acked_seq}"
        case fx.Submit():
            how = "attach" if effect.utterance.is_attached else "submit"
            return f"{how} {effect.utterance.index}"
    return str(effect)
