"""Promise 1: indexes without holes, each once, in order, and one cut for each of them."""

from collections.abc import Iterator

from tests.robustness.history import History
from tests.robustness.validate.violation import Violation


def indexes_in_order(history: History) -> Iterator[Violation]:
    """Each client has seen 0, 1, 2 and so on: each index once, as a result or as missing."""
    for client in history.clients:
        indexes = [each["index"] for each in client.outcomes()]
        for at, index in enumerate(indexes):
            if index != at:
                what = (
                    f"index {index} came where {at} was due; so far {indexes[max(0, at - 3) : at]}"
                )
                yield Violation("each index once, in order", client.name, what)
                break


def one_cut_an_index(history: History) -> Iterator[Violation]:
    """An index means one stretch of speech: to its client, and to every node that ever got it."""
    for client in history.clients:
        cuts: dict[int, tuple[str, int]] = {}
        for each in client.events:
            if each["what"] == "finalized":
                cut = (each["reason"], each["audio_ms"])
                if cuts.setdefault(each["index"], cut) != cut:
                    what = f"index {each['index']} was cut as {cuts[each['index']]} and as {cut}"
                    yield Violation("one cut an index", client.name, what)
    assigned = [(node.node, each) for node in history.nodes for each in node.of("assigned")]
    speech: dict[tuple[str, int], list[str]] = {}
    for name, each in assigned:
        which = (each["session"], each["index"])
        if not each.get("included") and speech.setdefault(which, each["words"]) != each["words"]:
            what = f"index {which[1]} was {speech[which]} and {each['words']} at {name}"
            yield Violation("one cut an index", which[0], what)
    for name, each in assigned:
        # It brings along what another node held: the words of those indexes, and then its own.
        session, index = each["session"], each["index"]
        indexes = [*each.get("included", ()), index]
        parts = [speech.get((session, at)) for at in indexes]
        whole = [word for part in parts for word in part or ()]
        if None not in parts and each["words"] != whole:
            what = f"index {index} with {indexes[:-1]} was {each['words']} at {name}, not {whole}"
            yield Violation("one cut an index", session, what)


def sessions_reach_their_end(history: History) -> Iterator[Violation]:
    """No session was lost, and each that spoke has heard something."""
    for client in history.clients:
        if client.lost and client.lost.split(":")[0] not in history.excuses.sessions:
            yield Violation("no session is lost", client.name, client.lost)
        elif client.said and not client.lost and not client.outcomes():
            yield Violation("no session is lost", client.name, "nothing was ever heard")
