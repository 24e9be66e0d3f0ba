"""Which roles may call which method, once auth is on. What is not in the table is refused."""

from lingua_scheduler.services.runtime.auth.principals import Role

_PACKAGE = "lingua_scheduler.v1"
_CLIENT = frozenset({Role.CLIENT})
_NODE = frozenset({Role.NODE})
_SERVICE = frozenset({Role.SERVICE})
_OPERATOR = frozenset({Role.OPERATOR})

# Probes have no token, and learn nothing but whether a service serves.
_OPEN_TO_ALL = "grpc.health.v1.Health/"

# Where a client may call, the handler sees to it that it gets at its own tenant's only.
ROLES: dict[str, frozenset[Role]] = {
    f"{_PACKAGE}.SessionGateway/Converse": _CLIENT,
    f"{_PACKAGE}.SessionGateway/GetSession": _OPERATOR | _CLIENT,
    f"{_PACKAGE}.SessionGateway/ListSessions": _OPERATOR | _CLIENT,
    f"{_PACKAGE}.Dispatcher/Connect": _NODE,
    f"{_PACKAGE}.Dispatcher/Submit": _SERVICE,
    f"{_PACKAGE}.Dispatcher/Relay": _SERVICE,
    f"{_PACKAGE}.Dispatcher/Dispatch": _SERVICE | _CLIENT,
    # A service asks the home of a job on an operator's behalf.
    f"{_PACKAGE}.Dispatcher/GetJob": _OPERATOR | _SERVICE | _CLIENT,
    f"{_PACKAGE}.Dispatcher/ListJobs": _OPERATOR | _SERVICE,
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
    f"{_PACKAGE}.PoolService/SelectNode": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/SetNodeHealth": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/RemoveNode": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/GetNode": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/ListNodes": _SERVICE | _OPERATOR,
    f"{_PACKAGE}.PoolService/ListPools": _SERVICE | _OPERATOR,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _OPERATOR,
}


def is_open(method: str) -> bool:
    """Whether anyone may call it, also one who does not say who it is."""
    return method.startswith(_OPEN_TO_ALL)


def may_call(role: Role, method: str) -> bool:
    """Whether callers of this role may call `package.Service/Method`."""
    return role in ROLES.get(method, ())
