"""The names of a job: its key, the id derived from it, and its queue."""

import hashlib
from functools import lru_cache

from lingua_scheduler.services.runtime.contract.cell_names import JOB_DIGITS, cell_of_id
from lingua_scheduler.v1 import dispatcher_pb2

DEFAULT_TYPE = "translate"
# Bytes of a job id: 128 bits, of which 116 depend on the key, so that ids do not collide.
_ID_BYTES = 16


def job_key(spec: dispatcher_pb2.JobSpec) -> str:
    """`{tenant}:{session}:{utterance_index}:{job_type}:{tgt}:{features_hash}`."""
    features = _features_hash(
        spec.require_tts,
        tuple(spec.required_stages),
        tuple(spec.features.items()) if spec.features else (),
    )
    job_type = spec.job_type or DEFAULT_TYPE
    tgt = spec.pair.tgt.lower()
    return f"{spec.tenant}:{spec.session_id}:{spec.utterance_index}:{job_type}:{tgt}:{features}"


# All jobs of an app have the same few features.
@lru_cache(maxsize=256)
def _features_hash(
    require_tts: bool, stages: tuple[int, ...], features: tuple[tuple[str, str], ...]
) -> str:
    asked = [require_tts, sorted(stages), sorted(features)]
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:12]


def job_key_around(spec: dispatcher_pb2.JobSpec) -> tuple[str, str]:
    """The parts before and after the index of the utterance in the keys of similar jobs."""
    before = f"{spec.tenant}:{spec.session_id}:"
    return before, job_key(spec).removeprefix(f"{before}{spec.utterance_index}")


def job_id(key: str, session_id: str) -> str:
    """The id of the job with this key, the same on every instance. Its end names its cell."""
    digest = hashlib.blake2b(key.encode(), digest_size=_ID_BYTES).hexdigest()
    return f"{digest[:-JOB_DIGITS]}{cell_of_id(session_id):0{JOB_DIGITS}x}"


def queue_name(spec: dispatcher_pb2.JobSpec) -> str:
    """The name of the pool that the job needs."""
    direction = f"{spec.pair.src.lower()}:{spec.pair.tgt.lower()}"
    return direction if spec.require_tts else f"text:{direction}"
