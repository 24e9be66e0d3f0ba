"""The principal of a call: who makes it, by its token or certificate."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum

from lingua_scheduler.services.runtime.errors import PermissionDeniedError
from lingua_scheduler.v1 import common_pb2


class Role(StrEnum):
    """The kind of a caller, which decides what methods it may call."""

    CLIENT = "client"
    NODE = "node"
    SERVICE = "service"
    OPERATOR = "operator"
    VIEWER = "viewer"
    # Whoever holds a token of a room, and perhaps no other.
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller."""

    role: Role
    # For logs.
    name: str = ""
    # Of a client.
    tenant: str = ""
    # Of a node: its id, or the owner whose name its id begins with.
    node_id: str = ""
    owner: str = ""
    # Of a client whose token has limits.
    limits: common_pb2.TenantLimits | None = None
    # When its token expires, in seconds since the epoch; None if it has a certificate.
    expires_s: float | None = None
    # Of a member. It is not verified: only a gateway that has read the room can do that.
    room_token: str = field(default="", repr=False)

    def may_be_node(self, node_id: str) -> bool:
        """Whether this caller may connect as that node."""
        if self.role is not Role.NODE:
            return False
        return node_id == self.node_id if self.node_id else node_id.startswith(f"{self.owner}.")


_caller: ContextVar[Principal | None] = ContextVar("caller", default=None)


def caller() -> Principal | None:
    """The caller of the current call; None if auth is off."""
    return _caller.get()


def own_tenant() -> str:
    """The tenant of the caller; "" if it has none or auth is off."""
    who = _caller.get()
    return who.tenant if who is not None else ""


def node_owner() -> str:
    """The owner of the calling node; "" if its token names the node itself or auth is off."""
    who = _caller.get()
    return who.owner if who is not None else ""


def tenant_for(said: str, field: str) -> str:
    """The tenant that a request is for. A client may only name its own, or none.

    Raises:
        PermissionDeniedError: a client named another tenant, or the caller is a member of a room,
            which may use that room only.
    """
    who = _caller.get()
    if who is not None and who.role is Role.MEMBER:
        raise PermissionDeniedError("the token of a room is for that room only")
    own = own_tenant()
    if own and said not in ("", own):
        problem = f"is not the tenant of the caller, which is {own!r}; leave it empty"
        raise PermissionDeniedError(f"{field}: {said!r} {problem}", fields=[(field, problem)])
    return own or said


def set_caller(principal: Principal | None) -> None:
    """Sets the caller of the call that the current task handles; None if auth is off."""
    _caller.set(principal)
