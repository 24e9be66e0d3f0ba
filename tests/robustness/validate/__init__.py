"""The promises of docs/architecture.md, as pure functions over the records of one round."""

from tests.robustness.history import History
from tests.robustness.validate.hostile import (
    honest_nodes_stay_in,
    hostile_peers_were_at_work,
    memory_is_bounded,
    no_process_is_silent,
    nobody_dies_of_it,
)
from tests.robustness.validate.order import (
    indexes_in_order,
    one_cut_an_index,
    sessions_reach_their_end,
)
from tests.robustness.validate.partials import partials_keep_their_interval
from tests.robustness.validate.recovery import everybody_is_heard_again, nobody_waits_too_long
from tests.robustness.validate.rooms import ROOM_CHECKS
from tests.robustness.validate.slots import nodes_within_capacity, slots_are_back
from tests.robustness.validate.turns import turns_stay_on_their_node
from tests.robustness.validate.violation import Violation
from tests.robustness.validate.words import missing_only_where_allowed, no_word_is_lost

__all__ = ["CHECKS", "Violation", "validate"]

CHECKS = (
    indexes_in_order,
    one_cut_an_index,
    sessions_reach_their_end,
    missing_only_where_allowed,
    no_word_is_lost,
    nodes_within_capacity,
    slots_are_back,
    turns_stay_on_their_node,
    everybody_is_heard_again,
    nobody_waits_too_long,
    partials_keep_their_interval,
    hostile_peers_were_at_work,
    no_process_is_silent,
    memory_is_bounded,
    honest_nodes_stay_in,
    nobody_dies_of_it,
    *ROOM_CHECKS,
)


def validate(history: History) -> list[Violation]:
    """All that is wrong with a round."""
    found = [violation for check in CHECKS for violation in check(history)]
    return found + [Violation("no bug is logged", "services", line) for line in history.logged]
