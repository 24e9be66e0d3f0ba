"""The promises of a session, checked in thousands of random worlds (see session_world)."""

import os
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionPhase
from lingua_scheduler.services.session_gateway.session.speech import MAY_CONTINUE
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2
from tests.unit.choices import Choices, shrink
from tests.unit.gateway.session_world.model import AB, BA, LATE_MS, Life, seqs_of
from tests.unit.gateway.session_world.world import World

RUNS = int(os.environ.get("LINGUA_SESSION_RUNS", "800"))
BATCHES = 8

DEADLINE_EXCEEDED = common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
QUOTA_EXCEEDED = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
DEPENDENCY_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
NOT_FOUND = common_pb2.ERROR_REASON_JOB_NOT_FOUND


# Runs that are tried to make a failing one shorter.
SHRINKS = 1500


class Promises(World):
    """A world that checks every promise whenever it could be broken."""

    def check_job(self, life: Life, utterance: Utterance) -> None:
        spec = life.specs.spec(utterance, self.now)
        brought = self._said(*spec.included_utterances)
        assert spec.audio.startswith(brought), f"{utterance.index} brings other audio along"
        audio = spec.audio[len(brought) :]
        told = self.audio.setdefault(utterance.job_id, (audio, spec.reason))
        assert told == (audio, spec.reason), f"job {utterance.index} means two things"
        cut = self.store.ever.get(utterance.index)
        assert cut == life.cuts[utterance.index], f"{utterance.index} is not written down"
        chunks = [self.client.chunks[seq] for seq in seqs_of(cut)]
        assert audio == self._said(utterance.index)
        assert spec.is_flush == (not chunks and not brought)
        assert all(chunk.direction == spec.pair for chunk in chunks)

    def _said(self, *indexes: int) -> bytes:
        """The concatenated audio of utterances."""
        seqs = [seq for index in indexes for seq in seqs_of(self.store.ever[index])]
        return b"".join(self.client.chunks[seq].data for seq in seqs)

    def check_turn(self, life: Life, utterance: Utterance) -> None:
        """The order of a turn (decision 12)."""
        if utterance.is_attached:
            return
        known = {**self.store.ever, **life.cuts}
        mine = known[utterance.index].direction
        before = sorted(i for i in known if i < utterance.index and known[i].direction == mine)
        continues = False
        for index in before:
            cut = known[index]
            job = self.dispatcher.jobs.get(cut.job_id)
            is_over = index in life.over or index < life.first
            if cut.reason in MAY_CONTINUE:
                assert is_over, f"{utterance.index} goes before {index} is over"
                assert job is None or job.state != "running", f"{index} still runs"
            elif continues:
                given_up = (
                    index in self.dispatcher.lost
                    or index in self.declared
                    or index in self.dispatcher.given_back
                )
                is_safe = is_over or given_up or (job is not None and job.accepted)
                assert is_safe, f"{utterance.index} overtakes {index}, which ends a turn"
            continues = cut.reason in MAY_CONTINUE

    def check_ack(self, next_seq: int) -> None:
        """A chunk is acknowledged only if a dispatcher has it, or its utterance is missing."""
        safe: set[int] = set()
        for life in self.lives:
            for index, cut in life.cuts.items():
                job = self.dispatcher.jobs.get(cut.job_id)
                accepted = job is not None and (job.accepted or job.state != "running")
                seen = (
                    index < self.client.seen
                    or index in self.dispatcher.lost
                    or index in self.dispatcher.given_back
                )
                if accepted or seen or index in self.declared or index in life.over:
                    safe.update(seqs_of(cut))
        for chunk in self.client.chunks[:next_seq]:
            assert not chunk.data or chunk.seq in safe or chunk.seq < self.client.acked, (
                f"chunk {chunk.seq} is acknowledged, and nobody has it"
            )
        assert next_seq <= len(self.client.chunks)

    def check_deadlines(self, life: Life) -> None:
        if life.is_dead or life.is_over:
            return
        limit = self.rules.result_deadline_ms + self.rules.redis_outage_max_ms + LATE_MS
        late = [
            index
            for index, since in life.since.items()
            if index not in life.sent and index >= life.first and self.now > since + limit
        ]
        assert not late, f"{late} are open after their deadlines"

    def check_leave(self, life: Life, job_ids: tuple[str, ...]) -> None:
        if life.core.phase is not SessionPhase.OVER:
            return  # only results beyond the limit of this gateway
        for job in self.dispatcher.jobs.values():
            wanted = job.index >= self.client.seen and job.index not in self.declared
            if job.subscriber is life and wanted and self.rules.result_queue_max > 4:
                assert job.job_id in job_ids, f"job {job.index} is not left to the next gateway"

    def check_end(self, life: Life, end: fx.End) -> None:
        if end.forget:
            self.seen["forgotten"] += 1
            assert life.epoch == self.store.epoch
            # The client has confirmed every outcome that was sent.
            assert self.client.seen == life.first + len(life.sent)

    def check_missing(self, missing: session_pb2.Missing) -> None:
        """Once there are no more faults, nothing is missing without a reason."""
        since = self.benign_since
        index = missing.utterance_index
        is_lost = self.dispatcher.lost.get(index, self.life.epoch) < self.life.epoch
        if since is None or is_lost or index in self.life.given_up:
            return
        cut = self.store.ever.get(index)
        job = None if cut is None else self.dispatcher.jobs.get(cut.job_id)
        if job is not None and (job.state in ("failed", "cancelled") or job.forgotten):
            return
        limit = self.rules.result_deadline_ms
        if missing.why.reason in (DEADLINE_EXCEEDED, QUOTA_EXCEEDED, DEPENDENCY_DOWN):
            known = self.life.since.get(index, 0.0)
            assert known + limit < since + 5000, f"{index} is missing for no reason"
        else:
            assert missing.why.reason == NOT_FOUND, missing
            told = self.client.acked > seqs_of(cut)[0] if cut else True
            assert told, f"{index} is missing, and the client has its audio"

    def check_whole(self) -> None:
        client, closed = self.client, self.client.closed
        assert closed is not None
        assert closed.results + closed.missing == client.seen == len(client.outcomes)
        assert client.acked == len(client.chunks), "audio is never acknowledged"
        used: dict[int, int] = {}
        for direction in (AB, BA):
            cuts = [cut for _, cut in sorted(self.store.ever.items())]
            mine = [cut for cut in cuts if (cut.direction.src, cut.direction.tgt) == direction]
            seqs = [seq for cut in mine for seq in seqs_of(cut)]
            assert seqs == sorted(set(seqs)), f"{direction}: {seqs} are out of order"
            used |= {seq: cut.utterance_index for cut in mine for seq in seqs_of(cut)}
            self._check_rests(mine)
        unwritten = {
            seq
            for life in self.lives
            for index, cut in life.cuts.items()
            if index not in self.store.ever and index in self.declared
            for seq in seqs_of(cut)
        }
        for chunk in client.chunks:
            if chunk.data:
                assert chunk.seq in used or chunk.seq in unwritten, f"chunk {chunk.seq} is lost"
            else:
                assert chunk.seq not in used
        assert set(used.values()) <= set(range(client.seen))
        self._check_held()

    def _check_held(self) -> None:
        """Held audio is part of one later result, or is reported as lost."""
        client = self.client
        held = {index for index, what in enumerate(client.outcomes) if what == "held"}
        told = client.joined + client.told_lost
        self.seen["held audio lost"] += client.told_lost.total()
        # Audio that was reported as lost may still arrive, with a result that was given up. And the
        # next gateway repeats, out of order, what one has given up at its deadline.
        if not any(life.given_up for life in self.lives):
            assert max(client.joined.values(), default=1) == 1, f"joined twice: {client.joined}"
        # One gateway may learn that it is held, and another one give it up.
        had_text = [index for index in client.told_lost if client.outcomes[index] == "result"]
        assert not had_text, f"{had_text} were not held"
        if len(self.lives) == 1:
            assert held <= set(told), f"of {held} only {told} were told of"
            assert not client.told_lost or "missing" in client.outcomes, "audio was lost"

    def _check_rests(self, cuts: list[session_record_pb2.Cut]) -> None:
        """A flush ends every turn that is held at the end, and no other.

        Of several gateways each knows only what it was told itself.
        """
        if len(self.lives) > 1:
            return
        is_held = False
        for cut in cuts:
            assert is_held or seqs_of(cut), f"{cut.utterance_index} ends what nobody holds"
            outcome = self.client.outcomes[cut.utterance_index]
            # A missing utterance joins nothing, unless its result is only too late.
            is_held = outcome == "held" or (outcome == "missing" and is_held and bool(seqs_of(cut)))
        assert not is_held or self.client.told_lost, "a node holds what nobody asks for"


def breaks(choices: list[int]) -> bool:
    try:
        Promises(Choices(choices)).run()
    except AssertionError:
        return True
    return False


def check(seed: int) -> Promises:
    """Runs one world; reports a failure by the shortest run that has it."""
    choices = Choices(seed=seed)
    try:
        world = Promises(choices)
        world.run()
    except AssertionError:
        if not breaks(choices.made):
            raise
        left = iter(range(SHRINKS))
        short = shrink(choices.made, lambda less: next(left, None) is not None and breaks(less))
    else:
        return world
    world = Promises(Choices(short))
    with pytest.raises(AssertionError) as broken:
        world.run()
    pytest.fail(f"seed {seed}, choices {short}: {broken.value}\n{world.story()}")


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_promise_holds_in_random_worlds(batch: int) -> None:
    for seed in range(batch * RUNS // BATCHES, (batch + 1) * RUNS // BATCHES):
        check(seed)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=500))
def test_every_promise_holds_whatever_is_chosen(choices: list[int]) -> None:
    Promises(Choices(choices)).run()


def test_the_worlds_come_everywhere() -> None:
    """Worlds in which little happens would prove little: all rare events occur."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        seen.update(check(seed).seen)

    reasons = common_pb2.FinalizeReason.values()[1:]
    rare = (
        *(f"cut {reason}" for reason in reasons),
        "cut in parts",
        "fragment_kept",
        "repeated_end",
        "empty_end",
        "rest",
        "node lost",
        "held audio needed",
        "held audio brought along",
        "refused_chunk",
        "gate shut",
        "record failed",
        "record of an old epoch",
        "submit of an old epoch",
        "submit again",
        "attach",
        "found running",
        "found done",
        "found failed",
        "job lost",
        "retried",
        "late_result",
        "cancel",
        "taken",
        "forgotten",
        "the gateway leaves",
        "the gateway dies",
        "the gateway does not notice",
        "timer of an old generation",
        f"missing {common_pb2.ERROR_REASON_JOB_FAILED}",
        f"missing {common_pb2.ERROR_REASON_JOB_NOT_FOUND}",
        f"missing {common_pb2.ERROR_REASON_DEADLINE_EXCEEDED}",
    )
    assert not [step for step in rare if not seen[step]]
