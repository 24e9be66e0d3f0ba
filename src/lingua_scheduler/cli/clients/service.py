"""Base of the service clients: connecting, calling, paging, and error messages."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Protocol, Self, TypeVar

import grpc

from lingua_scheduler.cli.failures import FAILED, NOT_FOUND, UNREACHABLE, USAGE, Failure
from lingua_scheduler.cli.options import Options
from lingua_scheduler.services.runtime.auth.own_token import OwnToken
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.errors import from_rpc_error, reason_name
from lingua_scheduler.services.runtime.rpc.channels import channel_target
from lingua_scheduler.services.runtime.settings.settings import load_settings, variable_name
from lingua_scheduler.v1 import common_pb2

_UNREACHABLE_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_REFUSED = (
    common_pb2.ERROR_REASON_UNAUTHENTICATED,
    common_pb2.ERROR_REASON_PERMISSION_DENIED,
)
# For ids that may be mistyped: the command that lists the existing ones.
_LISTED_BY = {
    common_pb2.ERROR_REASON_NODE_NOT_FOUND: "lingua nodes list",
    common_pb2.ERROR_REASON_JOB_NOT_FOUND: "lingua jobs list",
    common_pb2.ERROR_REASON_SESSION_NOT_FOUND: "lingua sessions list",
    common_pb2.ERROR_REASON_ROOM_NOT_FOUND: "lingua rooms list",
}

# Lifetime of tokens that a command signs for itself.
_TOKEN_S = 600.0
_OPERATOR = (
    f"Commands need a token with role operator: set {variable_name('token_file')} to a file with "
    f"one, or {variable_name('auth_secret_file')} to the secrets of the services"
)

# The largest page size that a request may have.
MAX_PAGE = 1000

Request = TypeVar("Request")
Response = TypeVar("Response")


class _PageRequest(Protocol):
    page_token: str
    page_size: int


class _Page(Protocol):
    next_page_token: str


PageRequest = TypeVar("PageRequest", bound=_PageRequest)
Page = TypeVar("Page", bound=_Page)
Row = TypeVar("Row")


class ServiceClient:
    """Calls one service. Methods of subclasses raise Failure if a call fails.

    Args:
        channel: to the service; whoever created it closes it.
        address: the service's address, for messages.
        timeout_s: time limit of each call.
        token: identifies the caller; None for an anonymous caller.
    """

    service: ClassVar[str]
    """Its name in options and settings: `pool` for --pool and LINGUA_POOL_ADDRESS."""
    words: ClassVar[str]
    """Its name in messages, without an article."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        address: str,
        timeout_s: float,
        token: OwnToken | None = None,
    ) -> None:
        self._channel = channel
        self._address = address
        self._timeout_s = timeout_s
        self._token = token

    @classmethod
    @contextmanager
    def opened(cls, options: Options) -> Iterator[Self]:
        """A client for the address from the options, or else from the settings."""
        settings = load_settings()
        address = options.addresses.get(cls.service) or getattr(settings, f"{cls.service}_address")
        token = OwnToken(settings, role=Role.OPERATOR, lifetime_s=_TOKEN_S)
        open_channel: Callable[[str], grpc.Channel] = options.connect or connect
        with open_channel(address) as channel:
            yield cls(channel, address=address, timeout_s=options.timeout_s, token=token)

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        *,
        or_token: str = "",
        may_call: str = _OPERATOR,
    ) -> Response:
        """Call the service.

        Args:
            method: of the stub.
            request: for the method.
            or_token: identifies the caller if there is no token for commands.
            may_call: who may call this, for the message if the service refuses the caller.
        """
        try:
            metadata = self._token.metadata() if self._token is not None else ()
            if or_token and not metadata:
                metadata = (("authorization", f"Bearer {or_token}"),)
            metadata += _trace_of_caller()
            return method(request, timeout=self._timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise self._failure(error, may_call) from error

    def _pages(
        self, method: "grpc.UnaryUnaryMultiCallable[PageRequest, Page]", request: PageRequest
    ) -> Iterator[Page]:
        """All pages; changes `request` between them."""
        while True:
            page = self._call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _newest(
        self,
        method: "grpc.UnaryUnaryMultiCallable[PageRequest, Page]",
        request: PageRequest,
        rows: Callable[[Page], Iterable[Row]],
        *,
        name: Callable[[Row], str],
        made_ms: Callable[[Row], int],
        limit: int,
    ) -> tuple[list[Row], bool]:
        """Up to `limit` rows, newest first, without duplicates, and whether there may be more."""
        found: dict[str, Row] = {}
        more = False
        request.page_size = min(limit, MAX_PAGE)
        for page in self._pages(method, request):
            found.update((name(row), row) for row in rows(page))
            if len(found) >= limit:
                more = len(found) > limit or bool(page.next_page_token)
                break
        return sorted(found.values(), key=made_ms, reverse=True)[:limit], more

    def _failure(self, error: grpc.RpcError, may_call: str) -> Failure:
        code: grpc.StatusCode = getattr(error, "code", lambda: grpc.StatusCode.UNKNOWN)()
        said = from_rpc_error(error)
        if said is None:
            return self._unsaid(code, str(getattr(error, "details", lambda: "")() or ""))
        if said.reason in _LISTED_BY:
            return not_found(said.reason, said.message)
        message, hint = said.message, ""
        if said.reason == common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN:
            message = (
                f"the {self.words} at {self._address} answers, but its Redis does not: {message}"
            )
            hint = "It recovers by itself when Redis is back"
        exit_code = FAILED
        if said.reason in _REFUSED:
            message, hint = f"the {self.words} at {self._address} refuses: {message}", may_call
            exit_code = USAGE
        elif code in _UNREACHABLE_CODES:
            exit_code = UNREACHABLE
        elif said.reason == common_pb2.ERROR_REASON_INVALID_MESSAGE:
            exit_code = USAGE
        return Failure(message, reason=reason_name(said.reason), exit_code=exit_code, hint=hint)

    def _unsaid(self, code: grpc.StatusCode, details: str) -> Failure:
        """A failure without error details from one of our services."""
        where = f"{variable_name(f'{self.service}_address')} or --{self.service}"
        how = f"Is it running? Start it with 'lingua up', or set {where}"
        if code is grpc.StatusCode.UNAVAILABLE:
            message = f"cannot reach the {self.words} at {self._address}: {gist(details)}"
            hint = how
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
            message = (
                f"no answer from the {self.words} at {self._address} within {self._timeout_s:g} s"
            )
            hint = f"{how}; --timeout allows more time"
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            message = f"the server at {self._address} is not a {self.words}, or has another version"
            hint = f"Set {where}"
        else:
            message = f"the call to {self._address} failed with {code.name}: {details}"
            hint = ""
        exit_code = UNREACHABLE if code in _UNREACHABLE_CODES else FAILED
        return Failure(message, reason=code.name, exit_code=exit_code, hint=hint)


def _trace_of_caller() -> tuple[tuple[str, str], ...]:
    """The caller's trace, which scripts pass in TRACEPARENT."""
    traceparent = os.environ.get("TRACEPARENT", "")
    is_one = re.fullmatch(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", traceparent)
    return (("traceparent", traceparent),) if is_one else ()


def connect(address: str) -> grpc.Channel:
    """A channel to a service of this project. It ignores HTTP proxies."""
    options = (("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1))
    target, settings = channel_target(address), load_settings()
    if not settings.tls_ca_file:
        return grpc.insecure_channel(target, options=options)
    # Not at the top: it takes as long to load as everything else.
    from lingua_scheduler.services.runtime.rpc.tls import ClientTls

    tls = ClientTls(settings)
    return grpc.secure_channel(target, tls.credentials(), options=(*options, *tls.options))


def not_found(reason: common_pb2.ErrorReason.ValueType, message: str) -> Failure:
    """A failure with exit code 4 that names the command which lists what exists."""
    return Failure(
        message,
        reason=reason_name(reason),
        exit_code=NOT_FOUND,
        hint=f"'{_LISTED_BY[reason]}' shows those that exist",
    )


def gist(details: str) -> str:
    """The essential part of gRPC's error details."""
    if tls := _tls_gist(details):
        return tls
    found = re.search(
        r"(connection refused|no route to host|network is unreachable)", details, re.I
    )
    if found:
        return found[1].lower()
    if re.search(r"\bdns\b|resolv|lookup", details, re.I):
        return "its host name cannot be resolved"
    return details or "no reason given"


def _tls_gist(details: str) -> str:
    """What is wrong with TLS; "" if the problem is something else."""
    if "WRONG_VERSION_NUMBER" in details:
        return "it does not use TLS, but LINGUA_TLS_CA_FILE is set, so the command does"
    refused = re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)", details)
    if refused:
        return (
            f"its certificate is not trusted ({refused[1]}); LINGUA_TLS_CA_FILE must hold the "
            "authority that issued it"
        )
    if "Hostname Verification" in details:
        return "its certificate is for another name; LINGUA_TLS_SERVER_NAME sets the expected name"
    if re.search(r"socket closed|connection reset", details, re.IGNORECASE):
        return (
            "it closed the connection; if it uses TLS, set LINGUA_TLS_CA_FILE, and if it requires "
            "a client certificate, LINGUA_TLS_CLIENT_CERT_FILE"
        )
    return ""
