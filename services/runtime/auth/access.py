"""The roles that may call each method if auth is on. Methods not in the table are refused."""

from lingua_scheduler.services.runtime.auth.principals import Role

_PACKAGE = "lingua_scheduler.v1"
_CLIENT = frozenset({Role.CLIENT})
_NODE = frozenset({Role.NODE})
_SERVICE = frozenset({Role.SERVICE})
_OPERATOR = frozenset({Role.OPERATOR})
# Viewers see what operators see, and change nothing.
_VIEWERS = frozenset({Role.OPERATOR, Role.VIEWER})

# The handler checks the token of the room, which is in the message or is the caller's own.
_MEMBERS = frozenset({Role.CLIENT, Role.MEMBER})

# Probes have no token, and learn only whether a service is serving.
_OPEN_TO_ALL = "grpc.health.v1.Health/"

# If a client may call a method, the handler restricts it to its own tenant.
ROLES: dict[str, frozenset[Role]] = {
    f"{_PACKAGE}.SessionGateway/Converse": _MEMBERS,
    f"{_PACKAGE}.SessionGateway/GetSession": _VIEWERS | _CLIENT,
    f"{_PACKAGE}.SessionGateway/ListSessions": _VIEWERS | _CLIENT,
    f"{_PACKAGE}.SessionGateway/CreateRoom": _CLIENT | _OPERATOR,
    f"{_PACKAGE}.SessionGateway/CreateJoinToken": _MEMBERS | _OPERATOR,
    f"{_PACKAGE}.SessionGateway/GetRoom": _MEMBERS | _VIEWERS,
    f"{_PACKAGE}.SessionGateway/ListRooms": _VIEWERS,
    f"{_PACKAGE}.SessionGateway/ListMembers": _MEMBERS | _VIEWERS,
    f"{_PACKAGE}.SessionGateway/CloseRoom": _MEMBERS | _OPERATOR,
    f"{_PACKAGE}.SessionGateway/Listen": _MEMBERS,
    f"{_PACKAGE}.Dispatcher/Connect": _NODE,
    f"{_PACKAGE}.Dispatcher/Submit": _SERVICE,
    f"{_PACKAGE}.Dispatcher/Relay": _SERVICE,
    f"{_PACKAGE}.Dispatcher/Dispatch": _SERVICE | _CLIENT,
    # A dispatcher asks the home of a job on behalf of an operator.
    f"{_PACKAGE}.Dispatcher/GetJob": _VIEWERS | _SERVICE | _CLIENT,
    f"{_PACKAGE}.Dispatcher/ListJobs": _VIEWERS | _SERVICE,
    f"{_PACKAGE}.Dispatcher/ListJobChanges": _VIEWERS,
    f"{_PACKAGE}.Dispatcher/CancelJob": _OPERATOR | _SERVICE,
    f"{_PACKAGE}.PoolService/Operate": _SERVICE,
    f"{_PACKAGE}.PoolService/RegisterNode": _SERVICE,
    f"{_PACKAGE}.PoolService/Heartbeat": _SERVICE,
    f"{_PACKAGE}.PoolService/Allocate": _SERVICE,
    f"{_PACKAGE}.PoolService/Reserve": _SERVICE,
    f"{_PACKAGE}.PoolService/Commit": _SERVICE,
    f"{_PACKAGE}.PoolService/Release": _SERVICE,
    f"{_PACKAGE}.PoolService/Complete": _SERVICE,
    f"{_PACKAGE}.PoolService/EndJob": _SERVICE,
    f"{_PACKAGE}.PoolService/BindSession": _SERVICE,
    f"{_PACKAGE}.PoolService/ClearSession": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/SelectNode": _SERVICE | _VIEWERS,
    f"{_PACKAGE}.PoolService/SetNodeHealth": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/RemoveNode": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/GetNode": _SERVICE | _VIEWERS,
    f"{_PACKAGE}.PoolService/ListNodes": _SERVICE | _VIEWERS,
    f"{_PACKAGE}.PoolService/ListPools": _SERVICE | _VIEWERS,
    f"{_PACKAGE}.PoolService/WatchFleet": _VIEWERS,
    f"{_PACKAGE}.PoolService/ListInstances": _VIEWERS,
    f"{_PACKAGE}.PoolService/ListCells": _VIEWERS,
    f"{_PACKAGE}.PoolService/SetCellState": _OPERATOR,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _OPERATOR,
}


def is_open(method: str) -> bool:
    """Whether anyone may call a method without authentication."""
    return method.startswith(_OPEN_TO_ALL)


def may_call(role: Role, method: str) -> bool:
    """Whether callers of this role may call `package.Service/Method`."""
    return role in ROLES.get(method, ())
