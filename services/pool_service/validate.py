"""Checks of the pool service's requests.

What every job asks for gets a glance first: a request that looks as nearly all do is right, and
only another one is checked field by field, so that each bad one can be named.
"""

import re

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.runtime.checks import ID, LANGUAGE, MAX_ATTEMPT, MAX_CAPACITY, Check
from lingua_scheduler.v1 import common_pb2, pool_pb2

_JOB_KEY_CHARS = 1024
_MAX_NMT_PAIRS = 16384
_MAX_EXCLUDED = 100
_MAX_BEATS = 5000
_MAX_STEPS_BYTES = 16 * 1024
_MAX_ERROR_BYTES = 4 * 1024
_MAX_CLEARED = 16
# A double holds whole numbers exactly up to here, and the store keeps epochs as doubles.
_MAX_EPOCH = 2**53
_REASONS = common_pb2.FinalizeReason.values()
# No id and no language has a blank in it, so these match only where each part is right by itself.
_ALLOCATION = re.compile(f"{ID} {LANGUAGE} {LANGUAGE}" + f" (?:{ID})?" * 5)
_ATTEMPT_ON_NODE = re.compile(f"{ID} {ID}")


def register_node(request: pool_pb2.RegisterNodeRequest) -> None:
    """Checks a registration."""
    check = Check()
    check.id("node_id", request.node_id)
    check.id("incarnation", request.incarnation)
    check.id("stream_id", request.stream_id)
    declared = request.capabilities
    check.languages("capabilities.asr_langs", declared.asr_langs)
    check.languages("capabilities.semantic_langs", declared.semantic_langs)
    check.languages("capabilities.tts_langs", declared.tts_langs, optional=True)
    check.at_most("capabilities.nmt_pairs", declared.nmt_pairs, _MAX_NMT_PAIRS)
    for at, pair in enumerate(declared.nmt_pairs[:_MAX_NMT_PAIRS]):
        check.pair(f"capabilities.nmt_pairs[{at}]", pair)
    check.stages("capabilities.stages", declared.stages)
    check.number("max_concurrent_jobs", request.max_concurrent_jobs, 1, MAX_CAPACITY)
    check.one_of("health", request.health, range(4), "READY, DEGRADED or DRAINING")
    check.load("load", request.load)
    check.id("owner_instance", request.owner_instance)
    check.text("owner_address", request.owner_address, 255)
    check.attempts("running", request.running)
    check.attempts("finished", request.finished)
    check.done()


def heartbeat(request: pool_pb2.HeartbeatRequest) -> None:
    """Checks a batch of heartbeats."""
    check = Check()
    check.at_most("beats", request.beats, _MAX_BEATS)
    for at, beat in enumerate(request.beats[:_MAX_BEATS]):
        check.entry("beats", at)
        check.id("node_id", beat.node_id)
        check.number("epoch", beat.epoch, 1, _MAX_EPOCH)
        check.one_of("health", beat.health, range(4), "READY, DEGRADED or DRAINING")
        check.load("load", beat.load)
        check.attempts("running", beat.running)
    check.done()


def set_node_health(request: pool_pb2.SetNodeHealthRequest) -> None:
    """Checks a change of health."""
    check = Check()
    check.id("node_id", request.node_id)
    check.number("epoch", request.epoch, 0, _MAX_EPOCH)
    if request.by_operator:
        wishes = (common_pb2.NODE_HEALTH_READY, common_pb2.NODE_HEALTH_DRAINING)
        check.one_of("health", request.health, wishes, "READY or DRAINING from an operator")
    else:
        check.one_of("health", request.health, range(1, 5), "a NodeHealth")
    check.done()


def remove_node(request: pool_pb2.RemoveNodeRequest) -> None:
    """Checks a removal."""
    check = Check()
    check.id("node_id", request.node_id)
    check.number("epoch", request.epoch, 0, _MAX_EPOCH)
    check.done()


def _criteria(check: Check, criteria: pool_pb2.NodeCriteria) -> None:
    check.pair("criteria.pair", criteria.pair)
    check.stages("criteria.required_stages", criteria.required_stages)
    check.at_most("criteria.exclude_node_ids", criteria.exclude_node_ids, _MAX_EXCLUDED)
    for at, node_id in enumerate(criteria.exclude_node_ids[:_MAX_EXCLUDED]):
        check.id(f"criteria.exclude_node_ids[{at}]", node_id)
    check.id("criteria.preferred_node_id", criteria.preferred_node_id, optional=True)
    if criteria.strict and not criteria.preferred_node_id:
        check.no("criteria.strict", "needs preferred_node_id")
    check.id("criteria.local_instance", criteria.local_instance, optional=True)


def select_node(request: pool_pb2.SelectNodeRequest) -> None:
    """Checks a selection."""
    check = Check()
    _criteria(check, request.criteria)
    check.id("tenant", request.tenant, optional=True)
    check.id("session_id", request.session_id, optional=True)
    check.done()


def allocate(request: pool_pb2.AllocateRequest) -> None:
    """Checks an allocation field by field."""
    check = Check()
    check.id("job_id", request.job_id)
    check.number("attempt", request.attempt, 1, MAX_ATTEMPT)
    _criteria(check, request.criteria)
    check.text("job_key", request.job_key, _JOB_KEY_CHARS)
    check.id("tenant", request.tenant, optional=True)
    check.id("session_id", request.session_id, optional=True)
    check.number("session_epoch", request.session_epoch, 0, _MAX_EPOCH)
    check.one_of("reason", request.reason, _REASONS, "a FinalizeReason")
    check.id("home_instance", request.home_instance, optional=True)
    check.done()


def is_usual_allocation(request: pool_pb2.AllocateRequest) -> bool:
    """Whether nothing in it is wrong, nor out of the ordinary; such a one needs no other check."""
    criteria = request.criteria
    pair = criteria.pair
    return (
        _ALLOCATION.fullmatch(
            f"{request.job_id} {pair.src} {pair.tgt} {request.tenant} {request.session_id}"
            f" {request.home_instance} {criteria.local_instance} {criteria.preferred_node_id}"
        )
        is not None
        and 1 <= request.attempt <= MAX_ATTEMPT
        and len(request.job_key) <= _JOB_KEY_CHARS
        and request.session_epoch <= _MAX_EPOCH
        and request.reason in _REASONS
        and not (criteria.strict or criteria.exclude_node_ids or criteria.required_stages)
    )


def _names_attempt(attempt: common_pb2.AttemptRef, node_id: str) -> bool:
    looks_right = _ATTEMPT_ON_NODE.fullmatch(f"{attempt.job_id} {node_id}")
    return looks_right is not None and 1 <= attempt.attempt <= MAX_ATTEMPT


def attempt_on_node(
    request: pool_pb2.ReserveRequest | pool_pb2.CommitRequest,
) -> None:
    """Checks a call about one attempt on one node."""
    if _names_attempt(request.attempt, request.node_id):
        return
    check = Check()
    check.attempt("attempt", request.attempt)
    check.id("node_id", request.node_id)
    check.done()


def release(request: pool_pb2.ReleaseRequest) -> None:
    """Checks a release."""
    check = Check()
    check.attempt("attempt", request.attempt)
    check.id("node_id", request.node_id)
    check.one_of("cause", request.cause, codes.RELEASE_FAULTS, "a ReleaseCause")
    _final_state(check, request.final_state)
    check.done()


def complete(request: pool_pb2.CompleteRequest) -> None:
    """Checks the end of an attempt."""
    if (
        request.outcome == pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED
        and not request.final_state
        and len(request.steps) <= _MAX_STEPS_BYTES
        and _names_attempt(request.attempt, request.node_id)
    ):
        return
    check = Check()
    check.attempt("attempt", request.attempt)
    check.id("node_id", request.node_id)
    check.one_of("outcome", request.outcome, codes.ATTEMPT_OUTCOMES, "an AttemptOutcome")
    if request.outcome == pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED and request.final_state:
        check.no("final_state", "must be unspecified where the outcome is SUCCEEDED")
    else:
        _final_state(check, request.final_state)
    _size(check, "steps", len(request.steps), _MAX_STEPS_BYTES)
    check.done()


def end_job(request: pool_pb2.EndJobRequest) -> None:
    """Checks the end of a job."""
    check = Check()
    check.id("job_id", request.job_id)
    check.id("home_instance", request.home_instance)
    ends = (common_pb2.JOB_STATE_FAILED, common_pb2.JOB_STATE_CANCELLED)
    check.one_of("state", request.state, ends, "FAILED or CANCELLED")
    if request.may_begin_anew and request.state == common_pb2.JOB_STATE_CANCELLED:
        check.no("may_begin_anew", "must not be set for a job that was cancelled")
    _size(check, "error", request.error.ByteSize(), _MAX_ERROR_BYTES)
    _size(check, "steps", len(request.steps), _MAX_STEPS_BYTES)
    check.text("job_key", request.job_key, _JOB_KEY_CHARS)
    check.id("tenant", request.tenant, optional=True)
    check.id("session_id", request.session_id, optional=True)
    if request.HasField("pair"):
        check.pair("pair", request.pair)
    check.one_of("reason", request.reason, _REASONS, "a FinalizeReason")
    check.done()


def _size(check: Check, field: str, size: int, most: int) -> None:
    if size > most:
        check.no(field, f"has {size} bytes; at most {most} are allowed")


def _final_state(check: Check, state: int) -> None:
    check.one_of("final_state", state, codes.FINAL_STATES, "FAILED, CANCELLED or unspecified")


def bind_session(request: pool_pb2.BindSessionRequest) -> None:
    """Checks a binding."""
    check = Check()
    check.id("tenant", request.tenant, optional=True)
    check.id("session_id", request.session_id)
    check.pair("pair", request.pair)
    check.one_of("kind", request.kind, codes.BINDING_NAMES, "TIMEOUT or MAX_DURATION")
    check.id("node_id", request.node_id)
    check.done()


def clear_session(request: pool_pb2.ClearSessionRequest) -> None:
    """Checks which bindings are to go."""
    check = Check()
    check.id("tenant", request.tenant, optional=True)
    check.id("session_id", request.session_id)
    if not request.pairs:
        check.no("pairs", "must name at least one direction")
    check.at_most("pairs", request.pairs, _MAX_CLEARED)
    for at, pair in enumerate(request.pairs[:_MAX_CLEARED]):
        check.pair(f"pairs[{at}]", pair)
    check.done()


def get_node(request: pool_pb2.GetNodeRequest) -> None:
    """Checks which node is asked for."""
    check = Check()
    check.id("node_id", request.node_id)
    check.done()


def list_nodes(request: pool_pb2.ListNodesRequest) -> None:
    """Checks a page of nodes."""
    check = Check()
    check.one_of("health", request.health, range(5), "a NodeHealth")
    if request.HasField("pair"):
        check.pair("pair", request.pair)
    check.number("page_size", request.page_size, 0, 1000)
    check.cursor("page_token", request.page_token)
    check.done()


def list_pools(request: pool_pb2.ListPoolsRequest) -> None:
    """Checks which pools are asked for."""
    check = Check()
    if request.src:
        check.language("src", request.src)
    if request.tgt and request.tgt != "*":
        check.language("tgt", request.tgt)
    check.done()
