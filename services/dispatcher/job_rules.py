"""The numbers that a job is judged by."""

from dataclasses import dataclass

# Nodes that an assignment could not be sent to, and attempts that another home's have replaced, say
# nothing of the job, so they do not count as its tries; but they must not keep a job for ever.
MAX_MISSES = 10

# The pool still tells of an attempt whose end is on its way to it: so much later it is asked again.
ASK_AGAIN_MS = 50.0

# Characters that are kept of what a node says of its failure.
MAX_DETAIL = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """What operators set; all in milliseconds but the count."""

    ack_timeout_ms: float
    # Of each attempt, from its acknowledgement.
    job_timeout_ms: float
    # From the first refusal of a selection; a retry has its own.
    queue_wait_ms: float
    # From the first time that the bound node was full; once a job.
    affinity_wait_ms: float
    grace_ms: float
    # 0: never.
    hedge_after_ms: float
    # A hedge is a try, too.
    max_retry: int
