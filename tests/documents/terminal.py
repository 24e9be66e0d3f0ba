"""A terminal of the reader of a tutorial: a shell, what is typed, and what is shown."""

import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

from tests.support.commands import WITHIN_S, becomes

# Evaluates what it is given, one block after the other, and tells the status of each: that of its
# last command that failed, or 0. Keys reach the shell as well, which must stay.
_SHELL = r"""
ulimit -c 0
trap : INT QUIT
while IFS= read -r -d '' block <&"$BLOCKS"; do
  status=0
  trap 'status=$?' ERR
  eval "$block" </dev/null
  trap - ERR
  printf '\036%s\036\n' "$status"
done
"""
_END = re.compile("\x1e(\\d+)\x1e\n")
KEYS = {"^C": signal.SIGINT, "^\\": signal.SIGQUIT}


class Terminal:
    """One shell, in which commands run one after the other.

    Args:
        folder: where it begins.
        environ: its variables.
        hidden: lines of output that the reader does not see.
    """

    def __init__(self, folder: Path, environ: dict[str, str], hidden: re.Pattern[str]) -> None:
        self._hidden = hidden
        self._output = ""
        # How much of the output was compared.
        self._seen = 0
        self._is_idle = True
        self._is_told = False
        read, write = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", _SHELL],
            cwd=folder,
            env={**environ, "BLOCKS": str(read)},
            pass_fds=[read],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        os.close(read)
        self._blocks = os.fdopen(write, "w")
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=[self._process.stdout], daemon=True)
        self._reader.start()

    def type(self, code: str) -> None:
        """Begins to run a block, as soon as the one before has ended well."""
        self.finish()
        self._is_idle, self._is_told, self._seen = False, False, len(self._output)
        self._blocks.write(f"{code}\0")
        self._blocks.flush()

    def expect(self, text: str, pattern: re.Pattern[str], *, more: bool) -> None:
        """Waits until what is shown next matches; `more` may follow until the command ends."""
        self._is_told = not more
        assert becomes(lambda: self._matches(pattern) or self._ended is not None), self._tell(text)
        found = self._matches(pattern)
        assert found, self._tell(text)
        self._seen += found

    def press(self, key: str) -> None:
        r"""Ctrl-C must end the command well; Ctrl-\\ ends it in any case."""
        assert self._ended is None, self._tell(f"something that runs, to press {key}")
        self._is_told = False
        os.killpg(self._process.pid, KEYS[key])
        assert becomes(lambda: self._ended is not None), self._tell(f"its end after {key}")
        if key == "^\\":
            self._is_idle, self._seen = True, len(self._output)

    def finish(self) -> None:
        """Waits until the command has ended, well and without a word that the page lacks."""
        if self._is_idle:
            return
        assert becomes(lambda: self._ended is not None), self._tell("its end")
        assert self._ended == 0, self._tell("a good end")
        rest = self._shown()
        assert not (self._is_told and rest), self._tell("nothing more")
        self._is_idle = True

    def close(self) -> None:
        """Ends the shell and all that it runs."""
        self._blocks.close()
        try:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(WITHIN_S)
        finally:
            self._reader.join(WITHIN_S)
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def _ended(self) -> int | None:
        """The status of the block that was typed last; None while it runs."""
        if found := _END.search(self._output, self._seen):
            return int(found[1])
        return -1 if self._process.poll() is not None else None

    def _shown(self) -> str:
        """What was shown and not compared yet, in whole lines."""
        rest = self._output[self._seen :]
        if found := _END.search(rest):
            rest = rest[: found.start()]
            rest += "\n" if rest and not rest.endswith("\n") else ""
        return rest[: rest.rfind("\n") + 1]

    def _matches(self, pattern: re.Pattern[str]) -> int:
        """How many characters of what is shown match from the beginning; all, if it has ended."""
        has_ended = self._ended is not None
        shown = self._shown()
        found = pattern.fullmatch(shown) if has_ended else pattern.match(shown)
        return found.end() if found else 0

    def _tell(self, expected: str) -> str:
        return f"expected:\n{expected}\nshown:\n{self._output[self._seen :]}"

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if not self._hidden.match(line):
                self._output += line
