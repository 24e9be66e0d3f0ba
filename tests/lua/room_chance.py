"""Draws random steps through the scripts of rooms."""

import contextlib
import random
from collections.abc import Mapping
from typing import Any

from lingua_scheduler.services.runtime.errors import LinguaError
from tests.support.room_model import RoomModel
from tests.support.room_state import RoomRules, Speaker

from .room_scripts import listener, speaker
from .scripts import START_MS

# Small numbers, so that everything collides. All times are multiples of 500 ms, and so is every
# step of the clock: limits are hit exactly.
RULES = RoomRules(
    lease_ms=2000, idle_ms=9000, due_ms=4000, speech_ms=3000, captions_max=3, cuts_max=4
)
ROOMS, GATEWAYS, LANGUAGES = ("r1", "r2"), ("g1", "g2", "g3"), ("de", "en", "fr")
LISTENERS, SPEAKERS = ("a", "b", "c", "d"), ("s", "t")
TENANTS = {"r1": "t1", "r2": "t1"}
LIMITS = {"max_members": 5, "max_speakers": 1, "max_languages": 2}

# How often each step is drawn.
_KINDS = {
    "create": 4,
    "join": 22,
    "leave": 5,
    "keep": 10,
    "record": 20,
    "put": 30,
    "read": 2,
    "left": 3,
    "close": 0.4,
    "advance": 14,
    "open_session": 2,
    "take_session": 0.5,
    "snapshot": 1,
    "failover": 1,
}

Step = tuple[str, Mapping[str, Any]]


class Chance:
    """Draws steps. It does them in a model of its own, so that most of them have an effect."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._model = RoomModel(RULES)
        self._saved: RoomModel | None = None
        self._now = START_MS
        self._joins: list[Mapping[str, Any]] = []
        self._leaves: list[Mapping[str, Any]] = []
        self._change = 0

    def step(self) -> Step:
        """The next step."""
        (kind,) = self._random.choices(list(_KINDS), list(_KINDS.values()))
        is_here, speaks = "r1" in self._model.rooms, len(self._model.speakers) == len(SPEAKERS)
        if not (is_here and speaks) and self._random.random() < 0.4:
            kind = "open_session" if is_here else "create"
        draw = getattr(self, f"_{kind}", dict)
        step = kind, draw()
        self._do(*step)
        return step

    def _do(self, kind: str, args: Mapping[str, Any]) -> None:
        model = self._model
        match kind:
            case "advance":
                self._now += args["ms"]
            case "snapshot":
                self._saved = model.copy()
            case "failover":
                self._model = self._saved.copy() if self._saved is not None else model
            case "open_session":
                if args["session_id"] not in model.speakers:
                    model.open_session(**args)
            case "take_session":
                if args["session_id"] in model.speakers:
                    model.take_session(**args)
            case _:
                with contextlib.suppress(LinguaError):
                    call = getattr(model, {"record": "record_spoken"}.get(kind, kind))
                    call(now=self._now, **args)

    @property
    def _around(self) -> int:
        """The next index of room r1."""
        room = self._model.rooms.get("r1")
        return room.next_index if room is not None else 0

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _room(self) -> str:
        return str(self._pick(*["r1"] * 7, "r2"))

    def _create(self) -> Mapping[str, Any]:
        room, pick = self._room(), self._pick
        return {
            "room_id": room,
            "tenant": TENANTS[room],
            "secret": pick(*[b"one"] * 9, b"two"),
            "created_ms": pick(0, 0, START_MS - 500),
            "next_index": pick(0, 0, 0, self._around + 1),
            "most_rooms": pick(0, 0, 1, 2),
            **LIMITS,
        }

    def _join(self) -> Mapping[str, Any]:
        if self._joins and self._random.random() < 0.25:
            # A repeat, perhaps a late one.
            return self._pick(*self._joins[-12:])  # type: ignore[no-any-return]
        self._change += 1
        pick, change = self._pick, self._change
        if self._random.random() < 0.3:
            member = speaker(pick(*SPEAKERS), change=change)
        else:
            flags = pick("c", "cs", "o", "cso")
            name = pick("", "Ann\nB")
            member = listener(pick(*LISTENERS), pick(*LANGUAGES), flags, name, change=change)
        drawn = {
            "gateway": pick(*GATEWAYS),
            "room_id": self._room(),
            "member": member,
            "rejoin": pick(False, False, True),
        }
        self._joins.append(drawn)
        return drawn

    def _leave(self) -> Mapping[str, Any]:
        if self._leaves and self._random.random() < 0.3:
            return self._pick(*self._leaves[-5:])  # type: ignore[no-any-return]
        self._change += 1
        drawn = {
            "gateway": self._pick(*GATEWAYS),
            "room_id": self._room(),
            "member_id": self._pick(*LISTENERS, *SPEAKERS),
            "change": self._change,
        }
        self._leaves.append(drawn)
        return drawn

    def _keep(self) -> Mapping[str, Any]:
        rooms = self._pick([("r1", 0)], [("r1", 0), ("r2", 0)], [("r1", self._around + 1)])
        return {
            "gateway": self._pick(*GATEWAYS),
            "rooms": rooms,
            "expire": self._random.random() < 0.7,
        }

    def _record(self) -> Mapping[str, Any]:
        session, pick = self._pick(*SPEAKERS), self._pick
        known = self._model.speakers.get(session, Speaker())
        first = max(0, known.next_index - pick(0, 0, 0, 1, 2, 6))
        end = max(known.next_index, first + pick(0, 1, 1, 1, 2, 3))
        cuts = list(range(first, end))
        if pick(*[False] * 9, True):
            cuts += cuts[:1]
        only = {cuts[0]: pick(("de",), ("de", "xx"))} if cuts and pick(*[False] * 6, True) else None
        return {
            "session_id": session,
            "room_id": self._room(),
            "cuts": cuts,
            "language": pick("en", "en", "fr"),
            "epoch": pick(*[known.epoch] * 9, 1, 2),
            "first_index": max(0, end - pick(0, 1, 3, 9)),
            "floor": pick(0, 0, 0, 0, 0, self._around + 1),
            "only": only,
        }

    def _index(self) -> int:
        return max(0, self._around + self._random.randint(-4, 3))

    def _put(self) -> Mapping[str, Any]:
        pick = self._pick
        expected = [
            (*lane, index)
            for lane, each in sorted(self._model.lanes.items())
            for index in sorted(each.open)
            if index not in each.waiting and lane[0]
        ]
        room_id, language, index = self._room(), pick(*LANGUAGES), self._index()
        if expected and self._random.random() < 0.75:
            room_id, language, index = pick(*expected)
        return {
            "room_id": room_id,
            "language": language,
            "index": index,
            "event": pick(b"\x00one", b"\x00one", b"two"),
            "speech": pick(b"", b"\xffspeech"),
            "original": pick(b"", b"\xfforiginal"),
        }

    def _read(self) -> Mapping[str, Any]:
        pick = self._pick
        return {
            "room_id": self._room(),
            "language": pick(*LANGUAGES),
            "start": self._index(),
            "count": pick(1, 2, 9),
            "newest": pick(False, True),
            "with_speech": pick(False, True),
        }

    def _left(self) -> Mapping[str, Any]:
        pairs = [(self._index(), self._pick(*LANGUAGES)) for _ in range(4)]
        return {"room_id": self._room(), "pairs": pairs}

    def _close(self) -> Mapping[str, Any]:
        return {"room_id": self._room()}

    def _advance(self) -> Mapping[str, Any]:
        return {"ms": self._pick(*[500] * 8, *[1000, 1500, 2000] * 2, 4000, 9000)}

    def _take_session(self) -> Mapping[str, Any]:
        return {"session_id": self._pick(*SPEAKERS)}

    def _open_session(self) -> Mapping[str, Any]:
        return {"session_id": self._pick(*SPEAKERS)}
