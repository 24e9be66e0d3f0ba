"""Translation by Apertium: rules and dictionaries, no model.

Each direction is a chain of about ten programs, which are started once and kept running. A zero
byte ends each text (null flush).
"""

import contextlib
import os
import re
import select
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from interpreter_node.engines import MissingPartError

MODES = Path("/usr/share/apertium/modes")
# By the names of Debian's packages. Through Catalan (apertium-eng-cat and apertium-spa-cat) the
# sentences of bench/sentences came out worse.
DIRECTIONS = {("en", "es"): "eng-spa", ("es", "en"): "spa-eng"}
# The Debian package of each mode.
_PACKAGES = {
    "eng-spa": "apertium-eng-spa",
    "spa-eng": "apertium-eng-spa",
    "es-pt": "apertium-es-pt",
    "pt-es": "apertium-es-pt",
}
# A sentence takes about 5 ms; the first one, while the programs load, up to a second.
WITHIN_S = 20.0

# Characters with a meaning in Apertium's stream format.
_SPECIAL = re.compile(r"([\\^$/<>{}*@#+~\[\]])")
_ESCAPED = re.compile(r"\\(.)")
# Marks the end of the text; the programs pass it on.
_TEXT_END = "[]"


class Apertium:
    """A Translator.

    Args:
        directions: pairs of languages, and the name of the mode that translates them.
        modes: folder of the mode files.

    Raises:
        MissingPartError: Apertium or one of the modes is not installed.
    """

    def __init__(
        self,
        directions: Mapping[tuple[str, str], str] = DIRECTIONS,
        *,
        modes: Path = MODES,
        within_s: float = WITHIN_S,
    ) -> None:
        if not is_installed(directions, modes=modes):
            raise MissingPartError(
                f"Apertium with {' and '.join(directions.values())} (translates) is not installed",
                f"{install_command(directions)} (as root, on Debian or Ubuntu)",
            )
        self._chains = {
            pair: _Chain(modes / f"{name}.mode", within_s) for pair, name in directions.items()
        }

    def translate(self, text: str, src: str, tgt: str) -> str:
        """See Translator. Raises RuntimeError if the programs do not answer."""
        return polished(self._chains[src, tgt].put(text), tgt)

    def close(self) -> None:
        """End the programs. They also end with this process."""
        for chain in self._chains.values():
            chain.stop()


class _Chain:
    """The programs of one direction. One text at a time goes through them."""

    def __init__(self, mode: Path, within_s: float) -> None:
        self._mode = mode
        self._within_s = within_s
        self._lock = threading.Lock()
        self._programs: list[subprocess.Popen[bytes]] = []

    def put(self, text: str) -> str:
        with self._lock:
            if not self._programs or any(each.poll() is not None for each in self._programs):
                self.stop()
                self._programs = _start(commands(self._mode.read_text("utf-8")))
            try:
                return self._through(text)
            except (OSError, RuntimeError):
                # A partial answer would be mistaken for that of the next text.
                self.stop()
                raise

    def _through(self, text: str) -> str:
        into = cast(IO[bytes], self._programs[0].stdin)
        out = cast(IO[bytes], self._programs[-1].stdout)
        into.write(escaped(text).encode() + b"\0")
        into.flush()
        answer, deadline = b"", time.monotonic() + self._within_s
        while not answer.endswith(b"\0"):
            if not select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RuntimeError(f"Apertium's {self._mode.stem} took over {self._within_s:g} s")
            piece = os.read(out.fileno(), 65536)
            if not piece:
                raise RuntimeError(f"Apertium's {self._mode.stem} has ended")
            answer += piece
        return unescaped(answer[:-1].decode(errors="replace"))

    def stop(self) -> None:
        programs, self._programs = self._programs, []
        for each in programs:
            each.kill()
        for each in programs:
            each.wait()
            for pipe in (each.stdin, each.stdout):
                if pipe is not None:
                    # Data that was not flushed is lost.
                    with contextlib.suppress(OSError):
                        pipe.close()


def is_installed(
    directions: Mapping[tuple[str, str], str] = DIRECTIONS, *, modes: Path = MODES
) -> bool:
    """Whether the programs and all these modes are installed."""
    files = [modes / f"{name}.mode" for name in directions.values()]
    return shutil.which("lt-proc") is not None and all(file.is_file() for file in files)


def install_command(directions: Mapping[tuple[str, str], str] = DIRECTIONS) -> str:
    """The command that installs the programs and these modes."""
    packages = dict.fromkeys(_PACKAGES[name] for name in directions.values())
    return f"apt-get install --no-install-recommends apertium {' '.join(packages)}"


INSTALL = install_command()


def commands(mode: str) -> list[list[str]]:
    """The programs of a mode file, with null flush and without marks for unknown words."""
    line = mode.strip().replace("$1", "-n").replace("$2", "")
    found = [shlex.split(command) for command in line.split("|")]
    return [[program, "-z", *rest] for program, *rest in found]


def _start(chain: list[list[str]]) -> list["subprocess.Popen[bytes]"]:
    programs: list[subprocess.Popen[bytes]] = []
    before: int | IO[bytes] = subprocess.PIPE
    for command in chain:
        program = subprocess.Popen(
            command, stdin=before, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if not isinstance(before, int):
            # Only the next program may hold the pipe, or its end would not be seen.
            before.close()
        programs.append(program)
        before = cast(IO[bytes], program.stdout)
    return programs


def escaped(text: str) -> str:
    """Text escaped for Apertium's stream format."""
    return _SPECIAL.sub(r"\\\1", text.replace("\0", " ")) + _TEXT_END


def unescaped(answer: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPED.sub(r"\1", answer.replace(_TEXT_END, ""))


_MARK = re.compile(r"([.!?¿¡])")


def polished(text: str, language: str) -> str:
    """Remove double spaces, capitalise sentences, and add ¿ in Spanish."""
    text = re.sub(r"\s+([,.;:!?])", r"\1", " ".join(text.split()))
    if language == "es":
        text = _questions_opened(text)
    return re.sub(
        r"(^|[.!?]\s+)([¿¡]?)(\w)", lambda m: m[1] + m[2] + m[3].upper(), text, flags=re.UNICODE
    )


def _questions_opened(text: str) -> str:
    # Texts and the marks between them, in turn.
    pieces = _MARK.split(text)
    for at in range(0, len(pieces) - 1, 2):
        opened = at > 0 and pieces[at - 1] in "¿¡"
        said = pieces[at].lstrip()
        if pieces[at + 1] == "?" and said and not opened:
            pieces[at] = f"{pieces[at][: len(pieces[at]) - len(said)]}¿{said}"
    return "".join(pieces)
