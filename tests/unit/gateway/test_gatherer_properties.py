"""Promises of the gatherer, checked with random input."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    HANGOVER,
    PAUSE,
)
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Cut, Direction
from lingua_scheduler.v1 import common_pb2
from tests.unit.gateway.rig import (
    AB,
    BA,
    RULES,
    Rig,
)

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("say"),
            st.sampled_from([0.0, 20.0, 100.0, 160.0, 390.0, 400.0, 1000.0]),
            st.sampled_from([AB, BA]),
            st.booleans(),
            st.sampled_from([0, 0, 10, 400, 990, 2000]),
            # Without voice detection; with no voice, or with voice at its beginning or end.
            st.sampled_from([None, 1.0, 0.5, 0.0]),
        ),
        st.tuples(st.just("silence"), st.sampled_from([0.0, 50.0, 150.0, 200.0, 2999.0, 3000.0])),
        st.tuples(st.just("silence"), st.sampled_from([3200.0, 9000.0, 10_000.0, 20_000.0])),
        st.tuples(st.just("late"), st.sampled_from([10.0, 3000.0, 3001.0, 12_000.0])),
        st.tuples(st.sampled_from(["playback", "hold"]), st.booleans()),
        st.tuples(st.just("fire"), st.sampled_from([PAUSE, HANGOVER, FRAGMENT])),
        st.tuples(st.just("call"), st.sampled_from([PAUSE, HANGOVER, FRAGMENT])),
    ),
    max_size=40,
)
ODD_RULES = st.builds(
    lambda hangover, merge, wait, longest: replace(
        RULES,
        hangover_manual_ms=hangover,
        hangover_auto_ms=hangover * 0.75,
        short_merge_ms=merge,
        short_wait_ms=wait,
        max_duration_ms=longest,
    ),
    st.sampled_from([200.0, 0.0, 1000.0]),
    st.sampled_from([400.0, 0.0, 3000.0]),
    st.sampled_from([10_000.0, 0.0, 100.0]),
    st.sampled_from([1000.0, 500.0]),
)


class Watched(Rig):
    """Records the speech, and checks every cut."""

    def __init__(self, rules: SessionRules, *, with_client_ms: bool) -> None:
        super().__init__(rules)
        self.said: dict[Direction, list[int]] = {AB: [], BA: []}
        self.size: dict[int, int] = {}
        self._with_client_ms = with_client_ms

    def tell(
        self, ms: float, direction: Direction, final: bool, size: int, quiet: float | None
    ) -> None:
        if ms:
            self.said[direction].append(self._seq)
            self.size[self._seq] = size
        data = self._seq.to_bytes(2, "big") if ms else b""
        client_ms = int(self.now) if self._with_client_ms else 0
        quiet_ms = None if quiet is None or not ms else ms * quiet
        self.say(
            ms,
            direction,
            final=final,
            client_ms=client_ms,
            size=size,
            data=data,
            quiet_ms=quiet_ms,
        )

    def heard(self, direction: Direction) -> list[int]:
        """The chunks of a direction, in the order of its cuts."""
        cuts = [cut.speech for cut in self.cuts if cut.speech.direction == direction]
        seqs = [seq for each in cuts for first, end in each.ranges for seq in range(first, end)]
        assert [int.from_bytes(data, "big") for each in cuts for data in each.chunks] == seqs
        return seqs


@given(ODD_RULES, st.booleans(), STEPS)
def test_every_chunk_comes_out_once_and_in_order_whatever_happens(
    rules: SessionRules, with_client_ms: bool, steps: list[tuple[object, ...]]
) -> None:
    rig = Watched(rules, with_client_ms=with_client_ms)

    for name, *values in steps:
        if name == "say":
            rig.tell(*values)  # type: ignore[arg-type]
        else:
            getattr(rig, str(name))(*values)
        waiting = {seq for said in rig.said.values() for seq in said}
        waiting -= {*rig.heard(AB), *rig.heard(BA)}
        assert rig.gatherer.first_seq == min(waiting, default=None)
    rig.close()

    assert rig.gatherer.first_seq is None
    assert not rig.timers
    for direction, said in rig.said.items():
        assert rig.heard(direction) == said
    for cut in rig.cuts:
        speech = cut.speech
        assert speech.chunks
        assert speech.size == sum(rig.size[seq] for seq in _seqs(cut))
        assert cut.ended_ms <= cut.cut_ms
    _check_turns(rig)


def _check_turns(rig: Watched) -> None:
    for direction in rig.said:
        cuts = [cut for cut in rig.cuts if cut.speech.direction == direction]
        limits = (common_pb2.FINALIZE_REASON_MAX_DURATION, common_pb2.FINALIZE_REASON_MAX_LENGTH)
        assert not cuts or cuts[-1].reason not in limits, "no end of the turn follows"


def _seqs(cut: Cut) -> list[int]:
    return [seq for first, end in cut.speech.ranges for seq in range(first, end)]
