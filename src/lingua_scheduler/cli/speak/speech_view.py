"""Output of `lingua speak`, as text and as JSON."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from lingua_scheduler.cli.speak.speech_files import SpeechFolder
from lingua_scheduler.cli.views.live_line import LiveLine
from lingua_scheduler.cli.views.output import duration, one_line
from lingua_scheduler.cli.views.table import fact_page
from lingua_scheduler.sdk import (
    Event,
    Missing,
    PartialText,
    Problem,
    Receipt,
    Reconnecting,
    Result,
    ResultKind,
    ResultTimings,
    Resumed,
    Retrying,
)

# Width of the longest label, with its indent.
_NAME_WIDTH = len("  recognised")
_COLOURS = {
    ResultKind.TRANSLATED: "green",
    ResultKind.HELD: "yellow",
    ResultKind.NO_SPEECH: "yellow",
}


class SpeechView:
    """Shows each utterance of a session when it is delivered, and collects all of them.

    Args:
        folder: where to save translated speech; None does not save it.
        words: whether to print text; otherwise the caller only uses `document`.
        live: whether to show partial texts, on a single line.
        silence: whether to show utterances without speech; they are counted in any case.
    """

    def __init__(
        self, *, folder: SpeechFolder | None, words: bool, live: bool, silence: bool = True
    ) -> None:
        self.missing: list[Missing] = []
        self._results: list[tuple[Result, Path | None]] = []
        self._folder = folder
        self._words = words
        self._silence = silence
        self._line = LiveLine(shown=live)
        self._last_retry = (0, "")
        self._spoken = ""
        self._heard = ""

    def start(self, text: str) -> None:
        """Print the first line."""
        self._print(text)

    def hear(self, event: Event) -> None:
        """Handle an event."""
        if isinstance(event, Result):
            self._on_result(event)
        elif isinstance(event, Missing):
            self.missing.append(event)
            self._print(missing_lines(event))
        elif isinstance(event, PartialText):
            texts = event.texts
            said = texts.translated or texts.repaired or texts.source
            self._heard = f"#{event.index} ... {said}"
            self._show()
        elif not self._is_repeated(event) and (note := _note(event)):
            self.say(note)

    def spoken(self, what: str) -> None:
        """How much of the speech was sent; empty when nothing is being sent."""
        self._spoken = what
        self._show()

    def _show(self) -> None:
        shown = "  ".join(part for part in (self._spoken, self._heard) if part)
        if shown:
            self._line.show(shown)
        else:
            self._line.clear()

    def _is_repeated(self, event: Event) -> bool:
        """Whether it was just shown: an utterance without a node is retried until its deadline."""
        if not isinstance(event, Retrying):
            return False
        before, self._last_retry = self._last_retry, (event.index, event.message)
        return self._last_retry == before

    def _on_result(self, result: Result) -> None:
        self._heard = ""
        path = self._folder.save(result) if self._folder else None
        self._results.append((result, path))
        if isinstance(result, Receipt):
            self._print(receipt_lines(result))
        elif self._silence or result.kind is not ResultKind.NO_SPEECH:
            self._print(result_lines(result, path))
        if self._folder and result.speech and path is None:
            self.say(f"#{result.index}: its speech is no PCM, which is all that is saved")

    def _print(self, text: str) -> None:
        self._line.clear()
        if self._words:
            click.echo(text)

    def say(self, note: str) -> None:
        """Print a note on stderr, unless it is empty."""
        self._line.clear()
        if self._words and note:
            click.echo(note, err=True)

    def end(self) -> None:
        """End the output: clear the live line."""
        self._line.clear()

    @property
    def lost(self) -> list[int]:
        """Indexes whose audio was lost while a node held it."""
        outcomes: list[Result | Missing] = [*(each for each, _ in self._results), *self.missing]
        return [index for each in outcomes for index in each.lost]

    @property
    def incomplete(self) -> list[Receipt]:
        """Utterances that somebody in the room did not get in their language."""
        receipts = [each for each, _ in self._results if isinstance(each, Receipt)]
        return [receipt for receipt in receipts if receipt.missing]

    def summary(self) -> str:
        """The number of utterances by outcome."""
        kinds = Counter(_outcome(result) for result, _ in self._results)
        if self.missing:
            kinds["missing"] = len(self.missing)
        total = kinds.total()
        if self.lost:
            kinds["held and lost"] = len(self.lost)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        return f"{total} utterance{'' if total == 1 else 's'}{': ' if counts else ''}{counts}"

    def unsaved(self) -> str:
        """Why nothing was saved; "" if something was, or nothing was requested."""
        if self._folder is None or any(path for _, path in self._results):
            return ""
        if any(result.speech for result, _ in self._results):
            why = "the nodes sent speech that is not PCM"
        elif any(result.kind is ResultKind.TRANSLATED for result, _ in self._results):
            why = "the nodes sent text without speech"
        else:
            why = "nothing was translated"
        return f"--save: nothing was saved, because {why}"

    def document(self) -> dict[str, Any]:
        """All results and missing utterances, without audio."""
        return {
            "results": [_result_document(result, path) for result, path in self._results],
            "missing": [
                {
                    "index": each.index,
                    "pair": {"src": each.src, "tgt": each.tgt},
                    "reason": each.reason,
                    "message": each.message,
                    "lost": list(each.lost),
                }
                for each in self.missing
            ],
        }


def result_lines(result: Result, path: Path | None) -> str:
    """A result, one fact per line."""
    attempts = "1 attempt" if result.attempts == 1 else f"{result.attempts} attempts"
    what = click.style(kind_name(result.kind), fg=_COLOURS.get(result.kind))
    node = f"{result.node_id or 'a node'}, {attempts}"
    facts = [(f"#{result.index}", f"{what}  {result.src}->{result.tgt}  by {node}")]
    if result.kind is ResultKind.HELD:
        facts.append(("", "unfinished: a later utterance has its text"))
    texts = result.texts
    facts += [
        (name, one_line(text))
        for name, text in (
            ("recognised", texts.source),
            ("repaired", texts.repaired if texts.repaired != texts.source else ""),
            ("translated", texts.translated),
        )
        if text
    ]
    if result.joined:
        facts.append(("joined", "with " + " ".join(f"#{index}" for index in result.joined)))
    facts += _lost(result.lost)
    if result.turn_broken:
        facts.append(("turn", "broken: the sentence began at another node"))
    facts.append(("time", _times(result.timings)))
    if path is not None and result.speech_format is not None:
        long = duration(round(result.speech_format.duration_ms(len(result.speech))))
        facts.append(("speech", f"{long} in {path}"))
    head, *rest = facts
    return _block(head, rest)


def receipt_lines(receipt: Receipt) -> str:
    """What became of an utterance in a room."""
    got = " ".join(receipt.delivered)
    what = click.style("delivered", fg="green") if got else click.style("not wanted", fg="yellow")
    head = (f"#{receipt.index}", f"{what}  {receipt.src}->{got or 'nobody listens'}")
    facts = [("in the room", f"#{receipt.room_index}")]
    facts += [
        (
            click.style("missing", fg="red"),
            f"{each.language}, {each.reason}: {one_line(each.message)}",
        )
        for each in receipt.missing
    ]
    return _block(head, facts)


def missing_lines(missing: Missing) -> str:
    """Why there is no result."""
    what = click.style("missing", fg="red")
    why = f"{missing.reason}: {one_line(missing.message)}" if missing.message else missing.reason
    head = (f"#{missing.index}", f"{what}  {missing.src}->{missing.tgt}")
    return _block(head, [("because", why), *_lost(missing.lost)])


def _lost(indexes: tuple[int, ...]) -> list[tuple[str, str]]:
    """Held audio that no result includes."""
    if not indexes:
        return []
    which = " ".join(f"#{index}" for index in indexes)
    return [(click.style("lost", fg="red"), f"what was held of {which}")]


def _block(head: tuple[str, str], facts: list[tuple[str, str]]) -> str:
    """Facts below a heading, in columns shared by all blocks."""
    return fact_page(
        (f"{head[0]:<{_NAME_WIDTH}}", head[1]),
        [(f"  {name}", fact) for name, fact in facts],
    )


def kind_name(kind: ResultKind) -> str:
    """The kind as text."""
    if kind is ResultKind.UNSPECIFIED:
        return "of an unknown kind"
    return kind.name.lower().replace("_", " ")


def _outcome(result: Result) -> str:
    if not isinstance(result, Receipt):
        return kind_name(result.kind)
    if result.missing:
        return "not in all languages"
    return "delivered" if result.delivered else "that nobody listened to"


def _times(timings: ResultTimings) -> str:
    steps = (
        ("audio", timings.audio_ms),
        ("hangover", timings.hangover_ms),
        ("dispatch", timings.dispatch_ms),
        ("node", timings.node_ms),
        ("deliver", timings.deliver_ms),
    )
    told = ", ".join(f"{name} {duration(took_ms)}" for name, took_ms in steps)
    stages = ", ".join(
        f"{each.stage.name.lower()} {duration(each.took_ms)}" for each in timings.stages
    )
    return f"{told} (at the node: {stages})" if stages else told


def _note(event: Event) -> str:
    """A note for the user about an event, if it needs one."""
    match event:
        case Retrying():
            why = one_line(event.message)
            return f"#{event.index}: attempt {event.attempt} failed: {why}; it is tried again"
        case Problem():
            return f"The gateway reports {event.reason}: {one_line(event.message)}"
        case Reconnecting():
            return f"Connection lost ({one_line(event.why)}); reconnecting"
        case Resumed():
            return f"Reconnected after {event.away:.1f} s; the session continues"
        case _:
            return ""


def _result_document(result: Result, path: Path | None) -> dict[str, Any]:
    if isinstance(result, Receipt):
        return {
            "index": result.index,
            "room_index": result.room_index,
            "language": result.src,
            "delivered": list(result.delivered),
            "missing": [
                {"language": each.language, "reason": each.reason, "message": each.message}
                for each in result.missing
            ],
        }
    timings, audio = result.timings, result.speech_format
    return {
        "index": result.index,
        "pair": {"src": result.src, "tgt": result.tgt},
        "kind": result.kind.name,
        "texts": {
            "source": result.texts.source,
            "repaired": result.texts.repaired,
            "translated": result.texts.translated,
        },
        "joined": list(result.joined),
        "lost": list(result.lost),
        "job_id": result.job_id,
        "node_id": result.node_id,
        "attempts": result.attempts,
        "turn_broken": result.turn_broken,
        "timings": {
            "audio_ms": timings.audio_ms,
            "hangover_ms": timings.hangover_ms,
            "dispatch_ms": timings.dispatch_ms,
            "node_ms": timings.node_ms,
            "deliver_ms": timings.deliver_ms,
            "stages": [
                {
                    "stage": each.stage.name,
                    "started_ms": each.started_ms,
                    "took_ms": each.took_ms,
                }
                for each in timings.stages
            ],
        },
        "speech_bytes": len(result.speech),
        "speech_rate_hz": audio.sample_rate_hz if result.speech and audio else None,
        "speech_file": str(path) if path else None,
    }
