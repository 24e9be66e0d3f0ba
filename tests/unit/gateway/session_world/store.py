"""The store in the world of a session: its record, which may be written late, twice or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionPhase
from lingua_scheduler.v1 import common_pb2, session_record_pb2
from tests.unit.gateway.session_world.model import Life, plain

if TYPE_CHECKING:
    from tests.unit.gateway.session_world.world import World

_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
_TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER


class Store:
    """The session's record."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch = 0
        self.next_index = 0
        self.low = 0
        self.acked_seq = 0
        self.missing = 0
        self.cuts: dict[int, session_record_pb2.Cut] = {}
        # All cuts that were ever recorded.
        self.ever: dict[int, session_record_pb2.Cut] = {}
        self.down_until = 0.0

    def _write(self, record: fx.Record) -> None:
        self.low = max(self.low, record.first_index)
        self.acked_seq = max(self.acked_seq, record.acked_seq)
        self.missing = record.missing
        for cut in record.cuts:
            index = cut.utterance_index
            self.next_index = max(self.next_index, index + 1)
            known = self.ever.setdefault(index, plain(cut))
            assert known == plain(cut), f"index {index} means two things"
            self.cuts[index] = cut
        self.cuts = {index: cut for index, cut in self.cuts.items() if index >= self.low}

    def record(self, life: Life, record: fx.Record) -> None:
        for cut in record.cuts:
            index = cut.utterance_index
            life.since.setdefault(index, self._world.now)
            known = life.cuts.setdefault(index, plain(cut))
            assert known == plain(cut), f"index {index} is cut in another way"
            self._world.seen[f"cut {cut.reason}"] += 1
            self._world.seen["cut in parts"] += len(cut.chunks) > 1
        is_down = self._world.now < self.down_until
        way = self._world.choices.pick(4) if self._world.rough or is_down else 0
        if is_down and way == 0:
            way = 1
        arrives = self._world.choices.delay()
        answers = arrives + self._world.choices.delay()
        if way == 0:  # all goes well
            self._world.after(arrives, lambda: self._apply(life, record))
            self._world.after(answers, lambda: self._recorded(life))
        elif way == 1:  # it never arrives
            self._world.after(answers, lambda: self._record_failed(life))
        elif way == 2:  # the answer is lost
            self._world.after(arrives, lambda: self._apply(life, record))
            self._world.after(answers, lambda: self._record_failed(life))
        else:  # it arrives after all
            self._world.after(arrives, lambda: self._record_failed(life))
            self._world.after(answers, lambda: self._apply(life, record))

    def _apply(self, life: Life, record: fx.Record) -> None:
        if life.epoch == self.epoch:
            self._write(record)
            self._world.note(f"store: has {sorted(self.cuts)}")
        else:
            self._world.seen["record of an old epoch"] += 1

    def _recorded(self, life: Life) -> None:
        if life.is_dead:
            return
        if life.epoch == self.epoch:
            self._world.tell(life, "recorded", lambda life: life.core.on_recorded(self._world.now))
        else:
            why = common_pb2.Error(reason=_TAKEN_OVER)
            self._world.tell(life, "lost", lambda life: life.core.on_lost(self._world.now, why))
            assert life.core.phase is SessionPhase.OVER

    def _record_failed(self, life: Life) -> None:
        if not life.is_dead:
            why = common_pb2.Error(reason=_DOWN)
            self._world.seen["record failed"] += 1
            self._world.tell(
                life, "record failed", lambda life: life.core.on_record_failed(self._world.now, why)
            )
