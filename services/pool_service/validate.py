"""Checks requests of the pool service, beyond the limits of their fields."""

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.runtime.contract.checks import Check
from lingua_scheduler.v1 import common_pb2, pool_pb2

_ENDS = (common_pb2.JOB_STATE_FAILED, common_pb2.JOB_STATE_CANCELLED)
_CELL_STATES = (pool_pb2.CELL_STATE_READY, pool_pb2.CELL_STATE_DRAINING)
_OPERATORS = (common_pb2.NODE_HEALTH_READY, common_pb2.NODE_HEALTH_DRAINING)


def set_node_health(request: pool_pb2.SetNodeHealthRequest) -> None:
    """Checks a change of health."""
    if request.by_operator:
        check = Check()
        check.one_of("health", request.health, _OPERATORS, "READY or DRAINING from an operator")
        check.done()


def set_cell_state(request: pool_pb2.SetCellStateRequest) -> None:
    """Checks a change of the state of a cell."""
    check = Check()
    check.one_of("state", request.state, _CELL_STATES, "READY or DRAINING")
    check.done()


def criteria(criteria: pool_pb2.NodeCriteria) -> None:
    """Checks the requirements for a node."""
    if criteria.strict and not criteria.preferred_node_id:
        check = Check("criteria.")
        check.preference(criteria.preferred_node_id, criteria.strict)
        check.done()


def complete(request: pool_pb2.CompleteRequest) -> None:
    """Checks the end of an attempt."""
    if request.outcome == pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED and request.final_state:
        check = Check()
        check.no("final_state", "must be unspecified if the outcome is SUCCEEDED")
        check.done()
    final_state(request.final_state)


def final_state(state: int) -> None:
    """Checks the final state of a job."""
    if state not in codes.FINAL_STATES:
        check = Check()
        check.one_of("final_state", state, codes.FINAL_STATES, "FAILED, CANCELLED or unspecified")
        check.done()


def end_job(request: pool_pb2.EndJobRequest) -> None:
    """Checks the end of a job."""
    check = Check()
    check.one_of("state", request.state, _ENDS, "FAILED or CANCELLED")
    if request.may_begin_anew and request.state == common_pb2.JOB_STATE_CANCELLED:
        check.no("may_begin_anew", "must not be set for a job that was cancelled")
    check.done()


def bind(request: pool_pb2.BindSessionRequest) -> None:
    """Checks that a binding names its turn: by an attempt, or by session and direction."""
    if request.HasField("attempt"):
        return
    check = Check()
    if not request.session_id:
        check.no("session_id", "must not be empty, unless attempt is set")
    if not request.HasField("pair"):
        check.no("pair", "is required, unless attempt is set")
    check.done()
