"""Output of `lingua listen`: a paragraph, or a line of JSON, for each utterance."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
from rich.cells import cell_len, chop_cells

from lingua_scheduler.cli.speak.speech_files import SpeechFolder
from lingua_scheduler.cli.views.output import one_line, terminal_width
from lingua_scheduler.sdk import (
    ListeningChanged,
    NotSaid,
    Problem,
    Reconnecting,
    Rejoined,
    ResultKind,
    RoomEvent,
    Said,
)

# Narrower text is harder to read than text that the terminal breaks.
_LEAST_WIDTH = 24
_INDENT = "    "


class HeardView:
    """Shows what is said in a room, as it comes.

    Args:
        folder: where to save speech; None does not save it.
        original: save the speakers' own audio instead of translated speech.
        as_json: print a line of JSON for each event instead of text.
    """

    def __init__(self, *, folder: SpeechFolder | None, original: bool, as_json: bool) -> None:
        self._folder = folder
        self._original = original
        self._json = as_json
        self._said = 0
        self._missing = 0

    def start(self, text: str) -> None:
        """Print the first line."""
        if not self._json:
            click.echo(text)

    def hear(self, event: RoomEvent) -> None:
        """Show an event."""
        if isinstance(event, Said):
            self._said += 1
            path = self._save(event)
            self._print(said_document(event, path) if self._json else said_lines(event, path))
        elif isinstance(event, NotSaid):
            self._missing += event.until_index - event.room_index
            self._print(not_said_document(event) if self._json else not_said_lines(event))
        elif self._json:
            self._print(_note_document(event))
        else:
            click.echo(_note(event), err=True)

    def summary(self, *, closed: bool) -> str:
        """How much was heard, and how it ended."""
        counts = f"{self._said} utterance{'' if self._said == 1 else 's'}"
        missing = f", {self._missing} missing" if self._missing else ""
        return f"{'The room was closed' if closed else 'Left the room'}: {counts}{missing}."

    def _save(self, said: Said) -> Path | None:
        if self._folder is None:
            return None
        audio, audio_format = said.speech, said.speech_format
        # In the listener's own language, the voice of the speaker is the speech.
        if self._original or not audio:
            audio, audio_format = said.original_audio, said.original_format
        return self._folder.save_audio(said.room_index, audio, audio_format)

    def _print(self, shown: str | dict[str, Any]) -> None:
        if isinstance(shown, dict):
            shown = json.dumps(shown, ensure_ascii=False)
        click.echo(shown)
        # Whoever reads a pipe wants each line when it was said.
        sys.stdout.flush()


def said_lines(said: Said, path: Path | None) -> str:
    """An utterance: who said it, and what."""
    text = one_line(said.text)
    if said.kind is ResultKind.HELD:
        text = "(unfinished: a later utterance has its text)"
    elif said.kind is ResultKind.NO_SPEECH:
        text = "(no speech)"
    elif not text:
        text = "(no text)"
    lines = [_paragraph(_head(said.room_index, said.speaker, said.replayed), text)]
    if said.lost:
        which = " ".join(f"#{index}" for index in said.lost)
        lines.append(f"{_INDENT}{click.style('lost', fg='red')}: what was held of {which}")
    if path is not None:
        lines.append(f"{_INDENT}speech in {path}")
    return "\n".join(lines)


def not_said_lines(missing: NotSaid) -> str:
    """Why there is no text."""
    why = f"{missing.reason}: {one_line(missing.message)}" if missing.message else missing.reason
    head = _head(missing.room_index, missing.speaker, missing.replayed)
    last = missing.until_index - 1
    if last > missing.room_index:
        head = f"#{missing.room_index} to #{last}"
    return _paragraph(head, f"(missing: {why})", colour="red")


def _head(index: int, speaker: str, replayed: bool) -> str:
    who = f" {one_line(speaker)}" if speaker else ""
    return f"#{index}{who}{' (earlier)' if replayed else ''}"


def _paragraph(head: str, text: str, colour: str | None = None) -> str:
    """The head and the text, wrapped on a terminal; elsewhere always one line."""
    lines = [text]
    if sys.stdout.isatty():
        width = terminal_width()
        first = max(_LEAST_WIDTH, width - cell_len(head) - 2)
        rest = max(_LEAST_WIDTH, width - len(_INDENT))
        lines = _wrapped(text, first, rest)
    shown = [click.style(line, fg=colour) if colour else line for line in lines]
    return f"{click.style(head, bold=True)}: " + f"\n{_INDENT}".join(shown)


def _wrapped(text: str, first: int, rest: int) -> list[str]:
    """Lines of a text, of which the first may have another width."""
    if cell_len(text) != len(text):
        # Wide characters, which languages have that need no spaces between words.
        head, *others = chop_cells(text, first) or [""]
        return [head, *chop_cells("".join(others), rest)] if others else [head]
    head, *others = textwrap.wrap(text, first) or [""]
    return [head, *textwrap.wrap(" ".join(others), rest)] if others else [head]


def _note(event: RoomEvent) -> str:
    """A note for the user about anything else."""
    match event:
        case Problem():
            return f"The gateway reports {event.reason}: {one_line(event.message)}"
        case Reconnecting():
            return f"Connection lost ({one_line(event.why)}); reconnecting"
        case Rejoined():
            return f"Reconnected after {event.away:.1f} s; continuing with #{event.position}"
        case ListeningChanged():
            return f"Listening to {event.listening.language} from #{event.position} on"
        case _:
            return ""


# ---- JSON: one object a line, with the kind of the event ----


def said_document(said: Said, path: Path | None) -> dict[str, Any]:
    """An utterance, without audio."""
    return {
        "event": "said",
        "room_index": said.room_index,
        "speaker": said.speaker,
        "session_id": said.session_id,
        "language": said.language,
        "spoken_language": said.spoken_language,
        "kind": said.kind.name,
        "text": said.text,
        "texts": {
            "source": said.texts.source,
            "repaired": said.texts.repaired,
            "translated": said.texts.translated,
        },
        "joined": list(said.joined),
        "lost": list(said.lost),
        "turn_broken": said.turn_broken,
        "replayed": said.replayed,
        "cut_at_ms": said.cut_at_ms,
        "audio_ms": said.audio_ms,
        "published_ms": said.published_ms,
        "speech_bytes": len(said.speech),
        "original_bytes": len(said.original_audio),
        "speech_file": str(path) if path else None,
    }


def not_said_document(missing: NotSaid) -> dict[str, Any]:
    """What is missing, and why."""
    return {
        "event": "not_said",
        "room_index": missing.room_index,
        "until_index": missing.until_index,
        "speaker": missing.speaker,
        "session_id": missing.session_id,
        "language": missing.language,
        "spoken_language": missing.spoken_language,
        "reason": missing.reason,
        "message": missing.message,
        "lost": list(missing.lost),
        "replayed": missing.replayed,
    }


def _note_document(event: RoomEvent) -> dict[str, Any]:
    match event:
        case Problem():
            return {"event": "problem", "reason": event.reason, "message": event.message}
        case Reconnecting():
            return {"event": "reconnecting", "why": event.why}
        case Rejoined():
            return {"event": "rejoined", "away_s": event.away, "position": event.position}
        case ListeningChanged():
            language = event.listening.language
            return {"event": "changed", "language": language, "position": event.position}
        case _:
            return {"event": "unknown"}
