"""The audio that nodes hold, over all lanes of a session in a room."""

from lingua_scheduler.services.session_gateway.session.turns import HeldTurns
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, session_record_pb2


class LaneTurns:
    """What nodes hold in any lane. Each lane has turns of its own."""

    def __init__(self) -> None:
        self.lanes: dict[str, HeldTurns] = {}
        """By language."""

    def __bool__(self) -> bool:
        """Whether a node holds anything."""
        return any(self.lanes.values())

    @property
    def first_seqs(self) -> list[int]:
        """The first chunk of each piece that the client should keep for a later gateway."""
        return [seq for each in self.lanes.values() for seq in each.first_seqs]

    def has(self, index: int) -> bool:
        """Whether a node holds audio of an utterance."""
        return any(each.has(index) for each in self.lanes.values())

    def awaits(self, index: int) -> bool:
        """Whether the chunks of an utterance are yet to be replayed."""
        return any(each.awaits(index) for each in self.lanes.values())

    def fill(self, utterance: Utterance) -> None:
        """Keeps the audio of an utterance whose chunks have been replayed."""
        for each in self.lanes.values():
            each.fill(utterance)

    def clear(self) -> None:
        """Drops everything: the session has left this gateway."""
        for each in self.lanes.values():
            each.clear()


def cut_in_lane(
    cut: session_record_pb2.Cut, language: session_record_pb2.CutLanguage
) -> session_record_pb2.Cut:
    """A recorded cut as it is in one lane."""
    return session_record_pb2.Cut(
        utterance_index=cut.utterance_index,
        direction=common_pb2.LanguagePair(src=cut.direction.src, tgt=language.language),
        reason=cut.reason,
        chunks=cut.chunks,
        audio_ms=cut.audio_ms,
        is_held=language.is_held,
        held_audio_bytes=language.held_audio_bytes,
        is_missing=language.is_missing,
        kept_seq=cut.kept_seq,
    )


def cuts_in_lanes(cuts: tuple[session_record_pb2.Cut, ...]) -> list[session_record_pb2.Cut]:
    """Recorded cuts as they are in their lanes, in the order of their indexes."""
    return [cut_in_lane(cut, language) for cut in cuts for language in cut.languages]
