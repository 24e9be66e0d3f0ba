"""The node's handler: audio of a job in, partials and one result out.

A turn is one or more sentences that the scheduler had to cut. Unfinished audio is held and joined
to the next job of the turn. If a turn gets long, its finished sentences are returned at once, and
only the rest is held.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from interpreter_node.engines import (
    RATE,
    Detector,
    Recognizer,
    Samples,
    Translator,
    Voice,
)
from interpreter_node.hearing import samples_of
from interpreter_node.recalled import Recalled, TurnKey
from interpreter_node.segments import Segment, segments
from interpreter_node.sentences import is_unfinished, repaired
from lingua_scheduler.sdk import (
    AudioFormat,
    Encoding,
    Held,
    HeldAudio,
    HeldTooLargeError,
    Job,
    NoSpeech,
    Partial,
    Reason,
    Stage,
    Timing,
    Translated,
    Turn,
)

# Limit of the contract for one result.
MAX_SPEECH_BYTES = 3 * 1024 * 1024
# Longer turns are returned sentence by sentence; those that cannot be split (Opus), at this
# multiple of the length at the latest.
LONG_TURN_S = 20.0
_LONGEST = 3
# Silence to keep if it continues.
_BEGINNING_S = 0.5

Item = Partial | Translated | Held | NoSpeech
_log = logging.getLogger("interpreter_node")


class _NotWantedError(Exception):
    """The job was cancelled."""


@dataclass
class _Watch:
    """Start and duration of each stage, relative to the receipt of the job."""

    timings: list[Timing] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.timings.append(
            Timing(
                stage=stage,
                started_ms=round((began - self._started) * 1000),
                took_ms=round((time.monotonic() - began) * 1000),
            )
        )


class Interpreter:
    """Handles jobs; may be called from as many threads as the node has slots.

    Args:
        recognizer: one of the engines; without a voice, results have only text.
        held: holds unfinished audio; None translates each job separately (for comparison).
        long_turn_s: beyond this, finished sentences of an unfinished turn are returned at once.
    """

    def __init__(
        self,
        *,
        recognizer: Recognizer,
        translator: Translator,
        voice: Voice | None,
        detector: Detector,
        held: HeldAudio | None,
        long_turn_s: float = LONG_TURN_S,
    ) -> None:
        self._recognizer = recognizer
        self._translator = translator
        self._voice = voice
        self._detector = detector
        self._held = held
        self._long_turn_s = long_turn_s
        self._texts = Recalled()

    def __call__(self, job: Job) -> Generator[Item, None, None]:
        """The blocking generator for Node.handler."""
        # A cancelled job needs no answer.
        with contextlib.suppress(_NotWantedError):
            if self._held is None:
                alone = HeldAudio().join(job)
                yield from self._interpret(job, alone)
                return
            with self._held.turn(job) as turn:
                rest = yield from self._interpret(job, turn)
            if rest:
                # Everything before was returned; this is the rest of the turn.
                self._held.keep(_with_audio(job, rest))

    def _interpret(self, job: Job, turn: Turn) -> Generator[Item, None, bytes]:
        """Yield the result; returns the audio to hold, unless it is everything."""
        watch = _Watch()
        # More of the same speech follows.
        goes_on = self._held is not None and job.reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH)
        with watch.stage(Stage.ASR):
            samples = samples_of(turn.audio, job.audio_format)
            found = segments(self._detector.judge(samples), len(samples))
            if not found:
                # A word may have just begun.
                begun = _tail(job, turn, len(samples) / RATE - _BEGINNING_S) if goes_on else b""
                yield NoSpeech(joined=turn.joined, held_bytes=len(begun))
                return begun
            rest, seconds = b"", len(samples) / RATE
            if goes_on and seconds >= self._long_turn_s:
                found, rest = self._split(job, turn, found)
            hold = goes_on and not rest and seconds < _LONGEST * self._long_turn_s
            text = yield from self._recognise(job, samples, found, hold)
        if self._held is not None and job.reason in (Reason.TIMEOUT, Reason.INTERRUPTED):
            hold = is_unfinished(text, job.pair.src)
        if hold and _kept(turn):
            yield Held(timings=watch.timings)
            return b""
        yield from self._answer(job, turn, text, watch, held_bytes=len(rest))
        self._texts.forget(_turn_key(job))
        return rest

    def _split(self, job: Job, turn: Turn, found: list[Segment]) -> tuple[list[Segment], bytes]:
        """Split a long turn into its finished segments and the audio after them.

        If it cannot be split: all segments, and nothing.
        """
        closed = [each for each in found if each.closed]
        rest = _tail(job, turn, closed[-1].end / RATE) if closed else b""
        return (closed, rest) if rest else (found, b"")

    def _recognise(
        self, job: Job, samples: Samples, found: list[Segment], hold: bool
    ) -> Generator[Item, None, str]:
        """The text of all segments, with partials as it grows."""
        said: list[str] = []
        # The job gives the silence to assume after the audio.
        padded = np.concatenate((samples, np.zeros(RATE * job.padding_ms // 1000, np.float32)))
        for segment in found:
            if hold and not segment.closed and not job.partial_interval:
                # It will be recognised again with its end, and is not shown now.
                break
            piece = padded[segment.start : segment.end if segment.closed else len(padded)]
            text = ""
            for text in self._texts_of(job, piece, closed=segment.closed):
                if job.cancelled:
                    raise _NotWantedError
                if job.partial_interval:
                    yield Partial(source=" ".join([*said, text]))
            said.append(text)
        return " ".join(filter(None, said))

    def _texts_of(self, job: Job, piece: Samples, *, closed: bool) -> Iterator[str]:
        """As Recognizer.transcribe; remembers the text of closed segments."""
        key = hashlib.blake2b(piece.tobytes(), digest_size=16).digest()
        known = self._texts.get(_turn_key(job), key)
        if known is not None:
            yield known
            return
        text = ""
        for text in self._recognizer.transcribe(piece, job.pair.src):
            yield text
        if closed:
            self._texts.put(_turn_key(job), key, text)

    def _answer(
        self, job: Job, turn: Turn, text: str, watch: _Watch, *, held_bytes: int
    ) -> Iterator[Item]:
        with watch.stage(Stage.SEMANTIC):
            clean = repaired(text, job.pair.src)
        if not clean:
            yield NoSpeech(joined=turn.joined, held_bytes=held_bytes, timings=watch.timings)
            return
        yield Partial(source=text, repaired=clean)
        translated = clean
        if not job.is_captions:
            with watch.stage(Stage.NMT):
                translated = self._translator.translate(clean, *job.pair)
        speech, speech_format = b"", None
        if job.require_tts and self._voice is not None:
            yield Partial(source=text, repaired=clean, translated=translated)
            with watch.stage(Stage.TTS):
                speech = self._spoken(job, self._voice, translated)
            speech_format = AudioFormat(Encoding.PCM_S16LE, self._voice.rate, 1)
        yield Translated(
            source=text,
            repaired=clean,
            translated=translated,
            speech=speech,
            speech_format=speech_format if speech else None,
            joined=turn.joined,
            held_bytes=held_bytes,
            timings=watch.timings,
        )

    def _spoken(self, job: Job, voice: Voice, text: str) -> bytes:
        speech = bytearray()
        for piece in voice.speak(text, job.pair.tgt):
            if job.cancelled:
                raise _NotWantedError
            if len(speech) + len(piece) > MAX_SPEECH_BYTES:
                _log.warning("%r: the rest of its speech is longer than a result may be", job)
                break
            speech += piece
        return bytes(speech)


def _turn_key(job: Job) -> TurnKey:
    return job.tenant, job.session_id, job.pair.src, job.pair.tgt


def _kept(turn: Turn) -> bool:
    """Hold everything if there is room."""
    with contextlib.suppress(HeldTooLargeError):
        turn.keep()
    return turn.kept


def _tail(job: Job, turn: Turn, from_s: float) -> bytes:
    """The turn's audio from here on; nothing if it cannot be cut (Opus)."""
    audio = job.audio_format
    if audio.encoding is not Encoding.PCM_S16LE or from_s <= 0:
        return b""
    return turn.audio[int(from_s * audio.sample_rate_hz) * 2 * audio.channels :]


def _with_audio(job: Job, audio: bytes) -> Job:
    """The same job with other audio."""
    return Job(
        job_id=job.job_id,
        session_id=job.session_id,
        utterance_index=job.utterance_index,
        pair=job.pair,
        audio=audio,
        audio_format=job.audio_format,
    )
