"""Malformed and oversized requests: refused by name, and nothing was written."""

import copy
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message

from lingua_scheduler.v1 import common_pb2, instances_pb2, pool_pb2
from tests.support.pool_client import Pool, allocation, criteria, pair, ref, registration
from tests.support.rpc_errors import failure, reason

BAD_IDS = ("a b", "a:b", "{a}", "ä", "名", "a" * 129, "a\n", "a/b", "a\x00", "*", "🙂" * 50)
BAD_LANGUAGES = ("", "e", "english", "en_US", "en:zh", "*", "zh-", "en\n", "é", "en-" + "x" * 90)
BAD_ATTEMPTS = (0, 1001, 2**32 - 1)
TOO_LARGE_EPOCHS = (2**53 + 1, 2**64 - 1)
NO_LOADS = (math.nan, math.inf, -math.inf, -0.01, 1.01)

METHODS = {
    method.name: method
    for method in pool_pb2.DESCRIPTOR.services_by_name["PoolService"].methods
    if method.name not in ("Operate", "WatchFleet")
}


ON_NODE: dict[str, Any] = {"attempt": ref("j1"), "node_id": "n1"}
VALID: dict[str, Message] = {
    "RegisterNode": registration("n1"),
    "Heartbeat": pool_pb2.HeartbeatRequest(beats=[pool_pb2.NodeBeat(node_id="n1", epoch=1)]),
    "SetNodeHealth": pool_pb2.SetNodeHealthRequest(
        node_id="n1", health=common_pb2.NODE_HEALTH_READY
    ),
    "RemoveNode": pool_pb2.RemoveNodeRequest(node_id="n1"),
    "SelectNode": pool_pb2.SelectNodeRequest(criteria=criteria()),
    "Allocate": allocation("j1"),
    "Reserve": pool_pb2.ReserveRequest(**ON_NODE),
    "Commit": pool_pb2.CommitRequest(**ON_NODE),
    "Release": pool_pb2.ReleaseRequest(cause=pool_pb2.RELEASE_CAUSE_CANCELLED, **ON_NODE),
    "Complete": pool_pb2.CompleteRequest(outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED, **ON_NODE),
    "EndJob": pool_pb2.EndJobRequest(
        job_id="j1",
        home_instance="d1",
        state=common_pb2.JOB_STATE_FAILED,
        may_begin_anew=True,
        pair=pair("zh>en"),
    ),
    "BindSession": pool_pb2.BindSessionRequest(
        session_id="s1", pair=pair("zh>en"), kind=pool_pb2.BINDING_KIND_TIMEOUT, node_id="n1"
    ),
    "ClearSession": pool_pb2.ClearSessionRequest(session_id="s1", pairs=[pair("zh>en")]),
    "GetNode": pool_pb2.GetNodeRequest(node_id="n1"),
    "ListNodes": pool_pb2.ListNodesRequest(),
    "ListPools": pool_pb2.ListPoolsRequest(),
    "ListInstances": instances_pb2.ListInstancesRequest(),
    "ListCells": pool_pb2.ListCellsRequest(),
    "SetCellState": pool_pb2.SetCellStateRequest(state=pool_pb2.CELL_STATE_READY),
}
# Calls whose requests have no field that could be bad.
ALWAYS_VALID = {"ListInstances", "ListCells"}


def valid(rpc: str) -> Any:
    """A request that passes every check, to be spoiled."""
    return copy.deepcopy(VALID[rpc])


class Case(NamedTuple):
    """One way to spoil a valid request, and the field that must be named."""

    rpc: str
    field: str
    spoil: Callable[[Any], object]
    what: str


def put(path: str, value: object) -> Callable[[Any], None]:
    """Sets the field at a path; "[0]" is the first entry of a list, made where there is none."""

    def spoil(message: Any) -> None:
        *inner, last = path.split(".")
        for name in inner:
            at_first = name.endswith("[0]")
            message = getattr(message, name.removesuffix("[0]"))
            if at_first:
                message = message[0] if len(message) else message.add()
        if last.endswith("[0]"):
            entries = getattr(message, last.removesuffix("[0]"))
            entries[:] = [value, *entries[1:]]
        else:
            setattr(message, last, value)

    return spoil


def extend(path: str, values: list[Any]) -> Callable[[Any], None]:
    """Appends to the list at a path."""

    def spoil(message: Any) -> None:
        for name in path.split("."):
            message = getattr(message, name)
        message.extend(values)

    return spoil


def each(rpc: str, field: str, values: tuple[object, ...]) -> list[Case]:
    return [Case(rpc, field, put(field, value), ascii(value)[:24]) for value in values]


def ids(rpc: str, *fields: str, optional: bool = False) -> list[Case]:
    values = BAD_IDS if optional else ("", *BAD_IDS)
    return [case for field in fields for case in each(rpc, field, values)]


def languages(rpc: str, *fields: str) -> list[Case]:
    return [case for field in fields for case in each(rpc, field, BAD_LANGUAGES)]


def attempts(rpc: str, field: str = "attempt") -> list[Case]:
    return ids(rpc, f"{field}.job_id") + each(rpc, f"{field}.attempt", BAD_ATTEMPTS)


def runs(rpc: str, at: str) -> list[Case]:
    """What a node says it runs."""

    def lots(message: Any) -> None:
        if at:
            message = message.beats[0]
        message.running.extend(map(ref, map(str, range(1001))))

    cases = [Case(rpc, f"{at}running", lots, "1001 entries")]
    for field, values in (("job_id", ("", *BAD_IDS)), ("attempt", BAD_ATTEMPTS)):
        # An attempt that is right but for the field.
        for value in values:
            right = {"job_id": "j1", "attempt": 1, field: value}

            def wrong(message: Any, right: dict[str, Any] = right) -> None:
                message = message.beats[0] if at else message
                message.running.append(common_pb2.AttemptRef(**right))

            cases.append(Case(rpc, f"{at}running[0].{field}", wrong, ascii(value)[:24]))
    return cases


def wants(rpc: str) -> list[Case]:
    """The criteria of SelectNode and Allocate."""
    return [
        *languages(rpc, "criteria.pair.src", "criteria.pair.tgt"),
        *each(rpc, "criteria.required_stages[0]", (0, 6, -1)),
        Case(
            rpc,
            "criteria.required_stages",
            # The first hundred are right; what follows must be seen as well.
            extend("criteria.required_stages", [1] * 100 + [2**31 - 1]),
            "101 entries",
        ),
        *ids(rpc, "criteria.exclude_node_ids[0]"),
        Case(
            rpc,
            "criteria.exclude_node_ids",
            extend("criteria.exclude_node_ids", [f"n{i}" for i in range(101)]),
            "101 entries",
        ),
        *ids(rpc, "criteria.preferred_node_id", "criteria.local_instance", optional=True),
        Case(rpc, "criteria.strict", put("criteria.strict", True), "no preferred node"),
        Case(rpc, "criteria.pair.src", lambda message: message.ClearField("criteria"), "unset"),
        *ids(rpc, "session_id", optional=True),
    ]


def capabilities() -> list[Case]:
    """What a registration says that a node can do."""
    rpc, able = "RegisterNode", "capabilities"
    cases = []
    for name in ("asr_langs", "semantic_langs", "tts_langs"):
        field = f"{able}.{name}"
        cases += languages(rpc, f"{field}[0]")
        cases.append(Case(rpc, field, extend(field, ["en"] * 257), "258 entries"))
        if name != "tts_langs":

            def empty(message: Any, name: str = name) -> None:
                message.capabilities.ClearField(name)

            cases.append(Case(rpc, field, empty, "empty"))
    pairs = f"{able}.nmt_pairs"
    cases.append(Case(rpc, pairs, extend(pairs, [pair("zh>en")] * 16385), "16385 entries"))
    for side in ("src", "tgt"):
        for bad in BAD_LANGUAGES:
            right = {"src": "zh", "tgt": "en", side: bad}
            spoil = extend(pairs, [common_pb2.LanguagePair(**right)])
            cases.append(Case(rpc, f"{pairs}[0].{side}", spoil, ascii(bad)[:24]))
    stages = f"{able}.stages"
    cases += each(rpc, f"{stages}[0]", (0, 6, -1))
    cases.append(Case(rpc, stages, extend(stages, [5] * 100 + [2**31 - 1]), "101 entries"))
    return cases


CASES = [
    *ids("RegisterNode", "node_id", "incarnation", "stream_id", "owner_instance"),
    *capabilities(),
    *each("RegisterNode", "max_concurrent_jobs", (0, 1001, 2**32 - 1)),
    *each("RegisterNode", "health", (4, 5, -1)),
    *each("RegisterNode", "load.cpu", NO_LOADS),
    *each("RegisterNode", "load.gpu", NO_LOADS),
    *each("RegisterNode", "owner_address", ("a" * 256,)),
    *runs("RegisterNode", ""),
    *ids("Heartbeat", "beats[0].node_id"),
    *each("Heartbeat", "beats[0].epoch", (0, *TOO_LARGE_EPOCHS)),
    *each("Heartbeat", "beats[0].health", (4, 5, -1)),
    *each("Heartbeat", "beats[0].load.cpu", NO_LOADS),
    *each("Heartbeat", "beats[0].load.gpu", NO_LOADS),
    *runs("Heartbeat", "beats[0]."),
    Case(
        "Heartbeat",
        "beats",
        extend("beats", [pool_pb2.NodeBeat(node_id="n1", epoch=1)] * 5000),
        "5001 entries",
    ),
    Case(
        "Heartbeat",
        "beats[3].node_id",
        extend("beats", [pool_pb2.NodeBeat(node_id=name, epoch=1) for name in ("b", "c", "d e")]),
        "the fourth entry",
    ),
    *ids("SetNodeHealth", "node_id"),
    *each("SetNodeHealth", "epoch", TOO_LARGE_EPOCHS),
    *each("SetNodeHealth", "health", (0, 5, -1)),
    Case(
        "SetNodeHealth",
        "health",
        lambda message: (put("by_operator", True)(message), put("health", 4)(message)),
        "an operator's wish",
    ),
    *ids("RemoveNode", "node_id"),
    *each("RemoveNode", "epoch", TOO_LARGE_EPOCHS),
    *wants("SelectNode"),
    *wants("Allocate"),
    *ids("Allocate", "job_id"),
    *each("Allocate", "attempt", BAD_ATTEMPTS),
    *each("Allocate", "job_key", ("k" * 1025,)),
    *ids("Allocate", "tenant", "home_instance", optional=True),
    *each("Allocate", "session_epoch", TOO_LARGE_EPOCHS),
    *each("Allocate", "reason", (7, -1)),
    *attempts("Reserve"),
    *ids("Reserve", "node_id"),
    *attempts("Commit"),
    *ids("Commit", "node_id"),
    *attempts("Release"),
    *ids("Release", "node_id"),
    *each("Release", "cause", (0, 8, -1)),
    *each("Release", "final_state", (1, 5, 6, 7, 10, -1)),
    *attempts("Complete"),
    *ids("Complete", "node_id"),
    *each("Complete", "outcome", (0, 5, -1)),
    *each("Complete", "final_state", (1, 6, 8, 10, -1)),
    *ids("EndJob", "job_id", "home_instance"),
    *ids("EndJob", "tenant", "session_id", optional=True),
    *languages("EndJob", "pair.src", "pair.tgt"),
    *each("EndJob", "state", (0, 1, 6, 10, -1)),
    *each("EndJob", "reason", (7, -1)),
    *each("EndJob", "job_key", ("k" * 1025,)),
    *each("EndJob", "steps", (b"s" * (16 * 1024 + 1),)),
    Case("EndJob", "error", put("error.message", "e" * 4097), "4 KiB"),
    Case("EndJob", "may_begin_anew", put("state", common_pb2.JOB_STATE_CANCELLED), "cancelled"),
    *ids("BindSession", "session_id", "node_id"),
    *languages("BindSession", "pair.src", "pair.tgt"),
    *each("BindSession", "kind", (0, 3, -1)),
    *ids("ClearSession", "session_id"),
    *languages("ClearSession", "pairs[0].src", "pairs[0].tgt"),
    Case("ClearSession", "pairs", lambda message: message.ClearField("pairs"), "none"),
    Case("ClearSession", "pairs", extend("pairs", [pair("zh>en")] * 16), "17 entries"),
    *each("SetCellState", "number", (1, 1000)),
    *each("SetCellState", "state", (0, 1, 3, 4, -1)),
    *ids("GetNode", "node_id"),
    *each("ListNodes", "health", (5, -1)),
    *each("ListNodes", "page_size", (1001, 2**32 - 1)),
    *each("ListNodes", "page_token", ("x", "-1", "1.5", "٣", "9" * 20, "9" * 5000)),
    Case("ListNodes", "pair.tgt", lambda message: put("pair.src", "zh")(message), "half a pair"),
    # Unset, these two mean "any".
    *each("ListPools", "page_size", (1001, 2**32 - 1)),
    *each("ListPools", "page_token", ("x", "-1", "1.5", "٣", "9" * 20, "9" * 5000)),
    *(case for case in languages("ListPools", "src") if case.what != "''"),
    *(case for case in languages("ListPools", "tgt") if case.what not in ("''", "'*'")),
]
FIELDS: dict[tuple[str, str], list[Case]] = {}
for _case in CASES:
    FIELDS.setdefault((_case.rpc, _case.field), []).append(_case)


@pytest.mark.parametrize(("rpc", "field"), FIELDS)
async def test_a_bad_field_is_named_and_nothing_is_written(
    pool: Pool, rpc: str, field: str
) -> None:
    for case in FIELDS[rpc, field]:
        request = valid(rpc)
        case.spoil(request)
        code, why, said = await failure(getattr(pool.stub, rpc)(request))
        assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE"), case.what
        assert [it.field for it in said.field_violations] == [field] or (
            case.what in ("unset", "101 entries") and said.field_violations[0].field == field
        ), case.what
        assert said.field_violations[0].description
        assert field in said.message
    assert pool.keys() == set()


@pytest.mark.parametrize("rpc", METHODS)
async def test_the_request_that_the_others_spoil_is_valid(pool: Pool, rpc: str) -> None:
    call = getattr(pool.stub, rpc)(valid(rpc))
    # There is no node yet, which is not the request's fault.
    assert await call.code() in (
        grpc.StatusCode.OK,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
    )


def test_every_call_has_cases_of_its_own() -> None:
    assert {case.rpc for case in CASES} == METHODS.keys() - ALWAYS_VALID


OPERATIONS = {
    field.name: field.message_type.name.removesuffix("Request")
    for field in pool_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_the_stream_checks_the_same_fields_and_goes_on(pool: Pool, operation: str) -> None:
    rpc = OPERATIONS[operation]
    cases = [case for case in CASES if case.rpc == rpc][:200]
    call = pool.stub.Operate()
    for part in range(0, len(cases), 50):
        operations = []
        for number, case in enumerate(cases[part : part + 50]):
            request = valid(rpc)
            case.spoil(request)
            operations.append(pool_pb2.Operation(id=number, **{operation: request}))
        await call.write(pool_pb2.OperateRequest(operations=operations))
        answer = await call.read()
        for result in answer.results:
            case = cases[part + result.id]
            assert reason(result.error) == "INVALID_MESSAGE", case
            assert result.error.field_violations[0].field == case.field
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert pool.keys() == set()


async def test_all_bad_fields_are_named_at_once(pool: Pool) -> None:
    code, _, said = await failure(pool.stub.Allocate(pool_pb2.AllocateRequest(tenant="a b")))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert [it.field for it in said.field_violations] == [
        "job_id",
        "attempt",
        "criteria.pair.src",
        "criteria.pair.tgt",
        "tenant",
    ]


async def test_an_error_of_very_many_bad_fields_still_arrives(pool: Pool) -> None:
    spoiled = allocation("j1", wants=criteria(exclude_node_ids=["🙂" * 200] * 100))
    code, why, said = await failure(pool.stub.Allocate(spoiled))
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    assert said.field_violations[0].field == "criteria.exclude_node_ids[0]"


async def test_answers_too_large_for_one_message_still_arrive(pool: Pool) -> None:
    # Each error names twenty fields and shows what was in them: together more than a message.
    spoiled = criteria(exclude_node_ids=["🙂" * 41] * 20)
    operations = [
        pool_pb2.Operation(id=number, allocate=allocation(f"j{number}", wants=spoiled))
        for number in range(1000)
    ]
    call = pool.stub.Operate()
    await call.write(pool_pb2.OperateRequest(operations=operations))
    await call.done_writing()
    answered = [result.id async for answer in call for result in answer.results]
    assert sorted(answered) == list(range(1000))


async def still_serves(pool: Pool) -> None:
    assert pool.keys() == set()
    await pool.stub.ListPools(pool_pb2.ListPoolsRequest())


@pytest.mark.parametrize("rpc", ["RegisterNode", "Heartbeat", "Allocate", "GetNode"])
async def test_a_message_over_the_size_limit_is_refused_and_the_service_goes_on(
    pool: Pool, rpc: str
) -> None:
    request = valid(rpc)
    field = next(
        name
        for name in ("owner_address", "job_key", "node_id", "beats")
        if name in request.DESCRIPTOR.fields_by_name
    )
    if field == "beats":
        request.beats[0].node_id = "a" * 5_000_000
    else:
        setattr(request, field, "a" * 5_000_000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(pool.stub, rpc)(request)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    await still_serves(pool)


async def test_a_message_over_the_size_limit_ends_its_stream_only(pool: Pool) -> None:
    other, call = pool.stub.Operate(), pool.stub.Operate()
    await call.write(
        pool_pb2.OperateRequest(
            operations=[pool_pb2.Operation(id=1, allocate=allocation("a" * 5_000_000))]
        )
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    await other.write(pool_pb2.OperateRequest(operations=[pool_pb2.Operation(id=7)]))
    assert [result.id for result in (await other.read()).results] == [7]
    other.cancel()
    await still_serves(pool)


def raw(pool: Pool, rpc: str) -> Any:
    return pool.channel.unary_unary(f"/lingua_scheduler.v1.PoolService/{rpc}")


@pytest.mark.parametrize("rpc", METHODS)
async def test_bytes_that_are_no_message_are_refused_and_the_service_goes_on(
    pool: Pool, rpc: str
) -> None:
    for garbage in (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab"):
        code, why, _ = await failure(raw(pool, rpc)(garbage))
        assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    dice = random.Random(rpc)
    whole = valid(rpc).SerializeToString()
    for _ in range(40):
        # Noise, and a real message with some of its bytes changed.
        data = bytearray(dice.randbytes(dice.randrange(1, 60)) if dice.random() < 0.5 else whole)
        for _ in range(3 if data else 0):
            data[dice.randrange(len(data))] = dice.randrange(256)
        code = await raw(pool, rpc)(bytes(data)).code()
        assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), data
    pool.forget_all()
    await still_serves(pool)


@pytest.mark.parametrize("rpc", ["Operate", "WatchFleet"])
async def test_bytes_that_are_no_message_end_their_stream_only(pool: Pool, rpc: str) -> None:
    noise: Any = pool.channel.stream_stream(f"/lingua_scheduler.v1.PoolService/{rpc}")()
    await noise.write(b"\xff" * 50)

    async def read_to_the_end() -> None:
        # The status comes after what WatchFleet may have told before it read the noise.
        async for _ in noise:
            pass

    code, _, _ = await failure(read_to_the_end())
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    await still_serves(pool)


async def test_a_string_that_is_no_utf8_is_refused(pool: Pool) -> None:
    code, why, _ = await failure(raw(pool, "GetNode")(b"\x0a\x02\xc3\x28"))
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    await still_serves(pool)


async def test_fields_that_nobody_knows_are_passed_over(pool: Pool) -> None:
    later: Message = pool_pb2.ListPoolsRequest()
    # Field 99, as a later version of the contract may have it.
    answer = await raw(pool, "ListPools")(later.SerializeToString() + b"\x98\x06\x01")
    assert pool_pb2.ListPoolsResponse.FromString(answer) == pool_pb2.ListPoolsResponse()


async def test_a_method_that_does_not_exist_is_unimplemented(pool: Pool) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw(pool, "NoSuchMethod")(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
