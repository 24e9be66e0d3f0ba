"""Translates the refusals of scripts into errors."""

from collections.abc import Sequence
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.quotas import REFUSED, quota_error

# When to retry after "all full": about the time until some slot becomes free.
_RETRY_MS = 200

_EXPLAINED = {
    "excluded": "excluded by the caller",
    "ejected": "set aside after repeated failures",
    "full": "full",
    "gone": "gone",
    "not_ready": "not ready",
    "overloaded": "over the load threshold",
    "stage": "without a required stage",
    "stale": "silent",
    "unavailable": "not ready or silent",
}


def refusal(reply: Sequence[Any], about: str, node_id: str = "") -> errors.LinguaError:
    """Returns the error for a reply that is not 'ok'.

    Args:
        reply: the reason, then pairs of a cause and how often it was counted.
        about: what was requested, for the message, such as "zh->en".
        node_id: the node that the request named, if any.
    """
    if reply[0] == REFUSED:
        return quota_error(reply)
    reason = reply[0].decode()
    if reason == "NODE_ID_CONFLICT":
        holder = reply[1].decode()
        return errors.NodeIdConflictError(
            f"node id {node_id!r} is in use by a live node at dispatcher {holder!r}; "
            "choose another id, or stop that node first",
            metadata={"node_id": node_id, "owner_instance": holder},
        )
    if reason == "POOL_FULL":
        name = reply[1].decode()
        return errors.PoolFullError(
            f"pool {name} is full (it holds LINGUA_POOL_SIZE x LINGUA_MAX_POOLS nodes)",
            metadata={"pool": name},
        )
    if reason == "BOUND_NODE_FULL":
        bound, waits_for = reply[1].decode(), reply[2].decode()
        return errors.BoundNodeFullError(
            f"node {bound!r}, which has the beginning of this turn for {about}, is {waits_for}",
            retry_after_ms=_RETRY_MS,
            metadata={"node_id": bound, "waits_for": waits_for},
        )
    tally = {reply[i].decode(): int(reply[i + 1]) for i in range(1, len(reply), 2)}
    metadata = {why: str(times) for why, times in sorted(tally.items())}
    counted = ", ".join(
        f"{times} {_EXPLAINED[why]}" for why, times in sorted(tally.items()) if why != "drawn"
    )
    match reason:
        case "NO_CAPABLE_NODE":
            detail = f": {counted}" if counted else ""
            return errors.NoCapableNodeError(
                f"no node can serve {about}{detail}", metadata=metadata
            )
        case "ALL_CANDIDATES_FULL_OR_FAILED":
            return errors.AllCandidatesFullOrFailedError(
                f"no node for {about} has room now: {counted}",
                retry_after_ms=_RETRY_MS,
                metadata=metadata,
            )
        case "PREFERRED_NODE_NOT_CAPABLE":
            return errors.PreferredNodeNotCapableError(
                f"preferred node {node_id!r} is unknown or cannot serve {about}",
                metadata={"node_id": node_id},
            )
        case "SESSION_TAKEN_OVER":
            return errors.SessionTakenOverError("another gateway has taken the session over")
        case "NODE_NOT_FOUND":
            return errors.NodeNotFoundError(f"there is no node {node_id!r}")
        case "NODE_EPOCH_OLD":
            return errors.NodeEpochOldError(
                f"a newer connection of node {node_id!r} has replaced this one"
            )
    return errors.InternalError(f"unexpected reply of a script: {reason!r}")
