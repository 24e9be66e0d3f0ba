"""Checks of requests: every bad field is named, with what is allowed, before anything changes."""

import re
from collections.abc import Collection, Sequence

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.v1 import common_pb2, pool_pb2

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")
_CURSOR = re.compile(r"[0-9]{1,20}")
_JOB_KEY_CHARS = 1024
_MAX_ATTEMPT = 1000
_MAX_CAPACITY = 1000
_MAX_LANGUAGES = 256
_MAX_NMT_PAIRS = 16384
_MAX_EXCLUDED = 100
# More than there are, so that repeats do no harm.
_MAX_STAGES = 100
_MAX_BEATS = 5000
_MAX_CLEARED = 16
# A double holds whole numbers exactly up to here, and the store keeps epochs as doubles.
_MAX_EPOCH = 2**53


class Check:
    """Collects what is wrong with a message, and raises it all at once."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []
        self._entry: tuple[str, int] | None = None

    def entry(self, field: str, at: int) -> None:
        """From here on, fields are those of an entry of a list. Costs nothing while all is well."""
        self._entry = (field, at)

    def no(self, field: str, problem: str) -> None:
        """Notes that a field is bad."""
        if self._entry:
            field = f"{self._entry[0]}[{self._entry[1]}].{field}"
        self._found.append((field, problem))

    def done(self) -> None:
        """Raises InvalidMessageError where a field was bad."""
        if self._found:
            listed = "; ".join(f"{field}: {problem}" for field, problem in self._found[:5])
            more = f" (and {len(self._found) - 5} more)" if len(self._found) > 5 else ""
            raise InvalidMessageError(listed + more, fields=self._found[:20])

    def id(self, field: str, value: str, *, optional: bool = False) -> None:
        """An id of 1 to 128 safe characters."""
        if not (value or optional):
            self.no(field, "must not be empty")
        elif value and not _ID.fullmatch(value):
            self.no(field, f"{_shown(value)} must be 1 to 128 characters of A-Z a-z 0-9 . _ -")

    def language(self, field: str, value: str) -> None:
        """A BCP 47 tag."""
        if not _LANGUAGE.fullmatch(value):
            self.no(field, f"{_shown(value)} must be a language code such as 'en' or 'zh-hant'")

    def languages(self, field: str, values: Sequence[str], *, optional: bool = False) -> None:
        """A list of language codes."""
        if not (values or optional):
            self.no(field, "must name at least one language")
        self.at_most(field, values, _MAX_LANGUAGES)
        for at, value in enumerate(values[:_MAX_LANGUAGES]):
            self.language(f"{field}[{at}]", value)

    def pair(self, field: str, pair: common_pb2.LanguagePair) -> None:
        """A direction."""
        self.language(f"{field}.src", pair.src)
        self.language(f"{field}.tgt", pair.tgt)

    def number(self, field: str, value: float, low: float, high: float) -> None:
        """A number in a range; what is not a number is in none."""
        if not low <= value <= high:
            self.no(field, f"{value:g} must be from {low:g} to {high:g}")

    def at_most(self, field: str, values: Collection[object], limit: int) -> None:
        """A list that is not too long."""
        if len(values) > limit:
            self.no(field, f"has {len(values)} entries; at most {limit} are allowed")

    def one_of(self, field: str, value: int, allowed: Collection[int], names: str) -> None:
        """An enum value that has a meaning here."""
        if value not in allowed:
            self.no(field, f"{value} must be {names}")

    def text(self, field: str, value: str, limit: int) -> None:
        """Free text that is not too long."""
        if len(value) > limit:
            self.no(field, f"has {len(value)} characters; at most {limit} are allowed")

    def attempt(self, field: str, attempt: common_pb2.AttemptRef) -> None:
        """A try at a job."""
        self.id(f"{field}.job_id", attempt.job_id)
        self.number(f"{field}.attempt", attempt.attempt, 1, _MAX_ATTEMPT)

    def attempts(self, field: str, attempts: Sequence[common_pb2.AttemptRef]) -> None:
        """What a node runs: no more than any node can."""
        self.at_most(field, attempts, _MAX_CAPACITY)
        for at, attempt in enumerate(attempts[:_MAX_CAPACITY]):
            self.attempt(f"{field}[{at}]", attempt)

    def stages(self, field: str, stages: Sequence[int]) -> None:
        """Stages that exist."""
        self.at_most(field, stages, _MAX_STAGES)
        for at, stage in enumerate(stages[:_MAX_STAGES]):
            self.one_of(f"{field}[{at}]", stage, range(1, 6), "a StageKind")

    def load(self, field: str, load: common_pb2.NodeLoad) -> None:
        """How busy a machine is."""
        self.number(f"{field}.cpu", load.cpu, 0, 1)
        self.number(f"{field}.gpu", load.gpu, 0, 1)

    def criteria(self, field: str, criteria: pool_pb2.NodeCriteria) -> None:
        """What a job asks of its node."""
        self.pair(f"{field}.pair", criteria.pair)
        self.stages(f"{field}.required_stages", criteria.required_stages)
        self.at_most(f"{field}.exclude_node_ids", criteria.exclude_node_ids, _MAX_EXCLUDED)
        for at, node_id in enumerate(criteria.exclude_node_ids[:_MAX_EXCLUDED]):
            self.id(f"{field}.exclude_node_ids[{at}]", node_id)
        self.id(f"{field}.preferred_node_id", criteria.preferred_node_id, optional=True)
        if criteria.strict and not criteria.preferred_node_id:
            self.no(f"{field}.strict", "needs preferred_node_id")
        self.id(f"{field}.local_instance", criteria.local_instance, optional=True)


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:40] + "...")


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
    check.number("max_concurrent_jobs", request.max_concurrent_jobs, 1, _MAX_CAPACITY)
    check.one_of("health", request.health, range(4), "READY, DEGRADED or DRAINING")
    check.load("load", request.load)
    check.id("owner_instance", request.owner_instance)
    check.text("owner_address", request.owner_address, 255)
    check.attempts("running", request.running)
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


def select_node(request: pool_pb2.SelectNodeRequest) -> None:
    """Checks a selection."""
    check = Check()
    check.criteria("criteria", request.criteria)
    check.id("session_id", request.session_id, optional=True)
    check.done()


def allocate(request: pool_pb2.AllocateRequest) -> None:
    """Checks an allocation."""
    check = Check()
    check.id("job_id", request.job_id)
    check.number("attempt", request.attempt, 1, _MAX_ATTEMPT)
    check.criteria("criteria", request.criteria)
    check.text("job_key", request.job_key, _JOB_KEY_CHARS)
    check.id("tenant", request.tenant, optional=True)
    check.id("session_id", request.session_id, optional=True)
    check.number("session_epoch", request.session_epoch, 0, _MAX_EPOCH)
    check.one_of("reason", request.reason, range(6), "a FinalizeReason")
    check.id("home_instance", request.home_instance, optional=True)
    check.done()


def attempt_on_node(
    request: pool_pb2.ReserveRequest | pool_pb2.CommitRequest,
) -> None:
    """Checks a call about one attempt on one node."""
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
    check = Check()
    check.attempt("attempt", request.attempt)
    check.id("node_id", request.node_id)
    check.one_of("outcome", request.outcome, codes.ATTEMPT_OUTCOMES, "an AttemptOutcome")
    if request.outcome == pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED and request.final_state:
        check.no("final_state", "must be unspecified where the outcome is SUCCEEDED")
    else:
        _final_state(check, request.final_state)
    check.done()


def _final_state(check: Check, state: int) -> None:
    check.one_of("final_state", state, codes.FINAL_STATES, "FAILED, CANCELLED or unspecified")


def bind_session(request: pool_pb2.BindSessionRequest) -> None:
    """Checks a binding."""
    check = Check()
    check.id("session_id", request.session_id)
    check.pair("pair", request.pair)
    check.one_of("kind", request.kind, codes.BINDING_NAMES, "TIMEOUT or MAX_DURATION")
    check.id("node_id", request.node_id)
    check.done()


def clear_session(request: pool_pb2.ClearSessionRequest) -> None:
    """Checks which bindings are to go."""
    check = Check()
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
    if request.page_token and not _is_cursor(request.page_token):
        check.no("page_token", f"{_shown(request.page_token)} is not from an earlier answer")
    check.done()


def _is_cursor(token: str) -> bool:
    """Whether Redis would take it: a number of 64 bits."""
    return bool(_CURSOR.fullmatch(token)) and int(token) < 2**64


def list_pools(request: pool_pb2.ListPoolsRequest) -> None:
    """Checks which pools are asked for."""
    check = Check()
    if request.src:
        check.language("src", request.src)
    if request.tgt and request.tgt != "*":
        check.language("tgt", request.tgt)
    check.done()
