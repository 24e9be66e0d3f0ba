"""What events change in a job's model, and the effects they ask for.

Functions of the model: each one changes it and appends effects to `job.effects`. `machine` decides
which of them an event leads to.
"""

import math

from lingua_scheduler.services.dispatcher.job import endings
from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Accepted,
    Allocate,
    Attempt,
    AttemptState,
    CancelOnNode,
    Commit,
    Complete,
    Confirm,
    Deliver,
    Fail,
    FailureCause,
    FetchKept,
    Locate,
    Release,
    Retrying,
    Send,
    TimerKey,
    Wait,
)
from lingua_scheduler.services.dispatcher.job.endings import Ending
from lingua_scheduler.services.dispatcher.job.model import (
    HOPELESS_SAYINGS,
    KEPT_FOR_ANOTHER_NODE,
    MAX_MISSES,
    JobModel,
    Phase,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_UNSPECIFIED = common_pb2.JOB_STATE_UNSPECIFIED
_DONE = common_pb2.JOB_STATE_DONE
_FAILED = common_pb2.JOB_STATE_FAILED
_CANCELLED = common_pb2.JOB_STATE_CANCELLED
_OVER_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED

# Timers of the job. Those of an attempt are ("ack" | "job" | "grace", its number).
ASK, BOUND, DEADLINE, HEDGE, OTHERS, WAIT = (
    (kind, 0) for kind in ("ask", "bound", "deadline", "hedge", "others", "wait")
)
# A job that waits has one of these.
_WAITS = (BOUND, OTHERS, WAIT)
# A kept result is looked for, and once more if its node does not have it.
MAX_LOOKS = 2

# ---- looking for a node ----


def select(job: JobModel) -> None:
    """Starts to look for a node."""
    job.phase = Phase.SELECTING
    ask(job)


def ask(job: JobModel) -> None:
    """Asks the pool for a node: the first, or a hedge for one that is slow to acknowledge."""
    may_wait = (
        job.phase is Phase.SELECTING
        and job.rules.affinity_wait_ms > 0
        and not job.waits.leaves_turn
    )
    exclude: tuple[str, ...] = ()
    if job.attempts:
        busy = [attempt.node_id for attempt in job.alive()]
        # A hedge may be the last try, and does not wait: only a node that has not tried the job.
        tried = job.tries.ever if busy else []
        exclude = tuple(dict.fromkeys(job.tries.excluded + busy + tried))
    job.asked = Allocate(max(job.attempts, default=0) + 1, exclude, may_wait)
    job.effects.append(job.asked)


def wait_for_room(job: JobModel, until: float) -> None:
    """Waits for room on any node."""
    _wait(job, WAIT, until)


def others_until(job: JobModel) -> float:
    """Until when only a node that has not tried the job may get it."""
    tries = job.tries
    if job.is_strict or not (_is_last_try(job) or tries.hopeless):
        return -math.inf
    return _before_last_third(job, tries.failed_since + job.rules.other_nodes_wait_ms)


def _is_last_try(job: JobModel) -> bool:
    return job.tries.count >= job.rules.max_retry


def wait_for_others(job: JobModel) -> None:
    """Waits for a node that has not tried the job."""
    # The wait for room on any node starts after this one.
    job.waits.room_since = None
    _wait(job, OTHERS, others_until(job), tuple(job.tries.excluded))


def wait_for_turn(job: JobModel, now: float, why: FailureCause) -> None:
    """Waits for the node that has the beginning of the turn, as long as the deadline allows."""
    is_away = why.metadata.get("waits_for") == "disconnected"
    until = _before_last_third(job, job.waits.turn_ends(now, job.rules, is_away=is_away))
    if now < until:
        _wait(job, BOUND, until)
    else:
        job.clear_timers(*_WAITS)
        job.waits.leaves_turn = True
        ask(job)


def _before_last_third(job: JobModel, until: float) -> float:
    """The end of a wait, early enough to leave time for another attempt."""
    if job.deadline_ms is None:
        return until
    kept = (job.deadline_ms - job.started_ms) * KEPT_FOR_ANOTHER_NODE
    return min(until, job.deadline_ms - kept)


def _wait(job: JobModel, key: TimerKey, until: float, besides: tuple[str, ...] = ()) -> None:
    job.phase = Phase.WAITING
    job.effects.append(Wait(besides))
    job.clear_timers(*_WAITS)
    job.set_timer(key, until)


def stop_waiting(job: JobModel) -> None:
    """Ends a wait at once, in the way in which its timer would end it."""
    (waits_for,) = (key for key in _WAITS if key in job.timers)
    job.clear_timers(waits_for)
    if waits_for == BOUND:
        job.waits.leaves_turn = True
        select(job)
    elif waits_for == WAIT:
        fail(job, waited_in_vain(job))
    elif not give_up_on_others(job):
        select(job)


def give_up_on_others(job: JobModel) -> bool:
    """Lets nodes that have tried the job try it again. True: the job fails instead."""
    if job.tries.hopeless and job.lost_for is not None:
        fail(job, job.lost_for)
        return True
    job.tries.readmit_nodes()
    return False


def decline(job: JobModel, attempt: Attempt, answer: pool_pb2.AllocateResponse) -> None:
    """Gives back a slot that came too late."""
    if attempt.number in job.attempts:
        return
    if not answer.existing:
        # Its node has never heard of it, but its number is used up.
        job.attempts[attempt.number] = attempt
        job.effects.append(Release(attempt, pool_pb2.RELEASE_CAUSE_HEDGE_LOST, _final(job)))
        attempt.state = AttemptState.ENDED
    elif job.phase is Phase.OVER and answer.lease_ends_ms > 0:
        job.attempts[attempt.number] = attempt
        _end_attempt(job, attempt, endings.NOT_WANTED, "the job is over", _final(job))


def take_up_ended(job: JobModel, attempt: Attempt, answer: pool_pb2.AllocateResponse) -> None:
    """Continues a job that was over before it was submitted here."""
    if answer.state == _DONE:
        attempt.state = AttemptState.KEPT
        job.attempts[attempt.number] = attempt
        job.clear_timers(*_WAITS)
        fetch(job, attempt)
    elif answer.error.reason:
        fail(job, FailureCause(answer.error.reason, answer.error.message))
    elif answer.state == _CANCELLED:
        why = "the job was cancelled earlier"
        fail(job, FailureCause(common_pb2.ERROR_REASON_JOB_CANCELLED, why))
    else:
        why = "the job failed earlier"
        fail(job, FailureCause(common_pb2.ERROR_REASON_JOB_FAILED, why))


def fetch(job: JobModel, attempt: Attempt) -> None:
    """Looks for the kept result of a job that is done."""
    job.phase = Phase.FETCHING
    job.looks += 1
    job.effects.append(FetchKept(attempt, is_last=job.looks >= MAX_LOOKS))


# ---- the life of an attempt ----


def place(job: JobModel, now: float, attempt: Attempt) -> None:
    """Sends an attempt to the node that the pool has chosen."""
    rules = job.rules
    may_hedge = rules.hedge_after_ms > 0 and not job.alive() and not job.held
    job.attempts[attempt.number] = attempt
    job.waits.room_since = None
    job.clear_timers(*_WAITS)
    job.effects.append(Send(attempt))
    if attempt.state is AttemptState.ACKED:  # under its previous home
        _run(job, now, attempt)
        return
    job.phase = Phase.PLACED
    job.set_timer(("ack", attempt.number), now + rules.ack_timeout_ms)
    if may_hedge and job.tries.count < rules.max_retry:
        job.set_timer(HEDGE, now + rules.hedge_after_ms)


def hear(job: JobModel, now: float, attempt: Attempt) -> None:
    """Notes that the node has the attempt."""
    attempt.is_cut_off = False
    job.clear_timers(("ack", attempt.number), ("grace", attempt.number))
    if attempt.state is AttemptState.RESERVED:
        attempt.state = AttemptState.ACKED
        job.effects.append(Commit(attempt))
        _run(job, now, attempt)
    elif attempt.state is AttemptState.ACKED:
        job.phase = Phase.RUNNING
    else:
        job.phase = Phase.FETCHING
        if ("job", attempt.number) not in job.timers:
            job.set_timer(("job", attempt.number), now + job.rules.job_timeout_ms)


def _run(job: JobModel, now: float, attempt: Attempt) -> None:
    job.phase = Phase.RUNNING
    job.clear_timers(HEDGE)
    job.set_timer(("job", attempt.number), now + job.rules.job_timeout_ms)
    job.effects.append(Accepted(attempt))
    for other in job.alive():
        if other is not attempt:
            job.tries.add(now, other.node_id, endings.HEDGE_LOST)
            _end_attempt(job, other, endings.HEDGE_LOST, "another node was faster")


def disconnect(job: JobModel, now: float, attempt: Attempt, ending: Ending, why: str) -> None:
    """Waits for the node of an attempt to come back, or tries another one."""
    attempt.is_cut_off = attempt.is_taken_up or ending is not endings.NOT_SENT
    grace_ms = _grace_ms(job, attempt)
    if grace_ms is None:
        lose(job, now, attempt, ending, why)
    else:
        job.phase = Phase.LOST
        job.clear_timers(("ack", attempt.number), HEDGE)
        job.set_timer(("grace", attempt.number), now + grace_ms)
        job.effects.append(Locate(attempt))


def _grace_ms(job: JobModel, attempt: Attempt) -> float | None:
    """How long its node may take to come back; None: another node is tried at once."""
    if attempt.state is not AttemptState.RESERVED:
        return job.rules.grace_ms
    if any(other is not attempt for other in job.alive()):
        return None
    # Its node has the beginning of the turn. The binding itself is not asked: whatever ends a turn
    # has cleared it, and a later home does not know about it.
    if attempt.placement.path in BY_BINDING:
        return job.rules.affinity_away_ms
    # Its previous home may have sent it, so the node most likely runs it and is reconnecting.
    return job.rules.ack_timeout_ms if attempt.is_taken_up else None


def lose(
    job: JobModel, now: float, attempt: Attempt, ending: Ending, what: str, said: str = ""
) -> None:
    """Ends an attempt without a result, and moves on to the next one or to the end of the job.

    what: told to the client. said: the node's own description, which may contain anything; it goes
    to the attempt's record, for operators.
    """
    tries = job.tries
    tries.add(now, attempt.node_id, ending)
    why = FailureCause(ending.reason, f"attempt {attempt.number} on {attempt.node_id}: {what}")
    job.lost_for = why
    is_kept = attempt.state is AttemptState.KEPT
    is_alone = all(other is attempt for other in job.alive())
    if job.held and is_alone and ending.lets_another_try and not is_kept:
        _end_attempt(job, attempt, ending, what, said=said)
        need_audio(job, why.message)
        return
    has_missed_enough = job.deadline_ms is None and tries.misses > MAX_MISSES
    is_spent = tries.count > job.rules.max_retry or has_missed_enough
    is_hopeless = ending.is_hopeless and tries.hopeless >= HOPELESS_SAYINGS
    if is_hopeless or is_kept or (is_alone and is_spent):
        _end_attempt(job, attempt, ending, what, _FAILED, said)
        fail(job, why)
        return
    _end_attempt(job, attempt, ending, what, said=said)
    if ending.counts and _is_last_try(job):
        tries.exclude_all()
    if is_alone:
        job.clear_timers(HEDGE)
        job.effects.append(Retrying(attempt.number, why))
        job.phase = Phase.SELECTING
        if job.asked is not None:
            return  # a hedge was asked for, and becomes the next attempt
        if pause_ms := tries.pause_ms(ending):
            job.set_timer(ASK, now + pause_ms)
        else:
            ask(job)


def need_audio(job: JobModel, why: str) -> None:
    """Fails a job because the node that holds the beginning of its turn cannot do it."""
    held = ", ".join(str(index) for index in sorted(job.held))
    message = f"the audio of utterances {held} is needed again: {why}"
    fail(job, FailureCause(common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED, message))


def _end_attempt(
    job: JobModel,
    attempt: Attempt,
    ending: Ending,
    why: str,
    final: common_pb2.JobState.ValueType = _UNSPECIFIED,
    said: str = "",
) -> None:
    """Ends a living attempt, and gives back the slot that it holds, if any."""
    if ending.cancels:
        job.effects.append(CancelOnNode(attempt, why))
    if attempt.state is AttemptState.RESERVED:
        cut_off = pool_pb2.RELEASE_CAUSE_CONNECTION_LOST
        cause = cut_off if attempt.is_cut_off else ending.cause
        job.effects.append(Release(attempt, cause, final, said))
    elif attempt.state is AttemptState.ACKED:
        detail = f"{why}: {said}" if said else why
        at_fault = ending.job_at_fault
        job.effects.append(Complete(attempt, ending.outcome, detail, final, at_fault))
    attempt.state = AttemptState.ENDED
    job.clear_timers(*((kind, attempt.number) for kind in ("ack", "job", "grace")))


def confirm_late(job: JobModel, number: int, node_id: str) -> None:
    """Confirms a report that nobody needs, unless the pool may still return its attempt."""
    may_be_returned = job.phase in (Phase.NEW, Phase.SELECTING, Phase.WAITING)
    if number in job.attempts or not may_be_returned:
        job.effects.append(Confirm(node_id, number))


# ---- the end of the job ----


def deliver(job: JobModel, attempt: Attempt, result: dispatcher_pb2.JobResult) -> None:
    """Ends the job with a result."""
    attempt.state = AttemptState.DONE
    _end(job, _DONE, Deliver(attempt, result), "another node was faster")


def fail(job: JobModel, why: FailureCause) -> None:
    """Ends the job without a result."""
    cancelled = why.reason == common_pb2.ERROR_REASON_JOB_CANCELLED
    _end(job, _CANCELLED if cancelled else _FAILED, Fail(why), why.message)


def _end(
    job: JobModel, state: common_pb2.JobState.ValueType, last: Deliver | Fail, why: str
) -> None:
    job.phase = Phase.OVER
    job.end_state = state
    for attempt in job.alive():
        _end_attempt(job, attempt, endings.NOT_WANTED, why, _final(job))
    job.timers.clear()
    job.effects.append(last)


def _final(job: JobModel) -> common_pb2.JobState.ValueType:
    """The job's state for a lease operation: how the job failed, if it did."""
    over = job.phase is Phase.OVER and job.end_state != _DONE
    return job.end_state if over else _UNSPECIFIED


def with_last(job: JobModel, why: FailureCause) -> FailureCause:
    """The cause, and how the last attempt was lost, if there was one."""
    if job.lost_for is None:
        return why
    return why._replace(message=f"{why.message}; last: {job.lost_for.message}")


def past_deadline(job: JobModel) -> FailureCause:
    """Why a job fails whose deadline has passed."""
    reason, refused = common_pb2.ERROR_REASON_JOB_TIMEOUT, job.refused_for
    if refused is None or job.alive():
        cause = FailureCause(reason, "the job's deadline passed before a result arrived")
    else:
        message = f"the job's deadline passed while it waited for a node: {refused.message}"
        cause = FailureCause(reason, message, metadata=refused.metadata)
    return with_last(job, cause)


def waited_in_vain(job: JobModel) -> FailureCause:
    """Why a job fails that has waited for room long enough."""
    refused, wait_ms = job.refused_for, job.rules.queue_wait_ms
    if refused is not None and refused.reason == _OVER_QUOTA:
        return refused
    message = f"no node had room within {wait_ms:.0f} ms"
    facts = refused.metadata if refused is not None else {}
    reason = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
    return with_last(job, FailureCause(reason, message, int(wait_ms), facts))
