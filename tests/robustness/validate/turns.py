"""Promise 4: what continues a sentence goes to the node that holds its beginning."""

from collections.abc import Iterator

from tests.robustness.history import History, Record
from tests.robustness.validate.violation import Violation


def turns_stay_on_their_node(history: History) -> Iterator[Violation]:
    """After a result that is held, the next utterance comes from the same node and joins it."""
    if history.excuses.held:
        return
    for client in history.clients:
        held = None
        for each in client.outcomes():
            if held is not None and each["what"] == "result" and each["node"] != held["node"]:
                what = (
                    f"index {held['index']} is held by {held['node']}, and index {each['index']}"
                    f" was done by {each['node']}"
                )
                yield Violation("a turn stays on its node", client.name, what)
            elif held is not None and _is_text_without(each, held["index"]):
                what = f"index {each['index']} does not have the held {held['index']}"
                yield Violation("a turn stays on its node", client.name, what)
            held = each if each.get("kind") == "HELD" else None


def _is_text_without(outcome: Record, index: int) -> bool:
    return outcome.get("kind") == "TRANSLATED" and index not in outcome["joined"]
