"""What is at a path of the console. Pure."""

import re
from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

API = "/api/v1/"
HEALTH = "/healthz"
# Views of the page; some also show one of their things.
_DETAILED = frozenset({"nodes", "jobs", "sessions", "rooms"})
_VIEWS = _DETAILED | {"instances", "sign-in"}
_DOCUMENTS = _DETAILED | {"overview", "instances", "search"}
_ACTIONS = {
    "nodes": frozenset({"drain", "ready", "remove"}),
    "jobs": frozenset({"cancel"}),
    "rooms": frozenset({"close"}),
}
_MAX_ID_CHARS = 256
_ID = re.compile(r"[^\x00-\x1f\x7f/\\]+")


class Kind(Enum):
    """What a path is."""

    VIEW = auto()
    FILE = auto()
    HEALTH = auto()
    ME = auto()
    SIGN_IN = auto()
    SIGN_OUT = auto()
    DOCUMENT = auto()
    ACTION = auto()
    NOTHING = auto()


class Route(NamedTuple):
    """What a path is, and what it names.

    Attributes:
        kind: what it is.
        label: its name in metrics; there are few.
        path: of a document, as in `Documents.get`.
        target: of an action: the id of the node, job or room.
        action: its verb.
    """

    kind: Kind
    label: str
    path: str = ""
    target: str = ""
    action: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it serves."""
        if self.kind in (Kind.SIGN_IN, Kind.SIGN_OUT, Kind.ACTION):
            return ("POST",)
        if self.kind in (Kind.VIEW, Kind.FILE, Kind.HEALTH):
            return ("GET", "HEAD")
        return ("GET",)


_NOTHING = Route(Kind.NOTHING, "other")


def route_of(raw_path: str) -> Route:
    """What is at the path of a request, as it was sent and without its query."""
    if raw_path == HEALTH:
        return Route(Kind.HEALTH, HEALTH)
    if raw_path.startswith("/page/"):
        return Route(Kind.FILE, "page")
    if raw_path.startswith(API):
        return _api(raw_path.removeprefix(API).split("/"))
    return _view(raw_path.removeprefix("/").split("/")) if raw_path.startswith("/") else _NOTHING


def _view(parts: list[str]) -> Route:
    view = parts[0]
    if parts == [""]:
        return Route(Kind.VIEW, "page")
    if len(parts) == 1 and view in _VIEWS:
        return Route(Kind.VIEW, "page")
    if len(parts) == 2 and view in _DETAILED and _id(parts[1]):
        return Route(Kind.VIEW, "page")
    return _NOTHING


def _api(parts: list[str]) -> Route:
    first = parts[0]
    if len(parts) == 1:
        own = {"me": Kind.ME, "sign-in": Kind.SIGN_IN, "sign-out": Kind.SIGN_OUT}.get(first)
        if own is not None:
            return Route(own, API + first)
        return Route(Kind.DOCUMENT, API + first, first) if first in _DOCUMENTS else _NOTHING
    if first not in _DETAILED or not (target := _id(parts[1])):
        return _NOTHING
    if len(parts) == 2:
        return Route(Kind.DOCUMENT, f"{API}{first}/ID", f"{first}/{target}")
    if len(parts) == 3 and parts[2] in _ACTIONS.get(first, ()):
        label = f"{API}{first}/ID/{parts[2]}"
        return Route(Kind.ACTION, label, target=target, action=parts[2])
    return _NOTHING


def _id(part: str) -> str:
    """The id that a part of a path is; empty if it is none."""
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeError:
        return ""
    return text if len(text) <= _MAX_ID_CHARS and _ID.fullmatch(text) else ""
