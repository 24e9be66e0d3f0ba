"""When a watched document is computed again. Pure."""

# Seconds between two computations of a cheap document.
INTERVAL_S = 1.0
# An expensive one takes at most this share of the time: one part in twenty.
COST_FACTOR = 20
# All of them together take at most half of the time, so that the rest is for requests and pollers.
TOTAL_FACTOR = 2


def next_due(began: float, ended: float, *, cost_s: float, total_s: float) -> float:
    """When to compute a document next, after a computation from `began` to `ended`.

    All times are seconds of one monotonic clock.

    Args:
        began: the start of the last computation.
        ended: its end. It may have waited for a service in between; then it waits as long again.
        cost_s: how long it was busy.
        total_s: how long the last computations of all documents were busy.
    """
    return max(
        began + INTERVAL_S,
        began + COST_FACTOR * cost_s,
        began + TOTAL_FACTOR * total_s,
        ended + (ended - began),
    )
