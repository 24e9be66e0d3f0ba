"""A node that measures what it hears and plays it back.

It recognises and translates nothing. Its texts say how long it heard speech, and its speech is the
speaker's own voice, so that a person sees and hears the whole path. It handles audio as a real node
does: if a sentence is unfinished (cut by its duration, or still loud at the end), its audio is held
and joined to the next job of the same turn. A cut sentence is therefore complete if its parts reach
the same node.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import product

from lingua_scheduler.cli.sample_node.hearing import Heard, is_unfinished, measure, samples_of
from lingua_scheduler.cli.sample_node.phrases import Phrase
from lingua_scheduler.cli.sample_node.words import heard_words
from lingua_scheduler.sdk import (
    Held,
    HeldAudio,
    Job,
    Node,
    NoSpeech,
    Partial,
    Tls,
    Token,
    Translated,
)

# Tones of phrases are further apart, and half a second of tone is measured more precisely.
SAME_PITCH_HZ = 9
# Time that a real node would need for a second of speech.
PACE_S = 0.1
# Partial texts of a job; the SDK sends as many as are wanted.
PARTIALS = 4
# Limit of the contract for one result; a multiple of every sample size.
MAX_SPEECH_BYTES = 3 * 1024 * 1024

Item = Partial | Held | NoSpeech | Translated


def sample_node(
    node_id: str,
    langs: Sequence[str],
    slots: int,
    *,
    phrases: Sequence[Phrase] = (),
    token: Token | None = None,
    tls: Tls | None = None,
) -> Node:
    """Make the node; `serve` or `run` connects it.

    Args:
        node_id: its id.
        langs: the languages that it offers.
        slots: jobs at a time.
        phrases: what tones stand for: it answers them with these sentences.
        token: for dispatchers that require one.
        tls: None for plain text.
    """
    node = Node(
        node_id=node_id,
        asr=langs,
        semantic=langs,
        nmt=directions(langs),
        tts=langs,
        slots=slots,
        drain_seconds=5.0,
        software="sample node",
        token=token,
        tls=tls,
    )
    held = HeldAudio()

    @node.handler
    async def answer(job: Job) -> AsyncIterator[Item]:
        with held.turn(job) as turn:
            rate = job.audio_format.sample_rate_hz
            samples = samples_of(turn.audio, job.audio_format)
            heard = measure(samples, rate)
            if not heard.loud_s:
                yield NoSpeech(joined=turn.joined)
                return
            phrase = phrase_of(heard, job, phrases)
            for part in range(1, PARTIALS + 1):
                yield Partial(source=text_of(heard, phrase, job.pair.src, part / PARTIALS))
                await asyncio.sleep(PACE_S * len(samples) / rate / PARTIALS)
            if is_unfinished(job, samples):
                turn.keep()
                yield Held()
                return
            source = text_of(heard, phrase, job.pair.src)
            yield Translated(
                source=source,
                repaired=source,
                translated=text_of(heard, phrase, job.pair.tgt),
                speech=turn.audio[:MAX_SPEECH_BYTES] if job.require_tts else b"",
                speech_format=job.audio_format,
                joined=turn.joined,
            )

    return node


def directions(langs: Sequence[str]) -> list[tuple[str, str]]:
    """Each language to each, and to itself: captions for listeners of a room."""
    return list(product(langs, langs))


def phrase_of(heard: Heard, job: Job, phrases: Sequence[Phrase]) -> Phrase | None:
    """The phrase of this tone, if it has both languages of the job."""
    for phrase in phrases:
        same = heard.tone_hz and abs(phrase.hertz - heard.tone_hz) <= SAME_PITCH_HZ
        if same and {job.pair.src, job.pair.tgt} <= phrase.texts.keys():
            return phrase
    return None


def text_of(heard: Heard, phrase: Phrase | None, language: str, share: float = 1.0) -> str:
    """The text for this share of what was heard."""
    if phrase is not None:
        return phrase.in_language(language, heard.loud_s * share)
    return heard_words(language, heard.spoken_s * share)
