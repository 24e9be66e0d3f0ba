"""The attempts that a node is working on, and the slots that they take. No I/O, no clock."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lingua_scheduler.sdk.node.protocol.partials import Partials
from lingua_scheduler.sdk.node.protocol.wire import Ref, attempt_of
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2


@dataclass(slots=True)
class Attempt:
    """A running attempt.

    Attributes:
        ref: its job and number.
        run: the execution of the handler. An attempt that is assigned again after it was
            cancelled has another one.
        deadline: when it has to be done; None if it has no limit.
        held: whether the handler has said that the node keeps the audio.
    """

    ref: Ref
    run: int
    session_id: str
    pair: tuple[str, str]
    utterance_index: int
    deadline: float | None
    held: bool = False

    def held_event(self) -> dispatcher_pb2.NodeEvent:
        """Returns the event that says that the node keeps the audio."""
        return dispatcher_pb2.NodeEvent(
            audio_held=dispatcher_pb2.AudioHeld(
                attempt=attempt_of(self.ref),
                session_id=self.session_id,
                pair=common_pb2.LanguagePair(src=self.pair[0], tgt=self.pair[1]),
                utterance_index=self.utterance_index,
            )
        )


class Attempts:
    """Running attempts by reference, in the order in which they started.

    An execution that was stopped keeps its slot until its handler has really ended.

    Attributes:
        slots: how many handlers may run at once.
        partials: the partial results of running attempts.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.partials = Partials()
        self._running: dict[Ref, Attempt] = {}
        self._by_run: dict[int, Attempt] = {}
        # Executions whose handlers have not ended, including stopped ones.
        self._executing: set[int] = set()
        self._last_run = 0
        # No deadline of a running attempt is earlier. Exact only after `pop_overdue`, so that it
        # costs the same however many attempts there are.
        self._earliest = math.inf

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._running.values())

    @property
    def executing(self) -> int:
        """How many slots are taken."""
        return len(self._executing)

    @property
    def is_full(self) -> bool:
        """Whether all slots are taken."""
        return len(self._executing) >= self.slots

    def get(self, ref: Ref) -> Attempt | None:
        """Returns the running attempt; None if there is none."""
        return self._running.get(ref)

    def of_run(self, run: int) -> Attempt | None:
        """Returns the attempt of an execution; None if its outcome is no longer wanted."""
        return self._by_run.get(run)

    def start(self, now: float, ref: Ref, assign: dispatcher_pb2.JobAssign) -> Attempt:
        """Adds an attempt and takes a slot for it."""
        self._last_run += 1
        job = assign.job
        attempt = Attempt(
            ref=ref,
            run=self._last_run,
            session_id=job.session_id,
            pair=(job.pair.src, job.pair.tgt),
            utterance_index=job.utterance_index,
            deadline=now + assign.time_left_ms / 1000 if assign.time_left_ms else None,
        )
        self._running[ref] = self._by_run[attempt.run] = attempt
        if attempt.deadline is not None:
            self._earliest = min(self._earliest, attempt.deadline)
        self._executing.add(attempt.run)
        self.partials.open(ref, job.partial_interval_ms / 1000)
        return attempt

    def detach(self, ref: Ref) -> Attempt | None:
        """Removes the attempt, so that nothing from its handler is sent; the slot stays taken."""
        attempt = self._running.pop(ref, None)
        if attempt is not None:
            del self._by_run[attempt.run]
            self.partials.close(ref)
        return attempt

    def ended(self, run: int) -> None:
        """Frees the slot of an execution."""
        self._executing.discard(run)

    def next_deadline(self) -> float | None:
        """Returns when to call `pop_overdue`; None: never. May be too early, never too late."""
        return self._earliest if self._running and self._earliest < math.inf else None

    def pop_overdue(self, now: float) -> list[Attempt]:
        """Returns the attempts whose deadline has passed, each once."""
        overdue = []
        for attempt in self._running.values():
            if attempt.deadline is not None and attempt.deadline <= now:
                attempt.deadline = None
                overdue.append(attempt)
        left = (each.deadline for each in self._running.values() if each.deadline is not None)
        self._earliest = min(left, default=math.inf)
        return overdue
