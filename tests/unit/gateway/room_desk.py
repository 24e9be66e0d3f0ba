"""The core of a session that speaks to a room, driven by hand; the tests share it."""

from __future__ import annotations

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.lane import Speaker
from lingua_scheduler.services.session_gateway.session.speaking.room_jobs import Place
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2, session_pb2
from tests.unit.gateway.desk import FOR_GOOD, OPENED, RULES, Desk, error

SPEAKER = Speaker("s", "Ann", "en")
ROOM = session_pb2.NewSession(
    room=session_pb2.RoomSpeaker(room_id="r", language="en", name="Ann"),
    audio_format=OPENED.audio_format,
    options=session_pb2.SessionOptions(require_tts=True),
    tenant="t",
)
TRANSLATED = dispatcher_pb2.JobResult.KIND_TRANSLATED
HELD = dispatcher_pb2.JobResult.KIND_HELD


class RoomDesk(Desk):
    """A session in a room. The room wants French speech and German captions, unless told else."""

    def __init__(
        self, rules: SessionRules = RULES, past: Past | None = None, now: float = 1000.0
    ) -> None:
        self.wanted = {"fr": True, "de": False}
        self.wants_original = False
        self.room_next = 10
        super().__init__(rules, past, ROOM, now, SPEAKER)
        self.said: dict[int, Place] = {}

    def speak(self, ms: float = 500.0) -> RoomDesk:
        """Sends speech and its end, and records the cut."""
        self.say(ms, None, final=True).silence(200)
        return self.placed()

    def placed(self) -> RoomDesk:
        """The room answers the last record: a new cut gets the next place."""
        places = []
        for cut in self.records[-1].cuts:
            index = cut.utterance_index
            if index not in self.said:
                only = [each.language for each in cut.languages]
                wanted = {
                    language: speech
                    for language, speech in self.wanted.items()
                    if not only or language in only
                }
                self.said[index] = Place(index, self.room_next, wanted, self.wants_original)
                self.room_next += 1
            places.append(self.said[index])
        self.do(self.core.on_recorded(self.now, places))
        return self

    def accept(self, index: int, *lanes: str) -> RoomDesk:
        for lane in lanes:
            accepted = dispatcher_pb2.JobAccepted(node_id="n", attempt=1)
            self.do(self.core.on_accepted(self.now, index, accepted, lane))
        return self

    def deliver(
        self,
        index: int,
        lane: str,
        *,
        kind: dispatcher_pb2.JobResult.Kind.ValueType = TRANSLATED,
        joined: tuple[int, ...] = (),
        speech: bytes = b"",
    ) -> RoomDesk:
        result = dispatcher_pb2.JobResult(
            kind=kind,
            texts=dispatcher_pb2.Texts(translated=f"{index} in {lane}"),
            joined_utterances=joined,
            speech=speech,
        )
        delivered = dispatcher_pb2.JobDelivered(result=result, node_id="n", attempts=1)
        self.do(self.core.on_delivered(self.now, index, "job", delivered, lane))
        return self

    def fail(
        self, index: int, lane: str, reason: common_pb2.ErrorReason.ValueType = FOR_GOOD
    ) -> RoomDesk:
        self.do(self.core.on_failed(self.now, index, error(reason), lane))
        return self

    def published(self, index: int, *lanes: str) -> RoomDesk:
        for lane in lanes:
            self.do(self.core.on_published(self.now, lane, index))
        return self

    def finish(self, index: int, *lanes: str) -> RoomDesk:
        """The jobs of an utterance are done, and the room has their results."""
        for lane in lanes:
            self.accept(index, lane).deliver(index, lane).published(index, lane)
        return self

    # ---- what came of it ----

    @property
    def jobs(self) -> list[tuple[int, str]]:
        """The jobs that were submitted: index and language."""
        return [(each.utterance.index, each.utterance.direction.tgt) for each in self.submitted]

    def events(self) -> list[rooms_pb2.RoomEvent]:
        """What the room was given since `effects` was cleared."""
        return [each.event for each in self.effects if isinstance(each, fx.Publish)]

    def publications(self) -> list[fx.Publish]:
        return [each for each in self.effects if isinstance(each, fx.Publish)]

    def receipts(self) -> list[tuple[int, list[str], list[str]]]:
        """Room index, languages with a result and languages without, of each receipt."""
        return [
            (
                each.room.room_index,
                list(each.room.delivered),
                [missing.language for missing in each.room.missing],
            )
            for each in self.results()
        ]

    def job_id_in(self, index: int, language: str, *, text: bool = False) -> str:
        return self.specs.job_id(index, Direction("en", language), is_text_only=text)

    def taken_over(
        self,
        *,
        seen: int = 0,
        next_seq: int,
        left: set[tuple[int, str]],
        lost: set[tuple[int, str]] = frozenset(),  # type: ignore[assignment]
    ) -> RoomDesk:
        """The session as another gateway resumes it."""
        cuts = {cut.utterance_index: cut for each in self.records for cut in each.cuts}
        for index, place in self.said.items():
            if index in cuts and not cuts[index].HasField("room_index"):
                del cuts[index].languages[:]
                cuts[index].room_index = place.room_index
                for language, speech in place.languages.items():
                    cuts[index].languages.add(language=language, speech=speech)
        past = Past(
            next_index=max(cuts, default=-1) + 1,
            seen=seen,
            next_seq=next_seq,
            cuts=tuple(cuts[index] for index in sorted(cuts)),
            left=frozenset(left),
            lost={each: error(FOR_GOOD) for each in lost},
        )
        after = RoomDesk(self.rules, past, now=self.now)
        after.said, after.room_next, after.wanted = self.said, self.room_next, self.wanted
        return after
