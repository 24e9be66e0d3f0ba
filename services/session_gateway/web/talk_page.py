"""The talk page and the room page: their files, and what they may do in a browser."""

from importlib.resources import files
from importlib.resources.abc import Traversable

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import variable_name
from lingua_scheduler.services.runtime.web.page_files import (
    BrokenPageError,
    PageFile,
    page_file,
    read_page,
)

_FOLDER = files("lingua_scheduler.services.session_gateway.web") / "page"
# Pages that have an address of their own besides that of their file.
_ADDRESSES = {"/page/room.html": "/room"}
# A page loads everything from this server, runs no inline code, and cannot be put into a frame.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; media-src 'self'; worker-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "microphone=(self)",
}


def page_files(folder: Traversable = _FOLDER) -> dict[str, PageFile]:
    """Reads the files of the pages, by the path of the request.

    Raises:
        SettingsError: they are not there, because the installation is broken.
    """
    try:
        found = read_page(folder)
    except BrokenPageError as error:
        raise SettingsError(
            f"the files of the talk page cannot be read: {error}; install lingua-scheduler again, "
            f"or set {variable_name('talk_page')}=no to do without the page"
        ) from error
    return {
        _ADDRESSES.get(path, path): page_file(path, body, _HEADERS) for path, body in found.items()
    }
