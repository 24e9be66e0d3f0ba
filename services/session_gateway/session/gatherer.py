"""Where speech is cut: chunks in, utterances out. No I/O, no clock.

At any time one stretch of speech is gathered, and for each direction one short fragment may be kept
for what comes next:

    IDLE       nothing is gathered
    GATHERING  chunks come in
    FULL       the longest duration is reached; the first chunk that is no late one cuts
    HANGOVER   the end is decided; late chunks may still join

Every event in every phase ("-": nothing happens):

                    IDLE           GATHERING       FULL               HANGOVER
    chunk           gather         gather          join, or cut and   join, or cut and
                                                   gather             gather
    last chunk      gather, end    gather, end     as chunk, end      join (a repeated end),
                                                                      or cut, gather, end
    end, no data    end the frag-  end             end                a repeated end
                    ment, or an
                    empty end
    other side      gather         break, gather   break, gather      cut, gather
    after a gap     gather         pause, gather   pause, gather      as chunk
    too large       gather         cut, gather     cut, gather        cut, gather
    playback on     no pause       no pause        no pause           -
    playback off    -              pause from now  pause from now     -
    hold on, off    as playback    as playback     as playback        -
    timer pause     -              pause, or later pause, or later    -
    timer hangover  -              -               -                  cut
    timer fragment  send it alone  send it alone   send it alone      send it alone
    close           send fragments cut, send them  cut, send them     cut, send them

"end": the hangover of IsFinal begins. "pause": a short stretch becomes the fragment of its
direction, unless it is the rest of one that was cut; any other is cut, by the timer after a
hangover, by what came next at once. "break": the same as a pause, with the reason Interrupted. A
repeated end changes a pause to IsFinal, and nothing else.

In sessions with voice detection (decision 26), chunks say how much of their end is without voice.
A pause is then also `voice_pause_ms` of that after a voice, and cuts at once. Silence is gathered
like speech; a stretch without any voice is cut as a pause when it gets long, and the longest
duration counts from the first voice, so that the silence before a sentence does not cut it.

MaxDuration and MaxLength cut only when more has come: so there is always a rest, whose own end ends
the turn, and no node waits for a sentence's end that was silence.
"""

from collections.abc import Callable, Iterable, MutableMapping

from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    HANGOVER,
    PAUSE,
    SessionTimers,
)
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import (
    LEAVES_REST,
    Chunk,
    Cut,
    Direction,
    Reason,
    Speech,
)
from lingua_scheduler.v1 import common_pb2

_IS_FINAL = common_pb2.FINALIZE_REASON_IS_FINAL
_TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
_MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION
_MAX_LENGTH = common_pb2.FINALIZE_REASON_MAX_LENGTH
_CLOSE = common_pb2.FINALIZE_REASON_SESSION_CLOSE
_INTERRUPTED = common_pb2.FINALIZE_REASON_INTERRUPTED


class Gatherer:
    """Gathers the speech of one session.

    Promises: every byte of a chunk comes out in exactly one cut, in the order of the chunks of its
    direction, at the latest at `close`; no cut is empty.

    Args:
        rules: the numbers.
        timers: of the session.
        counts: where it adds up what is worth counting.
        on_empty_end: told of an end in a direction in which nothing is gathered.
        continues: directions whose last cut, by another gateway, left a rest.
    """

    def __init__(
        self,
        *,
        rules: SessionRules,
        timers: SessionTimers,
        counts: MutableMapping[str, int],
        on_empty_end: Callable[[Direction], None] = lambda _: None,
        continues: Iterable[Direction] = (),
    ) -> None:
        self._rules = rules
        self._timers = timers
        self._counts = counts
        self._on_empty_end = on_empty_end
        self._speech: Speech | None = None
        self._fragments: dict[Direction, tuple[Speech, float]] = {}
        # In the hangover: the reason, and when it was decided.
        self._ending: tuple[Reason, float] | None = None
        # When the longest duration was reached, and how much has joined since that or the end.
        self._full_ms: float | None = None
        self._joined_ms = 0.0
        # Directions whose last cut left a rest.
        self._continues = set(continues)
        # The last chunk with data: when it came, and when the client had recorded it.
        self._last_ms = 0.0
        self._last_client_ms = 0
        self._playing = False
        self._held = False

    @property
    def first_seq(self) -> int | None:
        """The first chunk that is in no cut yet."""
        if not self._fragments:
            return None if self._speech is None else self._speech.first_seq
        stretches = [speech for speech, _ in self._fragments.values()]
        if self._speech is not None:
            stretches.append(self._speech)
        return min((speech.first_seq for speech in stretches), default=None)

    def on_chunk(self, now: float, chunk: Chunk) -> list[Cut]:
        """A chunk that is good and comes in its order."""
        cuts = self._before(now, chunk)
        if chunk.data:
            self._gather(now, chunk)
        return cuts + self._after(now, chunk)

    def on_playback(self, now: float, *, on: bool) -> None:
        """The app begins or ends to play speech: no pause while it does."""
        self._playing = on
        # What the client's clock says of the time before tells nothing of a pause.
        self._last_client_ms = 0
        self._listen_again(now)

    def on_hold(self, now: float, *, on: bool) -> None:
        """Audio is not read for now: that it does not come is no pause."""
        self._held = on
        self._listen_again(now)

    def on_pause_timer(self, now: float) -> list[Cut]:
        """There may have been a pause."""
        if self._speech is None or self._ending is not None or self._deaf:
            return []
        due = self._last_ms + self._rules.pause_ms
        if now < due:
            self._timers.set_by(PAUSE, due)
            return []
        if self._is_short(self._speech):
            return self._keep_fragment(now)
        return self._end(now, _TIMEOUT)

    def on_hangover_timer(self, now: float) -> list[Cut]:
        """No more audio joins."""
        return self._cut(now) if self._ending is not None else []

    def on_fragment_timer(self, now: float) -> list[Cut]:
        """Fragments that have waited long enough are sent alone."""
        over = [key for key, (_, until) in self._fragments.items() if until <= now]
        cuts = [Cut(self._fragments.pop(key)[0], _TIMEOUT, now, now) for key in over]
        self._set_fragment_timer()
        return sorted(cuts, key=lambda cut: cut.speech.first_seq)

    def on_close(self, now: float) -> list[Cut]:
        """Whatever is there is sent."""
        cuts = [Cut(speech, _CLOSE, now, now) for speech, _ in self._fragments.values()]
        self._fragments.clear()
        self._set_fragment_timer()
        if self._speech is not None:
            if self._ending is None:
                self._ending = (_CLOSE, now)
            cuts += self._cut(now)
        return sorted(cuts, key=lambda cut: cut.speech.first_seq)

    @property
    def _deaf(self) -> bool:
        return self._playing or self._held

    def _before(self, now: float, chunk: Chunk) -> list[Cut]:
        """What a chunk ends by coming."""
        speech = self._speech
        if speech is None:
            return []
        if chunk.direction != speech.direction:
            return self._pause_now(now, _INTERRUPTED)
        if not chunk.data:
            return []
        too_large = speech.size + chunk.size > self._rules.max_length_bytes
        if self._ending is not None:
            return [] if self._is_late(chunk, self._ending[0]) and not too_large else self._cut(now)
        if self._is_after_gap(now, chunk):
            return self._pause_now(now, _TIMEOUT)
        if too_large:
            return self._cut_as(now, _TIMEOUT if speech.is_silent else _MAX_LENGTH)
        if self._full_ms is not None and not self._is_late(chunk, _MAX_DURATION):
            return self._cut_as(now, _MAX_DURATION, ended_ms=self._full_ms)
        return []

    def _is_late(self, chunk: Chunk, reason: Reason) -> bool:
        """Whether it still belongs to what has ended."""
        return self._joined_ms + chunk.ms <= self._hangover_ms(reason)

    def _gather(self, now: float, chunk: Chunk) -> None:
        speech = self._speech
        if speech is None and self._fragments:
            speech = self._take_fragment(chunk.direction)
        if speech is None:
            speech = Speech(chunk.direction, now, chunk.client_ms)
        self._speech = speech
        speech.add(chunk)
        self._last_ms, self._last_client_ms = now, chunk.client_ms
        if self._ending is not None or self._full_ms is not None:
            self._joined_ms += chunk.ms
        elif speech.ms - speech.lead_ms >= self._rules.max_duration_ms:
            self._full_ms = now

    def _after(self, now: float, chunk: Chunk) -> list[Cut]:
        """What a chunk ends when it is in."""
        if self._ending is not None:
            if chunk.is_final:
                self._counts["repeated_end"] += 1
                if self._ending[0] == _TIMEOUT:
                    # The speaker says so: no node should wait for more.
                    self._ending = (_IS_FINAL, self._ending[1])
            return []
        if chunk.is_final:
            if self._speech is None:
                self._speech = self._take_fragment(chunk.direction)
            if self._speech is None:
                self._counts["empty_end"] += 1
                self._on_empty_end(chunk.direction)
                return []
            return self._end(now, _IS_FINAL)
        if self._speech is not None:
            if chunk.quiet_ms is not None and self._is_pause_heard(self._speech):
                return self._cut_as(now, _TIMEOUT)
            self._set_pause_timer()
        return []

    def _is_pause_heard(self, speech: Speech) -> bool:
        rules = self._rules
        # The rest of what was cut ends its turn, also if it is all silence.
        if not speech.is_silent or speech.direction in self._continues:
            return speech.quiet_ms >= rules.voice_pause_ms and not self._deaf
        # What follows must have room for a sentence.
        return speech.ms >= rules.max_duration_ms or 2 * speech.size >= rules.max_length_bytes

    def _is_after_gap(self, now: float, chunk: Chunk) -> bool:
        if self._deaf:
            return False
        if chunk.client_ms and self._last_client_ms:
            gap = chunk.client_ms - self._last_client_ms - chunk.ms
        else:
            gap = now - self._last_ms
        return gap > self._rules.pause_ms

    def _is_short(self, speech: Speech) -> bool:
        rules = self._rules
        waits = rules.short_wait_ms > 0 and speech.direction not in self._continues
        return waits and speech.ms < rules.short_merge_ms

    def _pause_now(self, now: float, reason: Reason) -> list[Cut]:
        """What came next shows that there was a pause, or an interruption."""
        if self._ending is not None:
            return self._cut(now)
        if self._speech is not None and self._is_short(self._speech):
            return self._keep_fragment(now)
        return self._cut_as(now, reason)

    def _keep_fragment(self, now: float) -> list[Cut]:
        speech, self._speech = self._speech, None
        if speech is not None:
            self._counts["fragment_kept"] += 1
            self._fragments[speech.direction] = (speech, now + self._rules.short_wait_ms)
            self._set_fragment_timer()
        self._full_ms = None
        self._joined_ms = 0.0
        self._timers.clear(PAUSE)
        return []

    def _take_fragment(self, direction: Direction) -> Speech | None:
        kept = self._fragments.pop(direction, None)
        if kept is None:
            return None
        self._set_fragment_timer()
        return kept[0]

    def _end(self, now: float, reason: Reason) -> list[Cut]:
        """Decides the end, and leaves time for late chunks."""
        self._ending = (reason, now)
        self._joined_ms = 0.0
        hangover = self._hangover_ms(reason)
        if hangover <= 0:
            return self._cut(now)
        self._timers.clear(PAUSE)
        self._timers.set(HANGOVER, now + hangover)
        return []

    def _hangover_ms(self, reason: Reason) -> float:
        rules = self._rules
        return rules.hangover_manual_ms if reason == _IS_FINAL else rules.hangover_auto_ms

    def _cut_as(self, now: float, reason: Reason, ended_ms: float | None = None) -> list[Cut]:
        self._ending = (reason, now if ended_ms is None else ended_ms)
        return self._cut(now)

    def _cut(self, now: float) -> list[Cut]:
        speech, ending = self._speech, self._ending
        self._speech = self._ending = self._full_ms = None
        self._joined_ms = 0.0
        self._timers.clear(PAUSE)
        self._timers.clear(HANGOVER)
        if speech is None or ending is None:
            return []
        if ending[0] in LEAVES_REST:
            self._continues.add(speech.direction)
        else:
            self._continues.discard(speech.direction)
        return [Cut(speech, ending[0], ending[1], now)]

    def _listen_again(self, now: float) -> None:
        self._last_ms = now
        if self._speech is not None:
            self._speech.quiet_ms = 0.0
        if self._speech is not None and self._ending is None and not self._deaf:
            self._set_pause_timer()

    def _set_pause_timer(self) -> None:
        # Not moved with each chunk: when it comes, it looks whether it is time.
        if not self._deaf:
            self._timers.set_by(PAUSE, self._last_ms + self._rules.pause_ms)

    def _set_fragment_timer(self) -> None:
        if self._fragments:
            self._timers.set(FRAGMENT, min(until for _, until in self._fragments.values()))
        else:
            self._timers.clear(FRAGMENT)
