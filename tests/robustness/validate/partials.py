"""Partial texts come no more often than the client asked, whatever nodes send."""

from collections import Counter
from collections.abc import Iterator

from tests.robustness.history import ClientHistory, History
from tests.robustness.validate.violation import Violation

RULE = "partial texts keep their interval"


def partials_keep_their_interval(history: History) -> Iterator[Violation]:
    """Counted over the whole time of an utterance: a stalled link may deliver several at once."""
    for client in history.clients:
        came = Counter(each["index"] for each in client.events if each["what"] == "partial")
        for index, count in came.items():
            allowed = _allowed(client, index)
            if count > allowed:
                what = f"{count} partial texts of index {index}, at most {allowed} were due"
                yield Violation(RULE, client.name, what)
                break


def _allowed(client: ClientHistory, index: int) -> int:
    if not client.partial_interval_ms:
        return 0
    its = [each for each in client.events if each.get("index") == index]
    attempts = max((each.get("attempts", 1) for each in its), default=1)
    took_ms = 1000 * (its[-1]["t"] - its[0]["t"])
    return int(took_ms / client.partial_interval_ms) + 1 + attempts
