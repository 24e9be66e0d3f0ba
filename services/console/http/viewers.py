"""Who makes a request: the token of a cookie or header, or a client certificate."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from lingua_scheduler.services.console.http.failed_sign_ins import FailedSignIns
from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.auth.principals import Principal, Role, set_caller
from lingua_scheduler.services.runtime.errors import (
    InvalidMessageError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from lingua_scheduler.services.runtime.web.connections import connection_of
from lingua_scheduler.services.runtime.web.credentials import WebCredentials
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal

COOKIE = "lingua_console"
# Browsers keep cookies of up to 4096 bytes, name and attributes included.
MAX_COOKIE_TOKEN_BYTES = 3500
# What tokens consist of. Decoders of base64 ignore other characters, but cookies cannot have them.
_TOKEN = re.compile(r"[A-Za-z0-9._-]+")
# What a CSRF token is derived with, so that it is of no use elsewhere.
_CSRF_LABEL = b"lingua-scheduler console csrf"
_MAY_LOOK = (Role.OPERATOR, Role.VIEWER)
# Sign-ins last as long as the token, but browsers need not keep a cookie for longer than this.
_MAX_AGE_S = 400 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who makes a request.

    Attributes:
        name: for people and logs.
        role: operator or viewer.
        token: its own, for actions; None if auth is off or it has a certificate only.
        may_act: whether the console lets it act; the services decide as well.
        is_ambient: whether its browser identifies it with every request, whichever page makes it.
        expires_s: when its token expires, in seconds since the epoch; None for never.
    """

    name: str
    role: Role
    token: str | None
    may_act: bool
    is_ambient: bool
    expires_s: float | None = None


class Viewers:
    """Finds out who makes a request, and signs in and out.

    Args:
        guard: knows callers; None if auth is off, and everyone is an operator.
        is_secure: whether browsers connect with TLS; they may do so through a proxy as well.
        clock: the time, in seconds of a monotonic clock.
    """

    def __init__(
        self, guard: Guard | None, *, is_secure: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guard = guard
        self._is_secure = is_secure
        self._failed = FailedSignIns(clock)
        # For those who have no token. It differs from process to process.
        self._csrf = secrets.token_hex(32)

    @property
    def has_auth(self) -> bool:
        """Whether viewers have to sign in."""
        return self._guard is not None

    def viewer(self, request: web.BaseRequest) -> Viewer:
        """Who makes a request.

        Raises:
            HttpRefusal: nobody who may look.
        """
        if self._guard is None:
            return Viewer("local", Role.OPERATOR, None, may_act=True, is_ambient=True)
        headers = request.headers.getall("Authorization", ())
        if len(headers) > 1:
            raise HttpRefusal.of(InvalidMessageError("more than one Authorization header"))
        if headers:
            scheme, _, token = headers[0].partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise _unauthenticated("the header Authorization contains no bearer token")
            return self._check(request, token.strip(), is_ambient=False)
        if cookie := _cookie(request):
            return self._admitted(self._guard, request, cookie, is_ambient=True)
        return self._admitted(self._guard, request, None, is_ambient=True)

    def is_still_valid(self, request: web.BaseRequest, viewer: Viewer) -> bool:
        """Whether the viewer who made a request may still look: keys may have changed."""
        if self._guard is None:
            return True
        try:
            self._admitted(self._guard, request, viewer.token, is_ambient=viewer.is_ambient)
        except HttpRefusal:
            return False
        return True

    def csrf(self, viewer: Viewer) -> str:
        """The value that requests of a viewer's page have to prove that they are its own.

        It follows from the token, so that every replica knows it.
        """
        if viewer.token is None:
            return self._csrf
        return hmac.new(viewer.token.encode(), _CSRF_LABEL, hashlib.sha256).hexdigest()

    def sign_in(self, request: web.BaseRequest, token: str) -> tuple[Viewer, web.Response]:
        """Checks a token, and makes the response that sets the cookie.

        Raises:
            HttpRefusal: the token is wrong or too long, or its holder may not look.
        """
        if self._guard is None:
            raise HttpRefusal(409, "AUTH_OFF", "auth is off: there is no need to sign in")
        if len(token) > MAX_COOKIE_TOKEN_BYTES:
            problem = f"has over {MAX_COOKIE_TOKEN_BYTES} bytes, more than a cookie can have"
            raise HttpRefusal.of(
                InvalidMessageError(f"the token {problem}", fields=[("token", problem)])
            )
        if not _TOKEN.fullmatch(token):
            raise _unauthenticated("the token is not valid: it has characters that tokens have not")
        viewer = self._check(request, token, is_ambient=True)
        max_age = _MAX_AGE_S
        if viewer.expires_s is not None:
            max_age = min(max_age, math.floor(viewer.expires_s - time.time()))
        return viewer, self._with_cookie(request, token, max(1, max_age))

    def sign_out(self, request: web.BaseRequest) -> web.Response:
        """The response that removes the cookie."""
        return self._with_cookie(request, "", 0)

    def _with_cookie(self, request: web.BaseRequest, value: str, max_age: int) -> web.Response:
        # The page knows its own address, also if a proxy terminates TLS. Origin was checked.
        is_secure = self._is_secure or request.headers.get("Origin", "").startswith("https://")
        response = web.Response(status=204)
        response.set_cookie(
            COOKIE,
            value,
            path="/",
            max_age=max_age,
            httponly=True,
            samesite="Strict",
            secure=is_secure,
        )
        return response

    def _check(self, request: web.BaseRequest, token: str, *, is_ambient: bool) -> Viewer:
        """Checks a token that was entered or sent by a program, and counts wrong ones.

        The token of a cookie is not counted: it was right when the cookie was set.
        """
        assert self._guard is not None
        address = connection_of(request).address
        if wait_s := self._failed.wait_s(address):
            raise HttpRefusal(
                429,
                "TOO_MANY_WRONG_TOKENS",
                "too many wrong tokens came from this address",
                retry_after_ms=math.ceil(wait_s * 1000),
            )
        try:
            return self._admitted(self._guard, request, token, is_ambient=is_ambient)
        except HttpRefusal as refusal:
            if refusal.status == 401:
                self._failed.add(address)
            raise

    def _admitted(
        self, guard: Guard, request: web.BaseRequest, token: str | None, *, is_ambient: bool
    ) -> Viewer:
        certificate = request.get_extra_info("peercert")
        credentials = WebCredentials(f"Bearer {token}" if token else None, certificate)
        try:
            principal = guard.authenticate(credentials)
        except UnauthenticatedError as error:
            raise HttpRefusal.of(error if token else _NOT_SIGNED_IN) from None
        set_caller(principal)
        if principal.role not in _MAY_LOOK:
            raise HttpRefusal.of(
                PermissionDeniedError(
                    f"a token of role {principal.role} cannot be used here: only operators and "
                    "viewers may look"
                )
            )
        return _viewer(principal, token, is_ambient=is_ambient)


_NOT_SIGNED_IN = UnauthenticatedError("not signed in")


def _viewer(principal: Principal, token: str | None, *, is_ambient: bool) -> Viewer:
    return Viewer(
        name=principal.name or _unnamed(token or ""),
        role=principal.role,
        token=token,
        # Whoever has a certificate only has nothing that the console could show to the services.
        may_act=principal.role is Role.OPERATOR and token is not None,
        is_ambient=is_ambient,
        expires_s=principal.expires_s,
    )


def _unnamed(token: str) -> str:
    """A name for the holder of a token without one, so that log lines can be told apart."""
    return f"unnamed-{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def _unauthenticated(message: str) -> HttpRefusal:
    return HttpRefusal.of(UnauthenticatedError(message))


def _cookie(request: web.BaseRequest) -> str:
    """The token in the cookie; empty if there is none."""
    for header in request.headers.getall("Cookie", ()):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return value
    return ""
