"""What was said and heard in a browser, as the robustness suite writes it down.

A word is a block of the microphone, 20 ms. What was said are the blocks that the page has given to
its session (`lingua:sent`), numbered from 1; their content is what went over the wire. A node has
heard a word if that very content is in the audio of a job. Sounds that repeat themselves cannot be
told apart: use MURMUR.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.browser.hearing_node import audio_of_job
from tests.browser.talk_page import TalkPage
from tests.robustness.history import ClientHistory, Excuses, History
from tests.robustness.validate.order import (
    indexes_in_order,
    one_cut_an_index,
    sessions_reach_their_end,
)
from tests.robustness.validate.violation import Violation
from tests.robustness.validate.words import missing_only_where_allowed, no_word_is_lost
from tests.support.node_process import NodeProcess
from tests.support.records import Record

CHECKS = (
    indexes_in_order,
    one_cut_an_index,
    sessions_reach_their_end,
    missing_only_where_allowed,
    no_word_is_lost,
)
SAMPLE_BYTES = 2


@dataclass(frozen=True)
class Word:
    """A block of speech: when it was said, and its samples."""

    t: float
    number: int
    data: bytes


def violations(
    page: TalkPage, nodes: Sequence[NodeProcess], excuses: Excuses | None = None
) -> list[Violation]:
    """All that is wrong with the sessions of a page. Words are checked for each person."""
    found = [Violation("chunks are resent unchanged", "page", each) for each in page.wire.changed]
    for session in dict.fromkeys(each["detail"]["sessionId"] for each in page.sent()):
        both = _history(page, nodes, session)
        history = History("browser", 0, clients=both, excuses=excuses or Excuses())
        found += [violation for check in CHECKS for violation in check(history)]
    return found


def _history(page: TalkPage, nodes: Sequence[NodeProcess], session: str) -> list[ClientHistory]:
    """A history for each language that was spoken. Each has all outcomes of the session."""
    events = [each for each in page.events() if each.get("sessionId") == session]
    said = [each for each in page.sent() if each["detail"]["sessionId"] == session]
    made = []
    for src in dict.fromkeys(each["detail"]["direction"]["src"] for each in said):
        words = list(_words(page, session, src, said))
        records = [_record(each, src, words, nodes) for each in events]
        made.append(
            ClientHistory(
                name=f"{session} {src}",
                session=session,
                said=[(word.t, word.number) for word in words],
                events=records,
            )
        )
    return made


def _words(page: TalkPage, session: str, src: str, said: list[Record]) -> Iterator[Word]:
    audio = page.wire.audio(session, page.wire.languages[session][src])
    at = 0
    for number, each in enumerate(said, 1):
        if each["detail"]["direction"]["src"] != src or not each["detail"]["samples"]:
            continue
        size = each["detail"]["samples"] * SAMPLE_BYTES
        yield Word(each["t"], number, audio[at : at + size])
        at += size


def _record(event: Record, src: str, words: list[Word], nodes: Sequence[NodeProcess]) -> Record:
    """An event as the robustness suite writes it down; only words of one language are in it."""
    base = {"t": event["t"], "what": event["type"], "index": event.get("index", -1)}
    match event["type"]:
        case "result":
            is_its = event["kind"] == "TRANSLATED" and event["direction"]["src"] == src
            return {
                **base,
                "kind": event["kind"],
                "words": list(_heard(_audio(event, nodes), words)) if is_its else [],
                "joined": event["joined"],
                "lost": event["lost"],
                "node": event["nodeId"],
                "attempts": event["attempts"],
            }
        case "missing":
            return {**base, "reason": event["reason"], "message": event["message"]}
        case "finalized":
            return {**base, "reason": event["reason"], "audio_ms": event["audioMs"]}
        case _:
            return base


def _audio(result: Record, nodes: Sequence[NodeProcess]) -> bytes:
    (node,) = (each for each in nodes if each.node_id == result["nodeId"])
    return audio_of_job(node, result["jobId"])


def _heard(audio: bytes, words: list[Word]) -> Iterator[str]:
    """The words in some audio. What is none of them is one word with a question mark."""
    known: dict[bytes, int] = {word.data: at for at, word in enumerate(words) if word.data}
    sizes = sorted({len(data) for data in known}, reverse=True)
    at, due = 0, 0
    while at < len(audio):
        # Blocks may be alike after all, if the browser had no sound for a moment.
        if due < len(words) and words[due].data == audio[at : at + len(words[due].data)]:
            found = due
        else:
            matching = (
                known[audio[at : at + size]] for size in sizes if audio[at : at + size] in known
            )
            found = next(matching, -1)
        if found < 0:
            yield f"{len(audio) - at} of {len(audio)} bytes?"
            return
        yield str(words[found].number)
        at += len(words[found].data)
        due = found + 1
