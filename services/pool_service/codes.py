"""Numbers and words of the scripts, and their meaning in the contract. See lua/lib/codes.lua."""

from lingua_scheduler.v1 import common_pb2, pool_pb2

# Health of a node that is being taken out of its pools, and of one that is out. Such a node must
# register again; callers see it as offline.
LEAVING = 5
OUT = 6

# Why a healthy node gets no jobs: an operator has drained it, or it belongs into another cell.
DRAINED = 1
MOVING = 2

JOB_STATES = {
    b"reserved": common_pb2.JOB_STATE_RESERVED,
    b"acked": common_pb2.JOB_STATE_ACKED,
    b"retrying": common_pb2.JOB_STATE_RETRYING,
    b"done": common_pb2.JOB_STATE_DONE,
    b"failed": common_pb2.JOB_STATE_FAILED,
    b"cancelled": common_pb2.JOB_STATE_CANCELLED,
    b"unplaced": common_pb2.JOB_STATE_FAILED,
}

# The state of a job whose attempt ended without a result; '' if another attempt follows.
FINAL_STATES = {
    common_pb2.JOB_STATE_UNSPECIFIED: "",
    common_pb2.JOB_STATE_FAILED: "failed",
    common_pb2.JOB_STATE_CANCELLED: "cancelled",
}

COMMIT_OUTCOMES = {
    b"committed": pool_pb2.CommitResponse.OUTCOME_COMMITTED,
    b"already": pool_pb2.CommitResponse.OUTCOME_ALREADY,
    b"committed_late": pool_pb2.CommitResponse.OUTCOME_COMMITTED_LATE,
    b"no_room": pool_pb2.CommitResponse.OUTCOME_NO_ROOM,
    b"superseded": pool_pb2.CommitResponse.OUTCOME_SUPERSEDED,
}

RELEASE_OUTCOMES = {
    b"released": pool_pb2.ReleaseResponse.OUTCOME_RELEASED,
    b"nothing": pool_pb2.ReleaseResponse.OUTCOME_NOTHING_TO_RELEASE,
    b"running": pool_pb2.ReleaseResponse.OUTCOME_RUNNING,
    b"left": pool_pb2.ReleaseResponse.OUTCOME_LEFT,
}

# Whether the cause counts as a failure of the node.
RELEASE_FAULTS = {
    pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT: True,
    pool_pb2.RELEASE_CAUSE_SEND_FAILED: False,
    pool_pb2.RELEASE_CAUSE_REJECTED: True,
    pool_pb2.RELEASE_CAUSE_CANCELLED: False,
    pool_pb2.RELEASE_CAUSE_HEDGE_LOST: False,
    pool_pb2.RELEASE_CAUSE_CONNECTION_LOST: False,
    pool_pb2.RELEASE_CAUSE_BAD_JOB: False,
}

# Names for the job's record and the metrics.
RELEASE_CAUSES = {
    cause: pool_pb2.ReleaseCause.Name(cause).removeprefix("RELEASE_CAUSE_").lower()
    for cause in RELEASE_FAULTS
}

ATTEMPT_OUTCOMES = {
    pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED: "done",
    pool_pb2.ATTEMPT_OUTCOME_FAILED: "failed",
    pool_pb2.ATTEMPT_OUTCOME_TIMED_OUT: "timed_out",
    pool_pb2.ATTEMPT_OUTCOME_CANCELLED: "cancelled",
}

# Those that count as a failure of the node, unless the job is at fault.
FAULTS = (pool_pb2.ATTEMPT_OUTCOME_FAILED, pool_pb2.ATTEMPT_OUTCOME_TIMED_OUT)

COMPLETE_OUTCOMES = {
    b"completed": pool_pb2.CompleteResponse.OUTCOME_COMPLETED,
    b"already": pool_pb2.CompleteResponse.OUTCOME_ALREADY,
    b"superseded": pool_pb2.CompleteResponse.OUTCOME_SUPERSEDED,
}

END_OUTCOMES = {
    b"ended": pool_pb2.EndJobResponse.OUTCOME_ENDED,
    b"already": pool_pb2.EndJobResponse.OUTCOME_ALREADY,
    b"superseded": pool_pb2.EndJobResponse.OUTCOME_SUPERSEDED,
}

BINDING_NAMES = {
    pool_pb2.BINDING_KIND_TIMEOUT: "timeout",
    pool_pb2.BINDING_KIND_MAX_DURATION: "max_duration",
}

BEAT_PROBLEMS = {
    b"register_again": pool_pb2.BeatProblem.KIND_REGISTER_AGAIN,
    b"epoch_old": pool_pb2.BeatProblem.KIND_EPOCH_OLD,
    b"not_renewed": pool_pb2.BeatProblem.KIND_NOT_RENEWED,
}


def lease_member(attempt: common_pb2.AttemptRef) -> str:
    """Returns the member of an attempt in the lease sets of a node."""
    return f"{attempt.job_id}:{attempt.attempt}"


def attempt_of(member: bytes) -> common_pb2.AttemptRef:
    """Returns the attempt of a member of a lease set."""
    job_id, _, attempt = member.decode().rpartition(":")
    return common_pb2.AttemptRef(job_id=job_id, attempt=int(attempt))
