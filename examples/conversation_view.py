"""Output of `make run`: two speakers side by side, and one line per event."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from lingua_scheduler.sdk import Missing, Outcome, PartialText, Reason, Result, ResultKind

SPEAKERS = {"zh": ("Ana", "Chinese"), "en": ("Ben", "English")}
LEFT, RIGHT = SPEAKERS

_NODE_STYLES = {"amber": "yellow", "birch": "green", "cedar": "cyan"}
_WHY_HELD = {
    Reason.TIMEOUT: "a pause",
    Reason.INTERRUPTED: "interrupted",
    Reason.MAX_DURATION: "too long",
}
# Wider lines are harder to read, and 80 columns are enough for every sentence.
_WIDEST = 100
_NODE_COLUMNS, _ARROW_COLUMNS, _DELAY_COLUMNS = 6, 3, 6


def terminal(*, record: bool = False) -> Console:
    """Stdout: with colours only on a terminal, and none if NO_COLOR is set.

    Args:
        record: record the output for a picture, without transient output.
    """
    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(
        file=sys.stdout,
        highlight=False,
        color_system=None if plain else "auto",
        record=record,
        force_interactive=False if record else None,
        width=80 if record else None,
    )
    if console.width > _WIDEST:
        console.width = _WIDEST
    return console


def save_picture(console: Console, path: Path) -> None:
    """Write the output of a recording console as a self-contained SVG."""
    # Fixed names, so that a new picture differs only in its content.
    svg = console.export_svg(title="make run", unique_id="make-run")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


class ConversationView:
    """Prints a conversation while it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("", spinner="dots")
        self._heard: dict[int, str] = {}
        # One column stays free: some terminals wrap a full line.
        room = console.width - 1 - _NODE_COLUMNS - _ARROW_COLUMNS - _DELAY_COLUMNS
        self._text_columns = max(8, room // 2)

    @contextmanager
    def live(self) -> Iterator[None]:
        """In this block a terminal shows a status line below all others."""
        with self._status:
            yield

    def now(self, what: str) -> None:
        """Set the status line; only terminals show it."""
        self._status.update(Text(what, style="dim", overflow="ellipsis", no_wrap=True))

    def line(self, text: str, style: str = "") -> None:
        """Print one line, cut off if it is too long."""
        self._print(Text(text, style=style))

    def text(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print a paragraph, broken between words."""
        # One column stays free, as in the lines below.
        shown = Text(text, style=style)
        paragraph = Padding(shown, (0, 0, 0, indent), expand=False) if indent else shown
        self._console.print(paragraph, width=self._console.width - 1)

    def link(self, text: str) -> None:
        """Print a line that is not cut off: an address in it would be of no use."""
        self._console.print(Text(text, style="bold" if "://" in text else ""), soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line between utterances."""
        self.line(f"{' ' * _NODE_COLUMNS}{text}", style)

    def header(self) -> None:
        """Print the header above the utterances."""
        left, right = (
            Text(f"{who.upper()} speaks {language}") for who, language in SPEAKERS.values()
        )
        self.line("")
        self._row(Text("NODE"), left, "", right, "DELAY", style="bold")

    def partial(self, partial: PartialText) -> None:
        """Show a partial text."""
        self._heard[partial.index] = partial.texts.source
        self.now(f"{SPEAKERS[partial.src][0]}: {partial.texts.source}")

    def utterance(self, outcome: Outcome, cut: Reason) -> None:
        """Show a delivered utterance: the speech on one side, its translation on the other."""
        said, heard, node, delay = self._texts(outcome, cut)
        if outcome.src == LEFT:
            self._row(node, said, "→", heard, delay)
        else:
            self._row(node, heard, "←", said, delay)

    def _texts(self, outcome: Outcome, cut: Reason) -> tuple[Text, Text, Text, str]:
        so_far = Text(self._heard.get(outcome.index, "…"), style="bold")
        if isinstance(outcome, Missing):
            return so_far, Text(f"MISSING: {outcome.reason}", style="bold red"), Text("-"), ""
        node = node_name(outcome.node_id)
        took = outcome.timings
        after_ms = took.hangover_ms + took.dispatch_ms + took.node_ms + took.deliver_ms
        delay = f"{after_ms / 1000:.2f}s"
        if outcome.kind is ResultKind.TRANSLATED:
            said = Text(outcome.texts.source, style="bold")
            return said, Text(outcome.texts.translated), node, delay
        why = outcome.kind.name.lower().replace("_", " ")
        if outcome.kind is ResultKind.HELD:
            why = f"cut: {_WHY_HELD.get(cut, cut.name.lower())}; audio held"
        return so_far, Text(f"({why})", style="dim"), node, delay

    def _row(
        self, node: Text, left: Text, arrow: str, right: Text, delay: str, style: str = ""
    ) -> None:
        for text in (left, right):
            text.truncate(self._text_columns, overflow="ellipsis", pad=True)
        node.truncate(_NODE_COLUMNS, pad=True)
        middle = Text(f"{arrow:^{_ARROW_COLUMNS}}", style="dim")
        end = Text(f"{delay:>{_DELAY_COLUMNS}}", style="" if style else "dim")
        self._print(Text.assemble(node, left, middle, right, end, style=style))

    def _print(self, text: Text) -> None:
        self._console.print(text, overflow="ellipsis", no_wrap=True, crop=True)


def node_name(node_id: str) -> Text:
    """A node's id in its colour."""
    return Text(node_id, style=_NODE_STYLES.get(node_id, "magenta"))


def delivered(outcomes: list[Outcome]) -> list[Result]:
    """The results that are not missing."""
    return [each for each in outcomes if isinstance(each, Result)]
