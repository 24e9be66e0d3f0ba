"""The numbers that a job is judged by."""

from dataclasses import dataclass

# Misses: attempts that no node took on (it was not reached, or had no room), and attempts that were
# replaced by another home's. They say nothing of the job, so they do not count as its tries. The
# pause after each is longer than the last, and the deadline ends them; without one, this number.
MAX_MISSES = 10
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 50.0, 1000.0

# Nodes that must call a job hopeless before it ends: one alone may be wrong, or lie.
HOPELESS_SAYINGS = 2

# A job that waits for the node of its turn keeps this part of its time for another node.
KEPT_FOR_ANOTHER_NODE = 1 / 3

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
    # For the node of the turn: while it is full or silent, and while it is disconnected.
    affinity_wait_ms: float
    affinity_away_ms: float
    grace_ms: float
    # 0: never.
    hedge_after_ms: float
    # A hedge is a try, too.
    max_retry: int


def pause_ms(misses: int) -> float:
    """How long to wait after so many misses before the pool is asked again; not after the first."""
    if misses <= 1:
        return 0.0
    return min(_FIRST_PAUSE_MS * (1 << min(misses - 2, 10)), _LONGEST_PAUSE_MS)
