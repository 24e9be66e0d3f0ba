"""The talk page: which files are served, and how.

All files are read once, at start. A request selects one of them by its whole path; no path of a
request is ever turned into a path of the file system.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import variable_name

_FOLDER = files("lingua_scheduler.services.session_gateway.web") / "page"
_INDEX = "/page/index.html"
# Files with other endings, such as notes on licences, are not served.
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# The page loads everything from this server, runs no inline code, and cannot be put into a frame.
_HEADERS = {
    # A browser asks whether its copy is current, so a new version shows up at once.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; media-src 'self'; worker-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageFile(NamedTuple):
    """A file as it is served."""

    body: bytes
    tag: str
    """The value of its ETag, without quotes: it changes with the body."""
    headers: Mapping[str, str]

    def response(self, request: web.BaseRequest) -> web.Response:
        """The file, or 304 if the client has it. aiohttp leaves out the body if it is for HEAD."""
        known = request.if_none_match or ()
        if any(each.value in (self.tag, "*") for each in known):
            return web.Response(status=304, headers=self.headers)
        return web.Response(body=self.body, headers=self.headers)


def page_files(folder: Traversable = _FOLDER) -> dict[str, PageFile]:
    """Reads the files of the page, by the path of the request.

    Raises:
        SettingsError: they are not there, because the installation is broken.
    """
    try:
        found = {path: _file(path, body) for path, body in _read(folder, "/page")}
    except OSError as error:
        raise _broken(f"{error.strerror or error}: {folder}") from error
    index = found.pop(_INDEX, None)
    if index is None or not index.body:
        raise _broken(f"there is no index.html in {folder}")
    return {"/": index, **found}


def _read(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        name = f"{path}/{each.name}"
        if each.is_dir():
            yield from _read(each, name)
        elif _ending(name) in _TYPES and not each.name.startswith("."):
            yield name, each.read_bytes()


def _file(path: str, body: bytes) -> PageFile:
    tag = hashlib.sha256(body).hexdigest()[:32]
    headers = {**_HEADERS, "Content-Type": _TYPES[_ending(path)], "ETag": f'"{tag}"'}
    return PageFile(body, tag, headers)


def _ending(path: str) -> str:
    return path.rpartition(".")[2]


def _broken(why: str) -> SettingsError:
    return SettingsError(
        f"the files of the talk page cannot be read: {why}; install lingua-scheduler again, or set "
        f"{variable_name('talk_page')}=no to do without the page"
    )
