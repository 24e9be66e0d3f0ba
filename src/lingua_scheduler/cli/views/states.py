"""The colours of states: the same word has the same colour in every command.

Only the basic colours, which every terminal adapts to its background, and never a colour without
the word: output without colours says as much.
"""

import click

GOOD, WARNING, BAD, BUSY = "green", "yellow", "red", "cyan"

_COLOURS = {
    GOOD: ("ready", "serving", "connected", "done", "running", "translated"),
    WARNING: (
        *("degraded", "draining", "drained", "new", "away", "cancelled", "retrying"),
        *("waiting", "held", "no speech", "stopping"),
    ),
    BAD: (
        *("offline", "down", "failed", "ejected", "missing", "lost", "not_serving"),
        *("unavailable", "ended", "restarting"),
    ),
    BUSY: ("selecting", "reserved", "dispatched", "acked", "starting"),
}
_BY_WORD = {word: colour for colour, words in _COLOURS.items() for word in words}


def colour_of(word: str) -> str | None:
    """The colour of a state; None for a word that is no state."""
    return _BY_WORD.get(word.lower())


def state(word: str) -> str:
    """The word in its colour."""
    return click.style(word, fg=colour_of(word))
