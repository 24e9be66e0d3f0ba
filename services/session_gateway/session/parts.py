"""The parts of a core that differ if a session is in a room: what becomes of its utterances."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import dataclass, replace

from lingua_scheduler.services.session_gateway.session.delivery import Delivery
from lingua_scheduler.services.session_gateway.session.effects import EffectBuffer
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.jobs import SessionJobs
from lingua_scheduler.services.session_gateway.session.recording import Recording
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.lane import Speaker
from lingua_scheduler.services.session_gateway.session.speaking.lane_clocks import LaneClocks
from lingua_scheduler.services.session_gateway.session.speaking.lane_turns import LaneTurns
from lingua_scheduler.services.session_gateway.session.speaking.room_jobs import RoomJobs
from lingua_scheduler.services.session_gateway.session.speech import directions_of
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget, HeldTurns
from lingua_scheduler.v1 import session_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsOf:
    """What all parts of a core are made from; see `SessionCore`."""

    rules: SessionRules
    opened: session_pb2.NewSession
    specs: JobSpecs
    past: Past
    counts: MutableMapping[str, int]
    budget: HeldBudget
    out: EffectBuffer
    now: float


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that an utterance passes through after it is cut.

    Attributes:
        delivery: gives the client a result, or in a room a receipt.
        recording: records cuts.
        jobs: one for each utterance, or in a room one for each language.
        room: the jobs of a session in a room; None if it is in none.
    """

    delivery: Delivery
    recording: Recording
    jobs: SessionJobs | RoomJobs
    room: RoomJobs | None = None


def parts_alone(given: PartsOf) -> Parts:
    """The parts of a session that is in no room."""
    turns = HeldTurns(
        audio_format=given.opened.audio_format,
        max_bytes=given.rules.held_audio_max_bytes,
        budget=given.budget,
    )
    delivery = _delivery(given, given.rules)
    recording = Recording(
        past=given.past, turns=turns, delivery=delivery, clock=delivery.clock, out=given.out
    )
    jobs = SessionJobs(
        past=given.past,
        rules=given.rules,
        directions=directions_of(given.opened),
        specs=given.specs,
        turns=turns,
        delivery=delivery,
        on_end=recording.on_end,
        counts=given.counts,
        out=given.out,
        now=given.now,
    )
    return Parts(delivery, recording, jobs)


def parts_in_room(given: PartsOf, speaker: Speaker) -> Parts:
    """The parts of a session that speaks to a room."""
    turns, clocks = LaneTurns(), LaneClocks()
    # Each lane has its own deadlines. A receipt waits for all lanes.
    delivery = _delivery(given, replace(given.rules, result_deadline_ms=math.inf))
    recording = Recording(
        past=given.past, turns=turns, delivery=delivery, clock=clocks, out=given.out
    )
    jobs = RoomJobs(
        past=given.past,
        rules=given.rules,
        speaker=speaker,
        audio_format=given.opened.audio_format,
        specs=given.specs,
        turns=turns,
        clocks=clocks,
        budget=given.budget,
        delivery=delivery,
        recording=recording,
        counts=given.counts,
        out=given.out,
        now=given.now,
    )
    return Parts(delivery, recording, jobs, jobs)


def _delivery(given: PartsOf, rules: SessionRules) -> Delivery:
    return Delivery(
        rules=rules,
        past=given.past,
        direction=directions_of(given.opened)[0],
        counts=given.counts,
        out=given.out,
        now=given.now,
    )
