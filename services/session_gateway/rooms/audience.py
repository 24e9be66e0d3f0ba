"""The listeners of one room at one gateway: events in, effects out. No I/O, no clock, no logging.

Each language that somebody listens to is a lane. A lane is read once for all its listeners, from
its cursor on, and what is read goes to all of them at once. Promises:

- A listener gets every outcome of its language from its position on once, in order. Outcomes that
  are no longer kept become one gap, which names them.
- A listener that changes its language at a room index gets outcomes of the old one below that
  index, then outcomes of the new one from there on. Changes may follow each other quickly.
- A new listener gets the last outcomes of its language first, as replayed. What was said before it
  came, but has its outcome later, is replayed as well.
- The cost of an outcome here does not depend on the number of listeners who only listen on.

A listener is in one of five states in the lane of its current leg:

    waiting       nobody knows yet where the lane ends
    held          it changes its wishes, and nobody knows yet at which room index
    catching up   it is behind the cursor of the lane, and reads on its own
    apart         at the cursor or above, but for a while not like the others: it has just come, or
                  its leg ends
    together      at the cursor, like most

Every event in every state ("-": nothing happens). A leg *ends* if the listener has changed its
wishes; it is *over* if the listener has all of it. *Enter*: into the lane of the current leg, or of
the next one if that leg is over, where the listener is waiting, catching up, apart or together:

                     waiting        held          catching up     apart           together
    changing (1)     -              -             held            held            held
    change           leg ends       leg ends;     leg ends        leg ends        -
                                    enter
    not changed      -              enter         -               -               -
    leave            gone           gone          gone            gone            gone
    lane's end read  replay; enter  -             -               -               -
    lane read        -              -             -               deliver what    deliver all
                                                                  is its; enter
    own read         -              -             deliver; enter  -               -
    read failed      -              -             -               -               -
    news of lane     -              read lane     read lane       read lane       read lane
    poll             read end       read lane     read lane, own  read lane       read lane
    restored         - (2)          - (2)         - (2)           - (2)           -

(1) If its current leg is the last. Otherwise it is held when it comes to its last leg.
(2) A leg that ends does not wait for outcomes that were open: they may be lost.

A read that fails is repeated at the next poll. Redis may lose a room, which gateways then restore.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic

from lingua_scheduler.services.session_gateway.rooms.lane import (
    AUDIO,
    CatchUp,
    Form,
    Gap,
    Item,
    Key,
    Lane,
    Leg,
    Listener,
    Outcome,
    items_between,
)
from lingua_scheduler.services.session_gateway.rooms.lane_reads import (
    Deliver,
    Effect,
    LaneReads,
    Purpose,
    Reading,
)

# Changes of one listener that may wait for outcomes of its earlier languages.
MOST_CHANGES = 16


class Audience(Generic[Key]):
    """The core.

    Args:
        replayed: how many outcomes a new listener gets first.
    """

    def __init__(self, *, replayed: int) -> None:
        self._replayed = replayed
        self._listeners: dict[Key, Listener[Key]] = {}
        self._lanes: dict[str, Lane[Key]] = {}
        self._effects: list[Effect[Key]] = []
        self._reads = LaneReads(self._effects, replayed=replayed)
        self.floor = 0
        """Higher than all room indexes that are known here."""

    def __len__(self) -> int:
        """Listeners."""
        return len(self._listeners)

    # ---- events of listeners ----

    def on_join(
        self, key: Key, *, language: str, form: Form, next_index: int, position: int | None = None
    ) -> list[Effect[Key]]:
        """A listener has joined.

        Args:
            key: names it from now on.
            language: that it listens to.
            form: how.
            next_index: from this room index on, its language is translated for it.
            position: of one that resumes: the first room index that it has not seen.
        """
        self.floor = max(self.floor, next_index)
        is_new = position is None
        start = next_index if position is None else position
        listener = self._listeners[key] = Listener(
            key=key,
            position=start,
            live_from=start,
            wants_replay=is_new and self._replayed > 0 and Form.CAPTIONS in form,
            legs=deque([Leg(language, form)]),
        )
        self._enter(listener)
        return self._take()

    def may_change(self, key: Key) -> bool:
        """Whether a listener is there, and not too many of its changes wait."""
        return key in self._listeners and len(self._listeners[key].legs) <= MOST_CHANGES

    def on_changing(self, key: Key) -> list[Effect[Key]]:
        """A listener is about to change its wishes, from a room index on that is not known yet.

        Until `on_change` or `on_unchanged` follows, it gets nothing that it might have to get in
        another way.
        """
        listener = self._listeners.get(key)
        if listener is not None:
            listener.is_changing = True
            lane = self._lanes[listener.legs[0].language]
            if len(listener.legs) == 1 and key not in lane.waiting:
                lane.take_out(listener)
                lane.held[key] = listener
        return self._take()

    def on_unchanged(self, key: Key) -> list[Effect[Key]]:
        """The change has failed."""
        listener = self._listeners.get(key)
        if listener is not None:
            self._release(listener)
        return self._take()

    def on_change(
        self, key: Key, *, language: str, form: Form, next_index: int, last_open: int
    ) -> list[Effect[Key]]:
        """A listener has changed its wishes.

        Args:
            key: of the listener; it may have left.
            language: that it listens to from `next_index` on.
            form: how.
            next_index: a room index, not lower than that of an earlier change.
            last_open: the highest room index in its previous language that has no outcome yet; -1
                if none. If only the form changes, it does not matter.
        """
        self.floor = max(self.floor, next_index)
        listener = self._listeners.get(key)
        if listener is not None:
            listener.change(language, form, next_index, last_open)
            lane = self._lanes[listener.legs[0].language]
            if key in lane.apart:
                # What its current leg waits for may be something else now.
                self._read_to_end(lane, listener.legs[0])
            self._release(listener)
        return self._take()

    def _release(self, listener: Listener[Key]) -> None:
        """Lets a listener go on that was held."""
        listener.is_changing = False
        lane = self._lanes[listener.legs[0].language]
        if lane.held.pop(listener.key, None):
            self._enter(listener)
            self._tidy(lane)

    def on_leave(self, key: Key) -> list[Effect[Key]]:
        """A listener has left, or its stream has ended."""
        listener = self._listeners.pop(key, None)
        if listener is not None:
            lane = self._lanes[listener.legs[0].language]
            lane.take_out(listener)
            self._tidy(lane)
        return self._take()

    # ---- events of the room ----

    def on_news(self, language: str) -> list[Effect[Key]]:
        """There are new outcomes of a language."""
        if language in self._lanes:
            lane = self._lanes[language]
            lane.is_stale = True
            self._reads.read_on(lane)
        return self._take()

    def on_poll(self) -> list[Effect[Key]]:
        """There may be new outcomes of any language."""
        for lane in self._lanes.values():
            lane.is_stale = True
            self._reads.read_on(lane)
            for catch_up in lane.catching_up.values():
                self._reads.read_own(lane, catch_up)
        return self._take()

    def on_restored(self) -> list[Effect[Key]]:
        """Redis had lost the room, and has it again, without outcomes."""
        for listener in self._listeners.values():
            for leg in listener.legs:
                leg.last_open = -1
        return self.on_poll()

    # ---- answers ----

    def on_read(self, number: int, outcomes: Sequence[Outcome]) -> list[Effect[Key]]:
        """A read has succeeded.

        Args:
            number: of the effect.
            outcomes: in order; fewer than were asked for only if there are no more.
        """
        reading = self._reads.take(number)
        lane = reading.lane
        # Everybody may have left the lane meanwhile, and some may have come back to a new one.
        if self._lanes.get(lane.language) is lane:
            match reading.purpose:
                case Purpose.END:
                    self._on_end(lane, outcomes)
                case Purpose.NEXT:
                    self._on_next(reading, outcomes)
                case Purpose.CATCH_UP:
                    self._on_own(reading, outcomes)
            self._tidy(lane)
        return self._take()

    def on_read_failed(self, number: int) -> list[Effect[Key]]:
        """A read has failed. The next poll repeats it."""
        reading = self._reads.take(number)
        if reading.catch_up is None:
            reading.lane.is_stale = True
        elif not reading.catch_up.listeners:
            reading.lane.forget(reading.catch_up)
        return []

    def _on_end(self, lane: Lane[Key], outcomes: Sequence[Outcome]) -> None:
        lane.cursor = 0
        lane.advance(outcomes)
        self._raise_floor(lane)
        waiting, lane.waiting = lane.waiting, {}
        for listener in waiting.values():
            self._enter(listener)

    def _on_next(self, reading: Reading[Key], outcomes: Sequence[Outcome]) -> None:
        lane = reading.lane
        if outcomes and lane.wants_audio() and not reading.with_audio:
            # Somebody who wants audio has come meanwhile: read again.
            lane.is_stale = True
            return
        assert lane.cursor is not None
        if outcomes and lane.together:
            items, _ = items_between(outcomes, lane.language, lane.cursor)
            for form, group in lane.together.items():
                self._effects.append(Deliver(form, items, tuple(group)))
        self._serve(lane.apart.values(), outcomes)
        lane.advance(outcomes)
        self._raise_floor(lane)
        if len(outcomes) < reading.count:
            lane.reads_complete = reading.ordinal
        else:
            lane.is_stale = True
        for listener in list(lane.apart.values()):
            self._settle(lane, listener)

    def _on_own(self, reading: Reading[Key], outcomes: Sequence[Outcome]) -> None:
        lane, catch_up = reading.lane, reading.catch_up
        assert catch_up is not None
        assert lane.cursor is not None
        lane.forget(catch_up)
        is_complete = len(outcomes) < reading.count
        self._serve(catch_up.listeners.values(), outcomes)
        for listener in catch_up.listeners.values():
            if is_complete:
                # There was nothing else below the cursor when the read began.
                until = listener.legs[0].until
                known = reading.cursor if until is None else min(reading.cursor, until)
                listener.position = max(listener.position, known)
            self._enter(listener)

    # ---- listeners in lanes ----

    def _enter(self, listener: Listener[Key]) -> None:
        """Puts a listener into the lane of its current leg, or of the next if that leg is over."""
        while not listener.wants_replay and listener.is_over():
            listener.next_leg()
        leg = listener.legs[0]
        lane = self._lanes.get(leg.language)
        if lane is None:
            lane = self._lanes[leg.language] = Lane(leg.language, self._replayed)
        if lane.cursor is None:
            lane.waiting[listener.key] = listener
            self._reads.read_on(lane)
        elif listener.wants_replay:
            self._replay(lane, listener)
            self._enter(listener)
        elif leg.until is None and listener.is_changing:
            lane.held[listener.key] = listener
        elif listener.position < lane.cursor:
            self._catch_up(lane, listener)
        else:
            lane.place(listener)
            self._read_to_end(lane, leg)

    def _read_to_end(self, lane: Lane[Key], leg: Leg) -> None:
        """Reads a lane because a leg ends: it is over if that finds nothing more."""
        if leg.until is not None:
            leg.seen_reads, lane.is_stale = lane.reads_begun, True
            self._reads.read_on(lane)

    def _replay(self, lane: Lane[Key], listener: Listener[Key]) -> None:
        listener.wants_replay = False
        said = tuple(each for each in lane.recent if each.index < listener.live_from)
        if said:
            form = Form.CAPTIONS | Form.REPLAYED
            self._effects.append(Deliver(form, said, (listener.key,)))
        assert lane.cursor is not None
        listener.position = min(lane.cursor, listener.live_from)

    def _catch_up(self, lane: Lane[Key], listener: Listener[Key]) -> None:
        with_audio = bool(listener.legs[0].form & AUDIO)
        at = listener.position, with_audio
        catch_up = lane.catching_up.get(at)
        if catch_up is None:
            catch_up = lane.catching_up[at] = CatchUp(listener.position, with_audio)
        catch_up.listeners[listener.key] = listener
        self._reads.read_own(lane, catch_up)

    def _serve(self, listeners: Iterable[Listener[Key]], outcomes: Sequence[Outcome]) -> None:
        """Delivers to each listener what concerns it; together, if it is the same for several."""
        parts: dict[tuple[Hashable, ...], tuple[Form, tuple[Item, ...], list[Key]]] = {}
        for listener in listeners:
            form, live_from = listener.legs[0].form, listener.live_from
            items = listener.take(outcomes)
            before = tuple(item for item in items if _index(item) < live_from)
            replayed = (form & Form.CAPTIONS) | Form.REPLAYED
            for part_form, part in ((replayed, before), (form, items[len(before) :])):
                if part:
                    key = part_form, *(i if isinstance(i, Gap) else i.index for i in part)
                    parts.setdefault(key, (part_form, part, []))[2].append(listener.key)
        # What was said before comes first, for all of them.
        for form, items, keys in sorted(parts.values(), key=lambda part: _index(part[1][0])):
            self._effects.append(Deliver(form, items, tuple(keys)))

    def _settle(self, lane: Lane[Key], listener: Listener[Key]) -> None:
        """Moves a listener at the cursor on: to its next leg, or together with the others."""
        del lane.apart[listener.key]
        if lane.has_all(listener):
            listener.next_leg()
            self._enter(listener)
        else:
            lane.place(listener)

    def _tidy(self, lane: Lane[Key]) -> None:
        """Forgets a lane that nobody listens to; otherwise reads on."""
        if lane:
            self._reads.read_on(lane)
        elif self._lanes.get(lane.language) is lane:
            del self._lanes[lane.language]

    def _raise_floor(self, lane: Lane[Key]) -> None:
        self.floor = max(self.floor, lane.cursor or 0)

    def _take(self) -> list[Effect[Key]]:
        effects = self._effects.copy()
        self._effects.clear()
        return effects


def _index(item: Item) -> int:
    """The room index of an item; of a gap, its first."""
    return item.first if isinstance(item, Gap) else item.index
