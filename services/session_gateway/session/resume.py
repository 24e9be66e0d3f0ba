"""Resuming a session that another gateway has served: its past, and chunks that are sent again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lingua_scheduler.services.session_gateway.session.speech import MAY_CONTINUE, Chunk
from lingua_scheduler.services.session_gateway.session.turns import HeldAudio
from lingua_scheduler.services.session_gateway.session.utterance import Utterance, UtteranceState
from lingua_scheduler.v1 import common_pb2, session_record_pb2


@dataclass(frozen=True, slots=True)
class Past:
    """What happened before this gateway served the session.

    Attributes:
        next_index: the index of the next utterance.
        seen: how many results the client has seen.
        next_seq: the first chunk that is not safe; the client still has it.
        missing: how many of the results that were seen were missing.
        cuts: the cuts that the record still has, in the order of their indexes.
        left: of a session in a room, the utterances that have no outcome in a language.
        lost: the same for those that are missing in a language, and why.
    """

    next_index: int = 0
    seen: int = 0
    next_seq: int = 0
    missing: int = 0
    cuts: tuple[session_record_pb2.Cut, ...] = ()
    left: frozenset[tuple[int, str]] = frozenset()
    lost: Mapping[tuple[int, str], common_pb2.Error] = field(default_factory=dict)

    def is_replayed(self, cut: session_record_pb2.Cut) -> bool:
        """Whether the client sends the chunks of a cut again."""
        return self.next_seq <= cut.chunks[0].first < cut.chunks[0].end


class Replay:
    """Recognizes the chunks of recorded cuts that the client sends again.

    Args:
        past: of the session.
        turns: know what nodes hold since before the resume, and get its audio.
        open_utterances: those that are not over.
        now: the current time.
    """

    def __init__(
        self, *, past: Past, turns: HeldAudio, open_utterances: Iterable[Utterance], now: float
    ) -> None:
        self._turns = turns
        # Utterances whose chunks are needed again. In a room, one may be held in one language and
        # open in another.
        self._awaited = [each for each in open_utterances if each.state is UtteranceState.REPLAY]
        open_indexes = {each.index for each in self._awaited}
        self._awaited += [
            Utterance.from_record(cut, now=now, deadline_ms=now, accepted=False)
            for cut in past.cuts
            if turns.awaits(cut.utterance_index) and cut.utterance_index not in open_indexes
        ]
        # Ranges of chunks that are not needed, but may be sent again between others.
        awaited = {each.index for each in self._awaited}
        self._known = [
            (chunks.first, chunks.end)
            for cut in past.cuts
            if cut.utterance_index not in awaited
            for chunks in cut.chunks
            if chunks.end > past.next_seq
        ]
        ranges = [span for each in self._awaited for span in each.ranges] + self._known
        self.end_seq = max((end for _, end in ranges), default=0)
        """All chunks from here on are new speech."""

    @property
    def is_needed(self) -> bool:
        """Whether chunks that are needed again have not arrived."""
        return bool(self._awaited)

    def take(self, chunk: Chunk) -> bool:
        """Takes a chunk of a recorded cut. Returns False if the chunk is new speech."""
        for utterance in self._awaited:
            if utterance.has(chunk.seq):
                self._add(utterance, chunk)
                return True
        return any(first <= chunk.seq < end for first, end in self._known)

    def _add(self, utterance: Utterance, chunk: Chunk) -> None:
        is_open = utterance.state is UtteranceState.REPLAY
        if is_open:
            utterance.chunks.append(chunk.data)
        utterance.first_client_ms = utterance.first_client_ms or chunk.client_ms
        if chunk.seq + 1 == utterance.ranges[-1][1]:
            self._awaited.remove(utterance)
            if is_open:
                utterance.state = UtteranceState.READY
            self._turns.fill(utterance)


def replay_from(
    cuts: Sequence[session_record_pb2.Cut],
    *,
    most_cuts: int,
    seen: int,
    kept_seq: int,
    next_seq: int,
) -> int:
    """Returns the chunk from which the client of a resumed session has to send again.

    It lies before the first unsafe chunk if nodes hold audio that the client still has.

    Args:
        cuts: the recorded cuts, in the order of their indexes.
        most_cuts: how many cuts a record can have. A full record may have dropped cuts whose
            chunks would be taken for new speech.
        seen: how many results the client has seen.
        kept_seq: the first chunk that the client still has.
        next_seq: the first chunk that is not safe.
    """
    if len(cuts) >= most_cuts:
        return next_seq
    # The record may no longer know to which utterance chunks below this one belonged.
    kept_seq = max([kept_seq, *(cut.kept_seq for cut in cuts)])
    held: dict[tuple[str, str], list[int]] = {}
    for cut in cuts:
        first, direction = cut.chunks[0].first, (cut.direction.src, cut.direction.tgt)
        if cut.utterance_index < seen:
            if not cut.is_held and not cut.is_missing:
                held.pop(direction, None)
            elif cut.is_held:
                held.setdefault(direction, []).append(first)
        elif cut.reason in MAY_CONTINUE or direction in held:
            # A node may hold it as well, or it needs the audio that a node holds.
            held.setdefault(direction, []).append(first)
    seqs = [seq for each in held.values() for seq in each if seq >= kept_seq]
    return min([*seqs, next_seq])
