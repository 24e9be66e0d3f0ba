"""Every method and every role: who may call gets past auth, all others do not."""

import asyncio
import contextlib
import importlib
import pkgutil

import grpc
import pytest

from lingua_scheduler import v1
from lingua_scheduler.services.runtime.auth import access
from lingua_scheduler.services.runtime.auth.room_tokens import RoomTokenRole, new_secret, sign
from tests.security.conftest import Services
from tests.security.issuer import ROLES, Issuer, Metadata, bearer

_WITHIN_S = 10.0
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

# Said once more than in the table of the services, so that no slip there goes unnoticed.
EXPECTED = {
    "SessionGateway": {
        "client member": "Converse Listen",
        "client operator viewer": "GetSession ListSessions",
        "client operator": "CreateRoom",
        "client member operator": "CreateJoinToken CloseRoom",
        "client member operator viewer": "GetRoom ListMembers",
        "operator viewer": "ListRooms",
    },
    "Dispatcher": {
        "node": "Connect",
        "service": "Submit Relay",
        "client service": "Dispatch",
        "client operator service viewer": "GetJob",
        "operator service": "CancelJob",
        "operator service viewer": "ListJobs",
        "operator viewer": "ListJobChanges",
    },
    "PoolService": {
        "service": "Operate RegisterNode Heartbeat Allocate Reserve Commit Release Complete "
        "EndJob BindSession",
        "operator service": "SetNodeHealth RemoveNode ClearSession",
        "operator service viewer": "SelectNode GetNode ListNodes ListPools",
        "operator viewer": "WatchFleet ListInstances ListCells",
        "operator": "SetCellState",
    },
}
ALLOWED = {
    f"/lingua_scheduler.v1.{service}/{method}": set(roles.split())
    for service, by_roles in EXPECTED.items()
    for roles, methods in by_roles.items()
    for method in methods.split()
} | {_REFLECTION: {"operator"}}


# The token of a room that is not there: handlers check that, after they have read the request.
MEMBER = bearer(sign("no-such-room", new_secret(), RoomTokenRole.HOST))


def described() -> dict[str, bool]:
    """Every method that a .proto of this project describes, and whether it is a stream."""
    found = {}
    for module in pkgutil.iter_modules(v1.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"{v1.__name__}.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                for method in service.methods:
                    path = f"/{service.full_name}/{method.name}"
                    assert method.client_streaming == method.server_streaming, path
                    found[path] = method.client_streaming
    return found


METHODS = described() | {_REFLECTION: True}


async def code_of(
    address: str, method: str, metadata: Metadata = (), request: bytes = b""
) -> grpc.StatusCode:
    """How a call ends that says next to nothing."""
    async with grpc.aio.insecure_channel(address) as channel:
        if not METHODS.get(method, False):
            call = channel.unary_unary(method)(request, metadata=metadata, timeout=_WITHIN_S)
            return await call.code()
        stream = channel.stream_stream(method)(metadata=metadata, timeout=_WITHIN_S)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.done_writing()
            # The status comes after all else.
            async for _ in stream:
                pass
        return await stream.code()


def test_every_method_of_every_proto_is_in_the_table_and_nothing_else() -> None:
    assert {f"/{method}" for method in access.ROLES} == set(METHODS)
    assert set(ALLOWED) == set(METHODS)


@pytest.mark.parametrize("method", sorted(METHODS))
async def test_only_the_roles_of_a_method_get_past_auth(
    services: Services, issuer: Issuer, method: str
) -> None:
    address = services.serving(method).address
    for role in (*ROLES, "member"):
        metadata = MEMBER if role == "member" else issuer.metadata(role)
        code = await code_of(address, method, metadata)
        if role in ALLOWED[method]:
            refusals = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            assert code not in (*refusals, grpc.StatusCode.DEADLINE_EXCEEDED), role
        else:
            assert code is grpc.StatusCode.PERMISSION_DENIED, role


@pytest.mark.parametrize("method", sorted(METHODS))
async def test_nobody_gets_past_auth_without_a_token(services: Services, method: str) -> None:
    code = await code_of(services.serving(method).address, method)
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_what_a_stranger_sends_is_not_even_looked_at(
    services: Services, issuer: Issuer
) -> None:
    method, address = "/lingua_scheduler.v1.PoolService/GetNode", services.pool.address
    no_message = b"\xff\xff\xff"
    assert await code_of(address, method, (), no_message) is grpc.StatusCode.UNAUTHENTICATED
    foreign = issuer.metadata("client")
    assert await code_of(address, method, foreign, no_message) is grpc.StatusCode.PERMISSION_DENIED
    own = issuer.metadata("operator")
    assert await code_of(address, method, own, no_message) is grpc.StatusCode.INVALID_ARGUMENT


async def test_health_is_open_to_all_and_a_bad_token_does_no_harm_there(services: Services) -> None:
    method = "/grpc.health.v1.Health/Check"
    for process in services.all():
        for metadata in ((), (("authorization", "Bearer x.y.z"),)):
            assert await code_of(process.address, method, metadata) is grpc.StatusCode.OK


async def test_refused_calls_are_counted_by_reason(services: Services, issuer: Issuer) -> None:
    name, pool = "lingua_auth_refused_total", services.pool
    before = {
        reason: await pool.metric(name, reason=reason)
        for reason in ("unauthenticated", "permission_denied")
    }
    method = "/lingua_scheduler.v1.PoolService/ListNodes"
    await code_of(pool.address, method)
    await code_of(pool.address, method, issuer.metadata("node"))
    for reason, count in before.items():
        assert await pool.metric(name, reason=reason) == count + 1
