"""How long people had to wait; and that nobody waits for ever."""

from collections.abc import Iterator

from tests.robustness.history import ClientHistory, History
from tests.robustness.validate.violation import Violation


def everybody_is_heard_again(history: History) -> Iterator[Violation]:
    """After the last fault, each session that goes on speaking gets a result."""
    for client in history.clients:
        spoke_on = any(t > history.healed for t, _ in client.said)
        if spoke_on and not client.lost and recovery(client, history.healed) is None:
            what = "spoke after the fault was over, and nothing came back"
            yield Violation("everybody is heard again", client.name, what)


def nobody_waits_too_long(history: History) -> Iterator[Violation]:
    """If a fault bounds the wait, no text takes longer, also if the fault lasts longer."""
    limit = history.stall_s
    for client in history.clients:
        if limit and (stall := longest_stall(client)) > limit:
            what = f"a text came {stall:.1f} s after its last word; {limit:.0f} s are allowed"
            yield Violation("nobody waits too long", client.name, what)


def recovery(client: ClientHistory, healed: float) -> float | None:
    """Seconds from the end of the fault to the client's next result; None: there was none."""
    times = [each["t"] for each in client.results() if each["t"] > healed]
    return min(times) - healed if times else None


def waits(client: ClientHistory) -> list[tuple[float, float]]:
    """When each text came, and how many seconds after its last word."""
    said_at = {str(word): t for t, word in client.said}
    return [
        (each["t"], each["t"] - said_at[each["words"][-1]])
        for each in client.results()
        if each["kind"] == "TRANSLATED" and each["words"] and each["words"][-1] in said_at
    ]


def longest_stall(client: ClientHistory) -> float:
    """The longest time from the last word of a text to that text, in seconds."""
    return max((wait for _, wait in waits(client)), default=0.0)
