"""Promise 4: what continues a sentence goes to the node that holds its beginning."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.robustness.history import History
from tests.robustness.validate.violation import Violation
from tests.support.records import Record


@dataclass(frozen=True)
class LeftTurn:
    """A sentence whose beginning a node held, and which did not go on there.

    Attributes:
        who: the client.
        nodes: that held what came before: the last of them, and those whose audio the next result
            joined. If one of them was struck, the others cannot go on without it.
        is_whole: whether it was given to the next node, so that a result has it: the turn moved.
            If not, it is broken.
    """

    who: str
    nodes: frozenset[str]
    what: str
    is_whole: bool


def left_turns(history: History) -> Iterator[LeftTurn]:
    """After a result that is held, the next one is of the same node and joins it; these are not."""
    for client in history.clients:
        held = None
        joined = {index for each in client.results() for index in each["joined"]}
        done_by = {each["index"]: each["node"] for each in client.results()}
        for each in client.outcomes():
            if held is not None and (what := _breaks(held, each)):
                nodes = {done_by[index] for index in each.get("joined", ()) if index in done_by}
                is_whole = held["index"] in joined
                yield LeftTurn(client.name, frozenset({held["node"], *nodes}), what, is_whole)
            held = each if each.get("kind") == "HELD" else None


def turns(history: History) -> int:
    """How many times a sentence had to go on at the node that held what came before."""
    return sum(each["kind"] == "HELD" for client in history.clients for each in client.results())


def turns_stay_on_their_node(history: History) -> Iterator[Violation]:
    """No turn leaves a node that lives and can be reached. Others are counted in the report."""
    for each in left_turns(history):
        if not any(map(history.excuses.excuses_turns_of, each.nodes)):
            yield Violation("a turn stays on its node", each.who, each.what)


def _breaks(held: Record, outcome: Record) -> str:
    """How an outcome breaks the turn that was held; "" if it does not."""
    if outcome["what"] == "result" and outcome["node"] != held["node"]:
        return (
            f"index {held['index']} is held by {held['node']}, and index {outcome['index']}"
            f" was done by {outcome['node']}"
        )
    if outcome.get("kind") == "TRANSLATED" and held["index"] not in outcome["joined"]:
        return f"index {outcome['index']} does not have the held {held['index']}"
    return ""
