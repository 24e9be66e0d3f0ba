"""Promise 2: no node holds more than its slots, by its own count; and no slot is leaked."""

from collections.abc import Iterator

from tests.robustness.history import History
from tests.robustness.validate.violation import Violation


def nodes_within_capacity(history: History) -> Iterator[Violation]:
    """The nodes of these tests take whatever they get, and count for themselves."""
    if history.excuses.capacity:
        return
    for node in history.nodes:
        over = [each for each in node.of("started") if each["at_once"] > node.slots]
        if over:
            worst = max(over, key=lambda each: each["at_once"])
            what = (
                f"{worst['at_once']} jobs at once with {node.slots} slots, at"
                f" {worst['t']:.3f}: {worst['session']}#{worst['index']}; {len(over)} times"
            )
            yield Violation("no node over its capacity", node.node, what)


def slots_are_back(history: History) -> Iterator[Violation]:
    """Within the longest lease after the last job, nothing holds a slot."""
    for lease in history.leases_left:
        yield Violation("all slots are back", "pool", lease)
