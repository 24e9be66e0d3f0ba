"""Promises 1, 3 and 5: what was said comes back, once and in order, or is missing with a reason.

A client says words that count up, so what it heard can be laid beside what it said. Words that did
not come back must be those of an utterance that is allowed to be lost: one that is missing
for a reason that the fault excuses. What a node holds when it dies is not among them.
"""

from collections.abc import Iterator

from tests.robustness.history import ClientHistory, Excuses, History
from tests.robustness.validate.violation import Violation
from tests.support.records import Record

RULE = "no word is lost or repeated"


def missing_only_where_allowed(history: History) -> Iterator[Violation]:
    """An utterance is missing only for a reason that one of the faults excuses."""
    for client in history.clients:
        for each in client.outcomes():
            if each["what"] == "missing" and each["reason"] not in history.excuses.missing:
                what = f"index {each['index']}: {each['reason']}: {each['message']}"
                yield Violation("missing only where allowed", client.name, what)


def no_word_is_lost(history: History) -> Iterator[Violation]:
    """The words of all results, one after the other, are what was said, but for excused gaps."""
    for client in history.clients:
        said = [word for _, word in client.said]
        order = {word: at for at, word in enumerate(said)}
        yield from _strange_words(client, order)
        if client.lost:
            # What it still held is lost with it; what it heard has been checked.
            continue
        for first, stop, before, after in _gaps(client, order, len(said)):
            if not _is_excused(client, before, after, history.excuses):
                words = said[first:stop]
                what = f"{_few(words)} between index {before} and {after} did not come back"
                yield Violation(RULE, client.name, what)


def _texts(client: ClientHistory) -> list[Record]:
    return [each for each in client.results() if each["kind"] == "TRANSLATED"]


def _strange_words(client: ClientHistory, order: dict[int, int]) -> Iterator[Violation]:
    """Words that were never said, or are out of their order, or come a second time."""
    last = -1
    for each in _texts(client):
        for word in each["words"]:
            at = order.get(int(word)) if word.isdigit() else None
            if at is None:
                what = f"index {each['index']} has {word!r}, which was never said"
                yield Violation(RULE, client.name, what)
                return
            if at <= last:
                what = f"index {each['index']} has {word}, which came before or is out of order"
                yield Violation(RULE, client.name, what)
                return
            last = at


def _gaps(
    client: ClientHistory, order: dict[int, int], count: int
) -> Iterator[tuple[int, int, int, int]]:
    """Stretches that did not come back: from, to, and the indexes of the texts around them."""
    at, before = 0, -1
    for each in _texts(client):
        for word in each["words"]:
            here = order.get(int(word)) if word.isdigit() else None
            if here is None:
                continue
            if here > at:
                yield at, here, before, each["index"]
            at = max(at, here + 1)
            before = each["index"]
    if at < count:
        yield at, count, before, len(client.outcomes())


def _is_excused(client: ClientHistory, before: int, after: int, excuses: Excuses) -> bool:
    """Whether there is an utterance between two texts whose words may be gone."""
    joined = {index for each in _texts(client) for index in each["joined"]}
    for each in client.outcomes():
        if not before < each["index"] < after:
            continue
        if each["what"] == "missing":
            return True
        is_held = each["kind"] == "HELD" and each["index"] not in joined
        if is_held and excuses.held:
            return True
    return False


def _few(words: list[int]) -> str:
    shown = ", ".join(str(word) for word in words[:6])
    return f"{len(words)} words ({shown}{', ...' if len(words) > 6 else ''})"
