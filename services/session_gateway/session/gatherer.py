"""Cuts speech into utterances: chunks in, cuts out.

One stretch of speech is gathered at a time. In addition, one short fragment per direction may be
kept for the speech that follows. The phases of the gathered speech:

    IDLE       nothing is gathered
    GATHERING  chunks are added
    FULL       the longest duration is reached; the next chunk that is not a late one cuts
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
direction, unless it is the rest of one that was cut. Any other is cut: after a hangover if the
timer found the pause, at once if the next chunk did. "break": the same as a pause, with the reason
Interrupted. A repeated end changes a pause to IsFinal, and nothing else.

In sessions with voice detection (decision 26), chunks say how much of their end has no voice. A
pause is then also `voice_pause_ms` without voice after a voice, and cuts at once. Silence is
gathered like speech. A long stretch without any voice is cut as a pause, and the longest duration
counts from the first voice, so that the silence before a sentence does not cut it.

MaxDuration and MaxLength cut only when another chunk has arrived. So there is always a rest, whose
own end ends the turn, and no node waits for the end of a sentence that was silence.
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
    direction, by the close at the latest; no cut is empty.

    Args:
        rules: limits and durations.
        timers: of the session.
        counts: counters of the gateway.
        on_empty_end: called with the direction of an end if nothing is gathered in it.
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
        # In the hangover: the reason of the cut, and when the end was decided.
        self._ending: tuple[Reason, float] | None = None
        # When the longest duration was reached, and how much audio has joined since then, or since
        # the end was decided.
        self._full_ms: float | None = None
        self._joined_ms = 0.0
        # Directions whose last cut left a rest.
        self._continues = set(continues)
        # When the last chunk with data arrived, and when the client recorded it.
        self._last_ms = 0.0
        self._last_client_ms = 0
        self._playing = False
        self._held = False

    @property
    def first_seq(self) -> int | None:
        """The first chunk that is not in a cut."""
        if not self._fragments:
            return None if self._speech is None else self._speech.first_seq
        stretches = [speech for speech, _ in self._fragments.values()]
        if self._speech is not None:
            stretches.append(self._speech)
        return min((speech.first_seq for speech in stretches), default=None)

    def on_chunk(self, now: float, chunk: Chunk) -> list[Cut]:
        """Takes a chunk that has passed all checks."""
        cuts = self._before(now, chunk)
        if chunk.data:
            self._gather(now, chunk)
        return cuts + self._after(now, chunk)

    def extend(
        self,
        now: float,
        seq: int,
        data: bytes,
        ms: float,
        size: int,
        client_ms: int,
        direction: Direction,
    ) -> bool:
        """Adds a chunk to the speech if `on_chunk` would do only that; otherwise changes nothing.

        The pause timer need not be set: unless pauses are ignored, it is set for all speech that is
        not over, and chunks do not move it.
        """
        speech, rules = self._speech, self._rules
        if (
            speech is None
            or self._ending is not None
            or direction != speech.direction
            or speech.size + size > rules.max_length_bytes
            or speech.ms + ms - speech.lead_ms >= rules.max_duration_ms
        ):
            return False
        if client_ms and self._last_client_ms:
            gap = client_ms - self._last_client_ms - ms
        else:
            gap = now - self._last_ms
        first, end = speech.ranges[-1]
        if gap > rules.pause_ms or end != seq:
            return False
        speech.chunks.append(data)
        speech.ranges[-1] = (first, seq + 1)
        speech.ms += ms
        speech.size += size
        self._last_ms, self._last_client_ms = now, client_ms
        return True

    def on_playback(self, now: float, *, on: bool) -> None:
        """The app starts or stops playing speech: there is no pause while it plays."""
        self._playing = on
        # The time since the last chunk, by the client's clock, says nothing about a pause.
        self._last_client_ms = 0
        self._restart_pause(now)

    def on_hold(self, now: float, *, on: bool) -> None:
        """The gateway stops or starts reading audio: there is no pause while it does not read."""
        self._held = on
        self._restart_pause(now)

    def on_pause_timer(self, now: float) -> list[Cut]:
        """The pause timer is due; audio may have arrived since it was set."""
        if self._speech is None or self._ending is not None or self._ignores_pauses:
            return []
        due = self._last_ms + self._rules.pause_ms
        if now < due:
            self._timers.set_by(PAUSE, due)
            return []
        if self._is_short(self._speech):
            return self._keep_fragment(now)
        return self._end(now, _TIMEOUT)

    def on_hangover_timer(self, now: float) -> list[Cut]:
        """The hangover is over."""
        return self._cut(now) if self._ending is not None else []

    def on_fragment_timer(self, now: float) -> list[Cut]:
        """Cuts fragments that have waited long enough."""
        over = [key for key, (_, until) in self._fragments.items() if until <= now]
        cuts = [Cut(self._fragments.pop(key)[0], _TIMEOUT, now, now) for key in over]
        self._set_fragment_timer()
        return sorted(cuts, key=lambda cut: cut.speech.first_seq)

    def on_close(self, now: float) -> list[Cut]:
        """Cuts everything that is gathered or kept."""
        cuts = [Cut(speech, _CLOSE, now, now) for speech, _ in self._fragments.values()]
        self._fragments.clear()
        self._set_fragment_timer()
        if self._speech is not None:
            if self._ending is None:
                self._ending = (_CLOSE, now)
            cuts += self._cut(now)
        return sorted(cuts, key=lambda cut: cut.speech.first_seq)

    @property
    def _ignores_pauses(self) -> bool:
        return self._playing or self._held

    def _before(self, now: float, chunk: Chunk) -> list[Cut]:
        """Cuts that a chunk causes before it is added."""
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
        """Whether a chunk still belongs to speech whose end is decided."""
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
        """Cuts that a chunk causes after it is added."""
        if self._ending is not None:
            if chunk.is_final:
                self._counts["repeated_end"] += 1
                if self._ending[0] == _TIMEOUT:
                    # The speaker has finished: no node should wait for more.
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
        # The rest of speech that was cut ends its turn, even if it is all silence.
        if not speech.is_silent or speech.direction in self._continues:
            return speech.quiet_ms >= rules.voice_pause_ms and not self._ignores_pauses
        # The speech that follows needs room for a sentence.
        return speech.ms >= rules.max_duration_ms or 2 * speech.size >= rules.max_length_bytes

    def _is_after_gap(self, now: float, chunk: Chunk) -> bool:
        if self._ignores_pauses:
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
        """The next chunk shows that there was a pause, or an interruption."""
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
        """Decides the end, and gives late chunks time to join."""
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

    def _restart_pause(self, now: float) -> None:
        self._last_ms = now
        if self._speech is not None:
            self._speech.quiet_ms = 0.0
        if self._speech is not None and self._ending is None and not self._ignores_pauses:
            self._set_pause_timer()

    def _set_pause_timer(self) -> None:
        # It is not moved with each chunk: its handler checks the time.
        if not self._ignores_pauses:
            self._timers.set_by(PAUSE, self._last_ms + self._rules.pause_ms)

    def _set_fragment_timer(self) -> None:
        if self._fragments:
            self._timers.set(FRAGMENT, min(until for _, until in self._fragments.values()))
        else:
            self._timers.clear(FRAGMENT)
