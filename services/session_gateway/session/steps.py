"""The steps of a session's core: its state, and how utterances get on. See session_core."""

from collections.abc import Callable, Iterable, MutableMapping

from lingua_scheduler.services.session_gateway.session import effects as effects
from lingua_scheduler.services.session_gateway.session.alarms import (
    DEADLINE,
    GOODBYE,
    RECORD,
    Alarms,
)
from lingua_scheduler.services.session_gateway.session.effects import Effect
from lingua_scheduler.services.session_gateway.session.gatherer import LEAVES_REST, Gatherer
from lingua_scheduler.services.session_gateway.session.held_turns import HeldBudget, HeldTurns
from lingua_scheduler.services.session_gateway.session.job_specs import (
    JobSpecs,
    fill_result,
    set_pair,
)
from lingua_scheduler.services.session_gateway.session.model import Outcome, Past, Phase
from lingua_scheduler.services.session_gateway.session.result_queue import ResultQueue
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Cut, Direction, Speech
from lingua_scheduler.services.session_gateway.session.utterance import (
    MAY_CONTINUE,
    Stage,
    Utterance,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# After a failure to create a job: the first wait, doubled each time, up to the longest.
RETRY_FIRST_MS = 100.0
RETRY_LONGEST_MS = 1000.0
# Before cuts that could not be written down are tried again.
RECORD_AGAIN_MS = 200.0
DEPENDENCY_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
# Stops the deadlines, as the index of an utterance does whose job cannot be made.
RECORDING = -1
# For the client to say that it has seen everything.
GOODBYE_MS = 2000.0
# Outcomes that a client may leave unconfirmed: a resume has to go through all of them.
MAX_UNSEEN = 5000


class SessionSteps:
    """The state of one session, and what its events have in common."""

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
    ) -> None:
        self._rules = rules
        # How much of the end of a chunk is without voice; None: pauses are found by gaps alone.
        self._listen = listen
        # What is worth counting, added up.
        self._counts = counts
        self._specs = specs
        self._format = opened.audio_format
        self._directions = _directions(opened)
        self._alarms = Alarms()
        self._todo: list[Effect] = []
        # The last of those messages that are among them.
        self._message: session_pb2.ServerMessage | None = None
        self.phase = Phase.OPEN
        self._queue: ResultQueue[Outcome] = ResultQueue(
            past.seen, stop_max_ms=rules.redis_outage_max_ms
        )
        self._expected_seq = past.next_seq
        self._acked_seq = past.next_seq
        # The client may have forgotten all chunks below.
        self._kept_seq = past.next_seq
        self._seen = past.seen
        self.missing = min(past.missing, past.seen)
        self.results = past.seen - self.missing
        """How many of the indexes that the client has seen were the one and the other."""
        self._gate_open = True
        self._heard_ms = now
        self.last_chunk_ms = 0.0
        """When audio last came; 0: none has."""
        self._gap_told: int | None = None
        # Utterances that are not over, by index.
        self._open: dict[int, Utterance] = {}
        # Cuts that are written down, and which chunks they have: until these are safe and seen.
        self._recorded: dict[int, list[tuple[int, int]]] = {}
        # Of what another gateway cut: utterances whose chunks are to come again, and chunks that
        # need not come again but may.
        self._replayed: list[Utterance] = []
        self._known: list[tuple[int, int]] = []
        self._recording: list[Utterance] | None = None
        self._unrecorded: list[Utterance] = []
        self._outage_told = False
        # Of results that the client may not have seen: their jobs. And indexes without a result.
        self._unseen: dict[int, str] = {}
        # How long each waited for those before it.
        self._held_back_ms: dict[int, float] = {}
        self._lacking: set[int] = set()
        self._last_reason: dict[Direction, common_pb2.FinalizeReason.ValueType] = {}
        self._turns = HeldTurns(
            audio_format=self._format,
            max_bytes=rules.held_audio_max_bytes,
            budget=held_budget or HeldBudget(),
        )
        # Directions in which the speaker has ended what a node may hold.
        self._ends: set[Direction] = set()
        self._take_up(past, now)
        self._gatherer = Gatherer(
            rules=rules,
            alarms=self._alarms,
            counts=counts,
            on_empty_end=self._ends.add,
            continues=[each for each, why in self._last_reason.items() if why in LEAVES_REST],
        )

    def _take_up(self, past: Past, now: float) -> None:
        """Goes on with what another gateway has cut."""
        deadline = now + self._rules.result_deadline_ms
        cuts = {cut.utterance_index: cut for cut in past.cuts}
        for cut in past.cuts:
            self._recorded[cut.utterance_index] = [(each.first, each.end) for each in cut.chunks]
            pair = Direction(cut.direction.src, cut.direction.tgt)
            self._last_reason[pair] = cut.reason
            if cut.utterance_index < past.seen:
                comes_again = past.next_seq <= cut.chunks[0].first < cut.chunks[0].end
                self._turns.recall(cut, comes_again=comes_again)
        for cut in past.cuts:
            if self._turns.awaits(cut.utterance_index):
                self._replayed.append(
                    Utterance.from_record(cut, now=now, deadline_ms=deadline, accepted=False)
                )
        for index in range(past.seen, past.next_index):
            self._queue.expect(deadline, now)
            if index in cuts:
                first = cuts[index].chunks[0].first
                utterance = Utterance.from_record(
                    cuts[index], now=now, deadline_ms=deadline, accepted=first < past.next_seq
                )
                self._open[index] = utterance
                if utterance.stage is Stage.REPLAY:
                    self._replayed.append(utterance)
            else:
                why = _error(
                    common_pb2.ERROR_REASON_JOB_NOT_FOUND, "its result is not kept any more"
                )
                self._lacking.add(index)
                self._queue.put(index, Outcome(self._directions[0], None, why))
        self._set_deadline()
        if past.next_index > 0:
            # Of cuts that are forgotten nobody knows the reason: it may have been a pause.
            for direction in self._directions:
                self._last_reason.setdefault(direction, common_pb2.FINALIZE_REASON_TIMEOUT)
        again = {each.index for each in self._replayed}
        self._known = [
            span
            for index, ranges in self._recorded.items()
            for span in ranges
            if index not in again and span[1] > past.next_seq
        ]

    # ---- effects ----

    def _event(self, *, is_large: bool = False) -> session_pb2.ServerEvent:
        """An event for the client, which is to be filled in: made in its message, it is not copied.

        What is told at one moment is one message, but for what is large, which begins another.
        """
        if is_large or self._message is None:
            self._message = session_pb2.ServerMessage()
            self._todo.append(effects.Send(self._message))
        return self._message.events.add()

    def _problem(self, error: common_pb2.Error) -> None:
        self._event().error.CopyFrom(error)

    def _out(self, now: float, *, follows: bool = True) -> list[Effect]:
        """What is to be done, with all that follows from the new state, where something may."""
        queue = self._queue
        if follows and self.phase is not Phase.OVER:
            if self._ends or (self._turns and self.phase is Phase.CLOSING):
                self._end_held(now)
            if queue.outcomes:
                self._release(now)
            if self._open:
                self._advance(now)
            if self._unrecorded:
                self._record(now)
            if self._acked_seq < self._expected_seq:
                self._acknowledge()
            is_full = queue.next_in - queue.next_out >= self._rules.session_utterances_max
            if is_full or not self._gate_open:
                self._set_gate(now, is_full=is_full)
            if self.phase is not Phase.OPEN:
                self._check_done(now)
        # The timers first: after an end there is nothing more to do.
        todo, self._todo, self._message = self._todo, [], None
        if self._alarms.changes:
            todo = [*self._alarms.changes, *todo]
            self._alarms.changes = []
        return todo

    # ---- cuts ----

    def _take_cuts(self, now: float, cuts: Iterable[Cut]) -> None:
        for cut in cuts:
            if self._queue.next_in - self._seen >= MAX_UNSEEN:
                # Its chunks are not acknowledged: who resumes and confirms may send them again.
                told = f"the client has not confirmed {MAX_UNSEEN} results (results_seen)"
                self._finish(_error(common_pb2.ERROR_REASON_BACKPRESSURE, told), forget=False)
                return
            direction = cut.speech.direction
            deadline = now + self._rules.result_deadline_ms
            index = self._queue.expect(deadline, now)
            utterance = Utterance.from_cut(
                cut,
                index=index,
                job_id=self._specs.job_id(index, direction),
                deadline_ms=deadline,
                continues=self._last_reason.get(direction) in MAY_CONTINUE,
            )
            self._last_reason[direction] = cut.reason
            self._ends.discard(direction)
            self._open[index] = utterance
            self._unrecorded.append(utterance)
            self._alarms.set_by(DEADLINE, deadline)

    def _end_held(self, now: float) -> None:
        """Ends turns that a node holds whole: with nothing said, so that their text comes."""
        if self.phase is Phase.CLOSING:
            reason = common_pb2.FINALIZE_REASON_SESSION_CLOSE
            self._ends.update(self._directions)
        else:
            reason = common_pb2.FINALIZE_REASON_IS_FINAL
        # What is under way may yet be held.
        busy = {each.direction for each in self._open.values()}
        self._ends &= self._turns.directions | busy
        for direction in sorted((self._ends & self._turns.directions) - busy):
            rest = Speech.nothing(direction, now, self._expected_seq)
            self._take_cuts(now, [Cut(rest, reason, now, now)])

    def _record(self, now: float) -> None:
        """Writes down what is cut; one call at a time, so that cuts are written in their order.

        What has become missing meanwhile is written as well, as long as its chunks may come again:
        a later gateway must not take them for new speech. That audio of an utterance is held, or
        still held, is added to its record.
        """
        if self._recording is not None or RECORD in self._alarms:
            return
        needed = [
            each
            for each in self._unrecorded
            if each.stage is Stage.CUT or self._is_needed(each.index, each.ranges)
        ]
        if not any(each.stage is Stage.CUT or each.is_held or each.is_missing for each in needed):
            self._unrecorded = needed
            self._run_deadlines(now, RECORDING)
            return
        self._recording, self._unrecorded = needed, []
        self._todo.append(
            effects.Record(
                cuts=tuple([each.record(self._kept_seq) for each in needed]),
                first_index=min(self._first_needed(), needed[0].index),
                acked_seq=self._acked_seq,
                seen=self._seen,
                results=self.results,
                missing=self.missing,
                last_chunk_ms=self.last_chunk_ms,
            )
        )

    def _first_needed(self) -> int:
        """The first cut that a later gateway would need. Those before are seen and safe."""
        for index, ranges in list(self._recorded.items()):
            if self._is_needed(index, ranges):
                return index
            del self._recorded[index]
        return self._queue.next_in

    def _is_needed(self, index: int, ranges: list[tuple[int, int]]) -> bool:
        # Also of those that are not held: they may come again with what is.
        if index >= self._seen or ranges[-1][1] > self._kept_seq:
            return True
        return bool(self._turns) and self._turns.has(index)

    # ---- jobs ----

    def _advance(self, now: float) -> None:
        """Submits what may be submitted."""
        for utterance in self._open.values():
            ready = utterance.stage is Stage.READY and utterance.retry_ms <= now
            if ready and self._may_go(utterance):
                utterance.stage = Stage.SUBMITTED
                utterance.tries += 1
                utterance.deadline_ms = self._queue.deadlines.at(utterance.index, now)
                if (self._turns or utterance.brings_held) and not utterance.is_attached:
                    self._turns.prepare(utterance, self._open.values())
                self._todo.append(effects.Submit(utterance))

    def _may_go(self, utterance: Utterance) -> bool:
        """Whether the turn has come to it: see decision 12."""
        if utterance.is_attached:
            return True
        if utterance.brings_held and not self._turns.is_complete(utterance):
            return False
        # Those before it, which are in order. Not only the last: what follows a turn must not
        # overtake its end, which waits itself.
        for each in self._open.values():
            if each is utterance:
                break
            # Those after one that the quota does not let through must not take what becomes free.
            if each.is_over_quota:
                return False
            if each.direction == utterance.direction and self._holds_back(each):
                return False
        return True

    @staticmethod
    def _holds_back(utterance: Utterance) -> bool:
        """Whether what follows it in its direction has to wait."""
        if utterance.reason in MAY_CONTINUE:
            return True
        # It ends a turn, and clears the binding that it needs itself.
        if utterance.brings_held and utterance.stage is not Stage.ACCEPTED:
            return True
        return utterance.continues and not utterance.is_safe

    def _retry(self, now: float, utterance: Utterance, why: common_pb2.Error) -> None:
        wait = min(RETRY_LONGEST_MS, RETRY_FIRST_MS * 2 ** min(utterance.tries - 1, 10))
        utterance.stage = Stage.READY
        utterance.failed_ms = now
        utterance.retry_ms = now + max(wait, float(why.retry_after_ms))
        self._alarms.set(("retry", utterance.index), utterance.retry_ms)
        self._counts["retried"] += 1
        utterance.last_problem = why.message
        if why.reason == DEPENDENCY_DOWN:
            self._stop_deadlines(now, utterance.index)
        else:
            self._run_deadlines(now, utterance.index)
        if why.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED and not any(
            each.is_over_quota for each in self._open.values()
        ):
            self._problem(why)
        # It may be tried every second for the same reason, which is said once.
        if utterance.told_why != (why.reason, why.message):
            utterance.told_why = (why.reason, why.message)
            retrying = self._tell(utterance).retrying
            retrying.attempt = utterance.tries
            retrying.why.CopyFrom(why)

    def _bring_held(self, now: float, utterance: Utterance, why: common_pb2.Error) -> None:
        """The node that holds the beginning of its sentence cannot do it."""
        utterance.brings_held = True
        utterance.stage = Stage.READY
        utterance.failed_ms = now
        utterance.last_problem = why.message
        self._counts["turn_moved"] += 1
        self._run_deadlines(now, utterance.index)
        retrying = self._tell(utterance).retrying
        retrying.attempt = utterance.tries
        retrying.why.CopyFrom(why)

    def _tell(self, utterance: Utterance) -> session_pb2.UtteranceEvent:
        """An event for the app's display, to be filled in."""
        event = self._event().utterance
        event.utterance_index = utterance.index
        set_pair(event.direction, utterance.direction)
        return event

    def _end(
        self,
        now: float,
        utterance: Utterance,
        end: dispatcher_pb2.JobDelivered | common_pb2.Error,
    ) -> None:
        """An utterance has a result, or will have none."""
        self._run_deadlines(now, utterance.index)
        del self._open[utterance.index]
        utterance.stage = Stage.OVER
        lost = self._settle(utterance, end)
        utterance.chunks, utterance.included_audio = [], b""
        if utterance.retry_ms:
            self._alarms.clear(("retry", utterance.index))
        if isinstance(end, common_pb2.Error):
            self._lacking.add(utterance.index)
        else:
            self._unseen[utterance.index] = utterance.job_id
        self._queue.put(utterance.index, Outcome(utterance.direction, utterance, end, lost))

    def _settle(
        self, utterance: Utterance, end: dispatcher_pb2.JobDelivered | common_pb2.Error
    ) -> list[int]:
        """Notes what an utterance's end means for what is held; returns what is lost by it."""
        if isinstance(end, common_pb2.Error):
            # Of one that is attached to, nobody here knows whether it has what was held.
            later = [
                each.direction
                for each in self._open.values()
                if each.index > utterance.index and each.tries and not each.is_attached
            ]
            lost = self._turns.on_missing(utterance, is_last=utterance.direction not in later)
        else:
            lost = self._turns.on_result(utterance, end.result)
        is_marked = utterance.is_held or utterance.is_missing
        if is_marked and utterance.index in self._recorded:
            self._unrecorded.append(utterance)
        return lost

    # ---- results ----

    def _release(self, now: float) -> None:
        for index, outcome in self._queue.take():
            end = outcome.end
            if isinstance(end, common_pb2.Error):
                missing = self._event().missing
                missing.utterance_index = index
                set_pair(missing.direction, outcome.direction)
                missing.why.CopyFrom(end)
                missing.lost_utterances.extend(outcome.lost)
            elif outcome.utterance is not None:
                self._counts["result"] += 1
                self._held_back_ms[index] = now - outcome.utterance.result_ms
                told = self._event(is_large=True).result
                fill_result(told, now, outcome.utterance, end, outcome.lost)
            self._counts["held_lost"] += len(outcome.lost)
        while len(self._unseen) > self._rules.result_queue_max:
            # Redis has it in case that the client comes back for it.
            self._todo.append(effects.Leave((self._unseen.pop(min(self._unseen)),)))

    def _acknowledge(self) -> None:
        # What has not come (again) yet is not safe, whatever is known of what follows it.
        safe = self._expected_seq
        for utterance in self._open.values():
            first_seq = utterance.ranges[0][0]
            if first_seq < safe and not utterance.is_safe:
                safe = first_seq
                if safe <= self._acked_seq:
                    return
        gathered = self._gatherer.first_seq
        if gathered is not None and gathered < safe:
            safe = gathered
        if safe > self._acked_seq:
            self._acked_seq = safe
            ack = self._event().audio_ack
            ack.next_seq = safe
            keep = self._keep_from(safe)
            if keep < safe:
                ack.keep_seq = keep

    def _keep_from(self, safe: int) -> int:
        """The first chunk that a later gateway may need again: what a node holds, or may hold.

        It never goes back: what the client has forgotten cannot come again.
        """
        first_seqs = self._turns.first_seqs if self._turns else []
        for utterance in self._open.values():
            if utterance.reason in MAY_CONTINUE:
                first_seqs.append(utterance.ranges[0][0])
        keep = safe
        for seq in first_seqs:
            if self._kept_seq <= seq < keep:
                keep = seq
        self._kept_seq = keep
        return keep

    # ---- the session ----

    def _set_gate(self, now: float, *, is_full: bool) -> None:
        # What another gateway cut gets no result before its chunks are read again.
        is_open = not is_full or self.phase is not Phase.OPEN or bool(self._replayed)
        if is_open != self._gate_open:
            self._gate_open = is_open
            self._heard_ms = now
            self._gatherer.on_hold(now, on=not is_open)
            self._todo.append(effects.Gate(is_open))

    def _set_deadline(self) -> None:
        deadline = self._queue.deadlines.next_ms
        if deadline is not None:
            self._alarms.set(DEADLINE, deadline)

    def _stop_deadlines(self, now: float, cause: int) -> None:
        """Redis is away, says a try of this utterance's job, or of the record (RECORDING)."""
        if self._queue.deadlines.stop(now, cause):
            self._set_deadline()

    def _run_deadlines(self, now: float, cause: int) -> None:
        """Redis is back, says what said that it was away; or what said so is over."""
        if self._queue.deadlines.go_on(now, cause):
            self._set_deadline()

    def _check_done(self, now: float) -> None:
        if self.phase is Phase.CLOSING and len(self._queue) == 0:
            self.phase = Phase.CLOSED
            self._alarms.set(GOODBYE, now + GOODBYE_MS)
            missing = self.missing + len(self._lacking)
            closed = self._event().closed
            closed.results = self._queue.next_out - missing
            closed.missing = missing
        if self.phase is Phase.CLOSED and self._seen == self._queue.next_out:
            self._finish(None, forget=True)

    def _finish(self, why: common_pb2.Error | None, *, forget: bool) -> None:
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OVER
        self._alarms.clear_all()
        self._turns.clear()
        if why is not None:
            self._problem(why)
        if not forget:
            jobs = [each.job_id for each in self._open.values() if each.tries]
            self._todo.append(effects.Leave((*self._unseen.values(), *jobs)))
        self._todo.append(effects.End(why, forget))


def _directions(opened: session_pb2.NewSession) -> tuple[Direction, ...]:
    """The one that is fixed, or both of a conversation."""
    if opened.HasField("direction"):
        return (Direction(opened.direction.src.lower(), opened.direction.tgt.lower()),)
    a, b = opened.conversation.a.lower(), opened.conversation.b.lower()
    return Direction(a, b), Direction(b, a)


def _error(reason: common_pb2.ErrorReason.ValueType, message: str) -> common_pb2.Error:
    return common_pb2.Error(reason=reason, message=message)
