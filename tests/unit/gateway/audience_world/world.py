"""Listeners of one gateway in a model room: what they wanted, and what they got."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lingua_scheduler.services.session_gateway.rooms.audience import Audience
from lingua_scheduler.services.session_gateway.rooms.lane import AUDIO, Form, Gap
from lingua_scheduler.services.session_gateway.rooms.lane_reads import Deliver, Effect, Read
from tests.unit.gateway.audience_world.lanes import ModelRoom, Said

LANGUAGES = ("de", "en", "fr")
FORMS = (
    Form.CAPTIONS,
    Form.SPEECH,
    Form.CAPTIONS | Form.SPEECH,
    Form.CAPTIONS | Form.SPEECH | Form.ORIGINAL,
)
# Listeners at a time: few, so that much happens to each.
MOST = 3


@dataclass
class Part:
    """What a listener wants from a room index on."""

    language: str
    form: Form
    start: int
    until: int | None = None


@dataclass
class Person:
    """One listener."""

    number: int
    parts: list[Part]
    # The first room index that comes live; of one that resumes, its position.
    live_from: int
    is_new: bool
    got: list[tuple[Form, Said | Gap]] = field(default_factory=list)
    has_left: bool = False
    # A change that was asked for; once it is admitted, its room index and what was open.
    asked: tuple[str, Form] | None = None
    admitted: tuple[int, int] | None = None


class World:
    """The events of a room come in any order that can happen."""

    def __init__(self, replayed: int) -> None:
        self.room = ModelRoom()
        self.replayed = replayed
        self.audience: Audience[int] = Audience(replayed=replayed)
        self.people: list[Person] = []
        # Admitted, and not told to the audience yet.
        self.coming: list[Person] = []
        # Reads under way, with the answer once Redis has executed them.
        self.reads: list[tuple[Read, list[Said] | None]] = []

    def do(self, effects: Sequence[Effect[int]]) -> None:
        """Carries out effects."""
        for effect in effects:
            if isinstance(effect, Read):
                self.reads.append((effect, None))
                continue
            assert isinstance(effect, Deliver)
            assert effect.items
            assert effect.listeners
            for number in effect.listeners:
                person = self.people[number]
                assert not person.has_left, "something for a listener who has left"
                for item in effect.items:
                    assert isinstance(item, Said | Gap)
                    if isinstance(item, Gap):
                        kept = self.room.lane(item.language).kept()
                        assert not any(item.first <= i < item.until for i in kept), "it is kept"
                    person.got.append((effect.form, item))

    # ---- the room ----

    def wanted(self) -> set[str]:
        """The languages that members want now."""
        present = [each for each in self.people if not each.has_left]
        return {each.parts[-1].language for each in present}

    def say(self, choice: int) -> None:
        """An utterance, in all wanted languages and perhaps others; a flush concerns only some."""
        others = {each for at, each in enumerate(LANGUAGES) if choice >> at & 1}
        is_flush = choice >> 3 & 3 == 3
        self.room.say(others if is_flush else others | self.wanted())

    def publish(self, choice: int) -> None:
        """An outcome; its news may be lost."""
        ready = [each for each in LANGUAGES if self.room.lane(each).open]
        if ready:
            language = ready[choice % len(ready)]
            self.room.lane(language).publish()
            if choice >> 4 & 3:
                self.do(self.audience.on_news(language))

    def trim(self, choice: int) -> None:
        """Old outcomes are no longer kept."""
        self.room.lane(LANGUAGES[choice % 3]).trim(1 + (choice >> 2) % 4)

    def poll(self, _: int) -> None:
        """The gateway looks whether there is anything new."""
        self.do(self.audience.on_poll())

    # ---- reads ----

    def execute(self, choice: int) -> None:
        """Redis executes a read."""
        if self.reads:
            at = choice % len(self.reads)
            read, answer = self.reads[at]
            if answer is None:
                lane = self.room.lane(read.language)
                answer = lane.read(read.start, read.count, read.newest, read.with_audio)
                self.reads[at] = read, answer

    def answer(self, choice: int) -> None:
        """The answer to a read arrives."""
        if self.reads:
            self.execute(choice)
            read, answer = self.reads.pop(choice % len(self.reads))
            assert answer is not None
            self.do(self.audience.on_read(read.number, answer))

    def fail(self, choice: int) -> None:
        """A read fails."""
        if self.reads:
            read, _ = self.reads.pop(choice % len(self.reads))
            self.do(self.audience.on_read_failed(read.number))

    # ---- listeners ----

    def join(self, choice: int) -> None:
        """A listener is admitted, as a new one or at a position."""
        if sum(not each.has_left for each in self.people) >= MOST:
            return
        language, form = LANGUAGES[choice % 3], FORMS[choice // 3 % 4]
        now = self.room.next_index
        is_new = choice >> 5 & 1 == 0
        start = now if is_new else choice % (now + 1)
        person = Person(len(self.people), [Part(language, form, start)], start, is_new)
        self.people.append(person)
        self.coming.append(person)
        person.admitted = now, -1
        if choice >> 6 & 1:
            self.arrive(choice)

    def arrive(self, _: int) -> None:
        """The audience is told of a listener that was admitted."""
        if not self.coming:
            return
        person = self.coming.pop(0)
        if person.has_left:
            return
        assert person.admitted is not None
        part, (next_index, _) = person.parts[0], person.admitted
        person.admitted = None
        effects = self.audience.on_join(
            person.number,
            language=part.language,
            form=part.form,
            next_index=next_index,
            position=None if person.is_new else part.start,
        )
        self.do(effects)

    def leave(self, choice: int) -> None:
        """A listener leaves."""
        present = [each for each in self.people if not each.has_left]
        if present:
            person = present[choice % len(present)]
            person.has_left = True
            if person not in self.coming:
                self.do(self.audience.on_leave(person.number))

    def change(self, choice: int) -> None:
        """A listener goes one step further in a change of its wishes."""
        present = [each for each in self.people if not each.has_left and each not in self.coming]
        if present:
            self._change(present[choice % len(present)], choice // len(present))

    def _change(self, person: Person, choice: int) -> None:
        if person.asked is None:
            if self.audience.may_change(person.number):
                person.asked = LANGUAGES[choice % 3], FORMS[choice // 3 % 4]
                self.do(self.audience.on_changing(person.number))
        elif person.admitted is None:
            if choice % 8 == 7:
                person.asked = None
                self.do(self.audience.on_unchanged(person.number))
                return
            before, now = person.parts[-1].language, self.room.next_index
            open_ones = self.room.lane(before).open if before != person.asked[0] else []
            person.admitted = now, open_ones[-1] if open_ones else -1
            person.parts[-1].until = now
            person.parts.append(Part(*person.asked, now))
        else:
            part, (next_index, last_open) = person.parts[-1], person.admitted
            person.asked = person.admitted = None
            effects = self.audience.on_change(
                person.number,
                language=part.language,
                form=part.form,
                next_index=next_index,
                last_open=last_open,
            )
            self.do(effects)

    # ---- the end ----

    def finish(self) -> None:
        """Everything that is under way comes to its end."""
        while self.coming:
            self.arrive(0)
        for person in self.people:
            while person.asked is not None and not person.has_left:
                self._change(person, 0)
        for lane in self.room.lanes.values():
            while lane.open:
                lane.publish()
        for _ in range(2 + max((len(each.parts) for each in self.people), default=0)):
            self.poll(0)
            for _ in range(1000):
                if not self.reads:
                    break
                self.answer(0)
            assert not self.reads, "it reads for ever"

    # ---- what was promised ----

    def check(self, person: Person) -> None:
        """Each index once, in order, in the right form."""
        at = -1
        for form, item in person.got:
            first = item.first if isinstance(item, Gap) else item.index
            assert first > at, f"{first} after {at}"
            at = item.until - 1 if isinstance(item, Gap) else item.index
            if isinstance(item, Gap):
                continue
            if item.index < person.live_from:
                assert person.is_new, "something below its position"
                assert form == Form.CAPTIONS | Form.REPLAYED
            else:
                assert form == part_of(person, item.index).form
                assert item.with_audio or not form & AUDIO, "no speech"

    def check_all(self, person: Person) -> None:
        """Nothing is left out."""
        got = {item.index for _, item in person.got if isinstance(item, Said)}
        gaps = [(item.first, item.until) for _, item in person.got if isinstance(item, Gap)]
        expected = set()
        for part in person.parts:
            published = self.room.lane(part.language).published
            end = self.room.next_index if part.until is None else part.until
            expected |= {index for index in published if part.start <= index < end}
        live = {index for index in got if index >= person.live_from}
        assert live <= expected
        lost = expected - live
        assert all(any(a <= i < b for a, b in gaps) for i in lost), f"lost: {sorted(lost)}"
        self._check_replay(person, got - live, gaps)

    def _check_replay(self, person: Person, got: set[int], gaps: Sequence[tuple[int, int]]) -> None:
        """What it got from before it came are the last ones, except for those that are lost."""
        part = person.parts[0]
        wanted = person.is_new and self.replayed and Form.CAPTIONS in part.form
        assert wanted or not got
        kept = [i for i in self.room.lane(part.language).kept() if i < person.live_from]
        run = [i for i in kept if i >= min(got, default=person.live_from)]
        assert all(i in got or any(a <= i < b for a, b in gaps) for i in run)


def part_of(person: Person, index: int) -> Part:
    """What a listener wanted at a room index."""
    return next(each for each in person.parts if each.until is None or index < each.until)
