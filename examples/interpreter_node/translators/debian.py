"""Installs Apertium's programs, which are Debian packages."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from interpreter_node.engines import MissingPartError
from interpreter_node.translators.apertium import DIRECTIONS, install_command, is_installed

CONSENT = "INSTALL_DEBIAN_PACKAGES"
_TOLD = "GPL; at most 4 MB to fetch, or 15 with the libraries that it needs"


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


def get_apertium(
    environ: Mapping[str, str],
    say: Callable[[str], None],
    directions: Mapping[tuple[str, str], str] = DIRECTIONS,
    *,
    run: Callable[[Sequence[str]], int] = _run,
    is_there: Callable[[Mapping[tuple[str, str], str]], bool] = is_installed,
) -> None:
    """Install it if that was requested and needs no password.

    Raises:
        MissingPartError: it is not installed; the message has the command.
    """
    if is_there(directions):
        return
    install = install_command(directions)
    missing = MissingPartError(
        f"Apertium (translates; {_TOLD}) is not installed",
        f"{install} (as root, on Debian or Ubuntu; or {CONSENT}=yes, and it is done for you)",
    )
    if environ.get(CONSENT) != "yes" or shutil.which("apt-get") is None:
        raise missing
    # -n: never ask for a password.
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    say(f"Installing Apertium ({_TOLD}): {' '.join([*prefix, install])}")
    command = [*prefix, *install.split(), "--yes", "--quiet"]
    if run(command):
        run([*prefix, "apt-get", "update", "--quiet"])
        run(command)
    if not is_there(directions):
        raise missing
