"""The core of a session: events in, effects out. No I/O, no clock, no logging.

Each `on_` method is an event. It gets the current time, and returns the effects that the shell has
to carry out, in order. The parts of a core, in the order in which speech passes through them:

    intake      checks chunks, puts them in sequence, acknowledges them
    gatherer    cuts speech into utterances
    recording   records cuts in the store
    jobs        submits and retries the jobs of utterances, and ends them
    turns       keeps a copy of the audio that nodes hold
    delivery    sends results in order, until the client has confirmed them

Every event in every phase ("-": nothing happens):

                     OPEN                   CLOSING              CLOSED            OVER
    chunk            take, skip or refuse   refuse               refuse            -
    playback         pass on                -                    -                 -
    close            cut all                -                    -                 -
    seen             confirm results        confirm results      confirm, all: end -
    recorded         submit                 submit               -                 -
    record failed    record later           record later         -                 -
    lost             end                    end                  end               -
    accepted         acknowledge            acknowledge          -                 -
    retrying         notify                 notify               -                 -
    partial          notify                 notify               -                 -
    delivered        release in order       release, all: closed late              -
    failed, retry    submit later           submit later         -                 -
    failed, audio    bring held audio       bring held audio     -                 -
    failed, for good missing                missing, all: closed -                 -
    failed, lost     end                    end                  end               -
    left             leave                  leave                leave             -
    timer pause,
      hangover,
      fragment       see gatherer           -                    -                 -
    timer record     record                 record               -                 -
    timer retry      submit                 submit               -                 -
    timer deadline   missing                missing, all: closed -                 -
    timer idle       close                  -                    -                 -
    timer goodbye    -                      -                    end               -

A session in a room has `speaking.room_jobs` instead of `jobs` and `turns`: an utterance has a job
in each language that is wanted, and its outcomes go to the room. The client gets a receipt when all
languages have one. If the client leaves while the room waits for outcomes, the core waits for them
as well (LEFT). In that phase it does with events of the store, of the dispatcher and of time what
it does in OPEN, and ignores the client. These events are only for rooms:

                     OPEN, CLOSING             LEFT
    left             wait for the room         -
    published        in all: receipt           the last one: end
    publish failed   publish later             publish later

If a node holds all of the last speech of a direction, an end without speech, or the close of the
session, creates an utterance without chunks: its flush job ends the turn, so that the node
translates what it holds.

While Redis is unavailable, deadlines are extended by at most `redis_outage_max_ms`. Redis counts as
unavailable if a cut cannot be recorded, or a job fails with SCHEDULER_DEPENDENCY_DOWN, until the
next try of either succeeds.

Events of a dispatcher about an utterance that is over or unknown are late and change nothing. A
late result is counted, and confirmed to the dispatcher unless the client may need it after a
resume.
"""

from collections.abc import Callable, Iterable, MutableMapping
from enum import Enum, auto

from lingua_scheduler.services.session_gateway.session import effects
from lingua_scheduler.services.session_gateway.session.effects import Effect, EffectBuffer, TimerKey
from lingua_scheduler.services.session_gateway.session.gatherer import Gatherer
from lingua_scheduler.services.session_gateway.session.intake import Intake, invalid
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.parts import (
    PartsOf,
    parts_alone,
    parts_in_room,
)
from lingua_scheduler.services.session_gateway.session.resume import Past, Replay
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.lane import Speaker
from lingua_scheduler.services.session_gateway.session.speaking.room_jobs import Place
from lingua_scheduler.services.session_gateway.session.speech import Cut, Direction, directions_of
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# How long the client has to confirm all results after the session is closed.
GOODBYE_MS = 2000.0
# Results that a client may leave unconfirmed: a resume has to go through all of them.
MAX_UNSEEN = 5000


class SessionPhase(Enum):
    """Where a session stands; see the table above."""

    OPEN = auto()
    # The client has closed it; the remaining results are delivered.
    CLOSING = auto()
    # All results are delivered, and the client has been told so.
    CLOSED = auto()
    OVER = auto()
    # The client has left; its room gets the outcomes of what it has said.
    LEFT = auto()


class SessionCore:
    """One session at one gateway. The table above says what each event does in each phase.

    Args:
        rules: limits and durations.
        opened: what the client asked for.
        specs: of the session's jobs.
        past: what happened before this gateway served the session.
        counts: counters of the gateway.
        now: the current time.
        listen: returns how much of the end of a chunk has no voice; None without voice detection.
        held_budget: shared by all sessions of the gateway.
        speaker: in a room; None if the session is in none.
    """

    def __init__(
        self,
        *,
        rules: SessionRules,
        opened: session_pb2.NewSession,
        specs: JobSpecs,
        past: Past,
        counts: MutableMapping[str, int],
        now: float,
        listen: Callable[[Direction, bytes], float] | None = None,
        held_budget: HeldBudget | None = None,
        speaker: Speaker | None = None,
    ) -> None:
        directions = directions_of(opened)
        self.phase = SessionPhase.OPEN
        self._rules = rules
        self._counts = counts
        self._gate_open = True
        # When the client last sent anything.
        self._heard_ms = now
        self._out = EffectBuffer()
        given = PartsOf(
            rules=rules,
            opened=opened,
            specs=specs,
            past=past,
            counts=counts,
            budget=held_budget or HeldBudget(),
            out=self._out,
            now=now,
        )
        parts = parts_alone(given) if speaker is None else parts_in_room(given, speaker)
        self._delivery = parts.delivery
        self._recording = parts.recording
        self._jobs = parts.jobs
        self._room = parts.room
        self._replay = Replay(
            past=past, turns=self._jobs.turns, open_utterances=self._jobs.open.values(), now=now
        )
        self._intake = Intake(
            audio_format=opened.audio_format,
            directions=directions,
            next_seq=past.next_seq,
            replay=self._replay,
            turns=self._jobs.turns,
            listen=listen,
            counts=counts,
            out=self._out,
        )
        self._gatherer = Gatherer(
            rules=rules,
            timers=self._out.timers,
            counts=counts,
            on_empty_end=self._jobs.on_empty_end,
            continues=self._jobs.unfinished,
        )

    @property
    def results(self) -> int:
        """How many results the client has confirmed."""
        return self._delivery.results

    @property
    def missing(self) -> int:
        """How many missing utterances the client has confirmed."""
        return self._delivery.missing

    @property
    def last_chunk_ms(self) -> float:
        """When the last chunk arrived; 0 if none has."""
        return self._intake.last_chunk_ms

    def start(self, now: float) -> list[Effect]:
        """Starts the session: the client has been told that it is open."""
        self._heard_ms = now
        self._out.timers.set(effects.IDLE, now + self._rules.session_idle_ms)
        return self._advance(now)

    # ---- events of the client ----

    def on_chunk(self, now: float, chunk: session_pb2.AudioChunk) -> list[Effect]:
        """A chunk has arrived."""
        if self.phase is SessionPhase.OVER:
            return []
        self._heard_ms = now
        if self.phase is not SessionPhase.OPEN:
            self._intake.refuse(chunk, invalid("audio", "the session is closed"))
            return self._advance(now)
        taken = self._intake.take(now, chunk)
        if taken is None:
            return self._advance(now)
        cuts = self._gatherer.on_chunk(now, taken)
        if taken.data and not cuts:
            # Nearly all chunks only extend the gathered speech: nothing else can have changed.
            return self._out.take()
        self._add_cuts(now, cuts)
        return self._advance(now)

    def extend(
        self, now: float, seq: int, data: bytes, client_ms: int, direction: Direction
    ) -> bool:
        """Takes a chunk, which is not a last one, if it only extends the gathered speech.

        Nearly all chunks do. The outcome is that of `on_chunk`, which would return no effects, at a
        fraction of its cost.

        Returns:
            False if there is more to do. Then nothing has changed, and `on_chunk` has to be called.
        """
        if self.phase is not SessionPhase.OPEN:
            return False
        measured = self._intake.measured(seq, data, client_ms)
        if measured is None:
            return False
        if not self._gatherer.extend(now, seq, data, *measured, client_ms, direction):
            return False
        self._intake.extended(now)
        self._heard_ms = now
        return True

    def on_playback(self, now: float, *, on: bool) -> list[Effect]:
        """The app starts or stops playing speech."""
        if self.phase is SessionPhase.OPEN:
            self._heard_ms = now
            self._gatherer.on_playback(now, on=on)
        return self._advance(now)

    def on_close(self, now: float) -> list[Effect]:
        """The client closes the session: no more audio follows."""
        if self.phase is SessionPhase.OPEN:
            self._close(now)
        return self._advance(now)

    def on_seen(self, now: float, seen: int) -> list[Effect]:
        """The client confirms that it has seen this many results."""
        if self.phase is SessionPhase.OVER:
            return []
        self._heard_ms = now
        if seen <= self._delivery.seen:
            return self._out.take()
        if seen > self._delivery.sent:
            told = f"{seen} must be at most {self._delivery.sent}, the results delivered so far"
            self._out.error(invalid("results_seen", told))
            return self._advance(now)
        self._delivery.confirm(seen)
        return self._advance(now) if self.phase is SessionPhase.CLOSED else self._out.take()

    def on_left(self, now: float) -> list[Effect]:
        """The stream has ended: the session is resumed elsewhere, or not at all."""
        if self._room is not None and self._jobs.open and self.phase is not SessionPhase.OVER:
            self.phase = SessionPhase.LEFT
            for key in (effects.PAUSE, effects.HANGOVER, effects.FRAGMENT, effects.IDLE):
                self._out.timers.clear(key)
        else:
            self._finish(None, forget=False)
        return self._advance(now)

    # ---- events of the store ----

    def on_recorded(self, now: float, places: Iterable[Place] = ()) -> list[Effect]:
        """The cuts are recorded: their jobs may be created.

        Args:
            now: the current time.
            places: in a room, those of the cuts.
        """
        if self.phase is not SessionPhase.OVER:
            self._recording.on_recorded(now)
            if self._room is not None:
                self._room.on_recorded(now, places)
        return self._advance(now)

    def on_record_failed(self, now: float, why: common_pb2.Error) -> list[Effect]:
        """The cuts may or may not be recorded: they are recorded again."""
        is_live = self.phase in (SessionPhase.OPEN, SessionPhase.CLOSING, SessionPhase.LEFT)
        self._recording.on_failed(now, why, retry=is_live)
        return self._advance(now)

    def on_lost(self, now: float, why: common_pb2.Error) -> list[Effect]:
        """Another gateway has taken the session over, or it cannot go on here."""
        self._finish(why, forget=False)
        return self._advance(now)

    # ---- events of the room ----

    def on_published(self, now: float, lane: str, index: int) -> list[Effect]:
        """The room has the outcome of an utterance in a language."""
        if self._room is not None and (found := self._room.lane(lane)):
            found.on_published(now, index)
        return self._advance(now)

    def on_publish_failed(self, now: float, lane: str, index: int) -> list[Effect]:
        """The room may or may not have the outcome of an utterance in a language."""
        if self._room is not None and (found := self._room.lane(lane)):
            found.on_publish_failed(now, index)
        return self._advance(now)

    # ---- events of the dispatcher ----

    # In a room they are about the job of a lane.

    def on_accepted(
        self, now: float, index: int, accepted: dispatcher_pb2.JobAccepted, lane: str = ""
    ) -> list[Effect]:
        """A node has accepted the job."""
        jobs = self._jobs.of(lane)
        if jobs is not None and (utterance := jobs.submitted(index)):
            jobs.on_accepted(now, utterance, accepted)
        return self._advance(now)

    def on_retrying(
        self, now: float, index: int, retrying: dispatcher_pb2.JobRetrying, lane: str = ""
    ) -> list[Effect]:
        """An attempt has ended without a result, and another follows."""
        jobs = self._jobs.of(lane)
        if jobs is not None and (utterance := jobs.submitted(index)):
            utterance.last_problem = retrying.why.message
            jobs.tell_retrying(utterance, retrying.attempt, retrying.why)
        return self._advance(now)

    def on_partial(
        self, now: float, index: int, partial: dispatcher_pb2.JobPartial, lane: str = ""
    ) -> list[Effect]:
        """Part of a result has arrived, for the app to display."""
        jobs = self._jobs.of(lane)
        if jobs is not None and (utterance := jobs.submitted(index)):
            event = self._out.event().partial
            event.utterance_index = index
            event.direction.src, event.direction.tgt = utterance.direction
            event.texts.CopyFrom(partial.texts)
        return self._advance(now)

    def on_delivered(
        self,
        now: float,
        index: int,
        job_id: str,
        delivered: dispatcher_pb2.JobDelivered,
        lane: str = "",
    ) -> list[Effect]:
        """The result has arrived."""
        if self.phase is SessionPhase.OVER:
            return []
        jobs = self._jobs.of(lane)
        utterance = None if jobs is None else jobs.open.get(index)
        if jobs is not None and utterance is not None:
            utterance.result_ms = now
            jobs.end(now, utterance, delivered)
        else:
            self._counts["late_result"] += 1
            if not self._delivery.is_unseen_result(index):
                self._out.add(effects.Taken(job_id))
        return self._advance(now)

    def on_failed(
        self, now: float, index: int, why: common_pb2.Error, lane: str = ""
    ) -> list[Effect]:
        """The job has failed, or was not created."""
        jobs = self._jobs.of(lane) if self._room is None else self._room.lane(lane)
        if why.reason == common_pb2.ERROR_REASON_SESSION_TAKEN_OVER:
            self._finish(why, forget=False)
        elif jobs is not None and (utterance := jobs.submitted(index)):
            jobs.on_failed(now, utterance, why)
        return self._advance(now)

    # ---- time ----

    def on_timer(self, now: float, key: TimerKey) -> list[Effect]:
        """A timer is due. One that is not set, or not due yet, does nothing."""
        if not self._out.timers.take(now, key):
            return []
        if key == effects.PAUSE:
            self._add_cuts(now, self._gatherer.on_pause_timer(now))
        elif key == effects.HANGOVER:
            self._add_cuts(now, self._gatherer.on_hangover_timer(now))
        elif key == effects.FRAGMENT:
            self._add_cuts(now, self._gatherer.on_fragment_timer(now))
        elif key == effects.DEADLINE:
            self._jobs.give_up_overdue(now)
        elif key == effects.IDLE:
            self._check_idle(now)
        elif key == effects.GOODBYE and self.phase is SessionPhase.CLOSED:
            self._finish(None, forget=False)
        else:
            # The timers for recording and for retries need nothing but what follows.
            self._jobs.on_timer(now, key)
        return self._advance(now)

    def _check_idle(self, now: float) -> None:
        if not self._gate_open:
            # The client may be sending, but its messages are not read.
            self._heard_ms = now
        due = self._heard_ms + self._rules.session_idle_ms
        if now < due:
            self._out.timers.set(effects.IDLE, due)
        elif self.phase is SessionPhase.OPEN:
            seconds = self._rules.session_idle_ms / 1000
            self._out.error(
                common_pb2.Error(
                    reason=common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
                    message=f"the session was closed after {seconds:g} s without a message",
                )
            )
            self._close(now)

    # ---- what follows from an event ----

    def _advance(self, now: float) -> list[Effect]:
        """Does everything that the new state allows, and returns the effects of the event."""
        if self.phase is not SessionPhase.OVER:
            is_closing, jobs, intake = self.phase is SessionPhase.CLOSING, self._jobs, self._intake
            if jobs.may_flush(is_closing=is_closing):
                flushes = jobs.flushes(now, intake.expected_seq, is_closing=is_closing)
                if not self._add_cuts(now, flushes):
                    return self._out.take()
            if self._delivery.unsent:
                self._delivery.release(now)
            if jobs.open:
                jobs.submit_ready(now)
            if self._recording.waiting:
                self._recording.write(now, intake)
            if intake.acked_seq < intake.expected_seq:
                intake.acknowledge(jobs.open.values(), self._gatherer.first_seq)
            self._set_gate(now)
            if self.phase is not SessionPhase.OPEN:
                self._check_done(now)
        return self._out.take()

    def _add_cuts(self, now: float, cuts: Iterable[Cut]) -> bool:
        """Creates utterances of cuts; False: that ended the session."""
        for cut in cuts:
            if self._delivery.unconfirmed >= MAX_UNSEEN:
                # Its chunks are not acknowledged: the client can resume, confirm, and send them
                # again.
                why = common_pb2.Error(
                    reason=common_pb2.ERROR_REASON_BACKPRESSURE,
                    message=f"the client has not confirmed {MAX_UNSEEN} results (results_seen)",
                )
                self._finish(why, forget=False)
                return False
            index, deadline_ms = self._delivery.expect(now)
            self._recording.add(self._jobs.enter(cut, index, deadline_ms))
        return True

    def _set_gate(self, now: float) -> None:
        """Stops reading the client's messages while too many utterances are pending."""
        is_full = self._delivery.pending >= self._rules.session_utterances_max
        if self._gate_open and not is_full:
            return
        # Chunks that are replayed have to be read: there is no result before they are here.
        is_open = not is_full or self.phase is not SessionPhase.OPEN or self._replay.is_needed
        if is_open != self._gate_open:
            self._gate_open = is_open
            self._heard_ms = now
            self._gatherer.on_hold(now, on=not is_open)
            self._out.add(effects.Gate(is_open))

    # ---- the end ----

    def _close(self, now: float) -> None:
        cuts = self._gatherer.on_close(now)
        self.phase = SessionPhase.CLOSING
        self._add_cuts(now, cuts)
        self._out.timers.clear(effects.IDLE)

    def _check_done(self, now: float) -> None:
        if self.phase is SessionPhase.CLOSING and self._delivery.pending == 0:
            self.phase = SessionPhase.CLOSED
            self._out.timers.set(effects.GOODBYE, now + GOODBYE_MS)
            self._delivery.fill_closed(self._out.event().closed)
        if self.phase is SessionPhase.CLOSED and self._delivery.unconfirmed == 0:
            self._finish(None, forget=True)
        if self.phase is SessionPhase.LEFT and not self._jobs.open:
            self._finish(None, forget=False)

    def _finish(self, why: common_pb2.Error | None, *, forget: bool) -> None:
        if self.phase is SessionPhase.OVER:
            return
        self.phase = SessionPhase.OVER
        self._out.timers.clear_all()
        self._jobs.turns.clear()
        if why is not None:
            self._out.error(why)
        if not forget:
            self._out.add(
                effects.Leave((*self._delivery.unseen_job_ids, *self._jobs.submitted_ids))
            )
        self._jobs.open.clear()
        self._out.add(effects.End(why, forget))
