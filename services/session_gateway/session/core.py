"""The core of a session: events in, effects out. No I/O, no clock, no logging.

A method is an event; what it returns is what the shell has to do, in order. Every event carries the
time. How speech is cut is in gatherer; how results come in order is in result_queue; the steps that
events share are in session_steps.

Every event in every phase ("-": nothing happens):

                     OPEN                   CLOSING              CLOSED            OVER
    chunk            take, repeat or refuse refuse               refuse            -
    playback         pass on                -                    -                 -
    close            cut all                -                    -                 -
    seen             let go of results      let go of results    let go; all: end  -
    recorded         submit                 submit               -                 -
    record failed    again, a little later  again                -                 -
    lost             end                    end                  end               -
    accepted         acknowledge            acknowledge          -                 -
    retrying         tell                   tell                 -                 -
    partial          tell                   tell                 -                 -
    delivered        release in order       release, all: closed late              -
    failed, retry    again, a little later  again                -                 -
    failed, audio    bring what was held    bring what was held  -                 -
    failed, for good missing                missing, all: closed -                 -
    failed, lost     end                    end                  end               -
    left             leave                  leave                leave             -
    timer pause,
      hangover,
      fragment       see gatherer           -                    -                 -
    timer record     write down             write down           -                 -
    timer retry      submit                 submit               -                 -
    timer deadline   missing                missing, all: closed -                 -
    timer idle       close                  -                    -                 -
    timer goodbye    -                      -                    end               -

Where a node holds all that was said last in a direction, an end without speech, or the close, makes
an utterance without chunks: a flush job without audio ends the turn, so that the held text comes.

While Redis is away, the deadlines stand still, for at most `redis_outage_max_ms`. A cut that cannot
be written down shows that it is away, and so does a job that fails with SCHEDULER_DEPENDENCY_DOWN;
the next try of either shows whether it is back.

What a dispatcher says of an utterance that is over, or of none, is late and changes nothing. A late
result is counted, and let go of unless the client may still need it after a resume.
"""

from lingua_scheduler.services.session_gateway.session import effects as effects
from lingua_scheduler.services.session_gateway.session.alarms import (
    DEADLINE,
    FRAGMENT,
    GOODBYE,
    HANGOVER,
    IDLE,
    PAUSE,
    RECORD,
    AlarmKey,
)
from lingua_scheduler.services.session_gateway.session.chunk_checks import (
    RefusedChunkError,
    bad_audio,
    checked_chunk,
    invalid,
)
from lingua_scheduler.services.session_gateway.session.effects import Effect
from lingua_scheduler.services.session_gateway.session.job_specs import set_pair
from lingua_scheduler.services.session_gateway.session.model import Past, Phase
from lingua_scheduler.services.session_gateway.session.speech import Chunk
from lingua_scheduler.services.session_gateway.session.steps import (
    DEPENDENCY_DOWN,
    RECORD_AGAIN_MS,
    RECORDING,
    SessionSteps,
)
from lingua_scheduler.services.session_gateway.session.utterance import Stage, Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

__all__ = ["Past", "Phase", "SessionCore"]

# No job was made, and a later try may make one. Any other failure is for good.
_WORTH_A_RETRY = frozenset(
    {
        common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
        common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
        common_pb2.ERROR_REASON_BOUND_NODE_FULL,
        common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
        common_pb2.ERROR_REASON_DRAINING,
        common_pb2.ERROR_REASON_BACKPRESSURE,
        common_pb2.ERROR_REASON_QUOTA_EXCEEDED,
    }
)
_HELD_AUDIO_NEEDED = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
_TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER


class SessionCore(SessionSteps):
    """One session at one gateway. See the table above for what each event does in each phase."""

    def start(self, now: float) -> list[Effect]:
        """The client has been told that the session is open."""
        self._heard_ms = now
        self._alarms.set(IDLE, now + self._rules.session_idle_ms)
        return self._out(now)

    # ---- the client's events ----

    def on_chunk(self, now: float, chunk: session_pb2.AudioChunk) -> list[Effect]:
        """Audio has come."""
        if self.phase is Phase.OVER:
            return []
        self._heard_ms = now
        if self.phase is not Phase.OPEN:
            self._refuse(chunk, invalid("audio", "the session was closed before it"))
        elif chunk.seq < self._expected_seq:
            self._counts["repeated_chunk"] += 1
        elif chunk.seq > self._expected_seq:
            self._refuse_gap(chunk)
        elif self._take_chunk(now, chunk):
            return self._out(now, follows=False)
        return self._out(now)

    def on_playback(self, now: float, *, on: bool) -> list[Effect]:
        """The app begins or ends to play speech."""
        if self.phase is Phase.OPEN:
            self._heard_ms = now
            self._gatherer.on_playback(now, on=on)
        return self._out(now)

    def on_close(self, now: float) -> list[Effect]:
        """Nothing more will be said."""
        if self.phase is Phase.OPEN:
            self._close(now)
        return self._out(now)

    def on_seen(self, now: float, seen: int) -> list[Effect]:
        """The client has seen so many results."""
        if self.phase is Phase.OVER:
            return []
        self._heard_ms = now
        if seen <= self._seen:
            return self._out(now, follows=False)
        if seen > self._queue.next_out:
            told = f"{seen} is more than the {self._queue.next_out} that have been delivered"
            self._problem(invalid("results_seen", told))
            return self._out(now)
        for index in range(self._seen, seen):
            if index in self._lacking:
                self._lacking.remove(index)
                self.missing += 1
            else:
                self.results += 1
            job_id = self._unseen.pop(index, None)
            held_back_ms = self._held_back_ms.pop(index, 0.0)
            if job_id is not None:
                self._todo.append(effects.Taken(job_id, held_back_ms))
        self._seen = seen
        return self._out(now, follows=self.phase is Phase.CLOSED)

    def on_left(self, now: float) -> list[Effect]:
        """The stream is gone: the session goes on elsewhere, or not at all."""
        self._finish(None, forget=False)
        return self._out(now)

    # ---- the store's events ----

    def on_recorded(self, now: float) -> list[Effect]:
        """The cuts are written down: their jobs may be made."""
        if self.phase is Phase.OVER:
            return []
        recorded, self._recording = self._recording or [], None
        self._run_deadlines(now, RECORDING)
        self._outage_told = False
        for utterance in recorded:
            self._recorded[utterance.index] = utterance.ranges
            if utterance.stage is Stage.CUT:
                utterance.stage = Stage.READY
                finalized = self._tell(utterance).finalized
                finalized.reason = utterance.reason
                finalized.audio_ms = utterance.audio_ms
        return self._out(now)

    def on_record_failed(self, now: float, why: common_pb2.Error) -> list[Effect]:
        """The cuts may or may not be written down: they are written once more."""
        self._unrecorded = (self._recording or []) + self._unrecorded
        self._recording = None
        for utterance in self._unrecorded:
            utterance.last_problem = why.message
        if self.phase in (Phase.OPEN, Phase.CLOSING):
            if why.reason == DEPENDENCY_DOWN:
                self._stop_deadlines(now, RECORDING)
            self._alarms.set(RECORD, now + RECORD_AGAIN_MS)
            if not self._outage_told:
                self._outage_told = True
                self._problem(why)
        return self._out(now)

    def on_lost(self, now: float, why: common_pb2.Error) -> list[Effect]:
        """The session is not this gateway's any more."""
        self._finish(why, forget=False)
        return self._out(now)

    # ---- the dispatcher's events ----

    def on_accepted(
        self, now: float, index: int, accepted: dispatcher_pb2.JobAccepted
    ) -> list[Effect]:
        """A node has the job."""
        utterance = self._at_dispatcher(index)
        # Where the next try is waited for, it is the word of one that has failed since.
        if utterance is not None and utterance.stage is not Stage.READY:
            utterance.stage = Stage.ACCEPTED
            self._run_deadlines(now, index)
            utterance.accepted_ms = utterance.accepted_ms or now
            told = self._tell(utterance).accepted
            told.job_id = utterance.job_id
            told.node_id = accepted.node_id
            told.attempt = accepted.attempt
        return self._out(now)

    def on_retrying(
        self, now: float, index: int, retrying: dispatcher_pb2.JobRetrying
    ) -> list[Effect]:
        """An attempt has ended without a result; another follows."""
        utterance = self._at_dispatcher(index)
        if utterance is not None:
            utterance.last_problem = retrying.why.message
            told = self._tell(utterance).retrying
            told.attempt = retrying.attempt
            told.why.CopyFrom(retrying.why)
        return self._out(now)

    def on_partial(
        self, now: float, index: int, partial: dispatcher_pb2.JobPartial
    ) -> list[Effect]:
        """Part of a result, for the app's display."""
        utterance = self._at_dispatcher(index)
        if utterance is not None:
            told = self._event().partial
            told.utterance_index = index
            set_pair(told.direction, utterance.direction)
            told.texts.CopyFrom(partial.texts)
        return self._out(now)

    def on_delivered(
        self, now: float, index: int, job_id: str, delivered: dispatcher_pb2.JobDelivered
    ) -> list[Effect]:
        """The result."""
        utterance = self._open.get(index)
        if self.phase is Phase.OVER:
            return []
        if utterance is not None:
            utterance.result_ms = now
            self._end(now, utterance, delivered)
        else:
            self._counts["late_result"] += 1
            if not self._is_unseen_result(index):
                self._todo.append(effects.Taken(job_id))
        return self._out(now)

    def on_failed(self, now: float, index: int, why: common_pb2.Error) -> list[Effect]:
        """The job is over without a result, or was not made."""
        utterance = self._at_dispatcher(index)
        if why.reason == _TAKEN_OVER:
            self._finish(why, forget=False)
        elif utterance is None:
            pass  # late
        elif why.reason == _HELD_AUDIO_NEEDED and not utterance.is_attached:
            self._bring_held(now, utterance, why)
        elif why.reason in _WORTH_A_RETRY:
            self._retry(now, utterance, why)
        else:
            self._end(now, utterance, why)
        return self._out(now)

    # ---- time ----

    def on_timer(self, now: float, key: AlarmKey) -> list[Effect]:
        """A timer has come. One that is not set, or not for now, does nothing."""
        if not self._alarms.take(now, key):
            return []
        if key == PAUSE:
            self._take_cuts(now, self._gatherer.on_pause_timer(now))
        elif key == HANGOVER:
            self._take_cuts(now, self._gatherer.on_hangover_timer(now))
        elif key == FRAGMENT:
            self._take_cuts(now, self._gatherer.on_fragment_timer(now))
        elif key == DEADLINE:
            self._give_up(now)
            self._set_deadline()
        elif key == IDLE:
            self._check_idle(now)
        elif key == GOODBYE and self.phase is Phase.CLOSED:
            self._finish(None, forget=False)
        elif key == RECORD or key[0] == "retry":
            pass  # what waits for it goes on below
        return self._out(now)

    def _give_up(self, now: float) -> None:
        for index in self._queue.deadlines.overdue(now):
            utterance = self._open[index]
            if utterance.tries or utterance.is_taken_up:
                utterance.may_have_result = utterance.stage is not Stage.READY
                self._todo.append(effects.CancelJob(utterance.job_id, "its deadline has passed"))
            told = f"no result within {self._rules.result_deadline_ms / 1000:g} s"
            if utterance.is_over_quota:
                reason = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
            elif self._queue.deadlines.is_stopped:
                reason = DEPENDENCY_DOWN
                told += f", and {self._rules.redis_outage_max_ms / 1000:g} s more without Redis"
            else:
                reason = common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
            if reason != common_pb2.ERROR_REASON_QUOTA_EXCEEDED:
                self._counts["deadline_missed"] += 1
            if utterance.last_problem:
                told += f"; last: {utterance.last_problem}"
            self._end(now, utterance, common_pb2.Error(reason=reason, message=told))

    def _close(self, now: float) -> None:
        self._take_cuts(now, self._gatherer.on_close(now))
        self._alarms.clear(IDLE)
        self.phase = Phase.CLOSING

    def _check_idle(self, now: float) -> None:
        if not self._gate_open:
            # It may speak all the time: nobody listens.
            self._heard_ms = now
        due = self._heard_ms + self._rules.session_idle_ms
        if now < due:
            self._alarms.set(IDLE, due)
        elif self.phase is Phase.OPEN:
            seconds = self._rules.session_idle_ms / 1000
            self._problem(
                common_pb2.Error(
                    reason=common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
                    message=f"nothing was said for {seconds:g} s: the session is closed",
                )
            )
            self._close(now)

    # ---- chunks ----

    def _take_chunk(self, now: float, chunk: session_pb2.AudioChunk) -> bool:
        """Takes the chunk that was expected; True where only the gathered speech has grown.

        Nothing follows from that, and it is what nearly every chunk does: so it is kept cheap.
        """
        try:
            good = checked_chunk(chunk, self._format, self._directions)
        except RefusedChunkError as refused:
            self._refuse(chunk, refused.error)
            return False
        self._expected_seq += 1
        self._gap_told = None
        self.last_chunk_ms = now
        self._counts["chunk"] += 1
        for utterance in self._replayed:
            if utterance.has(chunk.seq):
                self._replay(utterance, good)
                return False
        if self._known and any(first <= chunk.seq < end for first, end in self._known):
            return False
        if self._listen is not None and good.data:
            good = good._replace(quiet_ms=self._listen(good.direction, good.data))
        cuts = self._gatherer.on_chunk(now, good)
        self._take_cuts(now, cuts)
        return bool(good.data) and not cuts

    def _replay(self, utterance: Utterance, chunk: Chunk) -> None:
        """A chunk has come again that another gateway had cut."""
        if utterance.stage is Stage.REPLAY:
            utterance.chunks.append(chunk.data)
        utterance.first_client_ms = utterance.first_client_ms or chunk.client_ms
        if chunk.seq + 1 == utterance.ranges[-1][1]:
            self._replayed.remove(utterance)
            if utterance.index not in self._open:
                self._turns.fill(utterance)
            elif utterance.stage is Stage.REPLAY:
                utterance.stage = Stage.READY

    def _refuse_gap(self, chunk: session_pb2.AudioChunk) -> None:
        self._counts["gap"] += 1
        # Said once: whatever is on its way behind the gap would only say it again.
        if self._gap_told != self._expected_seq:
            self._gap_told = self._expected_seq
            told = f"{chunk.seq} came where {self._expected_seq} was expected"
            self._refuse(chunk, bad_audio("audio.seq", told))

    def _refuse(self, chunk: session_pb2.AudioChunk, why: common_pb2.Error) -> None:
        self._counts["refused_chunk"] += 1
        why.metadata["seq"] = str(chunk.seq)
        why.metadata["expected_seq"] = str(self._expected_seq)
        self._problem(why)

    # ---- utterances ----

    def _at_dispatcher(self, index: int) -> Utterance | None:
        utterance = self._open.get(index)
        if utterance is None or utterance.tries == 0 or self.phase is Phase.OVER:
            return None
        return utterance

    def _is_unseen_result(self, index: int) -> bool:
        """Whether it has a result that the client has not seen, or not yet said so."""
        return self._seen <= index < self._queue.next_in and index not in self._lacking
