"""When a watched document is computed again. Pure."""

# Seconds between two computations of a cheap document.
INTERVAL_S = 1.0
# An expensive one takes at most this share of the time: one part in twenty.
COST_FACTOR = 20


def next_due(began: float, ended: float) -> float:
    """When to compute a document next, after a computation from `began` to `ended`.

    All times are seconds of one monotonic clock.
    """
    return max(began + INTERVAL_S, began + COST_FACTOR * (ended - began), ended)
