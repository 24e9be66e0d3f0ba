"""Values of the contract that nodes and sessions share."""

from enum import IntEnum
from typing import NamedTuple

from lingua_scheduler.v1 import common_pb2


class Pair(NamedTuple):
    """A direction of translation."""

    src: str
    tgt: str


class Reason(IntEnum):
    """Why the utterance was cut."""

    UNSPECIFIED = common_pb2.FINALIZE_REASON_UNSPECIFIED
    # The speaker or the app ended it.
    IS_FINAL = common_pb2.FINALIZE_REASON_IS_FINAL
    # A pause. The sentence may be unfinished; if it is, the node answers Held.
    TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
    # The utterance reached a limit while speech went on: more of it follows.
    MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION
    MAX_LENGTH = common_pb2.FINALIZE_REASON_MAX_LENGTH
    SESSION_CLOSE = common_pb2.FINALIZE_REASON_SESSION_CLOSE
    # The other speaker began. As with TIMEOUT, the sentence may be unfinished.
    INTERRUPTED = common_pb2.FINALIZE_REASON_INTERRUPTED


class Stage(IntEnum):
    """A stage of a job."""

    ASR = common_pb2.STAGE_KIND_ASR
    SEMANTIC = common_pb2.STAGE_KIND_SEMANTIC
    NMT = common_pb2.STAGE_KIND_NMT
    TTS = common_pb2.STAGE_KIND_TTS
    TONE = common_pb2.STAGE_KIND_TONE
