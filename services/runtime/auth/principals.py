"""Who calls: what a token or a certificate says of a caller, for the handlers of calls."""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from lingua_scheduler.services.runtime.errors import PermissionDeniedError
from lingua_scheduler.v1 import common_pb2


class Role(StrEnum):
    """What a caller is; it decides which methods it may call."""

    CLIENT = "client"
    NODE = "node"
    SERVICE = "service"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller that has proved who it is."""

    role: Role
    # For logs.
    name: str = ""
    # Of a client.
    tenant: str = ""
    # Of a node: the one id that it may have, or the owner whose name its id begins with.
    node_id: str = ""
    owner: str = ""
    # Of a client whose token says what it may use.
    limits: common_pb2.TenantLimits | None = None
    # When that ends, in seconds since the epoch; None: with the connection.
    expires_s: float | None = None

    def may_be_node(self, node_id: str) -> bool:
        """Whether this caller may connect as that node."""
        if self.role is not Role.NODE:
            return False
        return node_id == self.node_id if self.node_id else node_id.startswith(f"{self.owner}.")


_caller: ContextVar[Principal | None] = ContextVar("caller", default=None)


def caller() -> Principal | None:
    """Who made the call that is being handled; None where auth is off."""
    return _caller.get()


def own_tenant() -> str:
    """The tenant that the caller is kept to; "" where it is kept to none, as with auth off."""
    who = _caller.get()
    return who.tenant if who is not None else ""


def node_owner() -> str:
    """The owner of the node that calls; "" if its token names the node itself, or with auth off."""
    who = _caller.get()
    return who.owner if who is not None else ""


def tenant_for(said: str, field: str) -> str:
    """The tenant that a call is for, of which the caller said this: a client's is always its own.

    Raises:
        PermissionDeniedError: a client named another one.
    """
    own = own_tenant()
    if own and said not in ("", own):
        problem = f"is not the tenant of the caller, which is {own!r}; leave it empty"
        raise PermissionDeniedError(f"{field}: {said!r} {problem}", fields=[(field, problem)])
    return own or said


def set_caller(principal: Principal) -> None:
    """Says who made the call that the current task handles."""
    _caller.set(principal)
