"""The limits that the contract declares: every field has one, and every violation is found."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.audio import MAX_CHUNK_BYTES, MAX_CHUNKS
from lingua_scheduler.services.runtime.contract.limits import is_map, limit_of
from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, session_pb2
from tests.robustness.fuzz.limits import beyond, least

SERVICES = (session_pb2, dispatcher_pb2, pool_pb2)
REQUESTS = {
    method.input_type.full_name: method.input_type
    for module in SERVICES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
# What is checked entry by entry on a stream.
APART = [
    field.message_type
    for request in REQUESTS.values()
    for field in request.fields
    if limit_of(field).apart and field.message_type.name != "RelayOrder"
]
# Between dispatchers, which have checked what they pass on: the node's stream, and Submit.
PASSED_ON = {"lingua_scheduler.v1.RelayOrder"}

ISO = "an ISO 639 language code such as 'en', 'pt-br' or 'zh-hant'"


def reachable(kind: Descriptor, found: dict[str, Descriptor]) -> dict[str, Descriptor]:
    """All message types that a request may contain."""
    if kind.full_name not in found and kind.full_name not in PASSED_ON:
        found[kind.full_name] = kind
        for field in kind.fields:
            # Of one that is limited as a whole, no part needs a limit of its own.
            if field.message_type is not None and not limit_of(field).max_bytes:
                reachable(field.message_type, found)
    return found


def fields() -> Iterator[FieldDescriptor]:
    found: dict[str, Descriptor] = {}
    for request in REQUESTS.values():
        reachable(request, found)
    for kind in found.values():
        if not kind.GetOptions().map_entry:
            yield from kind.fields


@pytest.mark.parametrize("field", list(fields()), ids=lambda field: field.full_name)
def test_every_field_of_every_request_declares_a_limit(field: FieldDescriptor) -> None:
    limit = limit_of(field)
    if limit.any_value:
        return
    if field.is_repeated:
        assert limit.max_items, "a list needs max_items"
    if is_map(field):
        assert limit.max_chars, "a map needs max_chars"
        assert limit.max_bytes, "a map needs max_bytes"
        return
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            assert limit.format or limit.max_chars or limit.max_bytes
        case FieldDescriptor.CPPTYPE_MESSAGE | FieldDescriptor.CPPTYPE_BOOL:
            pass  # their fields, or nothing
        case FieldDescriptor.CPPTYPE_ENUM:
            pass  # its values
        case _:
            assert limit.HasField("max"), "a number needs max"


@pytest.mark.parametrize("kind", [*REQUESTS.values(), *APART], ids=lambda kind: kind.name)
def test_a_message_that_exceeds_one_limit_is_refused_for_that_field(
    kind: Descriptor,
) -> None:
    assert limits.violations(least(kind)) == []
    for path, message in beyond(kind):
        named = [field for field, _ in limits.violations(message)]
        assert named, path
        assert all(field.startswith(path) for field in named), (path, named)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (common_pb2.LanguagePair(src="en"), {"tgt": "must not be empty"}),
        (
            common_pb2.LanguagePair(src="e n", tgt="x" * 99),
            {
                "src": f"'e n' must be {ISO}",
                "tgt": f"'{'x' * 40}...' must be {ISO}",
            },
        ),
        (
            common_pb2.AttemptRef(job_id="j", attempt=1001),
            {"attempt": "1001 must be from 1 to 1000"},
        ),
        (common_pb2.NodeLoad(cpu=float("nan")), {"cpu": "nan must be from 0 to 1"}),
        (
            dispatcher_pb2.Heartbeat(health=common_pb2.NODE_HEALTH_OFFLINE),
            {"health": "4 must be UNSPECIFIED, READY, DEGRADED or DRAINING"},
        ),
        (
            dispatcher_pb2.Texts(source="字" * 21_846),
            {"source": "has 65538 bytes; at most 65536 are allowed"},
        ),
        (
            session_pb2.SessionOptions(features={"a": "字" * 256, "b" * 257: ""}),
            {"features": "has 257 characters; at most 256 are allowed"},
        ),
        (
            session_pb2.SessionOptions(features={str(n): "字" * 250 for n in range(32)}),
            {"features": "has 24054 bytes in all; at most 16384 are allowed"},
        ),
        (
            pool_pb2.ClearSessionRequest(session_id="s"),
            {"pairs": "must not be empty"},
        ),
        (
            pool_pb2.ClearSessionRequest(
                session_id="s", pairs=[common_pb2.LanguagePair(src="en", tgt="?")]
            ),
            {"pairs[0].tgt": f"'?' must be {ISO}"},
        ),
        (
            # The required fields of a required message that is not there.
            dispatcher_pb2.DispatchRequest(),
            {
                "job.session_id": "must not be empty",
                "job.pair.src": "must not be empty",
                "job.pair.tgt": "must not be empty",
                "job.audio_format.encoding": "0 must be PCM_S16LE or OPUS",
                "job.audio_format.sample_rate_hz": "0 must be from 8000 to 48000",
                "job.audio_format.channels": "0 must be from 1 to 2",
            },
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_a_violation_names_the_value_and_what_is_allowed(
    message: Any, told: dict[str, str]
) -> None:
    assert dict(limits.violations(message)) == told


def test_a_message_with_a_size_limit_may_contain_anything() -> None:
    error = common_pb2.Error(
        reason=99,  # type: ignore[arg-type]
        message="x" * 1000,
        retry_after_ms=2**32 - 1,
        metadata={"drawn": "4"},
        field_violations=[common_pb2.FieldViolation(field="a", description="b")] * 50,
    )
    request = pool_pb2.EndJobRequest(
        job_id="j", home_instance="h", state=common_pb2.JOB_STATE_FAILED, error=error
    )
    assert limits.violations(request) == []
    error.message = "x" * 4096
    request.error.CopyFrom(error)
    assert [field for field, _ in limits.violations(request)] == ["error"]


def test_only_the_first_of_many_violations_are_named() -> None:
    bad = dispatcher_pb2.Hello(running=[common_pb2.AttemptRef()] * 400_000)
    named = limits.violations(bad, "hello.")
    assert len(named) == limits.MAX_NAMED
    with pytest.raises(
        InvalidMessageError, match=r"hello\.node_id: must not be empty.*and 15 more"
    ):
        limits.check(bad, "hello.")


def test_clients_are_told_the_limits_of_chunks_that_are_enforced() -> None:
    data = session_pb2.AudioChunk.DESCRIPTOR.fields_by_name["data"]
    assert limit_of(data).max_bytes == MAX_CHUNK_BYTES
    chunks = session_pb2.AudioChunks.DESCRIPTOR.fields_by_name["chunks"]
    assert limit_of(chunks).max_items == MAX_CHUNKS
