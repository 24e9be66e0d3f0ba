"""The client side of Listen: what to send on which event. No I/O, no clock, no logging.

Each method handles one event and returns the effects that the shell has to carry out. Every event
of a stream carries the time, in seconds of a monotonic clock. `take` returns the next message to
write, and `next_deadline` says when to call `on_timer`. A listener over its streams:

    a stream opens        send JoinRoom: as a new member, or with member id and position
    Joined                the listener is in the room; send a change that the app wants
    RoomResult, -Missing  at or above the position: give it to the app, and move the position
                          below the position: drop it, it is a repeat
                          if the utterance before it was not given: end the stream, so that it
                          arrives again; if it does not, report it as NotSaid
    ListeningChanged      the app's change is in effect from a room index on
    RoomGoAway            end the stream when its time has come
    the stream ends       try another gateway until one answers Joined or the time is up
    leave                 send LeaveRoom, and end
    RoomClosed            end
"""

import dataclasses
import random

from lingua_scheduler.sdk._transport.endings import Close, Ending, Left, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.patience import Patience
from lingua_scheduler.sdk.errors import RoomError, RoomRefusedError, RoomUnavailableError
from lingua_scheduler.sdk.room.events import (
    Heard,
    Listening,
    NotSaid,
    Rejoined,
    Said,
)
from lingua_scheduler.sdk.room.protocol.chain import AWAY, LISTENING_CHANGED, MAX_INDEX
from lingua_scheduler.sdk.room.protocol.effects import Fail, Give, ListenerEffect, Show
from lingua_scheduler.sdk.room.protocol.state import ListenerState
from lingua_scheduler.sdk.room.protocol.stream import ListenerStream
from lingua_scheduler.sdk.room.protocol.wire import (
    changed_from,
    not_said_from,
    room_from,
    said_from,
    status_from,
)
from lingua_scheduler.sdk.session.events import Problem, Reconnecting
from lingua_scheduler.sdk.session.protocol.effects import Over, Retry
from lingua_scheduler.sdk.session.protocol.retry import Retries
from lingua_scheduler.sdk.session.protocol.wire import fields_of, problem_from
from lingua_scheduler.silence import Silence, Verdict
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, rooms_pb2
from lingua_scheduler.v1.rooms_pb2 import ListenerMessage

# The listener fails after this many streams in a row on which the server broke the contract.
MAX_FAULTS = 5
# How long to look for a gateway once the listener was in the room. Longer than a membership is
# kept: captions are kept for longer, and what is no longer kept is reported.
REJOIN_S = 300.0

_CLOSED = common_pb2.ERROR_REASON_ROOM_CLOSED
_INVALID = common_pb2.ERROR_REASON_INVALID_MESSAGE
_DRAINING = common_pb2.ERROR_REASON_DRAINING
# A retry cannot help.
_FATAL = frozenset(
    {
        common_pb2.ERROR_REASON_UNAUTHENTICATED,
        common_pb2.ERROR_REASON_PERMISSION_DENIED,
        common_pb2.ERROR_REASON_ROOM_NOT_FOUND,
        common_pb2.ERROR_REASON_ROOM_FULL,
        _CLOSED,
    }
)
# Says something about the gateway, and nothing about a change that was asked for.
_OF_THE_GATEWAY = frozenset({_DRAINING, common_pb2.ERROR_REASON_BACKPRESSURE, _CLOSED})
_DOUBTS = {
    LISTENING_CHANGED: "the connection broke during a change of language",
    AWAY: "the listener was away for too long, and nobody else listened to its language",
}
_BEFORE_JOINED = frozenset({"joined", "error", "go_away", "closed"})


class ListenerProtocol:
    """One listener, over all its streams.

    Args:
        join: who joins which room, without what it receives.
        listening: what it receives at first.
        rng: randomizes the waits between attempts to connect.
        reconnect_seconds: how long to try before giving up; None: 10 s at first, and later
            `REJOIN_S`, or as long as the membership is kept if that is longer.

    Attributes:
        state: the facts that outlive a stream. Only the protocol changes them.
    """

    def __init__(
        self,
        *,
        join: rooms_pb2.JoinRoom,
        listening: Listening,
        rng: random.Random | None = None,
        reconnect_seconds: float | None = None,
    ) -> None:
        self.state = ListenerState(listening)
        self._join = join
        self._faults = 0
        # The position at which the server last skipped something.
        self._skipped_at: int | None = None
        # The last refusal of JoinRoom since the listener was last in the room.
        self._refusal: common_pb2.Error | None = None
        self._retries = Retries(rng=rng or random.Random(), seconds=reconnect_seconds)
        self._patience = Patience()
        self._stream: ListenerStream | None = None
        self._effects: list[ListenerEffect] = []

    # ---- queries of the shell ----

    @property
    def joined(self) -> bool:
        """Whether the listener is in the room on the current stream."""
        return self._stream is not None and self._stream.joined

    def next_deadline(self) -> float | None:
        """Returns when to call `on_timer`; None if nothing is due."""
        return None if self._stream is None else self._stream.next_deadline()

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Returns why the stream ended, by the last event of the gateway."""
        return Lost("the stream ended") if self._stream is None else self._stream.ending(now)

    def take(self) -> ListenerMessage | None:
        """Returns the next message to write; None if there is none now."""
        return None if self._stream is None else self._stream.take(self.state, self._join)

    # ---- the app ----

    def change(self, listening: Listening) -> None:
        """The app wants to receive something else. `state.is_settled` says when that is decided."""
        self.state.wanted, self.state.change_error = listening, None

    def leave(self) -> list[ListenerEffect]:
        """The app leaves the room."""
        if not self.state.over:
            self.state.leaving = True
            stream = self._stream
            if stream is not None:
                self._end_stream(stream, Close(Left(), graceful=stream.joined))
            self._be_over()
        return self._out()

    # ---- the stream ----

    def on_connecting(self, now: float) -> float:
        """A stream is about to be opened. Returns the deadline for that."""
        self._retries.away(now)
        return self._retries.answer_by(now)

    def on_connected(self, now: float) -> None:
        """A new stream is open; its first message is JoinRoom."""
        joined_by = self.on_connecting(now)
        self._stream = ListenerStream(resumes=self.state.chain.started, joined_by=joined_by)

    def on_message(self, now: float, message: rooms_pb2.RoomMessage) -> list[ListenerEffect]:
        """A message has arrived. An empty one only shows that the gateway is alive."""
        if self._stream is not None and self._stream.silence is not None:
            self._stream.silence.heard = True
        for event in message.events:
            stream = self._stream
            if stream is None or stream.closing:
                break
            kind = event.WhichOneof("event") or ""
            if stream.joined or kind in _BEFORE_JOINED:
                stream.last_error = None
                self._on_event(now, stream, kind, event)
        return self._out()

    def _on_event(
        self, now: float, stream: ListenerStream, kind: str, event: rooms_pb2.RoomEvent
    ) -> None:
        match kind:
            case "joined":
                self._on_joined(now, stream, event.joined)
            case "result":
                result = event.result
                previous = result.previous_index if result.HasField("previous_index") else None
                self._on_heard(stream, said_from(result), previous)
            case "missing":
                missing = event.missing
                previous = missing.previous_index if missing.HasField("previous_index") else None
                self._on_heard(stream, not_said_from(missing), previous)
            case "changed":
                self._on_changed(stream, event.changed)
            case "status":
                self._do(Show(status_from(event.status)))
            case "go_away":
                stream.leave_at = now + event.go_away.after_ms / 1000
                stream.leave_why = event.go_away.why
            case "error":
                self._on_error(stream, event.error)
            case "closed":
                self._on_closed(stream)

    def _on_joined(self, now: float, stream: ListenerStream, joined: rooms_pb2.Joined) -> None:
        if stream.joined:
            return
        if not joined.member_id or joined.position > MAX_INDEX:
            self._fault(stream, "let the listener in without a member_id or a valid position")
            return
        stream.joined = True
        self._refusal = None
        state = self.state
        state.member_id = joined.member_id
        state.room = room_from(joined.room)
        if silence_s := self._patience.silence_s(now, joined.silence_ms):
            stream.silence = Silence(now, silence_s)
        away = self._retries.opened(now, max(REJOIN_S, joined.resume_within_ms / 1000))
        was_away = stream.resumes and away * 1000 > state.resume_within_ms
        state.chain.join(joined.position, was_away=was_away)
        state.resume_within_ms = joined.resume_within_ms
        if stream.resumes:
            state.rejoins += 1
            self._do(Give(Rejoined(away=away, position=state.chain.position)))

    def _on_heard(self, stream: ListenerStream, heard: Heard, previous: int | None) -> None:
        chain, index = self.state.chain, heard.room_index
        until = heard.until_index if isinstance(heard, NotSaid) else index + 1
        if until > MAX_INDEX:
            self._fault(stream, f"sent the room index {until}, which is too high")
        elif chain.is_repeat(until):
            self.state.repeated += 1
        else:
            lost = chain.lost_before(index, previous)
            if lost is not None and self._skipped_at != chain.position:
                self._skipped_at = chain.position
                what = f"the server skipped {_range(*lost)} of the room"
                self._do(Give(Problem(reason="OUT_OF_ORDER", message=f"{what}; reconnecting")))
                self._end_stream(stream, Close(Lost(what)))
                return
            if (doubtful := chain.doubtful_before(index)) is not None:
                self._report(*doubtful, heard.language, chain.doubt, _DOUBTS[chain.doubt])
            if (lost := chain.lost_before(index, previous)) is not None:
                # It was asked for them again, in vain.
                self._report(*lost, heard.language, "OUT_OF_ORDER", "the server skipped it twice")
            if isinstance(heard, NotSaid) and chain.is_repeat(index + 1):
                heard = dataclasses.replace(heard, room_index=chain.position)
            self._give(heard, until)

    def _report(self, first: int, until: int, language: str, reason: str, message: str) -> None:
        """Tells the app that it does not get some utterances."""
        missing = NotSaid(
            room_index=first, until_index=until, language=language, reason=reason, message=message
        )
        self._give(missing, until)

    def _give(self, heard: Heard, until: int) -> None:
        self._advanced()
        self.state.said += isinstance(heard, Said)
        if isinstance(heard, NotSaid):
            self.state.not_said += until - heard.room_index
        self.state.chain.advance(until)
        self._do(Give(heard))

    def _advanced(self) -> None:
        """The stream has brought the listener forward."""
        self._faults = 0
        self._retries.progress()

    def _on_changed(self, stream: ListenerStream, changed: rooms_pb2.ListeningChanged) -> None:
        if changed.position > MAX_INDEX:
            self._fault(stream, f"sent the room index {changed.position}, which is too high")
            return
        if stream.asked is not None:
            self.state.confirmed, stream.asked = stream.asked, None
        self.state.chain.change(changed.position)
        self._do(Give(changed_from(changed)))

    def _on_error(self, stream: ListenerStream, error: common_pb2.Error) -> None:
        stream.last_error = error
        if not stream.joined:
            self._end_stream(stream, Close(Refused(error)))
            return
        if stream.asked is not None and error.reason not in _OF_THE_GATEWAY:
            # The stream survives that, so it is not why it may end later.
            stream.last_error = None
            self._refuse_change(stream.asked, error)
            stream.asked = None
        self._do(Give(problem_from(error)))

    def _refuse_change(self, asked: Listening, error: common_pb2.Error) -> None:
        if self.state.wanted == asked:
            self.state.wanted, self.state.change_error = self.state.confirmed, error

    def _on_closed(self, stream: ListenerStream) -> None:
        self.state.room_closed = True
        self._be_over()
        self._end_stream(stream, Close(Left(), graceful=True))

    def _fault(self, stream: ListenerStream, what: str) -> None:
        """Ends the stream because the server broke the contract, in the hope of a better one."""
        self._faults += 1
        message = f"the server {what}; reconnecting"
        self._do(Give(Problem(reason="INVALID_MESSAGE", message=message)))
        self._end_stream(stream, Close(Lost(f"the server {what}")))

    def on_timer(self, now: float) -> list[ListenerEffect]:
        """The time of `next_deadline` has come."""
        stream = self._stream
        if stream is not None and not stream.closing:
            if stream.leave_at is not None and stream.leave_at <= now:
                self._end_stream(stream, Close(Moved(0.0, stream.leave_why)))
            elif not stream.joined and stream.joined_by <= now:
                lost = Lost("JoinRoom was not answered in time", silent=True)
                self._end_stream(stream, Close(lost))
            elif stream.silence is not None and stream.silence.due <= now:
                self._on_beat(now, stream, stream.silence)
        return self._out()

    def _on_beat(self, now: float, stream: ListenerStream, silence: Silence) -> None:
        # A gateway sends signs of life to listeners without being asked.
        if silence.beat(now) is Verdict.SILENT:
            self._patience.ran_out(now)
            what = f"the gateway sent nothing for {silence.silence_s:g} s"
            self._end_stream(stream, Close(Lost(what, silent=True)))

    # ---- the end of a stream ----

    def on_disconnected(self, now: float, ending: Ending) -> list[ListenerEffect]:
        """The stream has ended."""
        stream, self._stream = self._stream, None
        if self.state.over or stream is None:
            return self._out()
        if stream.joined:
            self._retries.away(now)
            self.state.chain.disconnect(asked=stream.asked is not None)
            self._do(Give(Reconnecting(why=_why(ending))))
        if isinstance(ending, Refused):
            self._after_refusal(now, stream, ending.error)
        elif isinstance(ending, Moved):
            # Gateways that send listeners away before they let them in get a backoff.
            self._retry(now, ending, asked=ending.after, moved=stream.joined)
        else:
            self._retry(now, ending)
        return self._out()

    def _after_refusal(self, now: float, stream: ListenerStream, error: common_pb2.Error) -> None:
        reason, message = reason_name(error.reason), error.message
        is_known = self.state.chain.started
        if error.reason == _CLOSED and is_known:
            self.state.room_closed = True
            self._be_over()
        elif error.reason in _FATAL or (error.reason == _INVALID and not stream.joined):
            refused = RoomRefusedError(reason, message, fields_of(error))
            self._fail(self.state.lost(reason, message) if is_known else refused)
        else:
            self._faults += stream.joined and error.reason == _INVALID
            # That one gateway is draining says nothing about the others.
            if not stream.joined and error.reason != _DRAINING:
                self._refusal = error
            self._retry(now, Refused(error), asked=error.retry_after_ms / 1000)

    def _retry(
        self, now: float, ending: Ending, *, asked: float = 0.0, moved: bool = False
    ) -> None:
        wait = self._retries.next_wait(now, asked=asked, moved=moved)
        if self._faults >= MAX_FAULTS:
            what = f"{MAX_FAULTS} streams in a row failed: {_why(ending)}"
            self._fail(self.state.lost("BROKEN_PROMISE", what))
        elif wait is not None:
            self._do(Retry(wait))
        else:
            said = ending.error if isinstance(ending, Refused) else self._refusal
            reason = "UNREACHABLE" if said is None else reason_name(said.reason)
            within = f"{self._retries.seconds:g} s"
            what = f"no gateway let the listener in within {within}; last: {_why(ending)}"
            if self.state.chain.started:
                self._fail(self.state.lost(reason, what))
            else:
                self._fail(RoomUnavailableError(reason, what, retry_after=asked))

    def _be_over(self) -> None:
        self.state.over = True
        self._do(Over())

    def _fail(self, error: RoomError) -> None:
        self.state.over = True
        self._do(Fail(error))

    def _end_stream(self, stream: ListenerStream, close: Close) -> None:
        if not stream.closing:
            stream.closing = True
            self._do(close)

    def _do(self, effect: ListenerEffect) -> None:
        self._effects.append(effect)

    def _out(self) -> list[ListenerEffect]:
        effects, self._effects = self._effects, []
        return effects


def _range(first: int, until: int) -> str:
    return f"utterance {first}" if until == first + 1 else f"utterances {first} to {until - 1}"


def _why(ending: Ending) -> str:
    if isinstance(ending, Refused):
        return f"{reason_name(ending.error.reason)}: {ending.error.message}"
    return "" if isinstance(ending, Left) else ending.why
